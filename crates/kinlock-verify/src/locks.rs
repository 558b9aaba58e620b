//! The locks that can be tortured, by name: ours, and some that are broken on purpose.
//!
//! The broken ones are the library's own source with one defect switched on, over a machine that pretends to have two
//! locality domains, so that the defect can be reached.
//!
//! # Invariants
//!
//! 1. An `OwnLock` or `OwnMutex` is released under the conditions of [`TestLock::unlock`], which are those of the lock inside.

use crate::monitors::{self, Monitor};
use crate::pretend::{self, Pretend};
use crate::report::Property;
use crate::scenarios::Scenario;
use crate::test_lock::TestLock;
use kinlock::{RawCnaSpinLock, RawFifoSpinLock, RawMutex, RawSpinLock};
use kinlock_core::Native;
use kinlock_core::config::Tuning;
use kinlock_core::platform::{ConstPlatform, Platform};
use kinlock_core::raw::condvar::CondvarConfig;
use kinlock_core::raw::mutex::{MutexConfig, MutexFault, QueuedMutex};
use kinlock_core::raw::{Config, Fault, QueuedSpinLock};
use std::time::Duration;

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

impl Specimen {
    /// Whether `scenario` says anything about it. A broken condition variable comes with a sound lock.
    pub fn suits(&self, scenario: &Scenario) -> bool {
        let (has_condvar, broken) = (self.meets.is_some(), self.defect.is_some());
        if scenario.needs_condvar {
            has_condvar
        } else {
            !(has_condvar && broken)
        }
    }
}

/// All locks.
pub const ALL: &[Specimen] = &[
    Specimen {
        name: "kinlock-spin",
        new: || Box::new(RawSpinLock::new()),
        new_pretended: || pretended::<AsConfigured>(),
        reorders: || kinlock_core::config::tuning().reorder,
        defect: None,
        meets: None,
    },
    Specimen {
        name: "kinlock-spin-fifo",
        new: || Box::new(RawFifoSpinLock::new()),
        new_pretended: || pretended::<Fifo>(),
        reorders: || false,
        defect: None,
        meets: None,
    },
    Specimen {
        name: "kinlock-spin-cna",
        new: || Box::new(RawCnaSpinLock::new()),
        new_pretended: || pretended::<Cna>(),
        reorders: || true,
        defect: None,
        meets: None,
    },
    Specimen {
        name: "kinlock-spin-strict",
        new: own::<Native, Strict>,
        new_pretended: pretended::<Strict>,
        reorders: || true,
        defect: None,
        meets: None,
    },
    Specimen {
        name: "kinlock-mutex",
        new: || Box::new(RawMutex::new()),
        new_pretended: mutex::<AsConfigured>,
        reorders: || false,
        defect: None,
        meets: Some(Meets {
            new: monitors::users,
            new_pretended: monitors::pretended::<monitors::Sound>,
        }),
    },
    broken::<NoExclusion>("busted-exclusion", Property::Exclusion),
    broken::<LostSplice>("busted-splice", Property::Completion),
    broken::<LostWakeup>("busted-wakeup", Property::Completion),
    broken::<SilentSleeper>("busted-sleeper", Property::Completion),
    broken::<Starvation>("busted-starvation", Property::Progress),
    broken_mutex::<MissingWake>("busted-mutex-wake", Property::Completion),
    broken_mutex::<Sleepy>("busted-mutex-sleep", Property::Completion),
    broken_mutex::<DoubleHandOff>("busted-mutex-grant", Property::Exclusion),
    broken_mutex::<LeakyCancel>("busted-mutex-cancel", Property::Completion),
    broken_mutex::<QueuedClaim>("busted-mutex-claim", Property::Completion),
    broken_condvar::<monitors::BlindSleep>("busted-condvar-sleep"),
    broken_condvar::<monitors::CarelessClear>("busted-condvar-clear"),
    broken_condvar::<monitors::BrokenChain>("busted-condvar-chain"),
    broken_condvar::<monitors::SwallowedWake>("busted-condvar-swallow"),
    broken_condvar::<monitors::LingeringSpinner>("busted-condvar-spinner"),
];

/// The name that stands for all locks that are broken on purpose.
pub const BUSTED: &str = "busted";

/// The locks meant by `name`: one, or all broken ones. Empty if there is no such lock.
pub fn by_name(name: &str) -> Vec<Specimen> {
    let wanted = |lock: &&Specimen| lock.name == name || name == BUSTED && lock.defect.is_some();
    ALL.iter().filter(wanted).copied().collect()
}

/// The locks that are meant to work.
pub fn sound() -> impl Iterator<Item = Specimen> {
    ALL.iter().filter(|lock| lock.defect.is_none()).copied()
}

const fn broken<C: Config>(name: &'static str, defect: Property) -> Specimen {
    Specimen {
        name,
        new: pretended::<C>,
        new_pretended: pretended::<C>,
        // Who knows what it does.
        reorders: || false,
        defect: Some(defect),
        meets: None,
    }
}

