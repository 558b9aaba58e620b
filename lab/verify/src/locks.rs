//! The locks that can be tortured, by name: the library's, and some that are broken on purpose.
//!
//! The broken ones are the library's own source with one defect switched on. They run on a platform
//! that pretends to have several locality domains, so that the defect can be reached.

use crate::busted::busted;
use crate::configs::{self, Eager, Strict, Tuned};
use crate::monitors::{self, Monitor};
use crate::pretend::Pretend;
use crate::report::Property;
use crate::specimen::named;
use crate::test_lock::{Own, ReadWrite, Runs, TestLock};
use kinlock::{RawCnaSpinLock, RawFifoSpinLock, RawMutex, RawSpinLock};
use kinlock_core::defect::Defect;
use kinlock_core::platform::Platform;
use kinlock_core::raw::mutex::{Joined, QueuedMutex};
use kinlock_core::raw::once::RunOnce;
use kinlock_core::raw::{LockConfig, QueuedRwLock, QueuedSpinLock};
use kinlock_core::sabotaged::Sabotaged;
use kinlock_linux::Native;
use kinlock_linux::config::AsConfigured;
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

/// All locks: the library's, and the broken ones.
macro_rules! all {
    ($($kind:ident $defect:ident $name:literal $property:ident;)*) => {
        /// All locks.
        pub static ALL: &[Specimen] = &[
            Specimen {
                new: || Box::new(RawSpinLock::new()),
                reorders: || <AsConfigured as LockConfig>::tuning().reorder,
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
                new: || Box::new(Own(QueuedRwLock::<Native, AsConfigured>::new())),
                reads: Some(readwrite::<Pretend>),
                ..lock("kinlock-rwlock", rwlock::<Pretend>)
            },
            Specimen {
                defect: None,
                ..broken::once::<{ Defect::None as u8 }>("kinlock-once", Property::Completion)
            },
            $(broken::$kind::<{ Defect::$defect as u8 }>($name, Property::$property),)*
        ];
    };
}
busted!(all);

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

/// Locks with a defect, by the kind that a row of [`busted!`] names.
mod broken {
    use super::*;

    /// The pretended machine with a defect.
    type Broken<const DEFECT: u8> = Sabotaged<Pretend, DEFECT>;

    pub(super) const fn spin<const DEFECT: u8>(name: &'static str, defect: Property) -> Specimen {
        Specimen {
            defect: Some(defect),
            ..lock(name, spinlock::<Broken<DEFECT>, configs::Cna>)
        }
    }

    pub(super) const fn mutex<const DEFECT: u8>(name: &'static str, defect: Property) -> Specimen {
        Specimen {
            defect: Some(defect),
            ..lock(name, super::mutex::<Broken<DEFECT>>)
        }
    }

    pub(super) const fn rwlock<const DEFECT: u8>(name: &'static str, defect: Property) -> Specimen {
        Specimen {
            defect: Some(defect),
            reads: Some(readwrite::<Broken<DEFECT>>),
            ..lock(name, super::rwlock::<Broken<DEFECT>>)
        }
    }

    /// The mutex is sound, its condition variable is not.
    pub(super) const fn condvar<const DEFECT: u8>(
        name: &'static str,
        defect: Property,
    ) -> Specimen {
        Specimen {
            defect: Some(defect),
            meets: Some(Meets {
                new: monitors::on::<Broken<DEFECT>>,
                new_pretended: monitors::on::<Broken<DEFECT>>,
            }),
            ..lock(name, super::mutex::<Pretend>)
        }
    }

    /// The mutex is sound, what runs functions once is not.
    pub(super) const fn once<const DEFECT: u8>(name: &'static str, defect: Property) -> Specimen {
        Specimen {
            defect: Some(defect),
            runs: Some(|| Arc::new(RunOnce::<Broken<DEFECT>>::new())),
            ..lock(name, super::mutex::<Pretend>)
        }
    }
}

fn mutex<P: Platform>() -> Box<dyn TestLock> {
    Box::new(Own(QueuedMutex::<P, Eager>::new()))
}

/// Taken for writing.
fn rwlock<P: Platform>() -> Box<dyn TestLock> {
    Box::new(Own(QueuedRwLock::<P, Eager>::new()))
}

fn readwrite<P: Platform>() -> Box<dyn ReadWrite + Send + Sync> {
    Box::new(QueuedRwLock::<P, Eager>::new())
}

/// With the layout for memory that may be freed early.
fn joined_mutex() -> Box<dyn TestLock> {
    Box::new(Own(QueuedMutex::<Pretend, Eager, Joined<Pretend>>::new()))
}

fn spinlock<P: Platform, C: LockConfig>() -> Box<dyn TestLock> {
    Box::new(Own(QueuedSpinLock::<P, C>::new()))
}
