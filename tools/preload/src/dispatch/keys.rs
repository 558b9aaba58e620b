//! The exported functions that create a key of thread-specific data.
//!
//! This library has keys of its own, by which it learns that a thread ends. The program may need
//! all keys that a process can have.

use super::c11::result;
use core::ffi::{c_int, c_void};
use kinlock_linux::native;

type Destructor = Option<unsafe extern "C" fn(*mut c_void)>;

unsafe extern "C" {
    fn kinlock_key_create(key: *mut libc::pthread_key_t, destructor: Destructor) -> c_int;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_key_create(
    key: *mut libc::pthread_key_t,
    destructor: Destructor,
) -> c_int {
    loop {
        // SAFETY: invariant 3.
        let result = unsafe { kinlock_key_create(key, destructor) };
        let is_over = result != libc::EAGAIN;
        if is_over || !native::give_up_key() && !kinlock_recorder::give_up_key() {
            return result;
        }
    }
}

exported! {
    tss_create(key: *mut libc::pthread_key_t, destructor: Destructor) =
        result(pthread_key_create(key, destructor));
}
