//! What POSIX demands of the objects that are ours: kinds, owners, error codes, time limits and
//! cancellation. All locks but the spinlock are from `kinlock_core`.
//!
//! `posix_lock`, `posix_read`, `posix_write` and `posix_unlock` return what the program's call is
//! to return. None of them is called for a delegated object, and none of them is traced.

pub(crate) mod cancel;
pub(crate) mod condvar;
pub(crate) mod mutex;
pub(crate) mod rwlock;
pub(crate) mod spin;
