//! Lock order: finds circles in which threads could wait for each other forever, from which locks
//! were asked for while which others were held.
//!
//! A circle is a possible deadlock if each of its orders can be made by a different thread, all at
//! the same time. So these are left out:
//!
//! - circles that have fewer threads than orders, however the orders are assigned to the threads
//!   that made them: no thread is in two places at a time;
//! - circles in which two of these threads always held a common lock: they cannot be in the circle
//!   at the same time;
//! - circles in which some lock is only ever held for reading and asked for reading;
//! - longer circles through two locks that are a circle by themselves: only that one is reported.
//!
//! Threads that never run at the same time, since one starts the other or waits for its end, are
//! not treated differently: in another run they may meet.
//!
//! Few orders are part of a circle. The others, such as those of one lock that is taken between
//! many others, would use up the steps of the search, so they are dropped first.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use kinlock_report::MAKERS;

/// An order of two locks, as the table has it.
#[derive(Clone, Debug)]
pub struct Order {
    /// The serial numbers of the lock that was held, and of the one that was asked for.
    pub from: u32,
    pub to: u32,
    /// The threads that made it: all, or as many as the longest circle has.
    pub makers: Vec<Maker>,
    /// The code that made it: orders of different locks by the same code have the same value.
    pub code: [u32; 2],
}

/// How a thread made an order.
#[derive(Clone, Debug)]
pub struct Maker {
    pub thread: u32,
    /// A bit for each way in which the locks were taken; see [`kinlock_report::Maker::modes`].
    pub modes: u32,
    /// Other locks that the thread held each time.
    pub gates: Vec<u32>,
}

/// The most locks of a circle. Longer ones are not looked for.
const LONGEST: usize = MAKERS;
/// After this number of steps the search ends.
const STEPS: usize = 2_000_000;
/// The most circles that are kept, each from different code. Nobody reads more.
const KEPT: usize = 200;

#[derive(Debug, Default)]
pub struct Found {
    /// Each circle as indices of its orders, and how many circles the same code has made.
    pub circles: Vec<(Vec<usize>, usize)>,
    /// Whether the search ended before it was complete.
    pub is_cut: bool,
}

/// Searches for circles, the shortest first.
pub fn circles(orders: &[Order]) -> Found {
    let mut search = Search {
        orders,
        next: HashMap::new(),
        steps: 0,
        by_code: BTreeMap::new(),
        is_cut: false,
    };
    let inside = inside(orders);
    let told = search.of_two(&inside);
    for &at in inside.iter().filter(|at| !told.contains(at)) {
        search.next.entry(orders[at].from).or_default().push(at);
    }
    let nodes: BTreeSet<u32> = search.next.keys().copied().collect();
    for length in 3..=LONGEST {
        for &node in &nodes {
            search.from(node, length, &mut Vec::new());
        }
    }
    let mut circles: Vec<_> = search.by_code.into_values().collect();
    circles.sort_by_key(|(circle, _)| (circle.len(), circle.clone()));
    Found {
        circles,
        is_cut: search.is_cut,
    }
}

/// The orders that are part of any circle: those inside a strongly connected component.
fn inside(orders: &[Order]) -> Vec<usize> {
    let ends = orders.iter().flat_map(|order| [order.from, order.to]);
    let locks: Vec<u32> = ends.collect::<BTreeSet<_>>().into_iter().collect();
    let number = |lock: u32| locks.partition_point(|&other| other < lock);
    let mut next = vec![Vec::new(); locks.len()];
    for order in orders {
        next[number(order.from)].push(number(order.to));
    }
    let component = components(&next);
    let is_inside = |&at: &usize| {
        let Order { from, to, .. } = orders[at];
        from != to && component[number(from)] == component[number(to)]
    };
    (0..orders.len()).filter(is_inside).collect()
}

