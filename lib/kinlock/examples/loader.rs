//! A library to preload: it keeps the loader from pinning or finding objects with a copy of this
//! crate. See the test `copies`.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. The C library has functions of these names and types. Callers keep to their conditions.
//! 2. These system calls get numbers. The child ends at once.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;

/// Whether this process refuses calls of this function.
fn refuses(function: &str) -> bool {
    std::env::var_os("TEST_LOADER").is_some_and(|refused| refused == function)
}

/// The loader's function of this name.
fn next(name: &CStr) -> *mut c_void {
    // SAFETY: invariant 1.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// Like the loader's function, but refuses to pin a loaded object. The process forks in such a
/// call, as another thread could at that moment.
///
/// # Safety
///
/// The conditions of the loader's function hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    const KEEP: c_int = libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    if flags & KEEP == KEEP && refuses("dlopen") {
        // SAFETY: invariant 2.
        unsafe {
            match libc::fork() {
                0 => libc::_exit(0),
                child => libc::waitpid(child, std::ptr::null_mut(), 0),
            }
        };
        return std::ptr::null_mut();
    }
    type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    // SAFETY: invariant 1.
    unsafe { transmute::<*mut c_void, Open>(next(c"dlopen"))(name, flags) }
}

/// Like the loader's function, but does not know the objects of the test.
///
/// # Safety
///
/// The conditions of the loader's function hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dladdr(address: *const c_void, info: *mut libc::Dl_info) -> c_int {
    type Find = unsafe extern "C" fn(*const c_void, *mut libc::Dl_info) -> c_int;
    // SAFETY: invariant 1.
    let found = unsafe { transmute::<*mut c_void, Find>(next(c"dladdr"))(address, info) };
    if found == 0 || !refuses("dladdr") {
        return found;
    }
    // SAFETY: invariant 1: it has been filled, and the name ends with a zero byte.
    let name = unsafe { CStr::from_ptr((*info).dli_fname) };
    let is_copy = name.to_bytes().windows(6).any(|part| part == b"/copy-");
    if is_copy { 0 } else { found }
}
