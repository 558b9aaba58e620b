//! The locks that can be tortured, by name: ours, and some that are broken on purpose.
//!
//! The broken ones are the library's own source with one defect switched on, over a machine that pretends to have two
//! locality domains, so that the defect can be reached.
//!
//! # Invariants
//!
//! 1. An `OwnLock` or `OwnMutex` is released under the conditions of [`TestLock::unlock`], which are those of the lock inside.

use crate::pretend::Pretend;
use crate::report::Property;
use crate::test_lock::TestLock;
use kinlock::config::Tuning;
use kinlock::platform::{ConstPlatform, Native, Platform};
use kinlock::raw::mutex::{MutexConfig, MutexFault, QueuedMutex};
use kinlock::raw::{Config, Fault, QueuedSpinLock};
use kinlock::{RawCnaSpinLock, RawFifoSpinLock, RawMutex, RawSpinLock};
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
}

/// All locks.
pub const ALL: &[Specimen] = &[
    Specimen {
        name: "kinlock-spin",
        new: || Box::new(RawSpinLock::new()),
        new_pretended: || pretended::<AsConfigured>(),
        reorders: || kinlock::config::tuning().reorder,
        defect: None,
    },
    Specimen {
        name: "kinlock-spin-fifo",
        new: || Box::new(RawFifoSpinLock::new()),
        new_pretended: || pretended::<Fifo>(),
        reorders: || false,
        defect: None,
    },
    Specimen {
        name: "kinlock-spin-cna",
        new: || Box::new(RawCnaSpinLock::new()),
        new_pretended: || pretended::<Cna>(),
        reorders: || true,
        defect: None,
    },
    Specimen {
        name: "kinlock-spin-strict",
        new: own::<Native, Strict>,
        new_pretended: pretended::<Strict>,
        reorders: || true,
        defect: None,
    },
    Specimen {
        name: "kinlock-mutex",
        new: || Box::new(RawMutex::new()),
        new_pretended: mutex::<AsConfigured>,
        reorders: || false,
        defect: None,
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
    }
}

const fn broken_mutex<C: MutexConfig>(name: &'static str, defect: Property) -> Specimen {
    Specimen {
        name,
        new: mutex::<C>,
        new_pretended: mutex::<C>,
        reorders: || false,
        defect: Some(defect),
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
struct OwnMutex<C: MutexConfig>(QueuedMutex<Pretend, C>);

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
                kinlock::config::tuning()
            }
        }
    };
}

mutex_config!(MissingWake, MissingWake);
mutex_config!(Sleepy, LostWakeup);
mutex_config!(DoubleHandOff, DoubleHandOff);
mutex_config!(LeakyCancel, LeakyCancel);

impl MutexConfig for AsConfigured {
    fn tuning() -> Tuning {
        kinlock::config::tuning()
    }
}

macro_rules! config {
    ($name:ident, $fault:ident, $tuning:expr) => {
        #[derive(Clone, Copy, Debug)]
        struct $name;

        impl Config for $name {
            const FAULT: Fault = Fault::$fault;

            fn tuning() -> Tuning {
                $tuning
            }
        }
    };
}

config!(AsConfigured, None, kinlock::config::tuning());
config!(Fifo, None, reordering(false));
config!(Cna, None, reordering(true));
config!(Strict, None, strict());
config!(NoExclusion, NoExclusion, reordering(true));
config!(LostSplice, LostSplice, reordering(true));
config!(LostWakeup, LostWakeup, reordering(true));
config!(SilentSleeper, SilentSleeper, reordering(true));
config!(Starvation, Starvation, reordering(true));

fn reordering(on: bool) -> Tuning {
    let mut tuning = kinlock::config::tuning();
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
        assert_eq!(by_name(BUSTED).len(), 9);
        assert_eq!(sound().count(), 5);
        assert!(by_name("kinlock").is_empty());
    }
}
