//! Finds circles in the threads' notes, and confirms them.

use super::Kind;
use super::notes::{Held, Notes, Progress, View, Wait, one_at_a_time, threads};
use backtrace::Backtrace;
use std::sync::Arc;
use std::thread::{ThreadId, sleep};
use std::time::{Duration, Instant};

/// How long a circle must last. A thread that has been given the lock in the meantime may need that
/// long to get a CPU and to note it.
const LASTING: Duration = Duration::from_millis(50);
/// How long a check waits until the threads of a circle have noted where they wait. In the child of
/// a fork some never do.
const NOTES_LIMIT: Duration = Duration::from_secs(2);

/// A thread that waits forever.
#[derive(Debug)]
pub struct DeadlockedThread {
    thread: ThreadId,
    backtrace: Backtrace,
}

impl DeadlockedThread {
    /// The thread that waits.
    pub fn thread_id(&self) -> ThreadId {
        self.thread
    }

    /// The place where the thread waits.
    pub fn backtrace(&self) -> &Backtrace {
        &self.backtrace
    }
}

/// The circles of threads that wait for each other, apart from those reported before.
///
/// O(threads times locks held), and more only if there is a circle. See the [module](super).
///
/// ```
/// use kinlock::{Mutex, deadlock::check_deadlock};
/// use std::time::Duration;
///
/// static LOCK: Mutex<()> = Mutex::new(());
///
/// assert!(check_deadlock().is_empty());
/// std::thread::spawn(|| {
///     let _outer = LOCK.lock();
///     let _inner = LOCK.lock(); // waits for itself
/// });
/// std::thread::sleep(Duration::from_millis(50));
/// let circles = check_deadlock();
/// assert_eq!((circles.len(), circles[0].len()), (1, 1));
/// assert!(check_deadlock().is_empty(), "it has been reported");
/// ```
pub fn check_deadlock() -> Vec<Vec<DeadlockedThread>> {
    let _guard = one_at_a_time();
    let threads = threads();
    let views: Vec<View> = threads.iter().map(|notes| notes.view()).collect();
    let mut found = circles(&arrows(&views));
    found.retain(|circle| circle.iter().any(|&i| !views[i].reported));
    let confirmed = found.iter().filter_map(|circle| {
        let members = circle.iter().map(|&i| (threads[i].clone(), views[i].waits));
        confirm(&members.collect::<Vec<_>>())
    });
    confirmed.collect()
}

/// For each thread, the threads that it waits for.
fn arrows(views: &[View]) -> Vec<Vec<usize>> {
    let numbered = || views.iter().enumerate();
    let of = |(i, view): (usize, &View)| {
        let Some(wait) = view.wait else {
            return Vec::new();
        };
        let holds = |j: usize, other: &View| {
            let own = wait.upgrade && i == j;
            !own && other.held.iter().any(|held| excludes(wait, *held))
        };
        // A reader is let in while others read, unless a writer waits to go next.
        let beside_readers = wait.kind == Kind::Shared
            && !numbered().any(|(_, other)| other.held.iter().any(|held| excludes(wait, *held)));
        let precedes = |other: &View| {
            let writes = |w: Wait| w.lock == wait.lock && w.kind == Kind::Exclusive;
            beside_readers && other.wait.is_some_and(writes)
        };
        numbered()
            .filter(|&(j, other)| holds(j, other) || precedes(other))
            .map(|(j, _)| j)
            .collect()
    };
    numbered().map(of).collect()
}

/// Whether `wait` cannot end before `held` does.
fn excludes(wait: Wait, held: Held) -> bool {
    let kinds = match (wait.kind, held.kind) {
        (Kind::Mutex | Kind::Exclusive, _) | (_, Kind::Mutex | Kind::Exclusive) => true,
        (Kind::Upgradable, Kind::Upgradable) => true,
        (Kind::Shared, _) | (_, Kind::Shared) => false,
    };
    kinds && wait.lock == held.lock
}

/// The strongly connected parts: in each, every thread waits for every other, or for itself.
fn circles(arrows: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let stuck = without_ends(arrows);
    let reached: Vec<Vec<bool>> = (0..arrows.len())
        .map(|i| match stuck[i] {
            true => reachable(i, arrows),
            false => Vec::new(),
        })
        .collect();
    let both = |i: usize, j: usize| stuck[i] && stuck[j] && reached[i][j] && reached[j][i];
    (0..arrows.len())
        // Each part is found from its first member.
        .filter(|&i| both(i, i) && !(0..i).any(|j| both(i, j)))
        .map(|i| (i..arrows.len()).filter(|&j| both(i, j)).collect())
        .collect()
}

