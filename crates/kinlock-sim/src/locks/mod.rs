//! The locks that can run on the simulated machine.
//!
//! To add one: write a file with a function that places it, and a line in `SPINLOCKS`, or for a mutex in `mutex.rs`.

mod mcs;
mod mutex;
mod qspinlock;
pub mod sections;
mod tas;
mod ticket;

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

/// The kind called `name`.
pub fn by_name(name: &str) -> Option<Kind> {
    let all = ALL.iter().chain(sections::ALL);
    all.copied().find(|kind| kind.name == name)
}

impl Kind {
    /// Whether this is no lock, but [sections](sections) of delayed invalidation.
    pub fn is_sections(&self) -> bool {
        sections::ALL.iter().any(|kind| kind.name == self.name)
    }
}
