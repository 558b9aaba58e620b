//! Names of locks, and the way from a name to a type.

use super::installed::{self, Abseil, Installed, Nsync};
use super::{CondvarFamily, Family, ReadWriteFamily, monitors, peers, readers};

/// Never dispatched to: the lock is unavailable.
#[cfg(not(have_ck_mcs))]
use super::peers::StdMutex as CkMcs;
/// Never dispatched to: the lock is unavailable.
#[cfg(not(have_vsync_cna))]
use super::peers::StdMutex as VsyncCna;
#[cfg(have_ck_mcs)]
type CkMcs = super::shims::Queued<super::shims::CkMcs>;
#[cfg(have_vsync_cna)]
type VsyncCna = super::shims::Queued<super::shims::VsyncCna>;
use kinlock_cli::args::{Available, Named};
use kinlock_cli::names;

/// Work to be done with a lock that is known only by name.
pub trait Visit {
    type Output;
    fn visit<F: Family>(self) -> Self::Output;
}

/// Work to be done with a lock and its condition variable.
pub trait VisitCondvar {
    type Output;
    fn visit<F: CondvarFamily>(self) -> Self::Output;
}

/// Work to be done with the reader-writer lock of a lock's library.
pub trait VisitReadWrite {
    type Output;
    fn visit<F: ReadWriteFamily>(self) -> Self::Output;
}

/// Who only asks whether there is one.
impl VisitCondvar for () {
    type Output = ();
    fn visit<F: CondvarFamily>(self) {}
}

/// Who only asks whether there is one.
impl VisitReadWrite for () {
    type Output = ();
    fn visit<F: ReadWriteFamily>(self) {}
}

names! {
    /// A lock the command can measure, in the order in which they are listed. `--details` shows the
    /// line about it, for people who know one of them and wonder which it is.
    LockName, "lock":
    KinlockSpin = "kinlock-spin", "our queued spinlock as configured";
    KinlockSpinFifo = "kinlock-spin-fifo", "our queued spinlock in arrival order, whatever the \
        configuration";
    KinlockSpinCna = "kinlock-spin-cna", "our queued spinlock with the NUMA-aware order, whatever \
        the configuration";
    KinlockMutex = "kinlock-mutex", "our mutex";
    KinlockMutexJoined = "kinlock-mutex-joined", "our mutex as C programs get it: lock and flags \
        in one atomic";
    KinlockFair = "kinlock-fair", "our fair mutex: goes to its waiters in the order of arrival";
    StdMutex = "std-mutex", "Rust's `std::sync::Mutex`";
    ParkingLot = "parking-lot", "the mutex of the crate `parking_lot`, after WebKit's";
    PthreadMutex = "pthread-mutex", "the C library's default mutex, which C++'s \
        `std::mutex` is, too";
    PthreadSpin = "pthread-spin", "the C library's spinlock";
    Usync = "usync", "the mutex of the crate `usync`";
    Tas = "tas", "bare test-and-set: the least that a lock can do";
    Mcslock = "mcslock", "the spinning MCS lock of the crate `mcslock`";
    CkMcs = "ck-mcs", "the MCS lock of Concurrency Kit";
    VsyncCna = "vsync-cna", "the CNA lock of libvsync";
    Nsync = "nsync", "nsync's mutex, known from TensorFlow";
    Abseil = "abseil", "Abseil's mutex, known from gRPC";
}

impl Available for LockName {
    fn unavailable(self) -> Option<&'static str> {
        match self {
            Self::CkMcs if cfg!(not(have_ck_mcs)) => {
                Some("install Concurrency Kit (Debian: libck-dev, Fedora: ck-devel) and rebuild")
            }
            Self::VsyncCna if cfg!(not(have_vsync_cna)) => Some(
                "install the headers of libvsync (github.com/open-s4c/libvsync), or name their \
                 folders in the variable CPATH, and rebuild",
            ),
            Self::Nsync => Nsync::library()
                .fault("install nsync (Debian: libnsync1, from version 13 on libnsync1t64)"),
            Self::Abseil => Abseil::library()
                .fault("install Abseil (Debian: libabsl-dev, Fedora: abseil-cpp-devel)"),
            _ => None,
        }
    }

    fn is_usual(self) -> bool {
        !matches!(
            self,
            Self::KinlockSpinFifo
                | Self::KinlockSpinCna
                | Self::KinlockMutexJoined
                | Self::KinlockFair
                | Self::VsyncCna
                | Self::Nsync
                | Self::Abseil
        )
    }
}