const fn broken_mutex<C: MutexConfig>(name: &'static str, defect: Property) -> Specimen {
    Specimen {
        name,
        new: mutex::<C>,
        new_pretended: mutex::<C>,
        reorders: || false,
        defect: Some(defect),
        meets: None,
    }
}

/// Whatever is wrong with it, in the end somebody sleeps for ever. Two defects are left to loom and the explorer: a notification that counts too late, which gets away on a busy machine, and a broadcast
/// that overlooks newcomers, since the one that it moves by mistake is the last in line here, and its silence harms nobody.
const fn broken_condvar<C: CondvarConfig>(name: &'static str) -> Specimen {
    Specimen {
        name,
        new: mutex::<AsConfigured>,
        new_pretended: mutex::<AsConfigured>,
        reorders: || false,
        defect: Some(Property::Completion),
        meets: Some(Meets {
            new: monitors::pretended::<C>,
            new_pretended: monitors::pretended::<C>,
        }),
    }
}

fn mutex<C: MutexConfig>() -> Box<dyn TestLock> {
    Box::new(OwnMutex::<C>(QueuedMutex::UNLOCKED))
}

fn pretended<C: Config>() -> Box<dyn TestLock> {
    own::<Pretend, C>()
}

fn own<P: ConstPlatform, C: Config>() -> Box<dyn TestLock> {
    Box::new(OwnLock::<P, C>(QueuedSpinLock::UNLOCKED))
}

/// The library's lock with a configuration of ours.
#[derive(Debug)]
struct OwnLock<P: Platform, C: Config>(QueuedSpinLock<P, C>);

impl<P: Platform, C: Config> TestLock for OwnLock<P, C> {
    fn lock(&self) {
        self.0.lock();
    }

    fn try_lock(&self) -> bool {
        self.0.try_lock()
    }

    fn try_lock_for(&self, timeout: Duration) -> bool {
        self.0.lock_until(P::now() + timeout.as_nanos() as u64)
    }

    unsafe fn unlock(&self) {
        // SAFETY: invariant 1.
        unsafe { self.0.unlock() }
    }
}

/// The library's mutex with a configuration of ours.
#[derive(Debug)]
pub(crate) struct OwnMutex<C: MutexConfig>(pub(crate) QueuedMutex<Pretend, C>);

impl<C: MutexConfig> TestLock for OwnMutex<C> {
    fn lock(&self) {
        self.0.lock();
    }

    fn try_lock(&self) -> bool {
        self.0.try_lock()
    }

    fn try_lock_for(&self, timeout: Duration) -> bool {
        self.0
            .lock_until(Pretend::now() + timeout.as_nanos() as u64)
    }

    unsafe fn unlock(&self) {
        // SAFETY: invariant 1.
        unsafe { self.0.unlock() }
    }
}

macro_rules! mutex_config {
    ($name:ident, $fault:ident) => {
        #[derive(Clone, Copy, Debug)]
        struct $name;

        impl MutexConfig for $name {
            const FAULT: MutexFault = MutexFault::$fault;

            fn tuning() -> Tuning {
                kinlock_core::config::tuning()
            }

            fn turns_at_first() -> Option<u16> {
                pretend::turns_at_first()
            }
        }
    };
}

mutex_config!(MissingWake, MissingWake);
mutex_config!(Sleepy, LostWakeup);
mutex_config!(DoubleHandOff, DoubleHandOff);
mutex_config!(LeakyCancel, LeakyCancel);
mutex_config!(QueuedClaim, QueuedClaim);

impl MutexConfig for AsConfigured {
    fn tuning() -> Tuning {
        kinlock_core::config::tuning()
    }

    fn turns_at_first() -> Option<u16> {
        pretend::turns_at_first()
    }
}

macro_rules! config {
    ($name:ident, $fault:ident, $tuning:expr) => {
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name;

        impl Config for $name {
            const FAULT: Fault = Fault::$fault;

            fn tuning() -> Tuning {
                $tuning
            }
        }
    };
}

config!(AsConfigured, None, kinlock_core::config::tuning());
config!(Fifo, None, reordering(false));
config!(Cna, None, reordering(true));
config!(Strict, None, strict());
config!(NoExclusion, NoExclusion, reordering(true));
config!(LostSplice, LostSplice, reordering(true));
config!(LostWakeup, LostWakeup, reordering(true));
config!(SilentSleeper, SilentSleeper, reordering(true));
config!(Starvation, Starvation, reordering(true));

fn reordering(on: bool) -> Tuning {
    let mut tuning = kinlock_core::config::tuning();
    tuning.reorder = on;
    tuning
}

/// The order of the queue without exception, which is NUMA-aware.
fn strict() -> Tuning {
    let mut tuning = reordering(true);
    tuning.stealing = false;
    tuning
}

#[cfg(test)]
mod tests {
    use super::{BUSTED, by_name, sound};

    #[test]
    fn names_are_found() {
        assert_eq!(by_name("kinlock-spin").len(), 1);
        assert!(
            by_name(BUSTED)
                .iter()
                .all(|lock| lock.name.starts_with("busted-"))
        );
        assert_eq!(by_name(BUSTED).len(), 15);
        assert_eq!(sound().count(), 5);
        assert!(by_name("kinlock").is_empty());
    }
}
