//! The exported functions for spinlocks. A spinlock has no flags, so the mode alone decides whose
//! it is.

use super::choice::mode;
use super::end_reported;
use crate::libc::real;
use crate::mode::{MODE, Mode};
use crate::posix::spin::Spinlock;
use crate::time::Limit;
use crate::traced::report::{self, Behind, Object};
use crate::traced::{acquire, counts};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;
use kinlock_report::SPIN;

/// # Safety
///
/// Invariant 1.
unsafe fn spinlock<'a>(pointer: *const c_void) -> &'a Spinlock {
    // SAFETY: invariant 1.
    unsafe { &*pointer.cast() }
}

// ---- the cold path --------------------------------------

/// Takes a spinlock in a mode that is not the usual one. `is_try`: without waiting. There are no
/// other time limits, and a flag fits into a register: a `Limit` would lie on the stack, and the
/// fast path would have to make room for it.
#[inline(never)]
fn cold_lock(spinlock: &Spinlock, is_try: bool) -> c_int {
    let mode = mode();
    if !mode.traces() {
        return lock(spinlock, mode, is_try);
    }
    counts::call(mode, || 0);
    let limit = if is_try { Limit::Now } else { Limit::Never };
    let [first, wait] = [true, is_try].map(|is_try| move || lock(spinlock, mode, is_try));
    acquire(
        mode,
        object(spinlock),
        limit,
        first,
        || Behind::Readers,
        wait,
    )
}

#[inline(never)]
fn cold_unlock(spinlock: &Spinlock) -> c_int {
    let mode = mode();
    counts::call(mode, || 0);
    if mode.reports() {
        let is_held = mode.delegates() || spinlock.is_held();
        report::release(object(spinlock), None, is_held);
    }
    unlock(spinlock, mode)
}

fn object(spinlock: &Spinlock) -> Object<'_> {
    Object::new(spinlock.address() as u64, SPIN)
}

/// Takes a spinlock, by this library or by the C library.
fn lock(spinlock: &Spinlock, mode: Mode, is_try: bool) -> c_int {
    if !mode.delegates() {
        return spinlock.posix_lock(is_try);
    }
    // SAFETY: invariant 3.
    unsafe {
        match is_try {
            true => real::pthread_spin_trylock(spinlock.address()),
            false => real::pthread_spin_lock(spinlock.address()),
        }
    }
}

/// Releases a spinlock, by this library or by the C library.
fn unlock(spinlock: &Spinlock, mode: Mode) -> c_int {
    if mode.delegates() {
        // SAFETY: invariant 3.
        return unsafe { real::pthread_spin_unlock(spinlock.address()) };
    }
    spinlock.posix_unlock();
    0
}

// ---- the functions --------------------------------------

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_spin_init(pointer: *mut c_void, shared: c_int) -> c_int {
    let mode = mode();
    counts::call(mode, || 0);
    end_reported(mode, pointer);
    if mode.delegates() {
        // SAFETY: invariant 3.
        return unsafe { real::pthread_spin_init(pointer, shared) };
    }
    // SAFETY: invariant 1.
    unsafe { spinlock(pointer) }.posix_init();
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_spin_destroy(pointer: *mut c_void) -> c_int {
    counts::call(mode(), || 0);
    end_reported(mode(), pointer);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_spin_lock(pointer: *mut c_void) -> c_int {
    // SAFETY: invariant 1.
    let lock = unsafe { spinlock(pointer) };
    match MODE.load(Relaxed) {
        0 if lock.try_lock() => 0,
        0 => lock.wait(),
        _ => cold_lock(lock, false),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_spin_trylock(pointer: *mut c_void) -> c_int {
    // SAFETY: invariant 1.
    let lock = unsafe { spinlock(pointer) };
    match MODE.load(Relaxed) {
        0 if lock.try_lock() => 0,
        0 => libc::EBUSY,
        _ => cold_lock(lock, true),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_spin_unlock(pointer: *mut c_void) -> c_int {
    // SAFETY: invariant 1.
    let lock = unsafe { spinlock(pointer) };
    if MODE.load(Relaxed) != 0 {
        return cold_unlock(lock);
    }
    lock.posix_unlock();
    0
}
