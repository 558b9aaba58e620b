//! Locks for many threads that fight for short critical sections.
//!
//! | type | use it for |
//! | --- | --- |
//! | [`Mutex`] | most purposes: four bytes, waiters spin for a moment and then sleep |
//! | `Condvar` | waiting for a condition under a [`Mutex`]: eight bytes, every kind of time limit |
//! | [`Once`], [`FairMutex`], `ReentrantMutex` | what their names say |
//! | [`SpinLock`] | very short critical sections: four bytes, queued, NUMA-aware; it sleeps, too |
//! | [`RwLock`] | data that is mostly read: eight bytes, many readers or one writer |
//! | [`RawMutex`], [`RawRwLock`], [`RawSpinLock`] | the same without data, for [`lock_api`] 0.4 |
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
//! Concurrency IDs and delayed invalidation have crates of their own: `kinlock-ids` and
//! `kinlock-invalidation`. The algorithms are in `kinlock-core`, each written once: the source that
//! runs on hardware also runs under a model checker and on a simulated NUMA machine.
//!
//! # Features
//!
//! * `std` (default): parking, clocks, topology, thread-locals. Linux only. Without it the crate is
//!   `no_std` and waiters only spin.
//! * `events`: counters of what slow paths do; see [`events`].
//! * `arc_lock`, `serde`, `owning_ref`: the features of [`lock_api`] with these names.
//! * `send_guard`: guards may be sent to other threads. The child of a fork must not use an
//!   [`RwLock`] whose read guards other threads have dropped; see the module [`rwlock`].
//! * `packed`: a [`Mutex`] or a `ReentrantMutex` may be freed as soon as another thread can have
//!   taken it; see the module [`mutex`]. Costs one atomic instruction per unlock.
//! * `report`: the command `kinlock run --report` says what the locks of the program do, of static
//!   programs, too. A [`Mutex`], [`FairMutex`], `ReentrantMutex`, [`RwLock`] and `Condvar` is named
//!   by the variable or the address, and the line, at which it was first taken; not reported are
//!   [`SpinLock`] and [`Once`]. Each function of a lock tests one more word even if no report is
//!   made.
//! * `probes`: the C library's probes (USDT) for bpftrace and the like, in the program's file. Each
//!   is one instruction that does nothing.
//! * `deadlock_detection`: `deadlock::check_deadlock` finds threads that wait for each other.
//!
//! # Several copies in one process
//!
//! Shared libraries that each link this crate may share locks in one process: a plugin and its
//! host, for example. Copies of one version use common tables. A copy of another version works,
//! too, but queues no threads. It ends the process with a message if it would have to wait for
//! readers of a read-biased lock that it cannot see. The guide has a page on copies.
//!
//! # Configuration
//!
//! The defaults suit most programs. With `std`, the `KINLOCK_*` environment variables are read
//! once, before `main`. [`config`] lists them, and the functions that set the same knobs.

#![cfg_attr(not(feature = "std"), no_std)]

#[cfg(feature = "std")]
pub mod condvar;
pub mod config;
#[cfg(feature = "deadlock_detection")]
pub mod deadlock;
#[cfg(not(feature = "deadlock_detection"))]
mod deadlock;
pub mod events;
mod machine;
pub mod mutex;
pub mod once;
#[cfg(feature = "std")]
pub mod reentrant;
mod report;
pub mod rwlock;
pub mod spin;
#[cfg(feature = "std")]
pub mod topology;

#[cfg(feature = "std")]
pub use condvar::{Condvar, WaitTimeoutResult};
pub use lock_api;
#[cfg(feature = "arc_lock")]
pub use lock_api::{
    ArcMutexGuard, ArcReentrantMutexGuard, ArcRwLockReadGuard, ArcRwLockUpgradableReadGuard,
    ArcRwLockWriteGuard,
};
pub use mutex::{
    FairMutex, FairMutexGuard, MappedFairMutexGuard, MappedMutexGuard, Mutex, MutexGuard,
    RawFairMutex, RawMutex, const_fair_mutex, const_mutex,
};
pub use once::{Once, OnceState};
#[cfg(feature = "std")]
pub use reentrant::{
    MappedReentrantMutexGuard, RawThreadId, ReentrantMutex, ReentrantMutexGuard,
    const_reentrant_mutex,
};
pub use rwlock::{
    MappedRwLockReadGuard, MappedRwLockWriteGuard, RawRwLock, RwLock, RwLockReadGuard,
    RwLockUpgradableReadGuard, RwLockWriteGuard, const_rwlock,
};
pub use spin::{
    MappedSpinLockGuard, RawCnaSpinLock, RawFifoSpinLock, RawSpinLock, SpinLock, SpinLockGuard,
};

/// Makes `cargo test` run the example of README.md, which the registry shows.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
