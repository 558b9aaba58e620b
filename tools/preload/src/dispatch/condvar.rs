//! The exported functions for condition variables, and waiting.
//!
//! A wait releases and takes the mutex by the mutex's own functions, which may be ours or the C
//! library's. Both objects decide which wait it is:
//!
//! | condition variable | mutex | the wait |
//! | --- | --- | --- |
//! | ours | ours or delegated | `posix_wait` |
//! | delegated | delegated | [`libc_wait`] |
//! | delegated | ours | `mixed_wait` |
//!
//! # Cancellation
//!
//! A thread that waits may be cancelled. The C library then unwinds its stack by an exception, and
//! the mutex has to be taken again before the program's cleanup handlers run. Rust's frames may
//! only be unwound if nothing in them has a destructor, so the frame with the cleanup is C's:
//!
//! ```text
//!   wait -> kinlock_cancellable_call (posix/cancel.c) -> wait_in_frame -> posix_wait or mixed_wait
//!                     | if the thread is cancelled
//!                     +-> wait_cancelled
//! ```

use super::choice::mode;
use super::end_reported;
use super::mutex::{after_libc_wait, before_libc_wait, relock, traced_unlock};
use crate::libc::lock::libc_wait;
use crate::libc::real;
use crate::mode::{MODE, Mode};
use crate::posix::cancel::kinlock_cancellable_call;
use crate::posix::condvar::Condvar;
use crate::posix::mutex::Mutex;
use crate::thread::thread_id;
use crate::time::{self, Limit};
use crate::traced::counts::{self, Count};
use crate::traced::report::now::{self, Noted};
use crate::traced::report::{self, Object};
use core::cell::Cell;
use core::ffi::{c_int, c_long, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use kinlock_core::platform::{NEVER, Parked};
use kinlock_core::raw::condvar::Partner;
use kinlock_linux::Native;
use kinlock_linux::probe;
use kinlock_report::{CONDVAR, DESTROYED_AWAITED};

// ---- notifying ------------------------------------------

#[inline]
pub(super) fn notify(condvar: &Condvar, all: bool) -> c_int {
    match all {
        false => probe!("cond_signal", condvar),
        true => probe!("cond_broadcast", condvar),
    }
    let is_usual = MODE.load(Relaxed) == 0 && !condvar.is_shared();
    if is_usual && !condvar.inner.is_waited_for() {
        return 0;
    }
    cold_notify(condvar, all)
}

/// Notifies a condition variable that has waiters, or is not the usual one.
#[inline(never)]
fn cold_notify(condvar: &Condvar, all: bool) -> c_int {
    let mode = mode();
    let is_delegated = condvar.is_delegated(mode);
    counts::condvar(mode, Count::Signals, is_delegated);
    if !is_delegated {
        return condvar.posix_notify(all);
    }
    // SAFETY: invariant 3.
    unsafe {
        match all {
            false => real::pthread_cond_signal(condvar.address()),
            true => real::pthread_cond_broadcast(condvar.address()),
        }
    }
}

// ---- waiting --------------------------------------------

/// One wait. It has no destructor: a cancelled thread unwinds the frame in which it lies.
struct Wait<'a> {
    condvar: &'a Condvar,
    mutex: &'a Mutex,
    mode: Mode,
    limit: Limit,
    /// The condition variable is delegated, and the mutex is ours.
    is_mixed: bool,
    /// What the mutex's functions returned.
    result: Cell<c_int>,
    /// The wait that the report is told about when it ends.
    reported: Cell<Option<report::Wait>>,
    /// The note that this thread waits.
    noted: Cell<Noted>,
    /// Where the mutex counts this wait, from before its release until the thread has it again.
    counted: Cell<Option<&'a AtomicU32>>,
}

unsafe extern "C-unwind" {
    fn kinlock_cancellable_futex(
        key: *const u32,
        operation: c_int,
        expected: u32,
        until: *const libc::timespec,
        sets: u32,
    ) -> c_long;
}

