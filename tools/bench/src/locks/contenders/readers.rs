//! Reader-writer locks, each under the name of its library's mutex.
//!
//! # Invariants
//!
//! 1. An initialised `pthread_rwlock_t` may be moved until it is first taken: glibc and musl keep
//!    no address in it. The command does not move a lock after that.
//! 2. The value is changed between taking the lock for writing and releasing it only, and read
//!    while the lock is held only.

use std::cell::UnsafeCell;
use std::sync::PoisonError;

use crate::harness::team::or_abort;

/// A value behind a reader-writer lock.
pub trait ReadWrite<T>: Send + Sync + Sized + 'static {
    fn new(value: T) -> Self;
    fn read<R>(&self, section: impl FnOnce(&T) -> R) -> R;
    fn write<R>(&self, section: impl FnOnce(&mut T) -> R) -> R;
}

/// The type constructor of one reader-writer lock.
pub trait ReadWriteFamily: 'static {
    type Of<T: Send + Sync + 'static>: ReadWrite<T>;
}

/// A family whose lock is `$lock<T>`; `$read` and `$write` are how guards are had.
macro_rules! read_write {
    ($(#[$doc:meta])* $family:ident: $lock:ident in $($module:ident)::+,
     |$own:ident| $read:expr, $write:expr) => {
        $(#[$doc])*
        pub struct $family;

        impl ReadWriteFamily for $family {
            type Of<T: Send + Sync + 'static> = $($module::)+$lock<T>;
        }

        impl<T: Send + Sync + 'static> ReadWrite<T> for $($module::)+$lock<T> {
            fn new(value: T) -> Self {
                Self::new(value)
            }

            #[inline(always)]
            fn read<R>(&self, section: impl FnOnce(&T) -> R) -> R {
                let $own = self;
                section(&$read)
            }

            #[inline(always)]
            fn write<R>(&self, section: impl FnOnce(&mut T) -> R) -> R {
                let $own = self;
                section(&mut $write)
            }
        }
    };
}

read_write!(
    /// Ours.
    Kinlock: RwLock in kinlock, |own| own.read(), own.write()
);
read_write!(
    /// The crate `parking_lot`'s.
    ParkingLot: RwLock in parking_lot, |own| own.read(), own.write()
);
read_write!(
    /// The standard library's.
    Std: RwLock in std::sync,
    |own| own.read().unwrap_or_else(PoisonError::into_inner),
    own.write().unwrap_or_else(PoisonError::into_inner)
);

/// The C library's.
pub struct Pthread;

impl ReadWriteFamily for Pthread {
    type Of<T: Send + Sync + 'static> = PthreadRwLock<T>;
}

/// `pthread_rwlock_t` of the default kind beside the value it guards.
pub struct PthreadRwLock<T>(UnsafeCell<libc::pthread_rwlock_t>, UnsafeCell<T>);

// SAFETY: invariant 2.
unsafe impl<T: Send> Send for PthreadRwLock<T> {}
// SAFETY: invariant 2.
unsafe impl<T: Send + Sync> Sync for PthreadRwLock<T> {}

impl<T: Send + Sync + 'static> ReadWrite<T> for PthreadRwLock<T> {
    fn new(value: T) -> Self {
        let raw = UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER);
        Self(raw, UnsafeCell::new(value))
    }

    #[inline(always)]
    fn read<R>(&self, section: impl FnOnce(&T) -> R) -> R {
        // SAFETY: invariant 1.
        unsafe { libc::pthread_rwlock_rdlock(self.0.get()) };
        // SAFETY: invariant 2.
        let result = or_abort(|| section(unsafe { &*self.1.get() }));
        // SAFETY: invariant 1; this thread has just taken the lock.
        unsafe { libc::pthread_rwlock_unlock(self.0.get()) };
        result
    }

    #[inline(always)]
    fn write<R>(&self, section: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: invariant 1.
        unsafe { libc::pthread_rwlock_wrlock(self.0.get()) };
        // SAFETY: invariant 2.
        let result = or_abort(|| section(unsafe { &mut *self.1.get() }));
        // SAFETY: invariant 1; this thread has just taken the lock.
        unsafe { libc::pthread_rwlock_unlock(self.0.get()) };
        result
    }
}
