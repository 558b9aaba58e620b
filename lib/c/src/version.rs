//! The version of the library.

use core::ffi::{CStr, c_char, c_int};

/// A number that changes when a program must be compiled again: the number in the library's name.
const ABI: u32 = 1;

const fn number(text: &str) -> u32 {
    match u32::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => panic!("a version has numbers"),
    }
}

const VERSION: u32 = number(env!("CARGO_PKG_VERSION_MAJOR")) * 1_000_000
    + number(env!("CARGO_PKG_VERSION_MINOR")) * 1_000
    + number(env!("CARGO_PKG_VERSION_PATCH"));

const TEXT: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a version has no zero byte"),
    };

#[unsafe(no_mangle)]
extern "C" fn kinlock_version() -> u32 {
    VERSION
}

#[unsafe(no_mangle)]
extern "C" fn kinlock_version_string() -> *const c_char {
    TEXT.as_ptr()
}

/// Whether a program that was compiled with a header of this ABI and version may use this library.
#[unsafe(no_mangle)]
extern "C" fn kinlock_version_check(abi: u32, version: u32) -> c_int {
    let suits = abi == ABI && version <= VERSION;
    if suits { 0 } else { libc::ENOTSUP }
}
