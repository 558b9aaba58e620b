//! The locks that can be tortured, by name: the library's, and some that are broken on purpose.
//!
//! The broken ones are the library's own source with one defect switched on. They run on a platform
//! that pretends to have several locality domains, so that the defect can be reached.

use crate::configs::{self, SoundMutex, SoundRwLock, Strict, Tuned};
use crate::monitors::{self, Monitor};
use crate::pretend::Pretend;
use crate::report::Property;
use crate::specimen::named;
use crate::test_lock::{Own, ReadWrite, Runs, TestLock};
use kinlock::{RawCnaSpinLock, RawFifoSpinLock, RawMutex, RawSpinLock};
use kinlock_core::platform::ConstPlatform;
use kinlock_core::raw::condvar::CondvarConfig;
use kinlock_core::raw::mutex::{Joined, MutexConfig, QueuedMutex};
use kinlock_core::raw::once::{OnceConfig, RunOnce};
use kinlock_core::raw::{Config, QueuedRwLock, QueuedSpinLock, RwLockConfig};
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
    /// The same as a reader-writer lock, if it is one.
    pub(crate) reads: Option<Reads>,
    /// What runs functions once, if that is what is tortured, beside a sound lock.
    pub(crate) runs: Option<fn() -> Arc<dyn Runs>>,
    /// The same with condition variables, if it has any. If it is broken they are.
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
            new_pretended: monitors::pretended::<configs::SoundCondvar>,
        }),
        ..lock("kinlock-mutex", mutex::<SoundMutex>)
    },
    lock("kinlock-mutex-joined", joined_mutex),
    Specimen {
        new: || Box::new(Own(QueuedRwLock::<Native, AsConfigured>::UNLOCKED)),
        reads: Some(readwrite::<SoundRwLock>),
        ..lock("kinlock-rwlock", rwlock::<SoundRwLock>)
    },
    once::<configs::SoundOnce>("kinlock-once", None),
    broken::<configs::NoExclusion>("busted-exclusion", Property::Exclusion),
    broken::<configs::LostSplice>("busted-splice", Property::Completion),
    broken::<configs::LostWakeup>("busted-wakeup", Property::Completion),
    broken::<configs::SilentSleeper>("busted-sleeper", Property::Completion),
    broken::<configs::Starvation>("busted-starvation", Property::Progress),
    broken_mutex::<configs::MissingWake>("busted-mutex-wake", Property::Completion),
    broken_mutex::<configs::LostMutexWakeup>("busted-mutex-sleep", Property::Completion),
    broken_mutex::<configs::DoubleHandOff>("busted-mutex-pickup", Property::Exclusion),
    broken_mutex::<configs::LeakyCancel>("busted-mutex-cancel", Property::Completion),
    broken_rwlock::<configs::LostReader>("busted-rwlock-reader", Property::Exclusion),
    broken_rwlock::<configs::UnseenReader>("busted-rwlock-unseen", Property::Exclusion),
    broken_rwlock::<configs::HastyReader>("busted-rwlock-hasty", Property::Exclusion),
    broken_rwlock::<configs::BiasInWrite>("busted-rwlock-bias", Property::Exclusion),
    broken_rwlock::<configs::MissingRwWake>("busted-rwlock-wake", Property::Completion),
    broken_rwlock::<configs::LeakyRequest>("busted-rwlock-request", Property::Completion),
    broken_rwlock::<configs::StaleWriter>("busted-rwlock-stale", Property::Completion),
    broken_rwlock::<configs::HastyRelease>("busted-rwlock-release", Property::Completion),
    broken_condvar::<configs::BlindSleep>("busted-condvar-sleep"),
    broken_condvar::<configs::CarelessClear>("busted-condvar-clear"),
    broken_condvar::<configs::BrokenChain>("busted-condvar-chain"),
    broken_condvar::<configs::SwallowedWake>("busted-condvar-swallow"),
    broken_condvar::<configs::LingeringSpinner>("busted-condvar-spinner"),
    once::<configs::EarlyDone>("busted-once-early", Some(Property::Exclusion)),
    once::<configs::MissingOnceWake>("busted-once-wake", Some(Property::Completion)),
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

const fn broken<C: Config>(name: &'static str, defect: Property) -> Specimen {
    Specimen {
        defect: Some(defect),
        ..lock(name, spinlock::<Pretend, C>)
    }
}

const fn broken_mutex<C: MutexConfig>(name: &'static str, defect: Property) -> Specimen {
    Specimen {
        defect: Some(defect),
        ..lock(name, mutex::<C>)
    }
}

/// `BlindAnnouncement` is left to loom and the explorer: it is too rare on a busy machine.
const fn broken_rwlock<C: RwLockConfig>(name: &'static str, defect: Property) -> Specimen {
    Specimen {
        defect: Some(defect),
        reads: Some(readwrite::<C>),
        ..lock(name, rwlock::<C>)
    }
}

/// Each of these defects leaves a thread asleep for ever. `LateCount` is left to loom and the
/// explorer: it is too rare on a busy machine.
const fn broken_condvar<C: CondvarConfig>(name: &'static str) -> Specimen {
    Specimen {
        defect: Some(Property::Completion),
        meets: Some(Meets {
            new: monitors::pretended::<C>,
            new_pretended: monitors::pretended::<C>,
        }),
        ..lock(name, mutex::<SoundMutex>)
    }
}

const fn once<C: OnceConfig>(name: &'static str, defect: Option<Property>) -> Specimen {
    Specimen {
        defect,
        runs: Some(|| Arc::new(RunOnce::<Pretend, C>::NEW)),
        ..lock(name, mutex::<SoundMutex>)
    }
}

fn mutex<C: MutexConfig>() -> Box<dyn TestLock> {
    Box::new(Own(QueuedMutex::<Pretend, C>::UNLOCKED))
}

/// Taken for writing.
fn rwlock<C: RwLockConfig>() -> Box<dyn TestLock> {
    Box::new(Own(QueuedRwLock::<Pretend, C>::UNLOCKED))
}

fn readwrite<C: RwLockConfig>() -> Box<dyn ReadWrite + Send + Sync> {
    Box::new(QueuedRwLock::<Pretend, C>::UNLOCKED)
}

/// With the layout for memory that may be freed early.
fn joined_mutex() -> Box<dyn TestLock> {
    Box::new(Own(
        QueuedMutex::<Pretend, SoundMutex, Joined<Pretend>>::UNLOCKED,
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
