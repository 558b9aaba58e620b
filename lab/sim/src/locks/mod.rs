//! The locks that can run on the simulated machine, and other things that a workload can take.
//!
//! To add a lock: write a file with a function that places it, and add a line to [`ALL`].

mod futex;
pub mod invalidation;
mod mcs;
mod native;
mod osq;
mod own;
mod polled;
pub mod rwlock;
mod tas;
mod ticket;

use self::native::Order;
use self::osq::CpuNumber;
use self::own::{AsConfigured, InOrder, LocalFirst, Unqueued};
use crate::platform::SimU64;
use kinlock_ids::raw::Policy;
use serde::Serialize;

/// A lock in a simulation.
pub trait Lock {
    /// Takes the lock for the calling thread, number `me`.
    fn lock(&self, me: usize);
    /// Releases the lock; only the thread that took it may call this.
    fn unlock(&self, me: usize);

    /// Takes the lock for reading. A lock without readers is taken as by [`lock`](Self::lock).
    fn read(&self, me: usize) {
        self.lock(me);
    }

    /// Ends reading.
    fn unlock_read(&self, me: usize) {
        self.unlock(me);
    }

    /// Words in the lock's own line, at which the guarded data may begin. `None`: the lock is alone
    /// in its line.
    fn beside(&self) -> Option<&[SimU64; 2]> {
        None
    }

    /// The lock's own counts of the whole run, by [name](observed).
    fn observed(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
}

/// The names in reports of what locks and backends count.
pub mod observed {
    /// Time that spinners spent in a queue, in nanoseconds.
    pub const QUEUED: &str = "queued_ns";
    /// Time that spinners at the head of a queue spent at the word, in nanoseconds.
    pub const POLLED: &str = "polled_ns";
    /// How many times the begin of a section of delayed invalidation started over.
    pub const BEGIN_RESTARTS: &str = "begin_restarts";
    /// How many times the end of a section started over.
    pub const END_RESTARTS: &str = "end_restarts";
    /// How often beginnings, and ends, of sections started over, per section.
    pub const RESTARTS: [&str; 2] = ["begin_restarts_per_section", "end_restarts_per_section"];
    /// Waiters that a queue's scans looked at, per hand-off.
    pub const SCAN_STEPS: &str = "scan_steps_per_handoff";
    /// The most waiters that scans looked at for one hand-off.
    pub const MOST_STEPS: &str = "most_scan_steps";
    /// Mean and longest contended wait in nanoseconds, of ordinary threads, and of one thread in
    /// sixteen, which has priority if the lock supports that.
    pub const WAITS: [[&str; 2]; 2] = [
        ["ordinary_wait_ns", "ordinary_longest_ns"],
        ["sixteenth_wait_ns", "sixteenth_longest_ns"],
    ];
    /// How often a spinner looked at its predecessor's CPU number.
    pub const LOOKS: &str = "looks";
    /// The share of these looks that fetched a line.
    pub const MISSES: &str = "misses_per_look";
    /// The most sections that were seen open at a time.
    pub const LONGEST_QUEUE: &str = "longest_queue";
}

/// A kind of lock.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Kind {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Places a lock in the simulation under way, for `threads` threads.
    #[serde(skip)]
    pub place: fn(threads: usize) -> &'static dyn Lock,
}

impl Kind {
    const fn new(
        name: &'static str,
        place: fn(usize) -> &'static dyn Lock,
        about: &'static str,
    ) -> Self {
        Kind { name, about, place }
    }

    const fn policy_called(name: &'static str, about: &'static str) -> Self {
        Kind::new(name, no_lock, about)
    }
}

