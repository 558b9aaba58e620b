//! The lock algorithms, generic over [`Platform`](crate::platform::Platform).
//!
//! Nothing in here names `std`, `core::sync` or `libc`, so that the same source runs on hardware,
//! in the simulator and under the model checker.

pub(crate) mod cna;
pub mod condvar;
mod config;
pub(crate) mod contend;
pub mod mutex;
pub mod once;
pub mod osq;
mod patience;
pub mod qspinlock;
pub mod rwlock;
pub mod waiter;

pub use condvar::QueuedCondvar;
pub use config::{LockConfig, Usual};
pub use mutex::QueuedMutex;
pub use once::RunOnce;
pub use qspinlock::QueuedSpinLock;
pub use rwlock::QueuedRwLock;
