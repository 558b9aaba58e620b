//! Lock order: from which locks were asked for while which others were held, circles in which
//! threads could wait for each other for ever.
//!
//! A circle is a deadlock that could happen if each of its orders can be made by another thread
//! while all the others are in between. So these are left out:
//!
//! - circles all of whose orders were made by one and the same thread: it does not wait for itself;
//! - circles around which a common lock was always held: no two threads are in one at a time;
//! - circles in which some lock is only ever held for reading and asked for reading.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kinlock_report::SEVERAL;

/// An order of two locks, as the table has it.
#[derive(Clone, Debug)]
pub struct Order {
    /// The serial numbers of the lock that was held, and of the one that was asked for.
    pub from: u32,
    pub to: u32,
    /// What thread made it; [`SEVERAL`].
    pub thread: u32,
    /// A bit for each way in which the locks were taken; see [`kinlock_report::Order::modes`].
    pub modes: u32,
    /// Locks that were also held, each time.
    pub gates: Vec<u32>,
    /// What tells orders of other locks made by the same code from this one's.
    pub code: [u32; 2],
}

/// Circles have at most so many locks. Longer ones are not looked for.
const LONGEST: usize = 8;
/// The search ends after so many steps.
const STEPS: usize = 2_000_000;

/// What the search has found.
#[derive(Debug, Default)]
pub struct Found {
    /// Each circle as indices of its orders, and how many circles the same code has made.
    pub circles: Vec<(Vec<usize>, usize)>,
    /// The search has ended before all was looked at.
    pub is_cut: bool,
}

/// Searches for circles, the shortest first.
pub fn circles(orders: &[Order]) -> Found {
    let mut next: HashMap<u32, Vec<usize>> = HashMap::new();
    for (at, order) in orders.iter().enumerate() {
        next.entry(order.from).or_default().push(at);
    }
    let mut search = Search {
        orders,
        next,
        steps: 0,
        by_code: BTreeMap::new(),
    };
    let nodes: BTreeSet<u32> = orders.iter().map(|order| order.from).collect();
    for length in 2..=LONGEST {
        for &node in &nodes {
            search.from(node, length, &mut Vec::new());
        }
    }
    let mut circles: Vec<_> = search.by_code.into_values().collect();
    circles.sort_by_key(|(circle, _)| (circle.len(), circle.clone()));
    Found {
        circles,
        is_cut: search.steps >= STEPS,
    }
}

struct Search<'a> {
    orders: &'a [Order],
    /// The orders from each lock.
    next: HashMap<u32, Vec<usize>>,
    steps: usize,
    /// The first circle that some code has made, and how many there are.
    by_code: BTreeMap<Vec<[u32; 2]>, (Vec<usize>, usize)>,
}

impl Search<'_> {
    /// Goes on from the end of a path to all circles of exactly this length. A circle begins at its
    /// lock with the lowest number, so that it is found once.
    fn from(&mut self, begin: u32, length: usize, path: &mut Vec<usize>) {
        let end = path.last().map_or(begin, |&at| self.orders[at].to);
        for at in self.next.get(&end).cloned().unwrap_or_default() {
            self.steps += 1;
            if self.steps >= STEPS {
                return;
            }
            let to = self.orders[at].to;
            let closes = to == begin;
            let is_new = to > begin && path.iter().all(|&at| self.orders[at].to != to);
            path.push(at);
            if closes && path.len() == length && could_deadlock(self.orders, path) {
                self.note(path);
            } else if is_new && path.len() < length {
                self.from(begin, length, path);
            }
            path.pop();
        }
    }

    fn note(&mut self, path: &[usize]) {
        let mut code: Vec<_> = path.iter().map(|&at| self.orders[at].code).collect();
        code.sort_unstable();
        let known = self.by_code.entry(code);
        known.or_insert_with(|| (path.to_vec(), 0)).1 += 1;
    }
}

/// Whether threads could wait for each other around a circle.
fn could_deadlock(orders: &[Order], path: &[usize]) -> bool {
    let all = || path.iter().map(|&at| &orders[at]);
    let first = &orders[path[0]];
    let is_one_threads = first.thread != SEVERAL && all().all(|o| o.thread == first.thread);
    let has_gate = first
        .gates
        .iter()
        .any(|gate| all().all(|o| o.gates.contains(gate)));
    !is_one_threads && !has_gate && waits_all_around(&all().map(|o| o.modes).collect::<Vec<_>>())
}

