//! kinlock's locks under the names of parking_lot 0.12.
//!
//! A program takes this crate in place of parking_lot, for itself and all that it depends on:
//!
//! ```toml
//! [patch.crates-io]
//! parking_lot = { path = "../kinlock/crates/kinlock-parking-lot" }
//! ```
//!
//! `docs/guide/parking-lot.md` lists the differences. The types are those of the crate `kinlock`,
//! which documents them.

#[cfg(all(feature = "send_guard", feature = "deadlock_detection"))]
compile_error!("the features send_guard and deadlock_detection exclude each other");

pub use kinlock::lock_api;
#[cfg(feature = "arc_lock")]
pub use kinlock::{ArcMutexGuard, ArcReentrantMutexGuard};
pub use kinlock::{
    Condvar, FairMutex, FairMutexGuard, MappedFairMutexGuard, MappedMutexGuard,
    MappedReentrantMutexGuard, Mutex, MutexGuard, Once, OnceState, RawFairMutex, RawMutex,
    RawThreadId, ReentrantMutex, ReentrantMutexGuard, WaitTimeoutResult, const_fair_mutex,
    const_mutex, const_reentrant_mutex,
};
