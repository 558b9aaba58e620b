//! The locks that can be tortured, by name: the library's, and some that are broken on purpose.
//!
//! The broken ones are the library's own source with one defect switched on. They run on a platform
//! that pretends to have several locality domains, so that the defect can be reached.

use crate::configs::{self, Eager, Strict, Tuned};
use crate::monitors::{self, Monitor};
use crate::pretend::Pretend;
use crate::report::Property;
use crate::specimen::named;
use crate::test_lock::{Own, ReadWrite, Runs, TestLock};
use kinlock::{RawCnaSpinLock, RawFifoSpinLock, RawMutex, RawSpinLock};
use kinlock_core::defect::Defect;
use kinlock_core::platform::ConstPlatform;
use kinlock_core::raw::mutex::{Joined, QueuedMutex};
use kinlock_core::raw::once::RunOnce;
use kinlock_core::raw::{Config, QueuedRwLock, QueuedSpinLock};
use kinlock_core::sabotaged::Sabotaged;
use kinlock_linux::Native;
use kinlock_linux::configured::AsConfigured;
use std::sync::Arc;

/// A kind of lock.
#[derive(Clone, Copy, Debug)]
pub struct Specimen {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// Makes one.
    pub new: fn() -> Box<dyn TestLock>,
    /// Makes one that believes in as many locality domains as threads name.
    pub new_pretended: fn() -> Box<dyn TestLock>,
    /// Whether it is sure to reorder its queue, as things are configured.
    pub reorders: fn() -> bool,
    /// What its defect violates, if it is broken on purpose.
    pub defect: Option<Property>,
    /// How to make it as a reader-writer lock, if it is one.
    pub(crate) reads: Option<Reads>,
    /// What runs functions once, if that is what is tortured, beside a sound lock.
    pub(crate) runs: Option<fn() -> Arc<dyn Runs>>,
    /// How to make it with condition variables, if it has any. If the specimen is broken on
    /// purpose, the defect is in them.
    pub meets: Option<Meets>,
}

/// How to make a lock with its condition variables.
#[derive(Clone, Copy, Debug)]
pub struct Meets {
    /// Makes one.
    pub new: fn() -> Box<dyn Monitor>,
    /// Makes one that can be held up inside.
    pub new_pretended: fn() -> Box<dyn Monitor>,
}

/// How to make a reader-writer lock that can be held up inside.
pub(crate) type Reads = fn() -> Box<dyn ReadWrite + Send + Sync>;

/// All locks.
pub const ALL: &[Specimen] = &[
    Specimen {
        new: || Box::new(RawSpinLock::new()),
        reorders: || <AsConfigured as Config>::tuning().reorder,
        ..lock("kinlock-spin", spinlock::<Pretend, Tuned>)
    },
    Specimen {
        new: || Box::new(RawFifoSpinLock::new()),
        ..lock("kinlock-spin-fifo", spinlock::<Pretend, configs::Fifo>)
    },
    Specimen {
        new: || Box::new(RawCnaSpinLock::new()),
        reorders: || true,
        ..lock("kinlock-spin-cna", spinlock::<Pretend, configs::Cna>)
    },
    Specimen {
        new: spinlock::<Native, Strict>,
        reorders: || true,
        ..lock("kinlock-spin-strict", spinlock::<Pretend, Strict>)
    },
    Specimen {
        new: || Box::new(RawMutex::new()),
        meets: Some(Meets {
            new: monitors::users,
            new_pretended: monitors::on::<Pretend>,
        }),
        ..lock("kinlock-mutex", mutex::<Pretend>)
    },
    lock("kinlock-mutex-joined", joined_mutex),
    Specimen {
        new: || Box::new(Own(QueuedRwLock::<Native, AsConfigured>::UNLOCKED)),
        reads: Some(readwrite::<Pretend>),
        ..lock("kinlock-rwlock", rwlock::<Pretend>)
    },
    once::<{ Defect::None as u8 }>("kinlock-once", None),
    broken::<{ Defect::SpinNoExclusion as u8 }>("busted-exclusion", Property::Exclusion),
    broken::<{ Defect::SpinLostSplice as u8 }>("busted-splice", Property::Completion),
    broken::<{ Defect::SpinLostWakeup as u8 }>("busted-wakeup", Property::Completion),
    broken::<{ Defect::SpinSilentSleeper as u8 }>("busted-sleeper", Property::Completion),
    broken::<{ Defect::SpinStarvation as u8 }>("busted-starvation", Property::Progress),
    broken_mutex::<{ Defect::MutexMissingWake as u8 }>("busted-mutex-wake", Property::Completion),
    broken_mutex::<{ Defect::MutexLostWakeup as u8 }>("busted-mutex-sleep", Property::Completion),
    broken_mutex::<{ Defect::MutexDoubleHandOff as u8 }>(
        "busted-mutex-pickup",
        Property::Exclusion,
    ),
    broken_mutex::<{ Defect::MutexLeakyCancel as u8 }>("busted-mutex-cancel", Property::Completion),
    broken_rwlock::<{ Defect::RwLockLostReader as u8 }>(
        "busted-rwlock-reader",
        Property::Exclusion,
    ),
    broken_rwlock::<{ Defect::RwLockUnseenReader as u8 }>(
        "busted-rwlock-unseen",
        Property::Exclusion,
    ),
    broken_rwlock::<{ Defect::RwLockHastyReader as u8 }>(
        "busted-rwlock-hasty",
        Property::Exclusion,
    ),
    broken_rwlock::<{ Defect::RwLockBiasInWrite as u8 }>("busted-rwlock-bias", Property::Exclusion),
    broken_rwlock::<{ Defect::RwLockMissingWake as u8 }>(
        "busted-rwlock-wake",
        Property::Completion,
    ),
    broken_rwlock::<{ Defect::RwLockLeakyRequest as u8 }>(
        "busted-rwlock-request",
        Property::Completion,
    ),
    broken_rwlock::<{ Defect::RwLockStaleWriter as u8 }>(
        "busted-rwlock-stale",
        Property::Completion,
    ),
    broken_rwlock::<{ Defect::RwLockHastyRelease as u8 }>(
        "busted-rwlock-release",
        Property::Completion,
    ),
    broken_condvar::<{ Defect::CondvarBlindSleep as u8 }>("busted-condvar-sleep"),
    broken_condvar::<{ Defect::CondvarCarelessClear as u8 }>("busted-condvar-clear"),
    broken_condvar::<{ Defect::CondvarBrokenChain as u8 }>("busted-condvar-chain"),
    broken_condvar::<{ Defect::CondvarSwallowedWake as u8 }>("busted-condvar-swallow"),
    broken_condvar::<{ Defect::CondvarLingeringSpinner as u8 }>("busted-condvar-spinner"),
    once::<{ Defect::OnceEarlyDone as u8 }>("busted-once-early", Some(Property::Exclusion)),
    once::<{ Defect::OnceMissingWake as u8 }>("busted-once-wake", Some(Property::Completion)),
];

