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
use crate::thread::thread_id;
use crate::time::Limit;
use crate::traced::report::now;
use crate::traced::report::{self, Awaited, Wait};
use core::cell::Cell;
use core::ffi::{c_int, c_uint, c_void};
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
unsafe extern "C" fn pthread_barrier_init(
    barrier: *const c_void,
    attributes: *const c_void,
    count: c_uint,
) -> c_int {
    end_reported(barrier);
    // SAFETY: invariant 3.
    unsafe { real::pthread_barrier_init(barrier, attributes, count) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_barrier_destroy(barrier: *const c_void) -> c_int {
    // SAFETY: invariant 3. It waits for threads that are about to leave the barrier.
    let result = unsafe { real::pthread_barrier_destroy(barrier) };
    if result == 0 {
        end_reported(barrier);
    }
    result
}

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

/// A call that waits, and for what.
struct Call {
    awaited: Awaited,
    function: Function,
    wait: Cell<Option<Wait>>,
}

/// The C library's function to be called, with its arguments.
#[derive(Clone, Copy)]
enum Function {
    Semaphore(*const c_void),
    SemaphoreUntil(*const c_void, Time),
    SemaphoreByClock(*const c_void, libc::clockid_t, Time),
    Join(libc::pthread_t, *mut *mut c_void),
    JoinUntil(libc::pthread_t, *mut *mut c_void, Time),
    JoinByClock(libc::pthread_t, *mut *mut c_void, libc::clockid_t, Time),
    JoinOfC11(libc::pthread_t, *mut c_int),
}

use self::Function::*;

impl Function {
    /// # Safety
    ///
    /// Invariant 3.
    #[inline]
    unsafe fn call(self) -> c_int {
        // SAFETY: invariant 3.
        unsafe {
            match self {
                Semaphore(semaphore) => real::sem_wait(semaphore),
                SemaphoreUntil(semaphore, until) => real::sem_timedwait(semaphore, until),
                SemaphoreByClock(semaphore, clock, until) => {
                    real::sem_clockwait(semaphore, clock, until)
                }
                Join(thread, result) => real::pthread_join(thread, result),
                JoinUntil(thread, result, until) => {
                    real::pthread_timedjoin_np(thread, result, until)
                }
                JoinByClock(thread, result, clock, until) => {
                    real::pthread_clockjoin_np(thread, result, clock, until)
                }
                JoinOfC11(thread, result) => real::thrd_join(thread, result),
            }
        }
    }

    /// The call, and a note for as long as it waits. A semaphore makes none, since it may be free.
    ///
    /// # Safety
    ///
    /// Invariant 3.
    #[inline]
    unsafe fn noted_call(self) -> c_int {
        let (thread, limit) = match self {
            Join(thread, _) | JoinOfC11(thread, _) => (thread, 0),
            JoinUntil(thread, ..) | JoinByClock(thread, ..) => (thread, LIMITED),
            // SAFETY: invariant 3.
            Semaphore(_) | SemaphoreUntil(..) | SemaphoreByClock(..) => unsafe {
                return self.call();
            },
        };
        let noted = now::waits(thread, JOIN | limit, thread_id());
        // SAFETY: invariant 3.
        let result = unsafe { self.call() };
        noted.end();
        result
    }

    /// The semaphore that may be taken at once, before the wait begins. The C library looks at the
    /// time limit first.
    fn semaphore(self) -> Option<*const c_void> {
        let (semaphore, clock, until) = match self {
            Semaphore(semaphore) => return Some(semaphore),
            SemaphoreUntil(semaphore, until) => (semaphore, libc::CLOCK_REALTIME, until),
            SemaphoreByClock(semaphore, clock, until) => (semaphore, clock, until),
            Join(..) | JoinUntil(..) | JoinByClock(..) | JoinOfC11(..) => return None,
        };
        // SAFETY: invariant 3.
        let limit = unsafe { Limit::at(clock, until) };
        (limit.check() == 0).then_some(semaphore)
    }

    /// The `errno` of a result.
    fn error(self, result: c_int) -> c_int {
        match self {
            Semaphore(_) | SemaphoreUntil(..) | SemaphoreByClock(..) if result != 0 => errno(),
            _ => result,
        }
    }
}

fn errno() -> c_int {
    // SAFETY: invariant 5.
    unsafe { *libc::__errno_location() }
}

unsafe extern "C-unwind" {
    fn kinlock_cancellable_call(
        call: unsafe extern "C-unwind" fn(*mut c_void) -> c_int,
        with: *mut c_void,
        left: unsafe extern "C" fn(*mut c_void),
    ) -> c_int;
}

/// Makes a call, and reports its wait if there is a report.
///
/// # Safety
///
/// Invariant 3.
#[inline]
unsafe fn wait(address: u64, kind: u32, function: Function) -> c_int {
    if !reports() {
        // SAFETY: as this function demands.
        return unsafe { function.noted_call() };
    }
    // SAFETY: as this function demands.
    unsafe { reported_wait(address, kind, function) }
}

/// # Safety
///
/// Invariant 3.
#[cold]
#[inline(never)]
unsafe fn reported_wait(address: u64, kind: u32, function: Function) -> c_int {
    let mut with = Call {
        awaited: Awaited {
            address,
            kind,
            place: None,
        },
        function,
        wait: Cell::new(None),
    };
    // SAFETY: invariant 4: `with` lives until the frame is left. Nothing in Rust's frames has a
    // destructor.
    unsafe { kinlock_cancellable_call(call, (&raw mut with).cast(), left) }
}

/// # Safety
///
/// `with` points to the [`Call`] that [`wait`] has made.
unsafe extern "C-unwind" fn call(with: *mut c_void) -> c_int {
    // SAFETY: as this function demands.
    let with = unsafe { &*with.cast::<Call>() };
    if let Some(semaphore) = with.function.semaphore() {
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
    // SAFETY: invariant 3.
    let result = unsafe { with.function.noted_call() };
    if let Some(wait) = with.wait.take() {
        match with.function.error(result) {
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
/// `with` points to the [`Call`] that [`wait`] has made.
unsafe extern "C" fn left(with: *mut c_void) {
    // SAFETY: as this function demands.
    let with = unsafe { &*with.cast::<Call>() };
    if let Some(wait) = with.wait.take() {
        with.awaited.end(wait);
    }
}

// ---- semaphores -----------------------------------------

#[unsafe(no_mangle)]
unsafe extern "C" fn sem_init(semaphore: *const c_void, shared: c_int, value: c_uint) -> c_int {
    end_reported(semaphore);
    // SAFETY: invariant 3.
    unsafe { real::sem_init(semaphore, shared, value) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sem_destroy(semaphore: *const c_void) -> c_int {
    end_reported(semaphore);
    // SAFETY: invariant 3.
    unsafe { real::sem_destroy(semaphore) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sem_wait(semaphore: *const c_void) -> c_int {
    // SAFETY: invariant 3.
    unsafe { wait(semaphore as u64, SEMAPHORE, Semaphore(semaphore)) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sem_timedwait(semaphore: *const c_void, until: Time) -> c_int {
    let function = SemaphoreUntil(semaphore, until);
    // SAFETY: invariant 3.
    unsafe { wait(semaphore as u64, SEMAPHORE, function) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sem_clockwait(
    semaphore: *const c_void,
    clock: libc::clockid_t,
    until: Time,
) -> c_int {
    let function = SemaphoreByClock(semaphore, clock, until);
    // SAFETY: invariant 3.
    unsafe { wait(semaphore as u64, SEMAPHORE, function) }
}

// ---- the ends of threads --------------------------------

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_join(
    thread: libc::pthread_t,
    result: *mut *mut c_void,
) -> c_int {
    // SAFETY: invariant 3.
    unsafe { wait(JOINS, JOIN, Join(thread, result)) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_timedjoin_np(
    thread: libc::pthread_t,
    result: *mut *mut c_void,
    until: Time,
) -> c_int {
    // SAFETY: invariant 3.
    unsafe { wait(JOINS, JOIN, JoinUntil(thread, result, until)) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_clockjoin_np(
    thread: libc::pthread_t,
    result: *mut *mut c_void,
    clock: libc::clockid_t,
    until: Time,
) -> c_int {
    // SAFETY: invariant 3.
    unsafe { wait(JOINS, JOIN, JoinByClock(thread, result, clock, until)) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn thrd_join(thread: libc::pthread_t, result: *mut c_int) -> c_int {
    // SAFETY: invariant 3.
    unsafe { wait(JOINS, JOIN, JoinOfC11(thread, result)) }
}
