//! Locks and shared data that stay fast on big machines.
//!
//! * [`SpinLock`]: a queued spinlock of four bytes with a NUMA-aware slow path, which parks and steals where there are
//!   more threads than CPUs. [`RawSpinLock`] is the same without data, for [`lock_api`] 0.4.
//!
//! ```
//! use kinlock::SpinLock;
//!
//! static HITS: SpinLock<u64> = SpinLock::new(0);
//!
//! std::thread::scope(|s| {
//!     for _ in 0..4 {
//!         s.spawn(|| *HITS.lock() += 1);
//!     }
//! });
//! assert_eq!(*HITS.lock(), 4);
//! ```
//!
//! * [`Mutex`]: a blocking mutex of four bytes, the one for most purposes. [`RawMutex`] is the same without data.
//! * `Condvar`: a condition variable of eight bytes for the mutex, with time limits on every clock (feature `std`).
//! * `ids`: concurrency IDs, and counters, stacks and pools that need no locked instruction, by restartable sequences or leases (feature `std`).
//! * `invalidation::Domain`: for what is removed now and invalidated later, in batches; who reuses it waits for the batches that may cover it, and for no others (feature `std`).
//!
//! Each algorithm is written once, in [`raw`], generic over a [`platform`]: the source that runs on hardware is the
//! source that a model checker explores and that a simulated machine runs.
//!
//! # Features
//!
//! * `std` (default): parking, clocks, topology, thread-locals. Without it the crate is `no_std`, and its spinlock and its mutex only spin.
//! * `events`: counters of what slow paths do; see [`events`].
//!
//! # Environment
//!
//! With `std`, knobs are read from the environment on first contention: `KINLOCK_NUMA`, `KINLOCK_SCAN`, `KINLOCK_LOCAL_LIMIT`, `KINLOCK_DOMAIN`,
//! `KINLOCK_TOPOLOGY` and more; see [`config`].

#![cfg_attr(not(feature = "std"), no_std)]

#[cfg(feature = "std")]
pub mod condvar;
pub mod config;
pub mod events;
#[cfg(feature = "std")]
mod fork;
#[cfg(feature = "std")]
pub mod ids;
#[cfg(all(feature = "std", not(loom)))]
pub mod invalidation;
pub mod mutex;
pub mod platform;
pub mod raw;
pub mod spin;
#[cfg(feature = "std")]
pub mod topology;

#[cfg(feature = "std")]
pub use condvar::{Condvar, WaitTimeoutResult};
pub use lock_api;
pub use mutex::{MappedMutexGuard, Mutex, MutexGuard, RawMutex};
pub use spin::{
    MappedSpinLockGuard, RawCnaSpinLock, RawFifoSpinLock, RawSpinLock, SpinLock, SpinLockGuard,
};
