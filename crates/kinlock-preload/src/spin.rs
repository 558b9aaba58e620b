//! Spinlocks.
//!
//! A private one is our mutex in four bytes: its waiters spin for some microseconds and then sleep.
//! With more threads than CPUs that is what lets the holder go on, and after the release only its
//! address is used.
//!
//! A process-shared one is marked when it is initialised, since nothing else tells it apart. Its
//! waiters only spin, and yield. All processes that share it must run with this library, as the
//! four bytes have no room for the C library's state beside ours.

use crate::counts;
use crate::mode::{Mode, mode};
use crate::mutex::Blocking;
use crate::real;
use crate::report::{self, Object};
use crate::watch;
use core::ffi::{c_int, c_void};
use core::hint;
use core::sync::atomic::{AtomicU32, Ordering::*};

#[repr(C)]
struct Spinlock(AtomicU32);

/// A bit that our mutex leaves 0: a process-shared lock.
const SHARED: u32 = 0x8000;
const HELD: u32 = 1;

impl Spinlock {
    fn is_shared(&self) -> bool {
        self.0.load(Relaxed) & SHARED != 0
    }

    fn private(&self) -> &Blocking {
        // SAFETY: invariant 1. Zeros are an unlocked mutex, which has this size and alignment.
        unsafe { &*(&raw const self.0).cast() }
    }

    fn try_shared(&self) -> bool {
        self.0
            .compare_exchange(SHARED, SHARED | HELD, Acquire, Relaxed)
            .is_ok()
    }

    fn lock(&self, mode: Mode) -> c_int {
        if mode.passes() {
            // SAFETY: invariant 3.
            return unsafe { real::pthread_spin_lock(self.address()) };
        }
        match self.is_shared() {
            false => self.private().lock(),
            true => self.lock_shared(),
        }
        0
    }

    fn try_lock(&self, mode: Mode) -> c_int {
        let taken = match self.is_shared() {
            // SAFETY: invariant 3.
            _ if mode.passes() => unsafe {
                return real::pthread_spin_trylock(self.address());
            },
            false => self.private().try_lock(),
            true => self.try_shared(),
        };
        if taken { 0 } else { libc::EBUSY }
    }

    fn unlock(&self, mode: Mode) -> c_int {
        if mode.passes() {
            // SAFETY: invariant 3.
            return unsafe { real::pthread_spin_unlock(self.address()) };
        }
        match self.is_shared() {
            // SAFETY: invariant 2.
            false => unsafe { self.private().unlock() },
            true => self.0.store(SHARED, Release),
        }
        0
    }

    fn object(&self) -> Object<'_> {
        Object {
            address: self.address() as u64,
            marks: None,
            kind: kinlock_report::SPIN,
            is_nested: false,
        }
    }

    fn address(&self) -> *const c_void {
        (&raw const self.0).cast()
    }

    fn lock_shared(&self) {
        let mut looks = 0_u32;
        while self.0.load(Relaxed) & HELD != 0 || !self.try_shared() {
            looks += 1;
            if looks % 100 == 0 {
                // The holder may be without a CPU.
                // SAFETY: invariant 3.
                unsafe { libc::sched_yield() };
            }
            hint::spin_loop();
        }
    }
}

/// # Safety
///
/// Invariant 1.
unsafe fn spinlock<'a>(pointer: *const c_void) -> &'a Spinlock {
    // SAFETY: invariant 1.
    unsafe { &*pointer.cast() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_spin_init(pointer: *mut c_void, shared: c_int) -> c_int {
    let mode = mode();
    counts::call(mode, || 0);
    if mode.reports() {
        report::end(pointer as u64);
    }
    if mode.passes() {
        // SAFETY: invariant 3.
        return unsafe { real::pthread_spin_init(pointer, shared) };
    }
    let is_shared = shared == libc::PTHREAD_PROCESS_SHARED;
    // SAFETY: invariant 1.
    let word = unsafe { &spinlock(pointer).0 };
    word.store(if is_shared { SHARED } else { 0 }, Release);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_spin_destroy(pointer: *mut c_void) -> c_int {
    counts::call(mode(), || 0);
    if mode().reports() {
        report::end(pointer as u64);
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_spin_lock(pointer: *mut c_void) -> c_int {
    // SAFETY: invariant 1.
    let lock = unsafe { spinlock(pointer) };
    let mode = mode();
    if !mode.watches() {
        return lock.lock(mode);
    }
    counts::call(mode, || 0);
    watch::acquisition(
        mode,
        lock.object(),
        || lock.try_lock(mode),
        Some(|| lock.lock(mode)),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_spin_trylock(pointer: *mut c_void) -> c_int {
    // SAFETY: invariant 1.
    let lock = unsafe { spinlock(pointer) };
    let mode = mode();
    if !mode.watches() {
        return lock.try_lock(mode);
    }
    counts::call(mode, || 0);
    let never: Option<fn() -> c_int> = None;
    watch::acquisition(mode, lock.object(), || lock.try_lock(mode), never)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_spin_unlock(pointer: *mut c_void) -> c_int {
    let mode = mode();
    counts::call(mode, || 0);
    if mode.reports() {
        report::release(pointer as u64, None, None);
    }
    // SAFETY: invariant 1.
    unsafe { spinlock(pointer) }.unlock(mode)
}
