//! The algorithms, one file each, generic over [`Platform`](crate::platform::Platform).
//!
//! Most users want [`SpinLock`](crate::SpinLock) instead. This module is public for people who run the algorithms
//! on another platform (a simulator, a model checker), study them, or break them on purpose.

pub(crate) mod cna;
pub mod condvar;
pub mod ids;
pub mod invalidation;
pub mod mutex;
pub mod osq;
pub mod qspinlock;
pub mod waiter;

pub use condvar::QueuedCondvar;
pub use mutex::{MutexConfig, QueuedMutex};
pub use qspinlock::{Config, Fault, QueuedSpinLock};