/// Waits until `until`, a time of `clock` or, without one, of the condition variable's own clock. A
/// null pointer means no limit. For delegated objects the pointer is passed on unread.
///
/// # Safety
///
/// Invariants 1 and 3.
pub(super) unsafe fn wait(
    condvar: *const Condvar,
    mutex: *const Mutex,
    clock: Option<libc::clockid_t>,
    until: *const libc::timespec,
) -> c_int {
    let mode = mode();
    // SAFETY: invariant 1.
    let (condvar, mutex) = unsafe { (&*condvar, &*mutex) };
    probe!("cond_wait", condvar, mutex);
    let is_delegated = condvar.is_delegated(mode);
    let is_mutex_delegated = mutex.is_delegated(mode);
    if is_delegated && is_mutex_delegated {
        counts::condvar(mode, Count::Waits, true);
        let released = before_libc_wait(mutex, mode);
        let awaited = awaited(condvar);
        let begun = mode.reports().then(|| awaited.begin_wait());
        // SAFETY: invariant 3.
        let result = unsafe { libc_wait(condvar.address(), mutex.address(), clock, until) };
        if let Some(begun) = begun {
            awaited.end_wait(begun);
        }
        after_libc_wait(released, result);
        note_timeout(mode, condvar, result);
        return result;
    }
    // SAFETY: invariant 3.
    let limit = unsafe { Limit::at(clock.unwrap_or_else(|| condvar.clock(mode)), until) };
    match limit.check() {
        0 => {}
        error => return error,
    }
    counts::condvar(mode, Count::Waits, is_delegated || is_mutex_delegated);
    let mut wait = Wait {
        condvar,
        mutex,
        mode,
        limit,
        is_mixed: is_delegated,
        result: Cell::new(0),
        reported: Cell::new(None),
        noted: Cell::new(now::waits(
            condvar.address() as u64,
            CONDVAR | limit.noted(),
            thread_id(),
        )),
        counted: Cell::new(None),
    };
    // SAFETY: invariant 4: `wait` lives until the frame is left. Nothing in Rust's frames has a
    // destructor.
    let result =
        unsafe { kinlock_cancellable_call(wait_in_frame, (&raw mut wait).cast(), wait_cancelled) };
    wait.end_reported();
    note_timeout(mode, condvar, result);
    result
}

fn awaited(condvar: &Condvar) -> Object<'_> {
    Object::new(condvar.address() as u64, CONDVAR)
}

fn note_timeout(mode: Mode, condvar: &Condvar, result: c_int) {
    if mode.reports() && result == libc::ETIMEDOUT {
        awaited(condvar).note_timeout();
    }
}

impl Wait<'_> {
    /// Called when the mutex has been released: the thread waits from now on.
    fn begin_reported(&self) {
        if self.mode.reports() {
            self.reported.set(Some(awaited(self.condvar).begin_wait()));
        }
    }

    /// Called when the thread has tried to take the mutex again. If that failed, the thread does
    /// not hold the mutex and must not change the count.
    fn end_counted(&self) {
        if let (Some(count), 0) = (self.counted.take(), self.result.get()) {
            count.store(count.load(Relaxed).wrapping_sub(1), Relaxed);
        }
    }

    /// Called when the wait for the condition variable has ended, and before the thread takes the
    /// mutex: a wait for the mutex is reported by the mutex. The condition variable still exists.
    fn end_reported(&self) {
        self.noted.replace(Noted::NONE).end();
        if let Some(begun) = self.reported.take() {
            awaited(self.condvar).end_wait(begun);
        }
    }
}

