//! Condition variables of ours: their clock, their notifications, and when they may be destroyed.
//!
//! A wait also releases and retakes a mutex, which may be ours or delegated. So waiting is in
//! [`dispatch`](crate::dispatch), above the functions for mutexes.

use crate::libc::layout::{self, Flag};
use crate::mode::Mode;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering::*};
use kinlock_core::platform::{NEVER, Platform};
use kinlock_core::raw::LockConfig;
use kinlock_core::raw::condvar::QueuedCondvar;
use kinlock_linux::Native;

/// A `pthread_cond_t` as this library uses it.
#[repr(C)]
pub(crate) struct Condvar {
    pub(crate) inner: QueuedCondvar<Native, WakesAll>,
    pub(crate) users: Users,
    /// `MONOTONIC` or 0: the clock that the attributes of `pthread_cond_init` asked for.
    clock: AtomicU32,
    /// The C library's flags are among these words. In an object of ours they are 0, unless code
    /// that does not call this library has initialised it.
    rest: [AtomicU32; 8],
}

const _: () = assert!(
    core::mem::offset_of!(Condvar, rest) == layout::OWN_WORDS * 4
        && size_of::<Condvar>() == size_of::<libc::pthread_cond_t>()
);

/// Time limits are times of the monotonic clock.
const MONOTONIC: u32 = 1;

#[derive(Clone, Copy, Debug)]
pub(crate) struct WakesAll;

impl LockConfig for WakesAll {
    /// A broadcast wakes all waiters and moves none to the mutex. The thread that broadcasts may
    /// destroy the condition variable at once, while it still holds the mutex. Destroying waits for
    /// the waiters to leave, so a waiter must be able to leave without the mutex.
    const AT_ONCE: u32 = i32::MAX as u32;
}

// ---- its users ------------------------------------------

/// The number of threads between their first and their last access to a condition variable.
/// `pthread_cond_destroy` waits until there are none.
///
/// ```text
///   bit 0       a thread waits in pthread_cond_destroy
///       1..7    the number of forks when the count began: a child has none of its parent's users
///       8..31   the number of users
/// ```
#[repr(transparent)]
pub(crate) struct Users(AtomicU32);

const DESTROYS: u32 = 1;
const FORKS: u32 = 0xfe;
const USER: u32 = 0x100;

impl Users {
    /// The word with its users removed if they were counted before a fork.
    fn of(word: u32) -> u32 {
        let forks = u32::from(Native::forks()) << 1 & FORKS;
        if word & FORKS == forks { word } else { forks }
    }

    /// The calling thread begins to access the condition variable.
    pub(crate) fn enter(&self) {
        let mut seen = self.0.load(Relaxed);
        // Relaxed: POSIX demands that the thread that destroys the object knows of all its users.
        while let Err(now) = self
            .0
            .compare_exchange(seen, Self::of(seen) + USER, Relaxed, Relaxed)
        {
            seen = now;
        }
    }

    /// The calling thread's last access. Afterwards the object may be gone.
    pub(crate) fn leave(&self) {
        let key = (&raw const self.0).cast();
        // Release pairs with the acquire in `wait_until_none`.
        if self.0.fetch_sub(USER, Release) & !FORKS == USER | DESTROYS {
            Native::unpark(key, u32::MAX);
        }
    }

    /// Waits until no thread uses the condition variable.
    pub(crate) fn wait_until_none(&self) {
        loop {
            let seen = self.0.load(Acquire);
            if Self::of(seen) < USER {
                return;
            }
            let waits = seen | DESTROYS;
            if self
                .0
                .compare_exchange(seen, waits, Relaxed, Relaxed)
                .is_ok()
            {
                let key = (&raw const self.0).cast();
                Native::park(key, waits, NEVER, || self.0.load(Relaxed));
            }
        }
    }
}

impl Condvar {
    /// Whether a flag of the C library is set.
    #[inline]
    fn has(&self, flag: &Flag) -> bool {
        let place = flag.place.load(Relaxed) as usize;
        let word = self.rest.get(place.wrapping_sub(layout::OWN_WORDS));
        word.is_some_and(|word| word.load(Relaxed) & flag.bits.load(Relaxed) != 0)
    }

    /// Whether processes may share the condition variable. If so it is delegated, since the other
    /// process may run without this library.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.has(&layout::CONDVAR_SHARED)
    }

    #[inline]
    pub(crate) fn is_delegated(&self, mode: Mode) -> bool {
        mode.delegates() || self.is_shared()
    }

    /// Whether the C library's functions have given it the monotonic clock.
    pub(crate) fn has_libc_monotonic(&self) -> bool {
        self.has(&layout::CONDVAR_MONOTONIC)
    }

    /// Gives a condition variable of ours, which is all zeros, the monotonic clock.
    pub(crate) fn set_monotonic(&self) {
        self.clock.store(MONOTONIC, Relaxed);
    }

    /// The clock of its time limits.
    pub(crate) fn clock(&self, mode: Mode) -> libc::clockid_t {
        let is_ours = !self.is_delegated(mode) && self.clock.load(Relaxed) == MONOTONIC;
        match is_ours || self.has_libc_monotonic() {
            false => libc::CLOCK_REALTIME,
            true => libc::CLOCK_MONOTONIC,
        }
    }

    pub(crate) fn address(&self) -> *const c_void {
        (self as *const Self).cast()
    }

    /// Wakes one waiter, or all.
    pub(crate) fn posix_notify(&self, all: bool) -> c_int {
        if self.inner.is_waited_for() {
            self.users.enter();
            match all {
                false => drop(self.inner.notify_one()),
                true => drop(self.inner.notify_all()),
            }
            self.users.leave();
        }
        0
    }
}
