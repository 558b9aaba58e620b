//! The locks that can run on the simulated machine, and what else a workload can take.
//!
//! To add a lock: write a file with a function that places it, and add a line to `SPINLOCKS`, or
//! for a mutex in `mutex.rs` or `polled.rs`.

mod futex;
pub mod invalidation;
mod mcs;
mod mutex;
mod native;
mod osq;
mod polled;
mod qspinlock;
pub mod rwlock;
mod tas;
mod ticket;

use crate::platform::SimU64;
use kinlock_ids::raw::Policy;

/// A lock in a simulation.
pub trait Lock {
    /// Takes the lock for the calling thread, number `me`.
    fn lock(&self, me: usize);
    /// Releases it; only the thread that took it may call this.
    fn unlock(&self, me: usize);

    /// Takes it for reading. A lock without readers is taken as by [`lock`](Self::lock).
    fn read(&self, me: usize) {
        self.lock(me);
    }

    /// Ends reading.
    fn unlock_read(&self, me: usize) {
        self.unlock(me);
    }

    /// Words in the lock's own line, where what the lock guards may begin. A lock that has none is
    /// alone there.
    fn beside(&self) -> Option<&[SimU64; 2]> {
        None
    }

    /// What it has counted in the whole run, by its [name](observed).
    fn observed(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
}

/// What locks and backends count, as reports call it.
pub mod observed {
    /// Time that spinners spent in a queue, in nanoseconds.
    pub const QUEUED: &str = "queued_ns";
    /// Time that spinners at the head of a queue spent at the word, in nanoseconds.
    pub const POLLED: &str = "polled_ns";
    /// How many times the begin of a section of delayed invalidation started over.
    pub const BEGIN_RESTARTS: &str = "begin_restarts";
    /// How many times an end did.
    pub const END_RESTARTS: &str = "end_restarts";
    /// Beginnings and ends of sections that started over, per section.
    pub const RESTARTS: [&str; 2] = ["begin_restarts_per_section", "end_restarts_per_section"];
    /// Waiters that a queue's scans looked at, per hand-off.
    pub const SCAN_STEPS: &str = "scan_steps_per_handoff";
    /// The most of them for one hand-off.
    pub const MOST_STEPS: &str = "most_scan_steps";
    /// Mean and longest contended wait of ordinary threads, and of one thread in sixteen, which has
    /// priority if the lock knows that; in nanoseconds.
    pub const WAITS: [[&str; 2]; 2] = [
        ["ordinary_wait_ns", "ordinary_longest_ns"],
        ["sixteenth_wait_ns", "sixteenth_longest_ns"],
    ];
    /// How often a spinner looked at its predecessor's CPU number.
    pub const LOOKS: &str = "looks";
    /// The share of these looks that had to fetch a line.
    pub const MISSES: &str = "misses_per_look";
    /// The most sections that were seen open at a time.
    pub const LONGEST_QUEUE: &str = "longest_queue";
}

/// A kind of lock.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Places a lock in the simulation under way, for `threads` threads.
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

/// All kinds.
pub static ALL: &[Kind] = &join();

const SPINLOCKS: &[Kind] = &[
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
        native::place_cna_priority,
        "the same, and one thread in sixteen is never set aside",
    ),
    Kind::new(
        "cna-v10-limited",
        native::place_cna_limited,
        "the same with the scan limited as Long proposed: it goes on while the lock is held, and \
         looks at 4 waiters for each node once it is free",
    ),
    Kind::new(
        "cna-paper",
        native::place_cna_paper,
        "the same with the scan of the paper and the first versions: at the hand-off only",
    ),
    Kind::new(
        "cna-v11",
        native::place_cna_v11,
        "the same with the incremental scan of v11 and its limit of 10 ms",
    ),
    Kind::new(
        "cna-v13",
        native::place_cna_v13,
        "the same as cna-v11, and reordering begins once in 128 hand-offs only",
    ),
    Kind::new(
        "cna",
        qspinlock::place_cna,
        "our queued spinlock, NUMA-aware, as configured; waiters park",
    ),
    Kind::new(
        "fifo",
        qspinlock::place_fifo,
        "our queued spinlock, first in first out; waiters park",
    ),
];

/// How many there are of the spinlocks, of these and the mutexes, and of all.
const SPIN: usize = SPINLOCKS.len();
const QUEUED: usize = SPIN + mutex::ALL.len();
const COUNT: usize = QUEUED + polled::ALL.len();

/// The spinlocks, then the mutexes, then those of the published tables.
const fn join() -> [Kind; COUNT] {
    let mut all = [SPINLOCKS[0]; COUNT];
    let mut i = 0;
    while i < all.len() {
        all[i] = match i {
            0..SPIN => SPINLOCKS[i],
            SPIN..QUEUED => mutex::ALL[i - SPIN],
            _ => polled::ALL[i - QUEUED],
        };
        i += 1;
    }
    all
}

/// Policies for concurrency IDs. They are no locks; the workloads of
/// `workloads::IDS` take them instead.
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

/// What a workload can take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Genre {
    /// Something that excludes others.
    Lock,
    /// A reader-writer lock.
    ReaderWriter,
    /// A policy for concurrency IDs.
    Policy,
    /// A backend of delayed [invalidation].
    Invalidation,
}

impl Genre {
    /// Whether a workload that takes the one can take the other. Readers may exclude each other.
    pub fn admits(self, other: Genre) -> bool {
        self == other || (self, other) == (Genre::ReaderWriter, Genre::Lock)
    }

    /// One of them, for people.
    pub fn singular(self) -> &'static str {
        match self {
            Genre::Lock => "a lock",
            Genre::ReaderWriter => "a reader-writer lock",
            Genre::Policy => "a policy for concurrency IDs",
            Genre::Invalidation => "a backend of delayed invalidation",
        }
    }

    /// Some of them, for people.
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

    /// What it is.
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

    #[test]
    fn every_policy_has_a_name_of_its_own() {
        let policies: Vec<_> = POLICIES.iter().map(Kind::policy).collect();
        assert_eq!(policies, Policy::ALL.map(Some));
        let are = |kinds: &[Kind], genre| kinds.iter().all(|kind| kind.genre() == genre);
        assert!(are(ALL, Genre::Lock) && are(invalidation::ALL, Genre::Invalidation));
        assert!(are(rwlock::ALL, Genre::ReaderWriter));
    }
}
