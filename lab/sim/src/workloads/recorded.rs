//! `recorded`: the locks of a real program, replayed from the distributions that `kinlock record`
//! has written.
//!
//! Each thread plays a thread of the program. For each lock of that thread it knows when the lock
//! is due next: after its last release and a time that is drawn from the recorded think times. It
//! takes the lock that is due first, and holds it for a time that is drawn from the hold times. A
//! wait for one lock delays the others, as it would have delayed the program's work.

use super::{Body, Kind, Metered, Prepare, SharedMeter, none};
use crate::locks::Lock;
use crate::platform::compute;
use crate::world::{Placement, wait_for_turn, with};
pub use kinlock_measure::workloads::recorded::{Distribution, RecordedLock, Recording};
use std::cell::RefCell;
use std::rc::Rc;

/// A distribution without its longest times, as many as a few measured ones stand for: a single
/// hold that was preempted counts for hundreds, and would decide the mean. Nothing is left out of a
/// short distribution.
fn without_outliers(times: &Distribution) -> Distribution {
    let most = OUTLIERS.min(times.count() / 100);
    let mut kept = times.0.clone();
    let mut out = 0;
    while let Some(last) = kept.last().filter(|last| out + last.2 <= most) {
        out += last.2;
        kept.pop();
    }
    Distribution(kept)
}

/// The time at a place from 0 to 1 in the distribution.
fn at(times: &Distribution, place: f64) -> f64 {
    let mut left = place * times.count() as f64;
    for &(from, to, n) in &times.0 {
        if left < n as f64 {
            return from as f64 + (to - from) as f64 * left / n as f64;
        }
        left -= n as f64;
    }
    times.0.last().map_or(0.0, |class| class.1 as f64)
}

/// Why a recording cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The file is not a recording, or is of another version.
    #[error("it is no recording of `kinlock record`")]
    Kind,
    /// No lock was taken twice by a thread.
    #[error("it has no lock that a thread took often enough")]
    Empty,
    /// A class ends before it begins.
    #[error("the distributions of {0} have a class that ends before it begins")]
    Class(String),
}

/// About the number of acquisitions that two measured ones represent.
const OUTLIERS: u64 = 512;

/// The number of places of a distribution that are looked up in advance.
const POINTS: usize = 1024;

/// A recording, prepared.
#[derive(Debug)]
pub struct Replay {
    names: Vec<String>,
    locks: Vec<Times>,
    /// The locks of each thread that is played.
    players: Vec<Vec<usize>>,
    /// Acquisitions of those locks by those threads, per second of the recording.
    per_second: f64,
}

/// The times of a lock, at evenly spaced places of their distributions.
#[derive(Debug)]
struct Times {
    hold: Vec<f64>,
    think: Vec<f64>,
}

/// Threads that take locks less often than the busiest by this factor are not played. They prepare
/// the work of others, and their number does not grow.
const RARE: f64 = 0.1;

impl Replay {
    /// Prepares a recording.
    ///
    /// # Errors
    ///
    /// If the file is no recording, or has nothing to replay.
    pub fn new(recording: &Recording) -> Result<Self, Unusable> {
        if recording.kind != "recorded" {
            return Err(Unusable::Kind);
        }
        let has_times = |lock: &&RecordedLock| lock.hold.count() > 0 && lock.think.count() > 0;
        let locks: Vec<_> = recording.locks.iter().filter(has_times).collect();
        for lock in &locks {
            let mut classes = lock.hold.0.iter().chain(&lock.think.0);
            if classes.any(|class| class.0 >= class.1) {
                return Err(Unusable::Class(lock.name.clone()));
            }
        }
        let players = players(&locks);
        if players.is_empty() {
            return Err(Unusable::Empty);
        }
        let spread = |times: &Distribution| {
            let times = without_outliers(times);
            let places = (0..POINTS).map(|n| (n as f64 + 0.5) / POINTS as f64);
            let own = places.map(|place| (at(&times, place) - recording.clock_ns).max(0.0));
            own.collect()
        };
        Ok(Replay {
            names: locks.iter().map(|lock| lock.name.clone()).collect(),
            locks: locks
                .iter()
                .map(|lock| Times {
                    hold: spread(&lock.hold),
                    think: spread(&lock.think),
                })
                .collect(),
            per_second: per_second(recording, &locks, &players),
            players: players.into_iter().map(|player| player.locks).collect(),
        })
    }

