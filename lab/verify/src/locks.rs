//! The locks that can be tortured, by name.

use crate::monitors::{Pair, UserMonitor};
use crate::play::Plays;
use crate::pretend::Pretend;
use crate::report::Property;
use crate::specimen::named;
use crate::test_lock::{AnyTarget, Set};
use kinlock::{RawCnaSpinLock, RawFifoSpinLock, RawMutex, RawSpinLock};
use kinlock_core::config::{self as knobs, Quantum, Tuning};
use kinlock_core::platform::Platform;
use kinlock_core::raw::mutex::{Joined, QueuedMutex};
use kinlock_core::raw::{LockConfig, QueuedRwLock, QueuedSpinLock};
use kinlock_linux::Native;
use kinlock_linux::config::{self, AsConfigured};

type Fifo = knobs::Fifo<Native>;
type NumaAware = knobs::NumaAware<Native>;

/// A NUMA-aware spinlock without stealing.
#[derive(Clone, Copy, Debug)]
struct Strict;

impl LockConfig for Strict {
    fn tuning() -> Tuning {
        let mut tuning = NumaAware::tuning();
        tuning.stealing = false;
        tuning
    }
}

/// The configuration of the mutex and the reader-writer lock. It makes many trials, because few
/// waits follow each other at one lock, and many hand-off requests that are made and withdrawn at
/// once.
#[derive(Clone, Copy, Debug)]
struct Eager;

impl LockConfig for Eager {
    const TRIALS: u32 = 4;

    fn tuning() -> Tuning {
        let mut tuning = config::tuning();
        if Native::random() % 2 == 0 {
            tuning.quantum = Quantum::FAIR;
        }
        tuning
    }
}

/// A kind of lock.
#[derive(Clone, Copy, Debug)]
pub struct Specimen {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    pub(crate) new: fn() -> AnyTarget,
    /// Makes a lock on the pretended machine: threads choose their locality domain, and can be held
    /// up inside the algorithm.
    pub(crate) new_pretended: fn() -> AnyTarget,
    /// Whether the lock is sure to reorder its queue in the present configuration.
    pub(crate) reorders: fn() -> bool,
    /// What its defect violates, if it is broken on purpose.
    pub defect: Option<Property>,
    /// What threads do with the lock, apart from what any lock allows.
    pub(crate) plays: Plays,
    /// Makes a lock with a condition variable, if this kind has one: as users have it, and on the
    /// pretended machine.
    pub(crate) condvar: Option<[fn() -> AnyTarget; 2]>,
}

/// The library's locks.
pub static ALL: &[Specimen] = &[
    Specimen {
        new: || Box::new(RawSpinLock::new()),
        reorders: || <AsConfigured as LockConfig>::tuning().reorder,
        ..lock("kinlock-spin", spinlock::<Pretend, AsConfigured>)
    },
    Specimen {
        new: || Box::new(RawFifoSpinLock::new()),
        ..lock("kinlock-spin-fifo", spinlock::<Pretend, Fifo>)
    },
    Specimen {
        new: || Box::new(RawCnaSpinLock::new()),
        reorders: || true,
        ..lock("kinlock-spin-cna", spinlock::<Pretend, NumaAware>)
    },
    Specimen {
        new: spinlock::<Native, Strict>,
        reorders: || true,
        ..lock("kinlock-spin-strict", spinlock::<Pretend, Strict>)
    },
    Specimen {
        new: || Box::new(RawMutex::new()),
        condvar: Some([|| Box::new(UserMonitor::default()), pair::<Pretend>]),
        ..lock("kinlock-mutex", mutex::<Pretend>)
    },
    lock("kinlock-mutex-joined", joined_mutex),
    Specimen {
        new: || Box::new(QueuedRwLock::<Native, AsConfigured>::new()),
        plays: Plays::Readers,
        ..lock("kinlock-rwlock", rwlock::<Pretend>)
    },
    Specimen {
        plays: Plays::Functions,
        ..lock("kinlock-once", set::<Pretend>)
    },
];

named!(Specimen, "lock", ALL);

const fn lock(name: &'static str, new_pretended: fn() -> AnyTarget) -> Specimen {
    Specimen {
        name,
        new: new_pretended,
        new_pretended,
        reorders: || false,
        defect: None,
        plays: Plays::Lock,
        condvar: None,
    }
}

fn mutex<P: Platform>() -> AnyTarget {
    Box::new(QueuedMutex::<P, Eager>::new())
}

fn rwlock<P: Platform>() -> AnyTarget {
    Box::new(QueuedRwLock::<P, Eager>::new())
}

fn pair<P: Platform>() -> AnyTarget {
    Box::new(Pair::<P, Eager>::default())
}

fn set<P: Platform>() -> AnyTarget {
    Box::new(Set::<P, Eager>::default())
}

/// A mutex with the layout for memory that may be freed early.
fn joined_mutex() -> AnyTarget {
    Box::new(QueuedMutex::<Pretend, Eager, Joined<Pretend>>::new())
}

fn spinlock<P: Platform, C: LockConfig>() -> AnyTarget {
    Box::new(QueuedSpinLock::<P, C>::new())
}
