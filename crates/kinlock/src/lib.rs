//! Locks that stay fast on big machines.
//!
//! | type | what it is for |
//! | --- | --- |
//! | [`Mutex`] | most purposes: four bytes, waiters spin for a moment and then sleep |
//! | `Condvar` | waiting for a condition under a [`Mutex`]: eight bytes, time limits on every clock |
//! | [`SpinLock`] | very short critical sections, in order; a NUMA-aware slow path |
//! | [`RawMutex`], [`RawSpinLock`] | the same without data, for any user of [`lock_api`] 0.4 |
//!
//! ```
//! use kinlock::Mutex;
//!
//! static HITS: Mutex<u64> = Mutex::new(0);
//!
//! std::thread::scope(|s| {
//!     for _ in 0..4 {
//!         s.spawn(|| *HITS.lock() += 1);
//!     }
//! });
//! assert_eq!(*HITS.lock(), 4);
//! ```
//!
//! Concurrency IDs and delayed invalidation are crates of their own: `kinlock-ids` and
//! `kinlock-invalidation`. The algorithms are in `kinlock-core`, written once: the source that runs on
//! hardware is the source that a model checker explores and that a simulated machine runs.
//!
//! # Features
//!
//! * `std` (default): parking, clocks, topology, thread-locals; Linux only. Without it the crate is
//!   `no_std`, and its locks only spin.
//! * `events`: counters of what slow paths do; see [`events`].
//!
//! # Environment
//!
//! With `std`, knobs are read from the environment on first contention: `KINLOCK_NUMA`,
//! `KINLOCK_LOCAL_LIMIT`, `KINLOCK_DOMAIN`, `KINLOCK_TOPOLOGY` and more; see [`config`].

#![cfg_attr(not(feature = "std"), no_std)]

#[cfg(feature = "std")]
pub mod condvar;
pub mod mutex;
pub mod spin;

#[cfg(feature = "std")]
pub use condvar::{Condvar, WaitTimeoutResult};
pub use kinlock_core::{config, events};
pub use lock_api;
pub use mutex::{MappedMutexGuard, Mutex, MutexGuard, RawMutex};
pub use spin::{
    MappedSpinLockGuard, RawCnaSpinLock, RawFifoSpinLock, RawSpinLock, SpinLock, SpinLockGuard,
};
