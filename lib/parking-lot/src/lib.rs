//! kinlock's locks under the names of parking_lot 0.12.
//!
//! A program takes this crate in place of parking_lot, for itself and all that it depends on:
//!
//! ```toml
//! [patch.crates-io]
//! parking_lot = { path = "../kinlock/lib/parking-lot" }
//! ```
//!
//! `docs/guide/switching.md` lists the differences. The types are those of the crate `kinlock`,
//! which documents them.

#[cfg(all(feature = "send_guard", feature = "deadlock_detection"))]
compile_error!("the features send_guard and deadlock_detection exclude each other");

#[cfg(feature = "deadlock_detection")]
pub use kinlock::deadlock;
pub use kinlock::lock_api;
#[cfg(feature = "arc_lock")]
pub use kinlock::{
    ArcMutexGuard, ArcReentrantMutexGuard, ArcRwLockReadGuard, ArcRwLockUpgradableReadGuard,
    ArcRwLockWriteGuard,
};
pub use kinlock::{
    Condvar, FairMutex, FairMutexGuard, MappedFairMutexGuard, MappedMutexGuard,
    MappedReentrantMutexGuard, MappedRwLockReadGuard, MappedRwLockWriteGuard, Mutex, MutexGuard,
    Once, OnceState, RawFairMutex, RawMutex, RawRwLock, RawThreadId, ReentrantMutex,
    ReentrantMutexGuard, RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard,
    WaitTimeoutResult, const_fair_mutex, const_mutex, const_reentrant_mutex, const_rwlock,
};