/// The part of [`wait`] that runs inside the frame which a cancellation cleans up.
///
/// # Safety
///
/// `wait` points to the [`Wait`] that [`wait`] has made.
unsafe extern "C-unwind" fn wait_in_frame(wait: *mut c_void) -> c_int {
    // SAFETY: as this function demands.
    let wait = unsafe { &*wait.cast::<Wait<'_>>() };
    match wait.is_mixed {
        false => posix_wait(wait),
        true => mixed_wait(wait),
    }
}

/// Called when the thread was cancelled in its wait: takes the mutex for the program's cleanup
/// handlers.
///
/// # Safety
///
/// `wait` points to the [`Wait`] that [`wait`] has made.
unsafe extern "C" fn wait_cancelled(wait: *mut c_void) {
    // SAFETY: as this function demands.
    let wait = unsafe { &*wait.cast::<Wait<'_>>() };
    match wait.is_mixed {
        true => {
            wait.end_reported();
            wait.lock();
        }
        false => wait.condvar.inner.abandon(wait),
    }
}

/// Waits for a condition variable of ours.
fn posix_wait(wait: &Wait<'_>) -> c_int {
    wait.condvar.users.enter();
    // SAFETY: invariant 2: `unlock` checks it, or the program must.
    let is_notified = unsafe {
        wait.condvar
            .inner
            .wait_by(wait, || wait.limit.until_by_kernel())
    };
    match (wait.result.get(), is_notified) {
        (0, false) => libc::ETIMEDOUT,
        (result, _) => result,
    }
}

/// How [`posix_wait`] works on the mutex, and how it sleeps.
impl Partner<Native> for Wait<'_> {
    unsafe fn unlock(&self) -> bool {
        self.counted.set(self.mutex.add_wait(self.mode));
        self.result.set(traced_unlock(self.mutex, self.mode));
        let is_released = self.result.get() == 0;
        if is_released {
            self.begin_reported();
        }
        is_released
    }

    fn lock(&self) {
        self.result.set(relock(self.mutex, self.mode, false));
        self.end_counted();
    }

    fn lock_notified(&self) {
        self.result.set(relock(self.mutex, self.mode, true));
        self.end_counted();
    }

    fn park(
        &self,
        key: *const u32,
        expected: u32,
        until: u64,
        sets: u32,
        _: impl Fn() -> u32,
    ) -> Parked {
        let moment = timespec(until);
        let mut operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
        let until = match self.limit.time_of_day() {
            // The kernel ends the sleep at the right time even if that clock is set.
            Some(until) => {
                operation |= libc::FUTEX_CLOCK_REALTIME;
                ptr::from_ref(until)
            }
            None if until == NEVER => ptr::null(),
            None => &raw const moment,
        };
        // SAFETY: invariant 4.
        let result = unsafe { kinlock_cancellable_futex(key, operation, expected, until, sets) };
        match -result as c_int {
            0 => Parked::Woken,
            libc::EAGAIN => Parked::Differed,
            // The time limit, a signal, or an error: the caller checks its own limit.
            _ => Parked::Unwoken,
        }
    }

    fn leave(&self) {
        self.end_reported();
        self.condvar.users.leave();
    }
}

/// A time of the monotonic clock, as the system's calls take it.
fn timespec(nanos: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (nanos / 1_000_000_000) as libc::time_t,
        tv_nsec: (nanos % 1_000_000_000) as c_long,
    }
}

/// The longest sleep of [`mixed_wait`], in nanoseconds. It may notice a notification this late.
const MIXED_SLEEP_NS: u64 = 2_000_000;