    /// How often the threads that are played took their locks when they were recorded, per second.
    /// An operation of the workload is an acquisition.
    pub fn recorded_per_second(&self) -> f64 {
        self.per_second
    }

    /// The names of the locks, by their numbers in [`Outcome::waited`](crate::Outcome::waited).
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Makes a workload of the recording. Both are kept to the end of the process, since workloads
    /// are values without owners.
    pub fn workload(self, name: &str) -> Kind {
        Kind {
            name: Box::leak(name.to_owned().into_boxed_str()),
            about: "a program's locks, replayed from a recording",
            placement: Placement::Spread,
            parameters: &[],
            prepare: Prepare::Recorded(Box::leak(Box::new(self))),
            unsimulated_seconds: none,
        }
    }

    pub(crate) fn prepare(
        &'static self,
        threads: usize,
        place: impl Fn() -> &'static dyn Lock,
        meter: SharedMeter,
    ) -> Rc<dyn Body> {
        let locks = self.locks.iter();
        let locks: Vec<_> = locks
            .map(|_| Metered::new(place(), Rc::clone(&meter)))
            .collect();
        let due = (0..threads).map(|me| vec![None; self.player(me).len()]);
        let due: RefCell<Vec<Vec<Option<u64>>>> = RefCell::new(due.collect());
        Rc::new(move |me: usize| {
            let next = self.next(me, &mut due.borrow_mut()[me]);
            let (place, at) = next;
            let lock = self.player(me)[place];
            let now = with(|w| w.now());
            compute(with(|w| w.costs().nanos(at.saturating_sub(now))));
            // If the thread's time slice ends now, the thread loses its CPU before it asks for the
            // lock, and not while it waits.
            wait_for_turn();
            let asked = with(|w| w.now());
            locks[lock].lock(me);
            meter.borrow_mut().waited(lock, asked);
            let waited = with(|w| w.now()) - asked;
            compute(draw(&self.locks[lock].hold));
            locks[lock].unlock(me);
            let think = draw(&self.locks[lock].think);
            let released = with(|w| w.now());
            for (other, due) in due.borrow_mut()[me].iter_mut().enumerate() {
                *due = match other == place {
                    true => Some(released + with(|w| w.costs().cycles(think))),
                    false => due.map(|at| at + waited),
                };
            }
            1
        })
    }

    /// The locks of the thread that `me` plays.
    fn player(&self, me: usize) -> &[usize] {
        &self.players[me % self.players.len()]
    }

    /// The thread's next lock, by its index among the thread's locks, and when it is due.
    fn next(&self, me: usize, due: &mut [Option<u64>]) -> (usize, u64) {
        let all = self.player(me).iter().zip(due).enumerate();
        let times = all.map(|(place, (&lock, due))| {
            // Each lock begins somewhere in a think time.
            let begin = || {
                let part = (with(|w| w.random()) % 1024) as f64 / 1024.0;
                let think = part * draw(&self.locks[lock].think);
                with(|w| w.now() + w.costs().cycles(think))
            };
            (place, *due.get_or_insert_with(begin))
        });
        let first = times.min_by_key(|&(_, at)| at);
        first.expect("a player has a lock")
    }
}

fn draw(times: &[f64]) -> f64 {
    times[(with(|w| w.random()) % POINTS as u64) as usize]
}

/// A thread that is played.
struct Player {
    /// Its number in the recording.
    thread: u64,
    /// The numbers of its locks.
    locks: Vec<usize>,
}

/// How often the players took their locks, per second in which at least one of them lived: a
/// program may have phases, each with threads of its own.
fn per_second(recording: &Recording, locks: &[&RecordedLock], players: &[Player]) -> f64 {
    let mut count = 0.0;
    let mut lives: Vec<&(u64, f64, f64)> = Vec::new();
    for player in players {
        let of_player = |life: &&(u64, f64, f64)| life.0 == player.thread;
        let own: Vec<_> = recording.lives.iter().filter(of_player).collect();
        let seconds: f64 = own.iter().map(|life| life.2 - life.1).sum();
        let rates = player.locks.iter().flat_map(|&lock| &locks[lock].rates);
        let rates = rates.filter(|rate| rate.0 == player.thread);
        count += seconds * rates.map(|rate| rate.1).sum::<f64>();
        lives.extend(own);
    }
    lives.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut until = 0.0_f64;
    let mut all = 0.0;
    for &&(_, from, to) in &lives {
        all += (to - from.max(until)).max(0.0);
        until = until.max(to);
    }
    if all > 0.0 { count / all } else { 0.0 }
}

