//! The exported functions by which threads wait for barriers, semaphores, and the ends of threads.
//!
//! All of these objects are the C library's. The functions are replaced for the report, which
//! measures the waits. Without a report each of them is one test and a call of the C library's
//! function.
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
use crate::traced::report::{self, Object, Wait};
use core::cell::Cell;
use core::ffi::{c_int, c_uint, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use kinlock_report::now::LIMITED;
use kinlock_report::{BARRIER, JOIN, JOINS, SEMAPHORE};

type Time = *const libc::timespec;

/// Whether there is a report. Without one this must not choose the mode: that would count as a call
/// of one of our lock functions, and a program that makes none is warned.
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
    let awaited = Object::new(barrier as u64, BARRIER);
    let wait = awaited.begin_wait();
    // SAFETY: invariant 3.
    let result = unsafe { real::pthread_barrier_wait(barrier) };
    match result {
        0 => awaited.end_wait(wait),
        // The last thread to arrive does not wait.
        libc::PTHREAD_BARRIER_SERIAL_THREAD => {
            wait.discard();
            awaited.pass();
        }
        _ => wait.discard(),
    }
    result
}

// ---- waits that may be cancelled ------------------------

/// A call that waits.
struct Call<F> {
    awaited: Object<'static>,
    /// For a semaphore, which may be free: its address, and the limit of the call.
    semaphore: Option<(*const c_void, libc::clockid_t, Time)>,
    function: F,
    wait: Cell<Option<Wait>>,
}

fn errno() -> c_int {
    // SAFETY: invariant 5.
    unsafe { *libc::__errno_location() }
}

/// Waits for a semaphore by `function`, until the time `until` of the clock, or without a limit if
/// that is null. The wait is not noted, since the semaphore may be free.
#[inline]
fn wait_for(
    semaphore: *const c_void,
    clock: libc::clockid_t,
    until: Time,
    function: impl Fn() -> c_int,
) -> c_int {
    let awaited = Object::new(semaphore as u64, SEMAPHORE);
    wait(awaited, Some((semaphore, clock, until)), function)
}

/// Waits for the end of a thread by `function`, and notes the wait. `limit`: [`LIMITED`], or 0.
#[inline]
fn join(thread: libc::pthread_t, limit: u32, function: impl Fn() -> c_int) -> c_int {
    wait(Object::new(JOINS, JOIN), None, || {
        let noted = now::waits(thread, JOIN | limit, thread_id());
        let result = function();
        noted.end();
        result
    })
}

/// Makes a call, and reports its wait if there is a report.
#[inline]
fn wait<F: Fn() -> c_int>(
    awaited: Object<'static>,
    semaphore: Option<(*const c_void, libc::clockid_t, Time)>,
    function: F,
) -> c_int {
    if !reports() {
        return function();
    }
    reported_wait(Call {
        awaited,
        semaphore,
        function,
        wait: Cell::new(None),
    })
}

#[cold]
#[inline(never)]
fn reported_wait<F: Fn() -> c_int>(mut with: Call<F>) -> c_int {
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
    if let Some((semaphore, clock, until)) = with.semaphore {
        let before = errno();
        // The C library, too, checks the limit first.
        // SAFETY: invariant 3.
        let is_taken =
            unsafe { Limit::at(clock, until).check() == 0 && real::sem_trywait(semaphore) == 0 };
        if is_taken {
            with.awaited.pass();
            return 0;
        }
        // SAFETY: invariant 5.
        unsafe { *libc::__errno_location() = before };
    }
    with.wait.set(Some(with.awaited.begin_wait()));
    let result = (with.function)();
    if let Some(wait) = with.wait.take() {
        // Functions of semaphores return -1, the others an error.
        let error = if result < 0 { errno() } else { result };
        match error {
            0 | libc::EINTR => with.awaited.end_wait(wait),
            libc::ETIMEDOUT => {
                with.awaited.end_wait(wait);
                with.awaited.note_timeout();
            }
            _ => wait.discard(),
        }
    }
    result
}

/// Called when the thread is cancelled: ends its wait.
///
/// # Safety
///
/// `with` points to the [`Call`] that [`reported_wait`] has made.
unsafe extern "C" fn left<F>(with: *mut c_void) {
    // SAFETY: as this function demands.
    let with = unsafe { &*with.cast::<Call<F>>() };
    if let Some(wait) = with.wait.take() {
        with.awaited.end_wait(wait);
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
        // The C library's function waits for threads that are about to leave the barrier.
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
    sem_wait(semaphore: *const c_void) =
        wait_for(semaphore, libc::CLOCK_REALTIME, ptr::null(), || real::sem_wait(semaphore));
    sem_timedwait(semaphore: *const c_void, until: Time) = wait_for(
        semaphore, libc::CLOCK_REALTIME, until,
        || real::sem_timedwait(semaphore, until),
    );
    sem_clockwait(semaphore: *const c_void, clock: libc::clockid_t, until: Time) =
        wait_for(semaphore, clock, until, || real::sem_clockwait(semaphore, clock, until));
    pthread_join(thread: libc::pthread_t, result: *mut *mut c_void) =
        join(thread, 0, || real::pthread_join(thread, result));
    pthread_timedjoin_np(thread: libc::pthread_t, result: *mut *mut c_void, until: Time) =
        join(thread, LIMITED, || real::pthread_timedjoin_np(thread, result, until));
    pthread_clockjoin_np(
        thread: libc::pthread_t, result: *mut *mut c_void, clock: libc::clockid_t, until: Time
    ) = join(thread, LIMITED, || real::pthread_clockjoin_np(thread, result, clock, until));
    thrd_join(thread: libc::pthread_t, result: *mut c_int) =
        join(thread, 0, || real::thrd_join(thread, result));
}