/// The number of the strongly connected component of each node (Tarjan 1972). It does without
/// recursion, since a path may be as long as the table.
fn components(next: &[Vec<usize>]) -> Vec<usize> {
    const NONE: usize = usize::MAX;
    let mut component = vec![NONE; next.len()];
    // When a node was found, and the earliest node on the path that can be reached from it.
    let (mut found, mut low) = (component.clone(), component.clone());
    let (mut time, mut open) = (0, Vec::new());
    for root in 0..next.len() {
        let mut path = match found[root] {
            NONE => vec![(root, 0)],
            _ => continue,
        };
        while let Some((node, at)) = path.last_mut() {
            let node = *node;
            if found[node] == NONE {
                (found[node], low[node]) = (time, time);
                time += 1;
                open.push(node);
            }
            if let Some(&to) = next[node].get(*at) {
                *at += 1;
                if found[to] == NONE {
                    path.push((to, 0));
                } else if component[to] == NONE {
                    low[node] = low[node].min(found[to]);
                }
                continue;
            }
            path.pop();
            if let Some(&(before, _)) = path.last() {
                low[before] = low[before].min(low[node]);
            }
            if low[node] == found[node] {
                let first = open.iter().rposition(|&other| other == node);
                for other in open.drain(first.unwrap_or(0)..) {
                    component[other] = node;
                }
            }
        }
    }
    component
}

struct Search<'a> {
    orders: &'a [Order],
    /// The orders from each lock.
    next: HashMap<u32, Vec<usize>>,
    steps: usize,
    /// For each code, the first circle that it has made, and how many there are.
    by_code: BTreeMap<Vec<[u32; 2]>, (Vec<usize>, usize)>,
    /// Whether the search was incomplete, or not all circles were kept.
    is_cut: bool,
}

impl Search<'_> {
    /// Finds all circles of two locks. Returns their orders.
    fn of_two(&mut self, inside: &[usize]) -> HashSet<usize> {
        let key = |at: usize| (self.orders[at].from, self.orders[at].to);
        let by_key: HashMap<_, _> = inside.iter().map(|&at| (key(at), at)).collect();
        let mut told = HashSet::new();
        for &at in inside {
            let Order { from, to, .. } = self.orders[at];
            let back = by_key.get(&(to, from)).filter(|_| from < to);
            let Some(path) = back.map(|&back| [at, back]) else {
                continue;
            };
            if self.could_deadlock(&path) {
                self.note(&path);
                told.extend(path);
            }
        }
        told
    }

    /// Extends a path to all circles of exactly this length. A circle begins at its lock with the
    /// lowest number, so that it is found once.
    fn from(&mut self, begin: u32, length: usize, path: &mut Vec<usize>) {
        let end = path.last().map_or(begin, |&at| self.orders[at].to);
        for at in self.next.get(&end).cloned().unwrap_or_default() {
            self.steps += 1;
            if self.steps >= STEPS || self.by_code.len() >= KEPT {
                self.is_cut = true;
                return;
            }
            let to = self.orders[at].to;
            let closes = to == begin;
            let is_new = to > begin && path.iter().all(|&at| self.orders[at].to != to);
            path.push(at);
            if closes && path.len() == length && self.could_deadlock(path) {
                self.note(path);
            } else if is_new && path.len() < length {
                self.from(begin, length, path);
            }
            path.pop();
        }
    }

    /// Whether threads could wait for each other around a circle.
    fn could_deadlock(&mut self, path: &[usize]) -> bool {
        let found = meet(self.orders, path, &mut Vec::new(), &mut self.steps);
        self.is_cut |= self.steps >= STEPS;
        found
    }

    fn note(&mut self, path: &[usize]) {
        let mut code: Vec<_> = path.iter().map(|&at| self.orders[at].code).collect();
        code.sort_unstable();
        if self.by_code.len() >= KEPT && !self.by_code.contains_key(&code) {
            self.is_cut = true;
            return;
        }
        let known = self.by_code.entry(code);
        known.or_insert_with(|| (path.to_vec(), 0)).1 += 1;
    }
}