/// The spinlocks, the mutexes that sleep, and the mutexes of the published tables.
pub static ALL: &[Kind] = &[
    Kind::new("tas", tas::place, "test-and-test-and-set"),
    Kind::new("ticket", ticket::place, "ticket lock"),
    Kind::new("mcs", mcs::place, "Mellor-Crummey and Scott's queue lock"),
    Kind::new(
        "qspinlock",
        native::place_fifo,
        "the queued spinlock of Linux 5.6, modelled step by step",
    ),
    Kind::new(
        "cna-v10",
        native::place_cna,
        "the same with v10 of CNA: full scan, limit of 2^16 hand-offs, modelled step by step",
    ),
    Kind::new(
        "cna-v10-priority",
        |threads| native::place(threads, Order::V10_PRIORITY),
        "the same, and one thread in sixteen is never set aside",
    ),
    Kind::new(
        "cna-v10-limited",
        |threads| native::place(threads, Order::V10_LIMITED),
        "the same with the scan limited as Long proposed: it goes on while the lock is held, and \
         looks at 4 waiters for each node once it is free",
    ),
    Kind::new(
        "cna-paper",
        |threads| native::place(threads, Order::PAPER),
        "the same with the scan of the paper and the first versions: at the hand-off only",
    ),
    Kind::new(
        "cna-v11",
        |threads| native::place(threads, Order::V11),
        "the same with the incremental scan of v11 and its limit of 10 ms",
    ),
    Kind::new(
        "cna-v13",
        |threads| native::place(threads, Order::V13),
        "the same as cna-v11, and reordering begins once in 128 hand-offs only",
    ),
    Kind::new(
        "cna",
        own::spinlock::<AsConfigured>,
        "our queued spinlock, NUMA-aware, as configured; waiters park",
    ),
    Kind::new(
        "fifo",
        own::spinlock::<InOrder>,
        "our queued spinlock, first in first out; waiters park",
    ),
    Kind::new(
        "mutex",
        own::mutex::<AsConfigured>,
        "our mutex as configured: waiters sleep in a queue, the one at the front spins, \
         watches and requests",
    ),
    Kind::new(
        "mutex-cna",
        own::mutex::<LocalFirst>,
        "our mutex as configured on a NUMA machine: the same, and its queue serves local waiters \
         first",
    ),
    Kind::new(
        "mutex-unqueued",
        own::mutex::<Unqueued>,
        "our mutex without a queue: every waiter watches and requests for itself",
    ),
    Kind::new(
        "futex",
        futex::place,
        "a mutex as the standard library's on Linux: spins shortly, then sleeps; no queue",
    ),
    Kind::new(
        "polled",
        polled::place_unqueued,
        "a mutex as before the published tables: every spinner polls the word, nobody parks",
    ),
    Kind::new(
        "polled-fifo",
        polled::place_mcs,
        "a mutex as in the published tables: spinners queue, their head watches the owner, tries \
         once and leaves the queue, nobody parks",
    ),
    Kind::new(
        "polled-ticket",
        polled::place_ticket,
        "the same with a ticket lock for a queue, whose waiters all watch one word",
    ),
    Kind::new(
        "polled-osq-shared",
        |threads| polled::place_osq(threads, CpuNumber::InNode),
        "a mutex whose spinners wait in a kernel's cancellable queue, and read their predecessor's \
         CPU number in its node",
    ),
    Kind::new(
        "polled-osq-own-line",
        |threads| polled::place_osq(threads, CpuNumber::OwnLine),
        "the same, in a line of its own",
    ),
    Kind::new(
        "polled-osq-cached",
        |threads| polled::place_osq(threads, CpuNumber::Copied),
        "the same, in a copy of their own",
    ),
];

/// Policies for concurrency IDs. They are not locks; the workloads of `workloads::IDS` take them
/// instead.
pub const POLICIES: &[Kind] = &[
    Kind::policy_called(
        "recent-first",
        "IDs: kept by CPUs, recent ones again, spread up to the limit (our default)",
    ),
    Kind::policy_called("per-cpu", "IDs: the CPU's number"),
    Kind::policy_called(
        "lowest-free",
        "IDs: kept by CPUs for 100 ms, else the lowest free one (Linux 6.4 to 6.12)",
    ),
    Kind::policy_called(
        "task-owned",
        "IDs: owned by threads while there are enough CPUs, else by CPUs (Linux 6.19)",
    ),
];

fn no_lock(_: usize) -> &'static dyn Lock {
    panic!("a policy for concurrency IDs is no lock")
}

/// The kind called `name`.
pub fn by_name(name: &str) -> Option<Kind> {
    all().find(|kind| kind.name == name)
}

/// All locks, reader-writer locks, policies and backends of delayed invalidation.
pub fn all() -> impl Iterator<Item = Kind> + Clone {
    let others = rwlock::ALL.iter().chain(POLICIES);
    ALL.iter().chain(others).chain(invalidation::ALL).copied()
}

/// The kinds of things that a workload can take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Genre {
    /// A lock that excludes all other threads.
    Lock,
    /// A reader-writer lock.
    ReaderWriter,
    /// A policy for concurrency IDs.
    Policy,
    /// A backend of delayed [invalidation].
    Invalidation,
}

impl Genre {
    /// Whether a workload for this genre can take one of the `other` genre: a plain lock is also a
    /// reader-writer lock, whose readers exclude each other.
    pub fn admits(self, other: Genre) -> bool {
        self == other || (self, other) == (Genre::ReaderWriter, Genre::Lock)
    }

