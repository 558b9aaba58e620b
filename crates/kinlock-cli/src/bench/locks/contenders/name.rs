//! Names of locks, and the way from a name to a type.

use super::{CondvarFamily, Family, lock_api_locks as api, monitors, peers};
use crate::args::Named;

#[cfg(have_ck)]
use super::ck_mcs::CkMcs;
/// Never dispatched to: the lock is unavailable.
#[cfg(not(have_ck))]
use super::peers::StdMutex as CkMcs;

/// Work to be done with a lock that is known only by name.
pub trait Visit {
    /// What the work yields.
    type Output;
    /// Does the work with the locks of `F`.
    fn visit<F: Family>(self) -> Self::Output;
}

/// Work to be done with a lock and its condition variable.
pub trait VisitCondvar {
    /// What the work yields.
    type Output;
    /// Does the work with the monitors of `F`.
    fn visit<F: CondvarFamily>(self) -> Self::Output;
}

macro_rules! lock_names {
    ($($(#[$doc:meta])* $variant:ident = $name:literal => $family:ty,)*) => {
        /// A lock the command can measure.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum LockName {
            $($(#[$doc])* $variant,)*
        }

        impl LockName {
            /// Calls `visitor` with this lock's type.
            pub fn dispatch<V: Visit>(self, visitor: V) -> V::Output {
                match self { $(Self::$variant => visitor.visit::<$family>(),)* }
            }
        }

        impl Named for LockName {
            const WHAT: &'static str = "lock";
            fn all() -> Vec<Self> {
                vec![$(Self::$variant),*]
            }
            fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
            fn summary(self) -> &'static str {
                ""
            }
        }
    };
}

lock_names! {
    /// Our queued spinlock as configured.
    KinlockSpin = "kinlock-spin" => api::Api<kinlock::RawSpinLock>,
    /// Our queued spinlock in arrival order, whatever the configuration.
    KinlockSpinFifo = "kinlock-spin-fifo" => api::Api<kinlock::RawFifoSpinLock>,
    /// Our queued spinlock with the NUMA-aware order, whatever the configuration.
    KinlockSpinCna = "kinlock-spin-cna" => api::Api<kinlock::RawCnaSpinLock>,
    /// Our mutex.
    KinlockMutex = "kinlock-mutex" => api::Api<kinlock::RawMutex>,
    /// The standard library's mutex.
    StdMutex = "std-mutex" => peers::StdMutex,
    /// The mutex of the crate `parking_lot`.
    ParkingLot = "parking-lot" => api::Api<parking_lot::RawMutex>,
    /// The C library's default mutex.
    PthreadMutex = "pthread-mutex" => api::Api<super::posix::RawPthreadMutex>,
    /// The C library's spinlock.
    PthreadSpin = "pthread-spin" => super::posix::PthreadSpin,
    /// The mutex of the crate `usync`.
    Usync = "usync" => api::Api<usync::RawMutex>,
    /// Bare test-and-set: the least that a lock can do.
    Tas = "tas" => api::Api<super::tas::RawTas>,
    /// The spinning MCS lock of the crate `mcslock`.
    Mcslock = "mcslock" => peers::Mcslock,
    /// The MCS lock of Concurrency Kit.
    CkMcs = "ck-mcs" => CkMcs,
}

impl LockName {
    /// Why this build or machine lacks the lock and how to get it; `None` if it is there.
    pub fn unavailable(self) -> Option<&'static str> {
        match self {
            Self::CkMcs if cfg!(not(have_ck)) => Some(
                "install Concurrency Kit's headers (Debian: libck-dev, Fedora: ck-devel) and rebuild",
            ),
            _ => None,
        }
    }

    /// Calls `visitor` with this lock's condition variable; `None` if it has none.
    pub fn dispatch_condvar<V: VisitCondvar>(self, visitor: V) -> Option<V::Output> {
        match self {
            Self::KinlockMutex => Some(visitor.visit::<monitors::Kinlock>()),
            Self::StdMutex => Some(visitor.visit::<monitors::Std>()),
            Self::ParkingLot => Some(visitor.visit::<monitors::ParkingLot>()),
            _ => None,
        }
    }

    /// Whether it comes with a condition variable.
    pub fn has_condvar(self) -> bool {
        struct Ask;
        impl VisitCondvar for Ask {
            type Output = ();
            fn visit<F: CondvarFamily>(self) {}
        }
        self.dispatch_condvar(Ask).is_some()
    }

    /// Whether it is one of this project's locks.
    pub fn is_ours(self) -> bool {
        matches!(
            self,
            Self::KinlockSpin | Self::KinlockSpinFifo | Self::KinlockSpinCna | Self::KinlockMutex
        )
    }

    /// Whether waiters spin in strict arrival order: throughput collapses with more threads than CPUs, because the
    /// next in line is then often not running.
    pub fn is_strict_fifo(self) -> bool {
        matches!(self, Self::Mcslock | Self::CkMcs)
    }
}
