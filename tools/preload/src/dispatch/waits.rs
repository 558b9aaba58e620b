//! The exported functions by which threads wait for what is no lock and no condition variable:
//! barriers, semaphores, and the ends of threads.
//!
//! All of these are the C library's. They are replaced for the report, which measures the waits;
//! without one each of them is the C library's function and one test.
//!
//! # Cancellation
//!
//! Waits for semaphores and for threads may be cancelled: see [`condvar`](super::condvar). The
//! frame that a cancellation cleans up is C's:
//!
//! ```text
//!   sem_wait -> kinlock_cancellable_call (posix/cancel.c) -> call
//!                     | if the thread is cancelled
//!                     +-> left
//! ```

use super::choice::mode;
use crate::environment;
use crate::libc::real;
use crate::mode::chosen;
use crate::posix::cancel::kinlock_cancellable_call;
use crate::thread::thread_id;
use crate::time::Limit;
use crate::traced::report::now;
use crate::traced::report::{self, Awaited, Wait};
use core::cell::Cell;
use core::ffi::{c_int, c_uint, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use kinlock_report::now::LIMITED;
use kinlock_report::{BARRIER, JOIN, JOINS, SEMAPHORE};

type Time = *const libc::timespec;

/// Whether there is a report. A program that has none, and calls no other function of this library,
/// is not one whose locks were replaced: so only a report has the mode chosen here.
#[inline]
fn reports() -> bool {
    match chosen() {
        Some(mode) => mode.reports(),
        None => will_report(),
    }
}

#[cold]
#[inline(never)]
fn will_report() -> bool {
    const UNKNOWN: u32 = 0;
    const WANTED: u32 = 1;
    const NOT_WANTED: u32 = 2;
    static REPORT: AtomicU32 = AtomicU32::new(UNKNOWN);
    if REPORT.load(Relaxed) == UNKNOWN {
        let is_wanted = environment::variable(b"KINLOCK_REPORT").is_some();
        let known = if is_wanted { WANTED } else { NOT_WANTED };
        REPORT.store(known, Relaxed);
    }
    REPORT.load(Relaxed) == WANTED && mode().reports()
}

/// Tells the report that memory will hold another object, or none.
fn end_reported(address: *const c_void) {
    if reports() {
        report::lock_ended(address as u64);
    }
}

// ---- barriers -------------------------------------------

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_barrier_wait(barrier: *const c_void) -> c_int {
    if !reports() {
        // SAFETY: invariant 3.
        return unsafe { real::pthread_barrier_wait(barrier) };
    }
    // SAFETY: invariant 3.
    unsafe { reported_barrier_wait(barrier) }
}

/// # Safety
///
/// Invariant 3.
#[cold]
#[inline(never)]
unsafe fn reported_barrier_wait(barrier: *const c_void) -> c_int {
    let awaited = Awaited {
        address: barrier as u64,
        kind: BARRIER,
        place: None,
    };
    let wait = awaited.begin();
    // SAFETY: invariant 3.
    let result = unsafe { real::pthread_barrier_wait(barrier) };
    match result {
        0 => awaited.end(wait),
        // The last thread to come waits for none.
        libc::PTHREAD_BARRIER_SERIAL_THREAD => {
            wait.discard();
            awaited.passed();
        }
        _ => wait.discard(),
    }
    result
}

// ---- waits that may be cancelled ------------------------

/// What a call waits for.
#[derive(Clone, Copy)]
enum Waited {
    /// A semaphore, up to this time of the clock, or without a limit if it is null.
    Semaphore(*const c_void, libc::clockid_t, Time),
    /// The end of a thread; [`LIMITED`], or 0.
    End(libc::pthread_t, u32),
}

use self::Waited::*;

/// A call that waits.
struct Call<F> {
    waited: Waited,
    awaited: Awaited,
    function: F,
    wait: Cell<Option<Wait>>,
}

impl Waited {
    /// As the report names it.
    fn awaited(self) -> Awaited {
        let (address, kind) = match self {
            Semaphore(semaphore, ..) => (semaphore as u64, SEMAPHORE),
            End(..) => (JOINS, JOIN),
        };
        Awaited {
            address,
            kind,
            place: None,
        }
    }

    /// The call, and a note for as long as it waits. A semaphore makes none, since it may be free.
    #[inline]
    fn noted_call(self, function: impl Fn() -> c_int) -> c_int {
        let End(thread, limit) = self else {
            return function();
        };
        let noted = now::waits(thread, JOIN | limit, thread_id());
        let result = function();
        noted.end();
        result
    }

    /// The semaphore that may be taken at once, before the wait begins. The C library looks at the
    /// time limit first.
    fn semaphore(self) -> Option<*const c_void> {
        let Semaphore(semaphore, clock, until) = self else {
            return None;
        };
        // SAFETY: invariant 3.
        let limit = unsafe { Limit::at(clock, until) };
        (limit.check() == 0).then_some(semaphore)
    }

    /// The `errno` of a result.
    fn error(self, result: c_int) -> c_int {
        match self {
            Semaphore(..) if result != 0 => errno(),
            _ => result,
        }
    }
}

fn errno() -> c_int {
    // SAFETY: invariant 5.
    unsafe { *libc::__errno_location() }
}

/// Makes a call, and reports its wait if there is a report.
#[inline]
fn wait<F: Fn() -> c_int>(waited: Waited, function: F) -> c_int {
    match reports() {
        false => waited.noted_call(function),
        true => reported_wait(waited, function),
    }
}

#[cold]
#[inline(never)]
fn reported_wait<F: Fn() -> c_int>(waited: Waited, function: F) -> c_int {
    let mut with = Call {
        waited,
        awaited: waited.awaited(),
        function,
        wait: Cell::new(None),
    };
    // SAFETY: invariant 4: `with` lives until the frame is left. Nothing in Rust's frames has a
    // destructor.
    unsafe { kinlock_cancellable_call(call::<F>, (&raw mut with).cast(), left::<F>) }
}

/// # Safety
///
/// `with` points to the [`Call`] that [`reported_wait`] has made.
unsafe extern "C-unwind" fn call<F: Fn() -> c_int>(with: *mut c_void) -> c_int {
    // SAFETY: as this function demands.
    let with = unsafe { &*with.cast::<Call<F>>() };
    if let Some(semaphore) = with.waited.semaphore() {
        let before = errno();
        // SAFETY: invariant 3.
        if unsafe { real::sem_trywait(semaphore) } == 0 {
            with.awaited.passed();
            return 0;
        }
        // SAFETY: invariant 5.
        unsafe { *libc::__errno_location() = before };
    }
    with.wait.set(Some(with.awaited.begin()));
    let result = with.waited.noted_call(&with.function);
    if let Some(wait) = with.wait.take() {
        match with.waited.error(result) {
            0 | libc::EINTR => with.awaited.end(wait),
            libc::ETIMEDOUT => {
                with.awaited.end(wait);
                with.awaited.note_timeout();
            }
            _ => wait.discard(),
        }
    }
    result
}

/// The thread was cancelled: its wait ends.
///
/// # Safety
///
/// `with` points to the [`Call`] that [`reported_wait`] has made.
unsafe extern "C" fn left<F>(with: *mut c_void) {
    // SAFETY: as this function demands.
    let with = unsafe { &*with.cast::<Call<F>>() };
    if let Some(wait) = with.wait.take() {
        with.awaited.end(wait);
    }
}

// ---- the functions --------------------------------------

exported! {
    pthread_barrier_init(
        barrier: *const c_void, attributes: *const c_void, count: c_uint
    ) = {
        end_reported(barrier);
        real::pthread_barrier_init(barrier, attributes, count)
    };
    pthread_barrier_destroy(barrier: *const c_void) = {
        // It waits for threads that are about to leave the barrier.
        let result = real::pthread_barrier_destroy(barrier);
        if result == 0 {
            end_reported(barrier);
        }
        result
    };
    sem_init(semaphore: *const c_void, shared: c_int, value: c_uint) = {
        end_reported(semaphore);
        real::sem_init(semaphore, shared, value)
    };
    sem_destroy(semaphore: *const c_void) = {
        end_reported(semaphore);
        real::sem_destroy(semaphore)
    };
    sem_wait(semaphore: *const c_void) = wait(
        Semaphore(semaphore, libc::CLOCK_REALTIME, ptr::null()),
        || real::sem_wait(semaphore),
    );
    sem_timedwait(semaphore: *const c_void, until: Time) = wait(
        Semaphore(semaphore, libc::CLOCK_REALTIME, until),
        || real::sem_timedwait(semaphore, until),
    );
    sem_clockwait(semaphore: *const c_void, clock: libc::clockid_t, until: Time) = wait(
        Semaphore(semaphore, clock, until),
        || real::sem_clockwait(semaphore, clock, until),
    );
    pthread_join(thread: libc::pthread_t, result: *mut *mut c_void) = wait(
        End(thread, 0),
        || real::pthread_join(thread, result),
    );
    pthread_timedjoin_np(thread: libc::pthread_t, result: *mut *mut c_void, until: Time) = wait(
        End(thread, LIMITED),
        || real::pthread_timedjoin_np(thread, result, until),
    );
    pthread_clockjoin_np(
        thread: libc::pthread_t, result: *mut *mut c_void, clock: libc::clockid_t, until: Time
    ) = wait(
        End(thread, LIMITED),
        || real::pthread_clockjoin_np(thread, result, clock, until),
    );
    thrd_join(thread: libc::pthread_t, result: *mut c_int) = wait(
        End(thread, 0),
        || real::thrd_join(thread, result),
    );
}
