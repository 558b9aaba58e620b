//! Spinlocks of ours.
//!
//! The lock word takes the C library's values and no others: it may be shared with a process, or
//! with code of this one, that does not use this library, and it may have been initialised without
//! a call. So a waiter cannot leave a mark in it. Waiters spin for some microseconds and then
//! sleep; if there are more threads than CPUs, their sleep is what gives the holder a CPU.
//!
//! Sleepers are counted outside the lock words, in [`SLEEPERS`]: one count serves many addresses.
//! An unlock that finds its count above zero wakes one thread that sleeps at its address. An unlock
//! by another process, or by code that does not use this library, wakes nobody. Therefore each
//! sleep is short. Nothing in memory names a waiter, so a thread may leave its wait by a jump.

use super::cancel;
use crate::libc::layout::FREE;
use crate::time::Limit;
use core::ffi::{c_int, c_void};
use core::hint;
use core::sync::atomic::{AtomicU32, Ordering::*};
use kinlock_core::platform::{Parked, Platform};
use kinlock_linux::Native;
use kinlock_report::SPIN;

/// A `pthread_spinlock_t`.
#[repr(C)]
pub(crate) struct Spinlock(AtomicU32);

/// The value of a held lock.
const HELD: u32 = 1 - FREE;

/// How long a waiter spins before its first sleep if no more threads wait than there are CPUs.
const SPIN_NS: u64 = 20_000;
/// How long it spins before its first sleep if more threads wait, and after each sleep.
const BRIEF_SPIN_NS: u64 = 2_000;
/// The first sleep. After a sleep that no wake-up has ended, the next one is twice as long.
const FIRST_SLEEP_NS: u64 = 100_000;
const LONGEST_SLEEP_NS: u64 = 1_000_000;

/// How many threads of this process sleep at the addresses that share an entry.
static SLEEPERS: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];

/// In the child of a fork: the threads that the parent counted do not exist there.
pub(crate) extern "C" fn begin_in_child() {
    for sleepers in &SLEEPERS {
        sleepers.store(0, Relaxed);
    }
}

impl Spinlock {
    fn sleepers(&self) -> &'static AtomicU32 {
        &SLEEPERS[(self.0.as_ptr() as usize >> 6) % SLEEPERS.len()]
    }

    pub(crate) fn address(&self) -> *const c_void {
        (&raw const self.0).cast()
    }

    pub(crate) fn posix_init(&self) {
        self.0.store(FREE, Relaxed);
    }

    pub(crate) fn is_held(&self) -> bool {
        self.0.load(Relaxed) != FREE
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        self.0
            .compare_exchange(FREE, HELD, Acquire, Relaxed)
            .is_ok()
    }

    /// Takes a lock of ours. `is_try`: without waiting. Returns what POSIX says.
    pub(crate) fn posix_lock(&self, is_try: bool) -> c_int {
        match (self.try_lock(), is_try) {
            (true, _) => 0,
            (false, true) => libc::EBUSY,
            (false, false) => self.wait(),
        }
    }

    /// Releases a lock of ours.
    #[inline]
    pub(crate) fn posix_unlock(&self) {
        let (key, sleepers) = (self.0.as_ptr().cast_const(), self.sleepers());
        self.0.store(FREE, Release);
        // Now the object may be gone: only its address is used.
        if sleepers.load(Relaxed) != 0 {
            wake(key);
        }
    }

    /// Waits until the calling thread has taken the lock.
    #[cold]
    #[inline(never)]
    pub(crate) fn wait(&self) -> c_int {
        let attempt = || Some(self.try_lock());
        let undo = || self.0.store(FREE, Release);
        let queue = || {
            self.spin_and_sleep();
            true
        };
        cancel::wait(
            self.address() as u64,
            SPIN,
            Limit::Never,
            attempt,
            undo,
            queue,
        );
        0
    }

    #[cold]
    #[inline(never)]
    fn spin_and_sleep(&self) {
        let first_spin = if Native::oversubscribed() {
            BRIEF_SPIN_NS
        } else {
            SPIN_NS
        };
        if self.spin(first_spin) {
            return;
        }
        let sleepers = self.sleepers();
        // No heavy fence, which would cost microseconds: the sleep is short even if the holder
        // misses the count.
        sleepers.fetch_add(1, SeqCst);
        let mut sleep = FIRST_SLEEP_NS;
        loop {
            let seen = self.0.load(Relaxed);
            if seen == FREE {
                if self.spin(BRIEF_SPIN_NS) {
                    break;
                }
                continue;
            }
            let until = Native::now().saturating_add(sleep);
            let key = self.0.as_ptr().cast_const();
            let parked = Native::park(key, seen, until, || self.0.load(Relaxed));
            if self.spin(BRIEF_SPIN_NS) {
                break;
            }
            if parked == Parked::Unwoken {
                sleep = (sleep * 2).min(LONGEST_SLEEP_NS);
            }
        }
        sleepers.fetch_sub(1, Relaxed);
    }

    /// Tries to take the lock, for that many nanoseconds.
    fn spin(&self, nanos: u64) -> bool {
        /// How many times to look at the lock before reading the clock.
        const LOOKS_PER_CLOCK: u32 = 32;
        let until = Native::now().saturating_add(nanos);
        let mut pauses = 1;
        loop {
            for _ in 0..LOOKS_PER_CLOCK {
                if self.0.load(Relaxed) == FREE && self.try_lock() {
                    return true;
                }
                // A thread that looks less often leaves the cache line to the holder.
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
