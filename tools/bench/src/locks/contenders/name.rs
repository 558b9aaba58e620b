//! Names of locks, and the way from a name to a type.

use kinlock_cli::args::{Available, Named};
use kinlock_cli::names;

use super::installed::{Abseil, Installed, Nsync};

names! {
    /// The locks that the command can measure, in the order in which they are listed. `--details`
    /// shows their descriptions, for people who know a lock under another name.
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

/// Evaluates `$body` with `$of<T>` as the type of the lock `$name` around a `T`.
macro_rules! with_lock {
    ($name:expr, $of:ident => $body:expr) => {{
        use $crate::locks::contenders::{LockName, foreign, installed, peers, posix};
        $crate::locks::contenders::name::with_type!(match $name, $of => $body, {
            KinlockSpin: kinlock::SpinLock<T>,
            KinlockSpinFifo: lock_api::Mutex<kinlock::RawFifoSpinLock, T>,
            KinlockSpinCna: lock_api::Mutex<kinlock::RawCnaSpinLock, T>,
            KinlockMutex: kinlock::Mutex<T>,
            KinlockMutexJoined: lock_api::Mutex<peers::RawJoinedMutex, T>,
            KinlockFair: kinlock::FairMutex<T>,
            StdMutex: std::sync::Mutex<T>,
            ParkingLot: parking_lot::Mutex<T>,
            PthreadMutex: lock_api::Mutex<posix::RawPthreadMutex, T>,
            PthreadSpin: foreign::Guarded<foreign::PthreadSpin, T>,
            Usync: usync::Mutex<T>,
            Tas: lock_api::Mutex<peers::RawTas, T>,
            Mcslock: mcslock::raw::spins::Mutex<T>,
            CkMcs: foreign::CkMcsLock<T>,
            VsyncCna: foreign::VsyncCnaLock<T>,
            Nsync: lock_api::Mutex<installed::RawNsync, T>,
            Abseil: lock_api::Mutex<installed::RawAbseil, T>,
        })
    }};
}

/// The same with the type of a [`Monitor`](super::Monitor); `None` if the lock comes without a
/// condition variable.
macro_rules! with_condvar {
    ($name:expr, $of:ident => $body:expr) => {{
        use $crate::locks::contenders::{LockName, installed};
        $crate::locks::contenders::name::with_type!(match $name, $of => Some($body), {
            KinlockMutex: (kinlock::Mutex<T>, [kinlock::Condvar; 2]),
            StdMutex: (std::sync::Mutex<T>, [std::sync::Condvar; 2]),
            ParkingLot: (parking_lot::Mutex<T>, [parking_lot::Condvar; 2]),
            Nsync: (lock_api::Mutex<installed::RawNsync, T>, [installed::NsyncCondvar; 2]),
        }, _ => None)
    }};
}

/// The same with the type of the reader-writer lock of the lock's library; `None` if it has none.
macro_rules! with_read_write {
    ($name:expr, $of:ident => $body:expr) => {{
        use $crate::locks::contenders::{LockName, installed, posix};
        $crate::locks::contenders::name::with_type!(match $name, $of => Some($body), {
            KinlockMutex: kinlock::RwLock<T>,
            StdMutex: std::sync::RwLock<T>,
            ParkingLot: parking_lot::RwLock<T>,
            PthreadMutex: lock_api::RwLock<posix::RawPthreadRwLock, T>,
            Nsync: lock_api::RwLock<installed::RawNsync, T>,
            Abseil: lock_api::RwLock<installed::RawAbseil, T>,
        }, _ => None)
    }};
}

macro_rules! with_type {
    (match $name:expr, $of:ident => $body:expr, {$($lock:ident: $type:ty,)*}
     $(, _ => $otherwise:expr)?) => {
        match $name {
            $(LockName::$lock => {
                type $of<T> = $type;
                $body
            })*
            $(_ => $otherwise,)?
        }
    };
}

pub(in crate::locks) use {with_condvar, with_lock, with_read_write, with_type};

impl LockName {
    /// Whether it comes with a condition variable.
    pub fn has_condvar(self) -> bool {
        with_condvar!(self, Of => size_of::<Of<()>>()).is_some()
    }

    /// Whether its library has a reader-writer lock.
    pub fn has_readers(self) -> bool {
        with_read_write!(self, Of => size_of::<Of<()>>()).is_some()
    }

    /// Whether it is one of this project's locks.
    pub fn is_ours(self) -> bool {
        self.name().starts_with("kinlock-")
    }

    /// Whether waiters spin in strict arrival order, at least within a locality domain. Then
    /// throughput collapses with more threads than CPUs, because the next in line often does not
    /// run.
    pub fn is_strict_fifo(self) -> bool {
        matches!(self, Self::Mcslock | Self::CkMcs | Self::VsyncCna)
    }
}
