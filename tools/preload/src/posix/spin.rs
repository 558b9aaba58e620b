//! Spinlocks.
//!
//! A word has the C library's values, and no others: it may be shared with a process, or with code
//! of this one, that does not use this library, and it may have been initialised without a call.
//! So a waiter leaves no trace in it. Waiters spin for some microseconds and then sleep: with more
//! threads than CPUs that is what lets the holder go on.
//!
//! Beside the words there are counts of sleepers, one for many addresses. An unlock that finds
//! its count above zero wakes one thread that sleeps at its address. An unlock elsewhere, by
//! code that does not use this library or by another process, wakes nobody: sleeps are short.
//! Nothing in memory names a waiter, so a thread may leave its wait by a jump.

use crate::libc::layout::FREE;
use crate::libc::real;
use crate::mode::{MODE, Mode, mode};
use crate::posix::cancel::{self, Attempt};
use crate::time::Limit;
use crate::traced;
use crate::traced::counts;
use crate::traced::report::{self, Object};
use core::ffi::{c_int, c_void};
use core::hint;
use core::sync::atomic::{AtomicU32, Ordering::*};
use kinlock_core::Native;
use kinlock_core::platform::{Parked, Platform};

#[repr(C)]
struct Spinlock(AtomicU32);

/// A held lock.
const HELD: u32 = 1 - FREE;

/// How long a waiter spins before its first sleep, in nanoseconds, if there are enough CPUs.
const SPIN: u64 = 20_000;
/// ... and if not, or after a sleep.
const BRIEF: u64 = 2_000;
/// The first and the longest sleep.
const SLEEP: u64 = 100_000;
const LONGEST_SLEEP: u64 = 1_000_000;

/// How many threads of this process sleep at the addresses of a class.
static SLEEPERS: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];

/// The threads that the parent counted do not exist.
pub(crate) extern "C" fn begin_in_child() {
    for sleepers in &SLEEPERS {
        sleepers.store(0, Relaxed);
    }
}

impl Spinlock {
    fn sleepers(&self) -> &'static AtomicU32 {
        &SLEEPERS[(self.0.as_ptr() as usize >> 6) % SLEEPERS.len()]
    }

    #[inline]
    fn try_lock_ours(&self) -> bool {
        self.0
            .compare_exchange(FREE, HELD, Acquire, Relaxed)
            .is_ok()
    }

    fn lock(&self, mode: Mode) -> c_int {
        if mode.passes() {
            // SAFETY: invariant 3.
            return unsafe { real::pthread_spin_lock(self.address()) };
        }
        if self.try_lock_ours() { 0 } else { wait(self) }
    }

    fn try_lock(&self, mode: Mode) -> c_int {
        if mode.passes() {
            // SAFETY: invariant 3.
            return unsafe { real::pthread_spin_trylock(self.address()) };
        }
        if self.try_lock_ours() { 0 } else { libc::EBUSY }
    }

    fn unlock(&self, mode: Mode) -> c_int {
        if mode.passes() {
            // SAFETY: invariant 3.
            return unsafe { real::pthread_spin_unlock(self.address()) };
        }
        self.unlock_ours();
        0
    }

    #[inline]
    fn unlock_ours(&self) {
        let (key, sleepers) = (self.0.as_ptr().cast_const(), self.sleepers());
        self.0.store(FREE, Release);
        // Now the object may be gone: only its address is used.
        if sleepers.load(Relaxed) != 0 {
            wake(key);
        }
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

    /// Waits until the lock is taken.
    #[cold]
    #[inline(never)]
    fn wait(&self) -> bool {
        let patience = if Native::oversubscribed() {
            BRIEF
        } else {
            SPIN
        };
        if self.spin(patience) {
            return true;
        }
        let sleepers = self.sleepers();
        // Without a fence that other CPUs heed, which costs microseconds: if the holder misses the
        // count, the sleep is short all the same.
        sleepers.fetch_add(1, SeqCst);
        let mut sleep = SLEEP;
        loop {
            let seen = self.0.load(Relaxed);
            if seen == FREE {
                if self.spin(BRIEF) {
                    break;
                }
                continue;
            }
            let until = Native::now().saturating_add(sleep);
            let key = self.0.as_ptr().cast_const();
            let parked = Native::park(key, seen, until, || self.0.load(Relaxed));
            if self.spin(BRIEF) {
                break;
            }
            if parked == Parked::Unwoken {
                sleep = (sleep * 2).min(LONGEST_SLEEP);
            }
        }
        sleepers.fetch_sub(1, Relaxed);
        true
    }

    /// Tries to take the lock for so many nanoseconds.
    fn spin(&self, nanos: u64) -> bool {
        const LOOKS: u32 = 32;
        let until = Native::now().saturating_add(nanos);
        let mut pauses = 1;
        loop {
            for _ in 0..LOOKS {
                if self.0.load(Relaxed) == FREE && self.try_lock_ours() {
                    return true;
                }
                // Threads that look rarely leave the line to the holder.
                for _ in 0..pauses {
                    hint::spin_loop();
                }
            }
            if Native::now() >= until {
                return false;
            }
            pauses = (pauses * 2).min(32);
        }
    }
}

#[cold]
#[inline(never)]
fn wake(key: *const u32) {
    Native::unpark(key, 1);
}

/// Waits for a lock without counts.
#[cold]
#[inline(never)]
fn wait(lock: &Spinlock) -> c_int {
    cancel::wait(lock, Limit::Never, || lock.wait());
    0
}

impl Attempt for Spinlock {
    fn attempt(&self) -> bool {
        self.try_lock_ours()
    }

    fn undo(&self) {
        self.0.store(FREE, Release);
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
    // SAFETY: invariant 1.
    unsafe { spinlock(pointer) }.0.store(FREE, Relaxed);
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
unsafe extern "C-unwind" fn pthread_spin_lock(pointer: *mut c_void) -> c_int {
    // SAFETY: invariant 1.
    let lock = unsafe { spinlock(pointer) };
    match MODE.load(Relaxed) {
        0 if lock.try_lock_ours() => 0,
        0 => wait(lock),
        _ => acquire(lock, false),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_spin_trylock(pointer: *mut c_void) -> c_int {
    // SAFETY: invariant 1.
    let lock = unsafe { spinlock(pointer) };
    match MODE.load(Relaxed) {
        0 if lock.try_lock_ours() => 0,
        0 => libc::EBUSY,
        _ => acquire(lock, true),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_spin_unlock(pointer: *mut c_void) -> c_int {
    // SAFETY: invariant 1.
    let lock = unsafe { spinlock(pointer) };
    if MODE.load(Relaxed) != 0 {
        return release(lock);
    }
    lock.unlock_ours();
    0
}

/// All other acquisitions.
#[inline(never)]
fn acquire(lock: &Spinlock, is_try: bool) -> c_int {
    let mode = mode();
    if !mode.watches() {
        return match is_try {
            false => lock.lock(mode),
            true => lock.try_lock(mode),
        };
    }
    counts::call(mode, || 0);
    let wait = (!is_try).then_some(|| lock.lock(mode));
    traced::acquisition(mode, lock.object(), || lock.try_lock(mode), wait)
}

#[inline(never)]
fn release(lock: &Spinlock) -> c_int {
    let mode = mode();
    counts::call(mode, || 0);
    if mode.reports() {
        report::release(lock.address() as u64, None, None);
    }
    lock.unlock(mode)
}