    /// The word for one of them, for people.
    pub fn singular(self) -> &'static str {
        match self {
            Genre::Lock => "a lock",
            Genre::ReaderWriter => "a reader-writer lock",
            Genre::Policy => "a policy for concurrency IDs",
            Genre::Invalidation => "a backend of delayed invalidation",
        }
    }

    /// The word for several of them, for people.
    pub fn plural(self) -> &'static str {
        match self {
            Genre::Lock => "locks",
            Genre::ReaderWriter => "reader-writer locks",
            Genre::Policy => "policies for concurrency IDs",
            Genre::Invalidation => "backends of delayed invalidation",
        }
    }
}

impl Kind {
    /// The policy for concurrency IDs that it is, if it is one.
    pub fn policy(&self) -> Option<Policy> {
        Policy::ALL
            .into_iter()
            .find(|policy| policy.name() == self.name)
    }

    /// Its genre.
    pub fn genre(&self) -> Genre {
        match self.policy() {
            Some(_) => Genre::Policy,
            None if invalidation::ALL.iter().any(|kind| kind.name == self.name) => {
                Genre::Invalidation
            }
            None if rwlock::ALL.iter().any(|kind| kind.name == self.name) => Genre::ReaderWriter,
            None => Genre::Lock,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Disturbance, Schedule, compute, machine, place};
    use kinlock_core::platform::{Atomic, Ordering::Relaxed};

    #[test]
    fn every_policy_has_a_name_of_its_own() {
        let policies: Vec<_> = POLICIES.iter().map(Kind::policy).collect();
        assert_eq!(policies, Policy::ALL.map(Some));
        let are = |kinds: &[Kind], genre| kinds.iter().all(|kind| kind.genre() == genre);
        assert!(are(ALL, Genre::Lock) && are(invalidation::ALL, Genre::Invalidation));
        assert!(are(rwlock::ALL, Genre::ReaderWriter));
    }

    /// Plays a schedule in which threads repeat an action on the object that `new` makes.
    pub(super) fn play<S: 'static, R>(
        threads: usize,
        seed: u64,
        new: impl FnOnce() -> S,
        turn: impl Fn(&S, usize, usize) + Copy + 'static,
        check: impl FnOnce(&S) -> R,
    ) -> Option<R> {
        // Preemptions of up to a millisecond: the longest ones outlast all time limits of waiters.
        let disturbance = Disturbance::preemptions(seed, 5, 1 << 22);
        let machine = machine::load("haswell-ex-4s").unwrap();
        let (played, result) = Schedule::new(machine, threads, disturbance).play(
            new,
            move |shared, me| (0..TURNS).for_each(|n| turn(shared, me, n)),
            |_, _| {},
            |shared, _| check(shared),
        );
        played.end.is_ok().then_some(result)
    }

    pub(super) const TURNS: usize = 6;

    /// Threads count under the lock, by a load and a store that others may come between, and look
    /// whether the count changes while they read. Returns whether all of them ended and were right.
    fn excludes(seed: u64, lock: fn(usize) -> &'static dyn Lock) -> bool {
        const THREADS: usize = 8;
        let new = || {
            crate::world::with(|w| w.setup.tuning.reorder = true);
            [(); 2].map(|()| place(SimU64::new(0)))
        };
        let counted = play(
            THREADS,
            seed,
            || {
                let counts = new();
                (lock(THREADS), counts)
            },
            |(lock, [count, torn]), me, turn| {
                if turn % 3 == 2 {
                    lock.read(me);
                    let before = count.load(Relaxed);
                    compute(100.0);
                    torn.fetch_or(count.load(Relaxed) ^ before, Relaxed);
                    lock.unlock_read(me);
                } else {
                    lock.lock(me);
                    let before = count.load(Relaxed);
                    count.store(before + 1, Relaxed);
                    lock.unlock(me);
                }
            },
            |(_, counts)| counts.map(|count| count.load(Relaxed)),
        );
        counted == Some([(THREADS * TURNS * 2 / 3) as u64, 0])
    }

    #[test]
    fn every_lock_excludes_and_loses_no_thread() {
        for kind in ALL.iter().chain(rwlock::ALL) {
            for seed in 0..60 {
                assert!(excludes(seed, kind.place), "{} {seed}", kind.name);
            }
        }
    }

    /// A lock that lets all threads in.
    struct Open;

    impl Lock for Open {
        fn lock(&self, _: usize) {}
        fn unlock(&self, _: usize) {}
    }

    #[test]
    fn a_lock_that_excludes_nobody_shows() {
        assert!((0..60).any(|seed| !excludes(seed, |_| &Open)));
    }
}
