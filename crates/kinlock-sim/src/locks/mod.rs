//! The locks that can run on the simulated machine.
//!
//! To add one: write a file with a function that places it, and a line in `SPINLOCKS`, or for a mutex in `mutex.rs`.

mod mcs;
mod mutex;
mod qspinlock;
pub mod sections;
mod tas;
mod ticket;

use kinlock_ids::raw::Policy;

/// A lock in a simulation.
pub trait Lock {
    /// Takes the lock for the calling thread, number `me`.
    fn lock(&self, me: usize);
    /// Releases it; only the thread that took it may call this.
    fn unlock(&self, me: usize);
}

/// A kind of lock.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Places one in the simulation under way, for so many threads.
    pub place: fn(threads: usize) -> &'static dyn Lock,
}

/// All kinds.
pub const ALL: &[Kind] = &join();

const SPINLOCKS: &[Kind] = &[
    Kind {
        name: "tas",
        about: "test-and-test-and-set",
        place: tas::place,
    },
    Kind {
        name: "ticket",
        about: "ticket lock",
        place: ticket::place,
    },
    Kind {
        name: "mcs",
        about: "Mellor-Crummey and Scott's queue lock",
        place: mcs::place,
    },
    Kind {
        name: "qspinlock",
        about: "our queued spinlock, first in first out, nobody parks",
        place: qspinlock::place_fifo,
    },
    Kind {
        name: "cna-v10",
        about: "our queued spinlock as the published CNA tables had it: full scan, limit of 2^16 hand-offs, nobody parks",
        place: qspinlock::place_published_cna,
    },
    Kind {
        name: "cna",
        about: "our queued spinlock, NUMA-aware, as configured; waiters park",
        place: qspinlock::place_cna,
    },
    Kind {
        name: "fifo",
        about: "our queued spinlock, first in first out; waiters park",
        place: qspinlock::place_parking_fifo,
    },
];

/// The spinlocks, then the mutexes.
const fn join() -> [Kind; SPINLOCKS.len() + mutex::ALL.len()] {
    let mut all = [SPINLOCKS[0]; SPINLOCKS.len() + mutex::ALL.len()];
    let mut i = 0;
    while i < all.len() {
        all[i] = match i.checked_sub(SPINLOCKS.len()) {
            None => SPINLOCKS[i],
            Some(i) => mutex::ALL[i],
        };
        i += 1;
    }
    all
}

/// Policies for concurrency IDs: no locks, but what the workloads of [`workloads::IDS`](crate::workloads::IDS) take instead.
pub const POLICIES: &[Kind] = &[
    Kind {
        name: "recent-first",
        about: "IDs: kept by CPUs, recent ones again, spread up to the limit (our default)",
        place: no_lock,
    },
    Kind {
        name: "per-cpu",
        about: "IDs: the CPU's number",
        place: no_lock,
    },
    Kind {
        name: "lowest-free",
        about: "IDs: kept by CPUs for 100 ms, else the lowest free one (Linux 6.3 to 6.12)",
        place: no_lock,
    },
    Kind {
        name: "task-owned",
        about: "IDs: owned by threads while there are enough CPUs, else by CPUs (Linux 6.19)",
        place: no_lock,
    },
];

fn no_lock(_: usize) -> &'static dyn Lock {
    panic!("a policy for concurrency IDs is no lock")
}

/// The kind called `name`.
pub fn by_name(name: &str) -> Option<Kind> {
    all().find(|kind| kind.name == name)
}

/// All locks, policies and sections.
pub fn all() -> impl Iterator<Item = Kind> + Clone {
    ALL.iter().chain(POLICIES).chain(sections::ALL).copied()
}

/// What a workload can be put to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Genre {
    /// Something that excludes others.
    Lock,
    /// A policy for concurrency IDs.
    Policy,
    /// What begins and ends [sections] of delayed invalidation.
    Sections,
}

impl Genre {
    /// One of them, for people.
    pub fn singular(self) -> &'static str {
        match self {
            Genre::Lock => "a lock",
            Genre::Policy => "a policy for concurrency IDs",
            Genre::Sections => "a backend of delayed invalidation",
        }
    }

    /// Some of them, for people.
    pub fn plural(self) -> &'static str {
        match self {
            Genre::Lock => "locks",
            Genre::Policy => "policies for concurrency IDs",
            Genre::Sections => "backends of delayed invalidation",
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
            None if sections::ALL.iter().any(|kind| kind.name == self.name) => Genre::Sections,
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
        assert!(ALL.iter().all(|lock| lock.genre() == Genre::Lock));
        assert!(
            sections::ALL
                .iter()
                .all(|kind| kind.genre() == Genre::Sections)
        );
    }
}