impl LockName {
    pub fn dispatch<V: Visit>(self, visitor: V) -> V::Output {
        match self {
            Self::KinlockSpin => visitor.visit::<peers::Api<kinlock::RawSpinLock>>(),
            Self::KinlockSpinFifo => visitor.visit::<peers::Api<kinlock::RawFifoSpinLock>>(),
            Self::KinlockSpinCna => visitor.visit::<peers::Api<kinlock::RawCnaSpinLock>>(),
            Self::KinlockMutex => visitor.visit::<peers::Api<kinlock::RawMutex>>(),
            Self::KinlockMutexJoined => visitor.visit::<peers::Api<peers::RawJoinedMutex>>(),
            Self::KinlockFair => visitor.visit::<peers::Api<kinlock::RawFairMutex>>(),
            Self::StdMutex => visitor.visit::<peers::StdMutex>(),
            Self::ParkingLot => visitor.visit::<peers::Api<parking_lot::RawMutex>>(),
            Self::PthreadMutex => visitor.visit::<peers::Api<super::posix::RawPthreadMutex>>(),
            Self::PthreadSpin => visitor.visit::<super::posix::PthreadSpin>(),
            Self::Usync => visitor.visit::<peers::Api<usync::RawMutex>>(),
            Self::Tas => visitor.visit::<peers::Api<peers::RawTas>>(),
            Self::Mcslock => visitor.visit::<peers::Mcslock>(),
            Self::CkMcs => visitor.visit::<CkMcs>(),
            Self::VsyncCna => visitor.visit::<VsyncCna>(),
            Self::Nsync => visitor.visit::<installed::Of<Nsync>>(),
            Self::Abseil => visitor.visit::<installed::Of<Abseil>>(),
        }
    }

    /// Calls `visitor` with this lock's condition variable; `None` if it has none.
    pub fn dispatch_condvar<V: VisitCondvar>(self, visitor: V) -> Option<V::Output> {
        match self {
            Self::KinlockMutex => Some(visitor.visit::<monitors::Kinlock>()),
            Self::StdMutex => Some(visitor.visit::<monitors::Std>()),
            Self::ParkingLot => Some(visitor.visit::<monitors::ParkingLot>()),
            Self::Nsync => Some(visitor.visit::<Nsync>()),
            _ => None,
        }
    }

    /// Whether it comes with a condition variable.
    pub fn has_condvar(self) -> bool {
        self.dispatch_condvar(()).is_some()
    }

    /// Calls `visitor` with the reader-writer lock of this lock's library; `None` if it has none.
    pub fn dispatch_read_write<V: VisitReadWrite>(self, visitor: V) -> Option<V::Output> {
        match self {
            Self::KinlockMutex => Some(visitor.visit::<readers::Kinlock>()),
            Self::StdMutex => Some(visitor.visit::<readers::Std>()),
            Self::ParkingLot => Some(visitor.visit::<readers::ParkingLot>()),
            Self::PthreadMutex => Some(visitor.visit::<readers::Pthread>()),
            Self::Nsync => Some(visitor.visit::<installed::Of<Nsync>>()),
            Self::Abseil => Some(visitor.visit::<installed::Of<Abseil>>()),
            _ => None,
        }
    }

    /// Whether its library has a reader-writer lock.
    pub fn has_readers(self) -> bool {
        self.dispatch_read_write(()).is_some()
    }

    /// Whether it is one of this project's locks.
    pub fn is_ours(self) -> bool {
        self.name().starts_with("kinlock-")
    }

    /// Whether waiters spin in strict arrival order, if only within a locality domain: throughput
    /// collapses with more threads than CPUs, because the next in line is then often not running.
    pub fn is_strict_fifo(self) -> bool {
        matches!(self, Self::Mcslock | Self::CkMcs | Self::VsyncCna)
    }
}
