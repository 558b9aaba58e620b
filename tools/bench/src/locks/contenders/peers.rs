//! Locks in Rust that need no C library: ours and most peers as `lock_api` raw mutexes, the
//! standard library's mutex and the crate `mcslock` with interfaces of their own, and bare
//! test-and-set.

use std::hint::spin_loop;
use std::sync::PoisonError;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};

use kinlock_core::raw::mutex::{Joined, QueuedMutex};
use kinlock_linux::Native;
use kinlock_linux::config::AsConfigured;
use lock_api::{GuardNoSend, GuardSend, RawMutex};

use super::Lock;

/// Implements [`Lock`] for a type with the usual constructor and destructor.
macro_rules! lock {
    ([$($parameter:tt)*] $lock:ty, |$own:ident, $section:ident| $with:expr,
     |$inner:ident| $value:expr) => {
        impl<$($parameter)* T: Send + 'static> Lock<T> for $lock {
            #[inline(always)]
            fn new(value: T) -> Self {
                Self::new(value)
            }

            #[inline(always)]
            fn with<U>(&self, $section: impl FnOnce(&mut T) -> U) -> U {
                let $own = self;
                $with
            }

            fn into_inner(self) -> T {
                let $inner = self.into_inner();
                $value
            }
        }
    };
}

lock!(
    [R: RawMutex + Send + Sync + 'static,] lock_api::Mutex<R, T>,
    |own, section| section(&mut own.lock()),
    |value| value
);

lock!(
    [] std::sync::Mutex<T>,
    |own, section| section(&mut own.lock().unwrap_or_else(PoisonError::into_inner)),
    |value| value.unwrap_or_else(PoisonError::into_inner)
);

// With the queue node on the stack, which is its fastest interface.
lock!([] mcslock::raw::spins::Mutex<T>, |own, section| own.lock_then(section), |value| value);

/// Bare test-and-set: an exchange to lock, a store to unlock, and nothing against contention. It
/// shows the least cost of an uncontended lock, and how badly the simplest lock behaves under
/// contention.
pub struct RawTas(AtomicBool);

// SAFETY: only the thread that turned the flag from false to true returns from `lock`, until
// `unlock` clears it. The acquire exchange pairs with the release store of `unlock`.
unsafe impl RawMutex for RawTas {
    const INIT: Self = Self(AtomicBool::new(false));
    type GuardMarker = GuardSend;

    #[inline(always)]
    fn lock(&self) {
        while self.0.swap(true, Acquire) {
            spin_loop();
        }
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        !self.0.swap(true, Acquire)
    }

    #[inline(always)]
    unsafe fn unlock(&self) {
        self.0.store(false, Release);
    }
}

/// Our mutex in the layout that the library for unmodified programs uses.
pub struct RawJoinedMutex(QueuedMutex<Native, AsConfigured, Joined<Native>>);

// SAFETY: `QueuedMutex` excludes: it is held from the moment that a thread takes it, or has it
// handed over, until that thread unlocks it. Taking acquires what unlocking releases.
unsafe impl RawMutex for RawJoinedMutex {
    const INIT: Self = Self(QueuedMutex::new());
    type GuardMarker = GuardNoSend;

    #[inline(always)]
    fn lock(&self) {
        self.0.lock();
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        self.0.try_lock()
    }

    #[inline(always)]
    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock, as this function demands.
        unsafe { self.0.unlock() }
    }
}