/// Whether the orders can be made in such ways that each waits for the next: a thread that reads
/// does not wait for one that reads.
fn waits_all_around(modes: &[u32]) -> bool {
    let ways = |modes: u32| (0..4_u32).filter(move |way| modes & 1 << way != 0);
    let reads = |way: u32| [way & 2 != 0, way & 1 != 0];
    ways(modes[0]).any(|first| {
        // In which ways the path so far can have asked for its last lock: for reading, or not.
        let mut asked = [false; 2];
        asked[usize::from(reads(first)[1])] = true;
        for &modes in &modes[1..] {
            let mut now = [false; 2];
            for [held, wanted] in ways(modes).map(reads) {
                let waits = asked[0] || asked[1] && !held;
                now[usize::from(wanted)] |= waits;
            }
            asked = now;
        }
        asked[0] || asked[1] && !reads(first)[0]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(from: u32, to: u32, thread: u32) -> Order {
        Order {
            from,
            to,
            thread,
            modes: 1,
            gates: Vec::new(),
            code: [from, to],
        }
    }

    fn count(orders: &[Order]) -> usize {
        circles(orders).circles.len()
    }

    #[test]
    fn a_circle_is_found_once_and_only_if_it_is_closed() {
        assert_eq!(count(&[order(1, 2, 1), order(2, 3, 2)]), 0);
        assert_eq!(count(&[order(1, 2, 1), order(2, 1, 2)]), 1);
        let three = [order(3, 1, 1), order(1, 2, 2), order(2, 3, 1)];
        assert_eq!(count(&three), 1);
        assert_eq!(circles(&three).circles[0].0.len(), 3);
        // A longer and a shorter one through the same locks.
        let both = [&three[..], &[order(2, 1, 1)]].concat();
        let found = circles(&both);
        let lengths: Vec<_> = found
            .circles
            .iter()
            .map(|(circle, _)| circle.len())
            .collect();
        assert_eq!((lengths, found.is_cut), (vec![2, 3], false));
    }

    #[test]
    fn one_thread_does_not_wait_for_itself() {
        assert_eq!(count(&[order(1, 2, 1), order(2, 1, 1)]), 0);
        assert_eq!(count(&[order(1, 2, 1), order(2, 1, SEVERAL)]), 1);
        assert_eq!(count(&[order(1, 2, SEVERAL), order(2, 1, SEVERAL)]), 1);
    }

    #[test]
    fn a_lock_that_is_held_around_a_circle_guards_it() {
        let with = |gates: &[u32], order: Order| Order {
            gates: gates.to_vec(),
            ..order
        };
        let [there, back] = [order(1, 2, 1), order(2, 1, 2)];
        let guarded = [with(&[7, 9], there.clone()), with(&[9], back.clone())];
        assert_eq!(count(&guarded), 0);
        assert_eq!(count(&[with(&[7], there), with(&[9], back)]), 1);
    }

    #[test]
    fn readers_do_not_wait_for_readers() {
        // Held for reading: 2; asked for reading: 1.
        let ways = |held: u32, asked: u32| 1 << (2 * held + asked);
        let circle = |there, back| {
            let with = |modes, order: Order| Order { modes, ..order };
            count(&[with(there, order(1, 2, 1)), with(back, order(2, 1, 2))])
        };
        assert_eq!(circle(ways(1, 1), ways(1, 1)), 0);
        assert_eq!(circle(ways(1, 0), ways(1, 0)), 1);
        assert_eq!(circle(ways(0, 1), ways(0, 1)), 1);
        // The first lock is only read, the second is written.
        assert_eq!(circle(ways(1, 0), ways(0, 1)), 0);
        assert_eq!(circle(ways(1, 0) | ways(0, 0), ways(0, 1)), 1);
        assert_eq!(circle(ways(1, 0), ways(0, 1) | ways(1, 0)), 1);
    }

    #[test]
    fn circles_of_the_same_code_are_one() {
        let of = |from, to, thread| Order {
            code: [5, 6],
            ..order(from, to, thread)
        };
        let found = circles(&[of(1, 2, 1), of(2, 1, 2), of(3, 4, 1), of(4, 3, 2)]);
        assert_eq!(found.circles, [(vec![0, 1], 2)]);
    }

    /// Every two of many locks in both orders: far more circles than can be looked at.
    #[test]
    fn the_search_ends() {
        let pairs = (0..60).flat_map(|from| (0..60).map(move |to| (from, to)));
        let orders: Vec<_> = pairs
            .filter(|(from, to)| from != to)
            .map(|(from, to)| order(from, to, SEVERAL))
            .collect();
        let found = circles(&orders);
        assert!(found.is_cut);
        assert!(found.circles.len() >= 60 * 59 / 2);
    }
}
