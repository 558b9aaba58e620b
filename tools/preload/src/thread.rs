//! What belongs to the calling thread.
//!
//! The thread-locals are written in C (`thread.c`), since only there can the compiler be told to
//! access each by one instruction. Rust's would be found by a function of the C library that may
//! allocate.

use core::ffi::c_uint;
pub(crate) use kinlock_recorder::thread::{thread_id, token, tokens};

unsafe extern "C" {
    safe fn kinlock_read_locks() -> *mut c_uint;
}

/// How many read locks the calling thread holds.
#[inline]
pub(crate) fn read_locks() -> *mut c_uint {
    kinlock_read_locks()
}