/// Whether threads could wait for each other around a circle: whether there is a thread for each of
/// its orders, and no two of them exclude each other. `dealt`: the makers assigned to the first
/// orders. Counts its steps.
fn meet<'a>(
    orders: &'a [Order],
    path: &[usize],
    dealt: &mut Vec<&'a Maker>,
    steps: &mut usize,
) -> bool {
    let Some(&at) = path.get(dealt.len()) else {
        return waits_all_around(&dealt.iter().map(|maker| maker.modes).collect::<Vec<_>>());
    };
    let order = &orders[at];
    for maker in &order.makers {
        *steps += 1;
        let can_meet = dealt.iter().zip(path).all(|(other, &before)| {
            other.thread != maker.thread && !exclude((&orders[before], other), (order, maker))
        });
        if !can_meet {
            continue;
        }
        dealt.push(maker);
        if meet(orders, path, dealt, steps) {
            return true;
        }
        dealt.pop();
        if *steps >= STEPS {
            return false;
        }
    }
    false
}

/// Whether two threads always held a common lock, and not for reading.
fn exclude(one: (&Order, &Maker), other: (&Order, &Maker)) -> bool {
    let held = |(order, maker): (&Order, &Maker), lock: u32| {
        // In no way was the first lock held for reading.
        let is_first = order.from == lock && maker.modes & 0b1100 == 0;
        is_first || maker.gates.contains(&lock)
    };
    let locks = one.1.gates.iter().chain([&one.0.from]);
    locks
        .into_iter()
        .any(|&lock| held(one, lock) && held(other, lock))
}

