//! The C library's own functions, which are called for delegated objects, and its layout of
//! objects.
//!
//! | file | what it answers |
//! | --- | --- |
//! | `lock.rs` | `libc_lock`, `libc_read`, `libc_write`, `libc_wait`: which call has this limit |
//! | `real.rs` | the address of each function that this library replaces |
//! | `lookup.rs` | where a function of some name and version is, without `dlvsym` |
//! | `layout.rs`, `layout.c` | where objects keep their kinds and flags, found by calling it |
//! | `direct.c` | system calls, without the C library's functions of their names |
//! | `missing.c` | functions that some C libraries lack |
//!
//! Other modules reach this one as `crate::libc`. A plain `libc::` is the crate of that name: types
//! and constants of the C library.

pub(crate) mod layout;
pub(crate) mod lock;
pub(crate) mod lookup;
pub(crate) mod real;

use core::ffi::CStr;

/// The version of the C library: 2 and 36, for example.
pub(crate) fn version() -> (u32, u32) {
    // SAFETY: invariant 7.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    let mut numbers = version.to_bytes().split(|byte| !byte.is_ascii_digit());
    let mut next = || {
        let digits = numbers.next().unwrap_or_default().iter();
        digits.fold(0_u32, |number, digit| {
            number
                .saturating_mul(10)
                .saturating_add(u32::from(digit - b'0'))
        })
    };
    (next(), next())
}