named!(Specimen, "lock", ALL);

const fn lock(name: &'static str, new_pretended: fn() -> Box<dyn TestLock>) -> Specimen {
    Specimen {
        name,
        new: new_pretended,
        new_pretended,
        reorders: || false,
        defect: None,
        reads: None,
        runs: None,
        meets: None,
    }
}

/// The pretended machine with a defect.
type Broken<const DEFECT: u8> = Sabotaged<Pretend, DEFECT>;

const fn broken<const DEFECT: u8>(name: &'static str, defect: Property) -> Specimen {
    Specimen {
        defect: Some(defect),
        ..lock(name, spinlock::<Broken<DEFECT>, configs::Cna>)
    }
}

const fn broken_mutex<const DEFECT: u8>(name: &'static str, defect: Property) -> Specimen {
    Specimen {
        defect: Some(defect),
        ..lock(name, mutex::<Broken<DEFECT>>)
    }
}

/// `BlindAnnouncement` is left to loom and the explorer: it is too rare on a busy machine.
const fn broken_rwlock<const DEFECT: u8>(name: &'static str, defect: Property) -> Specimen {
    Specimen {
        defect: Some(defect),
        reads: Some(readwrite::<Broken<DEFECT>>),
        ..lock(name, rwlock::<Broken<DEFECT>>)
    }
}

/// Each of these defects leaves a thread asleep for ever. `LateCount` is left to loom and the
/// explorer: it is too rare on a busy machine.
const fn broken_condvar<const DEFECT: u8>(name: &'static str) -> Specimen {
    Specimen {
        defect: Some(Property::Completion),
        meets: Some(Meets {
            new: monitors::on::<Broken<DEFECT>>,
            new_pretended: monitors::on::<Broken<DEFECT>>,
        }),
        ..lock(name, mutex::<Pretend>)
    }
}

const fn once<const DEFECT: u8>(name: &'static str, defect: Option<Property>) -> Specimen {
    Specimen {
        defect,
        runs: Some(|| Arc::new(RunOnce::<Broken<DEFECT>>::NEW)),
        ..lock(name, mutex::<Pretend>)
    }
}

fn mutex<P: ConstPlatform>() -> Box<dyn TestLock> {
    Box::new(Own(QueuedMutex::<P, Eager>::UNLOCKED))
}

/// Taken for writing.
fn rwlock<P: ConstPlatform>() -> Box<dyn TestLock> {
    Box::new(Own(QueuedRwLock::<P, Eager>::UNLOCKED))
}

fn readwrite<P: ConstPlatform>() -> Box<dyn ReadWrite + Send + Sync> {
    Box::new(QueuedRwLock::<P, Eager>::UNLOCKED)
}

/// With the layout for memory that may be freed early.
fn joined_mutex() -> Box<dyn TestLock> {
    Box::new(Own(
        QueuedMutex::<Pretend, Eager, Joined<Pretend>>::UNLOCKED,
    ))
}

fn spinlock<P: ConstPlatform, C: Config>() -> Box<dyn TestLock> {
    Box::new(Own(QueuedSpinLock::<P, C>::UNLOCKED))
}

#[cfg(test)]
mod tests {
    use super::{ALL, Specimen};
    use crate::specimen::{BUSTED, by_name};

    #[test]
    fn names_are_found() {
        assert_eq!(by_name::<Specimen>("kinlock-spin").len(), 1);
        let busted = by_name::<Specimen>(BUSTED);
        assert!(busted.iter().all(|lock| lock.name.starts_with("busted-")));
        assert_eq!((busted.len(), ALL.len()), (24, 32));
        assert!(by_name::<Specimen>("kinlock").is_empty());
    }
}