/// Whether the orders can be made in such ways that each waits for the next: a reader does not wait
/// for a reader.
fn waits_all_around(modes: &[u32]) -> bool {
    let ways = |modes: u32| (0..4_u32).filter(move |way| modes & 1 << way != 0);
    let reads = |way: u32| [way & 2 != 0, way & 1 != 0];
    ways(modes[0]).any(|first| {
        // Whether the path so far can have asked for its last lock for writing, and for reading.
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

    /// Stands for as many threads as are noted.
    const SEVERAL: u32 = u32::MAX;

    fn by(thread: u32, gates: &[u32]) -> Maker {
        Maker {
            thread,
            modes: 1,
            gates: gates.to_vec(),
        }
    }

    fn order_of(from: u32, to: u32, makers: &[Maker]) -> Order {
        Order {
            from,
            to,
            makers: makers.to_vec(),
            code: [from, to],
        }
    }

    fn order(from: u32, to: u32, thread: u32) -> Order {
        match thread {
            SEVERAL => {
                let all: Vec<_> = (0..MAKERS as u32).map(|n| by(1000 + n, &[])).collect();
                order_of(from, to, &all)
            }
            one => order_of(from, to, &[by(one, &[])]),
        }
    }

    fn count(orders: &[Order]) -> usize {
        circles(orders).circles.len()
    }

    #[test]
    fn a_circle_is_found_once_and_only_if_it_is_closed() {
        assert_eq!(count(&[order(1, 2, 1), order(2, 3, 2)]), 0);
        assert_eq!(count(&[order(1, 2, 1), order(2, 1, 2)]), 1);
        let three = [order(3, 1, 1), order(1, 2, 2), order(2, 3, 3)];
        assert_eq!(count(&three), 1);
        assert_eq!(circles(&three).circles[0].0.len(), 3);
        // Of a longer and a shorter circle through the same two locks, the shorter one is reported.
        let through = [&three[..], &[order(2, 1, 1)]].concat();
        assert_eq!(circles(&through).circles, [(vec![1, 3], 1)]);
        let both = [&three[..], &[order(3, 4, 1), order(4, 3, 2)]].concat();
        let found = circles(&both);
        let lengths: Vec<_> = found
            .circles
            .iter()
            .map(|(circle, _)| circle.len())
            .collect();
        assert_eq!((lengths, found.is_cut), (vec![2, 3], false));
    }

    /// Each order of a circle needs a thread of its own.
    #[test]
    fn no_thread_is_in_two_places() {
        let circle = |makers: [&[u32]; 3]| {
            let [a, b, c] = makers.map(|threads| {
                let makers = threads.iter().map(|&thread| by(thread, &[]));
                makers.collect::<Vec<_>>()
            });
            count(&[order_of(1, 2, &a), order_of(2, 3, &b), order_of(3, 1, &c)])
        };
        assert_eq!(circle([&[1], &[2], &[3]]), 1);
        // One thread made two orders. Then another thread also made one of them, or both.
        assert_eq!(circle([&[1], &[1], &[2]]), 0);
        assert_eq!(circle([&[1], &[1, 3], &[2]]), 1);
        assert_eq!(circle([&[1, 3], &[1, 3], &[2]]), 1);
        assert_eq!(circle([&[1, 2], &[1, 2], &[2, 1]]), 0);
        // The first thread that could be assigned is needed for another order.
        assert_eq!(circle([&[1, 2, 3], &[1, 2], &[1]]), 1);
        // If as many threads as are noted made each order, one is always left.
        let long: Vec<_> = (0..MAKERS as u32)
            .map(|n| order(n, (n + 1) % MAKERS as u32, SEVERAL))
            .collect();
        assert_eq!(count(&long), 1);
    }

    #[test]
    fn a_lock_that_is_held_around_a_circle_guards_it() {
        let circle =
            |there: &[Maker], back: &[Maker]| count(&[order_of(1, 2, there), order_of(2, 1, back)]);
        assert_eq!(circle(&[by(1, &[7, 9])], &[by(2, &[9])]), 0);
        assert_eq!(circle(&[by(1, &[7])], &[by(2, &[9])]), 1);
        // Thread 2 makes one order without the gate. It cannot meet itself, but another thread.
        let both = [by(1, &[9]), by(2, &[])];
        assert_eq!(circle(&both, &[by(2, &[9])]), 0);
        assert_eq!(circle(&both, &[by(1, &[9])]), 1);
        // It is enough that two of the three threads cannot meet.
        let three = |gates: [&[u32]; 3]| {
            let [a, b, c] = gates;
            let [a, b, c] = [by(1, a), by(2, b), by(3, c)];
            count(&[
                order_of(1, 2, &[a]),
                order_of(2, 3, &[b]),
                order_of(3, 1, &[c]),
            ])
        };
        assert_eq!(three([&[], &[9], &[8]]), 1);
        assert_eq!(three([&[9], &[9], &[]]), 0);
        // The first thread holds the lock that the third one holds, so the three make no circle.
        assert_eq!(three([&[3], &[], &[]]), 0);
    }

    #[test]
    fn readers_do_not_wait_for_readers() {
        // Held for reading: 2; asked for reading: 1.
        let ways = |held: u32, asked: u32| 1 << (2 * held + asked);
        let circle = |there, back| {
            let by = |thread, modes| Maker {
                modes,
                ..by(thread, &[])
            };
            count(&[
                order_of(1, 2, &[by(1, there)]),
                order_of(2, 1, &[by(2, back)]),
            ])
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

    /// A lock with many orders to it and from it makes no circles, and costs no steps.
    #[test]
    fn orders_outside_of_circles_do_not_hide_one() {
        let hub = 10_000;
        let to = (1..=8_000).map(|lock| order(lock, hub, SEVERAL));
        let from = (1..=8_000).map(|lock| order(hub, hub + lock, SEVERAL));
        let pair = [order(20_001, 20_002, 1), order(20_002, 20_001, 2)];
        let found = circles(&to.chain(from).chain(pair).collect::<Vec<_>>());
        assert_eq!(found.circles, [(vec![16_000, 16_001], 1)]);
        assert!(!found.is_cut);
    }

    /// Each pair of many locks is taken in both orders, which makes too many circles to look at.
    #[test]
    fn the_search_ends() {
        let pairs = (0..60).flat_map(|from| (0..60).map(move |to| (from, to)));
        let orders: Vec<_> = pairs
            .filter(|(from, to)| from != to)
            .map(|(from, to)| order(from, to, SEVERAL))
            .collect();
        let found = circles(&orders);
        assert!(found.is_cut);
        assert_eq!(found.circles.len(), KEPT);
        // Circles that cannot deadlock: the search runs out of steps.
        let one = |order: Order| Order {
            makers: vec![by(1, &[])],
            ..order
        };
        let found = circles(&orders.into_iter().map(one).collect::<Vec<_>>());
        assert!(found.is_cut && found.circles.is_empty());
    }
}