/// Which threads remain after those that wait for nobody are removed, again and again. Usually none
/// remains.
fn without_ends(arrows: &[Vec<usize>]) -> Vec<bool> {
    let mut stuck = vec![true; arrows.len()];
    loop {
        let ends = |i: &usize| stuck[*i] && !arrows[*i].iter().any(|&j| stuck[j]);
        let going: Vec<usize> = (0..arrows.len()).filter(ends).collect();
        if going.is_empty() {
            return stuck;
        }
        for i in going {
            stuck[i] = false;
        }
    }
}

/// Which threads `start` waits for, directly or by way of others.
fn reachable(start: usize, arrows: &[Vec<usize>]) -> Vec<bool> {
    let mut reached = vec![false; arrows.len()];
    let mut next = vec![start];
    while let Some(i) = next.pop() {
        for &j in &arrows[i] {
            if !core::mem::replace(&mut reached[j], true) {
                next.push(j);
            }
        }
    }
    reached
}

/// Waits until the threads of a circle, each in the wait with this number, have noted where they
/// wait, and for a while more. `None` if one of the waits ends.
fn confirm(circle: &[(Arc<Notes>, u64)]) -> Option<Vec<DeadlockedThread>> {
    let start = Instant::now();
    let mut found = Vec::new();
    while let Some((notes, waits)) = circle.get(found.len()) {
        match notes.progress(*waits) {
            Progress::Ended => return None,
            Progress::Short if start.elapsed() > NOTES_LIMIT => return None,
            Progress::Short => sleep(Duration::from_millis(1)),
            Progress::Long(backtrace) => found.push(DeadlockedThread {
                thread: notes.thread(),
                backtrace,
            }),
        }
    }
    sleep(LASTING.saturating_sub(start.elapsed()));
    let ended =
        |(notes, waits): &(Arc<Notes>, u64)| matches!(notes.progress(*waits), Progress::Ended);
    if circle.iter().any(ended) {
        return None;
    }
    for (notes, waits) in circle {
        notes.set_reported(*waits);
    }
    for thread in &mut found {
        thread.backtrace.resolve();
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(held: &[(usize, Kind)], wait: Option<(usize, Kind)>) -> View {
        View {
            held: held
                .iter()
                .map(|&(lock, kind)| Held { lock, kind })
                .collect(),
            wait: wait.map(|(lock, kind)| Wait {
                lock,
                kind,
                upgrade: false,
            }),
            ..View::default()
        }
    }

    #[test]
    fn circles_are_told_from_chains() {
        assert_eq!(circles(&[vec![1], vec![2], vec![]]), [[0; 0]; 0]);
        assert_eq!(circles(&[vec![0]]), [[0]]);
        // 0 and 4 wait for threads of circles.
        let arrows = [vec![1], vec![2], vec![1], vec![3], vec![3]];
        assert_eq!(circles(&arrows), [vec![1, 2], vec![3]]);
        assert_eq!(circles(&[vec![1], vec![2], vec![0, 1]]), [[0, 1, 2]]);
    }

    #[test]
    fn a_reader_waits_for_writers_that_wait() {
        use Kind::*;
        let again = [
            view(&[(1, Shared)], Some((1, Shared))),
            view(&[], Some((1, Exclusive))),
        ];
        assert_eq!(arrows(&again), [vec![1], vec![0]]);
        // ... but is let in before them after a writer.
        let behind_a_writer = [
            view(&[], Some((1, Shared))),
            view(&[], Some((1, Exclusive))),
            view(&[(1, Exclusive)], None),
        ];
        assert_eq!(arrows(&behind_a_writer), [vec![2], vec![2], vec![]]);
    }

    #[test]
    fn an_upgrade_does_not_wait_for_itself() {
        let mut views = [view(&[(1, Kind::Upgradable)], Some((1, Kind::Exclusive)))];
        assert_eq!(arrows(&views), [[0]]);
        views[0].wait.as_mut().unwrap().upgrade = true;
        assert_eq!(arrows(&views), [[0; 0]]);
    }
}
