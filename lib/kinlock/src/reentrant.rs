//! The reentrant mutex: [`ReentrantMutex`]. The thread that holds it may lock it again.
//!
//! It is [`lock_api::ReentrantMutex`] on top of the [mutex](crate::mutex), whose guarantees and
//! costs hold for the first lock of a thread. Further locks only count. Guards give shared access
//! to the data only; a `RefCell` or a `Cell` inside allows changing it.
//!
//! ```
//! use kinlock::ReentrantMutex;
//! use std::cell::Cell;
//!
//! static DEPTH: ReentrantMutex<Cell<u32>> = ReentrantMutex::new(Cell::new(0));
//!
//! let outer = DEPTH.lock();
//! let inner = DEPTH.lock();
//! inner.set(outer.get() + 1);
//! assert_eq!(outer.get(), 1);
//! ```
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. Two threads that run at the same time have different identities. So have a thread that has
//!    ended, or that does not exist in a child of fork, and a thread that starts later: what the
//!    former has locked stays locked.

use crate::RawMutex;
use core::num::NonZeroUsize;
use lock_api::GetThreadId;

/// A mutex that the thread that holds it may lock again. See the [module](self).
///
/// This is an alias. The page of [`lock_api::ReentrantMutex`] has its methods. It is `Send` and
/// `Sync` if the data is `Send`.
pub type ReentrantMutex<T> = lock_api::ReentrantMutex<RawMutex, RawThreadId, T>;

/// Holds a [`ReentrantMutex`]. Dropping the last guard of a thread unlocks the mutex.
pub type ReentrantMutexGuard<'a, T> = lock_api::ReentrantMutexGuard<'a, RawMutex, RawThreadId, T>;

/// Holds a [`ReentrantMutex`] and refers to a part of its data.
pub type MappedReentrantMutexGuard<'a, T> =
    lock_api::MappedReentrantMutexGuard<'a, RawMutex, RawThreadId, T>;

/// Tells threads apart, for [`lock_api::ReentrantMutex`].
///
/// ```
/// use kinlock::{RawThreadId, lock_api::GetThreadId};
///
/// let here = RawThreadId.nonzero_thread_id();
/// let there = std::thread::spawn(|| RawThreadId.nonzero_thread_id());
/// assert_ne!(here, there.join().unwrap());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct RawThreadId;

// SAFETY: invariant 1.
unsafe impl GetThreadId for RawThreadId {
    // Each use makes a new value; it has no state.
    const INIT: Self = RawThreadId;

    #[inline]
    fn nonzero_thread_id(&self) -> NonZeroUsize {
        // Not the address of a thread-local variable: each copy of this library has its own.
        kinlock_linux::native::thread_identity()
    }
}

/// A new reentrant mutex, in a constant: [`ReentrantMutex::new`] by the name that users of
/// parking_lot know.
///
/// ```
/// static NAMES: kinlock::ReentrantMutex<[&str; 1]> = kinlock::const_reentrant_mutex(["one"]);
/// ```
pub const fn const_reentrant_mutex<T>(value: T) -> ReentrantMutex<T> {
    ReentrantMutex::new(value)
}