/// The threads that are played, with their locks.
fn players(locks: &[&RecordedLock]) -> Vec<Player> {
    let taken = |lock: &RecordedLock, thread: u64| {
        let own = lock.follows.iter().filter(|follow| follow[1] == thread);
        own.map(|follow| follow[2]).sum::<u64>() as f64
    };
    let mut threads: Vec<_> = locks
        .iter()
        .flat_map(|lock| lock.follows.iter().map(|follow| follow[1]))
        .collect();
    threads.sort_unstable();
    threads.dedup();
    let of_thread = |&thread: &u64| locks.iter().map(|lock| taken(lock, thread)).sum::<f64>();
    let most = threads.iter().map(of_thread).fold(0.0, f64::max);
    threads.retain(|thread| of_thread(thread) >= RARE * most);
    let most = |lock: &RecordedLock| {
        let all = threads.iter().map(|&thread| taken(lock, thread));
        all.fold(0.0, f64::max)
    };
    let players = threads.iter().map(|&thread| {
        let numbers = 0..locks.len();
        let is_used = |&n: &usize| {
            let own = taken(locks[n], thread);
            own > 0.0 && own >= RARE * most(locks[n])
        };
        Player {
            thread,
            locks: numbers.filter(is_used).collect(),
        }
    });
    players.filter(|own| !own.locks.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Outcome, Run, locks, machine};

    /// A lock that these threads took in turn.
    fn lock(name: &str, hold: u64, think: u64, threads: &[u64]) -> RecordedLock {
        RecordedLock {
            name: name.to_owned(),
            locked: 1_000,
            contended: 0,
            wait_ns: 0,
            hold: Distribution(vec![(hold, hold + 1, 1_000)]),
            think: Distribution(vec![(think, think + 1, 1_000)]),
            follows: threads.iter().map(|&thread| [1, thread, 500]).collect(),
            rates: Vec::new(),
        }
    }

    fn recording(locks: Vec<RecordedLock>) -> Recording {
        Recording {
            kind: "recorded".to_owned(),
            version: String::new(),
            command: Vec::new(),
            cpu: String::new(),
            cpus: 2,
            seconds: 1.0,
            lock: String::new(),
            clock_ns: 0.0,
            threads: 3,
            lives: vec![(1, 0.0, 2.0), (2, 0.5, 1.0), (3, 1.0, 1.5)],
            locks,
            left_out: 0,
            left_out_locked: 0,
        }
    }

    fn replayed(recording: &Recording, threads: usize) -> Outcome {
        let workload = Replay::new(recording).unwrap().workload("test");
        let machine = machine::load("laptop").unwrap();
        let run = Run {
            seconds: 0.02,
            ..Run::new(machine, workload, locks::by_name("mutex").unwrap(), threads)
        };
        run.execute().unwrap()
    }

    /// Operations per microsecond and the share of its time that a thread waits for each lock.
    fn figures(recording: &Recording, threads: usize) -> (f64, Vec<f64>) {
        let outcome = replayed(recording, threads);
        let all = threads as f64 * outcome.seconds * 1e9;
        let shares = outcome.waited.iter().map(|waited| waited.wait_ns / all);
        (outcome.ops_per_us, shares.collect())
    }

    #[test]
    fn a_thread_alone_takes_as_long_as_recorded() {
        let (ops, shares) = figures(&recording(vec![lock("a", 2_000, 8_000, &[1, 2])]), 1);
        assert!((0.097..0.101).contains(&ops), "{ops}");
        assert!(shares[0] < 0.01, "{shares:?}");
    }

    #[test]
    fn a_lock_that_is_held_a_fifth_of_the_time_is_full_with_eight_threads() {
        let program = recording(vec![lock("a", 2_000, 8_000, &[1, 2])]);
        let (two, few) = figures(&program, 2);
        let (eight, many) = figures(&program, 8);
        // Two threads hardly meet. Of eight, the lock lets no more than five work at a time.
        assert!((0.17..0.201).contains(&two), "{two}");
        assert!((0.40..0.501).contains(&eight), "{eight}");
        assert!(
            few[0] < 0.15 && (0.35..0.55).contains(&many[0]),
            "{few:?} {many:?}"
        );
    }

    #[test]
    fn a_thread_that_works_when_it_loses_its_cpu_waits_for_no_lock() {
        // With four times as many threads as CPUs, they hardly ever meet.
        let program = recording(vec![lock("a", 100, 500_000, &[1, 2])]);
        let (ops, shares) = figures(&program, 64);
        assert!((0.02..0.033).contains(&ops), "{ops}");
        assert!(shares[0] < 0.05, "{shares:?}");
    }

    #[test]
    fn threads_use_the_locks_of_those_that_they_play() {
        let apart = recording(vec![
            lock("a", 9_000, 1_000, &[1]),
            lock("b", 9_000, 1_000, &[2]),
        ]);
        let (ops, shares) = figures(&apart, 2);
        assert!((0.19..0.201).contains(&ops) && shares.iter().all(|&s| s < 0.01));
        // With four threads there are two at each lock.
        let (_, shares) = figures(&apart, 4);
        assert!(shares.iter().all(|&share| share > 0.15), "{shares:?}");
        // A thread that took a lock once, to prepare it, is not played.
        let mut once = lock("a", 2_000, 8_000, &[2, 3]);
        once.follows.push([1, 1, 1]);
        assert_eq!(players(&[&once]).len(), 2);
    }

    #[test]
    fn the_recorded_speed_is_that_of_the_threads_that_are_played() {
        let mut one = lock("a", 2_000, 8_000, &[2, 3]);
        one.follows.push([1, 1, 1]);
        one.rates = vec![(1, 7.0), (2, 100.0), (3, 150.0)];
        let mut program = recording(vec![one]);
        // The threads lived one after the other.
        let speed = |program: &Recording| Replay::new(program).unwrap().recorded_per_second();
        assert_eq!(speed(&program), 125.0);
        // The threads lived at the same time.
        program.lives[2] = (3, 0.5, 1.0);
        assert_eq!(speed(&program), 250.0);
    }

    #[test]
    fn several_locks_of_a_thread_are_interleaved() {
        let both = recording(vec![
            lock("a", 500, 9_500, &[1, 2]),
            lock("b", 500, 19_500, &[1, 2]),
        ]);
        let outcome = replayed(&both, 1);
        let counts: Vec<_> = outcome.waited.iter().map(|w| w.acquisitions).collect();
        let ratio = counts[0] as f64 / counts[1] as f64;
        assert!((1.9..2.1).contains(&ratio), "{counts:?}");
        // Each lock is taken as often as alone.
        assert!((0.145..0.151).contains(&outcome.ops_per_us));
    }

    #[test]
    fn a_preempted_hold_does_not_decide_the_mean() {
        let usual = (1_000, 1_001, 100_000);
        let long = (4_000_000, 4_500_000, 256);
        let times = without_outliers(&Distribution(vec![usual, long]));
        assert_eq!(times.0, [usual]);
        // Long times that are more frequent, or in a short recording, stay.
        let often = Distribution(vec![usual, (4_000_000, 4_500_000, 1_000)]);
        assert_eq!(without_outliers(&often), often);
        let short = Distribution(vec![(1_000, 1_001, 100), (4_000_000, 4_500_000, 2)]);
        assert_eq!(without_outliers(&short), short);
    }

    #[test]
    fn what_cannot_be_replayed_is_refused() {
        let refused = |recording: &Recording| Replay::new(recording).err();
        assert_eq!(refused(&recording(vec![])), Some(Unusable::Empty));
        let mut other = recording(vec![lock("a", 1, 1, &[1])]);
        other.locks[0].hold.0[0].1 = 1;
        assert_eq!(refused(&other), Some(Unusable::Class("a".to_owned())));
        other.kind = "measured".to_owned();
        assert_eq!(refused(&other), Some(Unusable::Kind));
    }
}
