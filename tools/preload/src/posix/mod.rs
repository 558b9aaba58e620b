//! What POSIX says of the objects: their kinds, their error codes, their time limits.

mod cancel;
pub(crate) mod condvar;
pub(crate) mod mutex;
mod rwlock;
pub(crate) mod spin;