/// Waits for a delegated condition variable with a mutex of ours.
///
/// The C library's wait cannot release our mutex. So the mutex is released first, and a
/// notification may come between that release and the C library's wait. Therefore the sleep is
/// short, and ends as if the thread had been notified: POSIX permits spurious wake-ups, and the
/// program tests its condition again.
fn mixed_wait(wait: &Wait<'_>) -> c_int {
    let left = wait.limit.left();
    if left == 0 {
        match traced_unlock(wait.mutex, wait.mode) {
            0 => wait.lock(),
            error => return error,
        }
        return match wait.result.get() {
            0 => libc::ETIMEDOUT,
            error => error,
        };
    }
    // SAFETY: invariant 2: `unlock` checks it, or the program must.
    if !unsafe { wait.unlock() } {
        return wait.result.get();
    }
    // The limit is a time of the condition variable's own clock, since before glibc 2.30 waits take
    // no other.
    let now = time::read(wait.condvar.clock(wait.mode));
    let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    let until = timespec(now.saturating_add(left.min(MIXED_SLEEP_NS)));
    let helper = MaybeUninit::<libc::pthread_mutex_t>::zeroed();
    let (helper, condvar) = (helper.as_ptr().cast(), wait.condvar.address());
    // SAFETY: invariants 3 and 4; zeros are an unlocked mutex.
    unsafe {
        real::pthread_mutex_lock(helper);
        real::pthread_cond_timedwait(condvar, helper, &until);
        real::pthread_mutex_unlock(helper);
    }
    wait.end_reported();
    wait.lock();
    wait.result.get()
}

/// Tells the report if threads wait for a condition variable that is destroyed. Threads that have
/// been notified do not count. They no longer sleep, so the number of sleepers in the kernel is
/// what counts.
#[cold]
#[inline(never)]
fn report_destroyed(condvar: &Condvar) {
    let address = condvar.address() as u64;
    if report::sleepers_at(address, size_of::<Condvar>() / 4) > 0 {
        report::misused(DESTROYED_AWAITED, address, CONDVAR, 0);
    }
}

// ---- the functions --------------------------------------

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pthread_cond_init(
    condvar: *mut Condvar,
    attributes: *const c_void,
) -> c_int {
    let mode = mode();
    probe!("cond_init", condvar);
    counts::call(mode, || 0);
    end_reported(mode, condvar);
    // SAFETY: invariant 1. The object is the caller's alone. The C library writes as many bytes.
    unsafe { condvar.cast::<[u64; 6]>().write([0; 6]) };
    if attributes.is_null() && !mode.delegates() {
        return 0;
    }
    // The C library checks the attributes, and stores them in its flags.
    // SAFETY: invariant 3.
    let result = unsafe { real::pthread_cond_init(condvar.cast(), attributes) };
    // SAFETY: invariant 1.
    let object = unsafe { &*condvar };
    if result == 0 && !object.is_delegated(mode) && object.has_libc_monotonic() {
        // SAFETY: as above.
        unsafe { condvar.cast::<[u64; 6]>().write([0; 6]) };
        object.set_monotonic();
    }
    result
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pthread_cond_destroy(condvar: *mut Condvar) -> c_int {
    let mode = mode();
    counts::call(mode, || 0);
    // SAFETY: invariant 1.
    let condvar = unsafe { &*condvar };
    probe!("cond_destroy", condvar);
    if mode.reports() {
        report_destroyed(condvar);
    }
    if condvar.is_delegated(mode) {
        // SAFETY: invariant 3.
        let result = unsafe { real::pthread_cond_destroy(condvar.address()) };
        end_reported(mode, condvar);
        return result;
    }
    condvar.users.wait_until_none();
    // No thread uses it any more.
    end_reported(mode, condvar);
    0
}

exported! {
    pthread_cond_wait(condvar: *mut Condvar, mutex: *mut Mutex) =
        wait(condvar, mutex, None, ptr::null());
    pthread_cond_timedwait(
        condvar: *mut Condvar, mutex: *mut Mutex, until: *const libc::timespec
    ) = wait(condvar, mutex, None, until);
    pthread_cond_clockwait(
        condvar: *mut Condvar, mutex: *mut Mutex, clock: libc::clockid_t,
        until: *const libc::timespec
    ) = match time::is_known(clock) {
        true => wait(condvar, mutex, Some(clock), until),
        false => libc::EINVAL,
    };
    pthread_cond_signal(condvar: *mut Condvar) = notify(&*condvar, false);
    pthread_cond_broadcast(condvar: *mut Condvar) = notify(&*condvar, true);
}
