//! The knobs, by name.

use core::ffi::{CStr, c_char, c_int};
use core::str::FromStr;
use kinlock_linux::config;

/// Sets the knob `name` to `value`, both as in the environment.
#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_set(name: *const c_char, value: *const c_char) -> c_int {
    // SAFETY: invariant 6.
    let (name, value) = unsafe { (CStr::from_ptr(name), CStr::from_ptr(value)) };
    let Ok(value) = value.to_str() else {
        return libc::EINVAL;
    };
    match name.to_bytes() {
        b"KINLOCK_NUMA" => set(value, config::set_numa),
        b"KINLOCK_LOCAL_LIMIT" => set(value, config::set_local_limit),
        b"KINLOCK_QUANTUM" => set(value, config::set_quantum),
        b"KINLOCK_STEALING" => switch(value, config::set_stealing),
        b"KINLOCK_SLICE_EXTENSION" => switch(value, config::set_slice_extension),
        b"KINLOCK_DOMAIN" => match value.parse() {
            Ok(kind) if config::set_domain_kind(kind).is_ok() => 0,
            Ok(_) => libc::EBUSY,
            Err(_) => libc::EINVAL,
        },
        _ => libc::ENOENT,
    }
}

fn switch(value: &str, set: impl FnOnce(bool)) -> c_int {
    set(match value {
        "on" => true,
        "off" => false,
        _ => return libc::EINVAL,
    });
    0
}

fn set<T: FromStr>(value: &str, set: impl FnOnce(T)) -> c_int {
    match value.parse() {
        Ok(value) => {
            set(value);
            0
        }
        Err(_) => libc::EINVAL,
    }
}
