//! The exported functions for mutexes.
//!
//! In the usual case [`path`] decides everything, by one load of the mutex's kind and one of the
//! mode. All other calls go through `cold_lock` or `cold_unlock`, which decide in this order: is
//! the call traced; is the mutex ours or delegated to the C library.

use super::choice::mode;
use super::end_reported;
use crate::libc::layout::{ERROR_CHECKING, KINDS, RECURSIVE};
use crate::libc::lock::libc_lock;
use crate::libc::real;
use crate::mode::{MODE, Mode, REPORTS};
use crate::posix::mutex::Mutex;
use crate::thread::{known_thread_id, thread_id};
use crate::time::{self, Limit};
use crate::traced::report::{self, Behind, Marks, Object, Outcome, Wait};
use crate::traced::{acquire, counts};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;
use kinlock_core::platform::Platform;
use kinlock_linux::{Native, probe};
use kinlock_report::{DESTROYED_AWAITED, FOREIGN, NOT_HELD};

/// Which path a call takes. 0: the usual one, a normal mutex of ours, untraced. A kind: the usual
/// one of that kind. With [`REPORTS`]: the same, for a report. All other values: the cold path.
#[inline]
fn path(mutex: &Mutex) -> u32 {
    mutex.kind.load(Relaxed) | MODE.load(Relaxed)
}

/// # Safety
///
/// Invariant 1.
unsafe fn mutex<'a>(pointer: *const Mutex) -> &'a Mutex {
    // SAFETY: invariant 1.
    unsafe { &*pointer }
}

// ---- the cold path --------------------------------------

/// Waits for a normal mutex of ours.
#[cold]
#[inline(never)]
fn wait(mutex: &Mutex) -> c_int {
    mutex.wait_for(false, Limit::Never);
    mutex.note_owner()
}

/// [`cold_lock`] without a limit: a limit would lie on the stack, and the fast path would have to
/// make room for it.
#[cold]
#[inline(never)]
fn cold_lock_endless(mutex: &Mutex) -> c_int {
    cold_lock(mutex, Limit::Never)
}

/// Takes a mutex for which [`path`] has no fast path.
#[cold]
#[inline(never)]
fn cold_lock(mutex: &Mutex, limit: Limit) -> c_int {
    let mode = mode();
    mutex.simplify_kind(mode);
    if !mode.traces() {
        return lock(mutex, mode, limit);
    }
    counts::call(mode, || delegated_kind(mutex, mode));
    traced_lock(mutex, mode, limit, || lock(mutex, mode, limit))
}

#[cold]
#[inline(never)]
fn cold_unlock(mutex: &Mutex) -> c_int {
    let mode = mode();
    counts::call(mode, || delegated_kind(mutex, mode));
    traced_unlock(mutex, mode)
}

/// Takes a mutex, by this library or by the C library. Returns what POSIX says.
fn lock(mutex: &Mutex, mode: Mode, limit: Limit) -> c_int {
    match mutex.kind(mode) {
        Some(kind) => mutex.posix_lock(mode, kind, limit),
        // SAFETY: invariant 3.
        None => unsafe { libc_lock(mutex.address(), limit) },
    }
}

/// Releases a mutex, by this library or by the C library. Returns what POSIX says.
fn unlock(mutex: &Mutex, mode: Mode) -> c_int {
    match mutex.kind(mode) {
        Some(kind) => mutex.posix_unlock(mode, kind),
        // SAFETY: invariant 3.
        None => unsafe { real::pthread_mutex_unlock(mutex.address()) },
    }
}

/// The C library's word for the kind of a delegated mutex; 0 for one of ours.
fn delegated_kind(mutex: &Mutex, mode: Mode) -> u32 {
    match mutex.is_delegated(mode) {
        true => mutex.kind.load(Relaxed),
        false => 0,
    }
}

// ---- traced ---------------------------------------------

/// As [`lock`], counted and reported as the mode says. `wait` takes a mutex that is held.
fn traced_lock(mutex: &Mutex, mode: Mode, limit: Limit, wait: impl FnOnce() -> c_int) -> c_int {
    let first = || try_once(mutex, mode);
    acquire(
        mode,
        object(mutex, mode),
        limit,
        first,
        || Behind::Readers,
        wait,
    )
}

/// The first attempt of a traced acquisition.
fn try_once(mutex: &Mutex, mode: Mode) -> c_int {
    match mutex.kind.load(Relaxed) {
        0 if mode.blocks() => match mutex.word.try_lock() {
            true => mutex.note_owner(),
            false => libc::EBUSY,
        },
        _ => lock(mutex, mode, Limit::Now),
    }
}

/// As [`unlock`], reported if the mode says so.
pub(super) fn traced_unlock(mutex: &Mutex, mode: Mode) -> c_int {
    if !mode.reports() {
        return unlock(mutex, mode);
    }
    // Before the release, since afterwards another thread may hold the mutex.
    let is_released = mutex.would_be_free();
    if is_released {
        report::release(object(mutex, mode), None, mutex.seems_held(mode));
    }
    let result = unlock(mutex, mode);
    // A mutex that knows its owner refuses others. A destroyed one has no owner.
    if result == libc::EPERM && !is_released && !mutex.is_destroyed() {
        refused(mutex, mode);
    }
    result
}

/// Tells the report that the calling thread does not hold the mutex that it has tried to release.
#[cold]
#[inline(never)]
fn refused(mutex: &Mutex, mode: Mode) {
    let owner = mutex.owner();
    let misuse = match owner {
        0 => NOT_HELD,
        _ => FOREIGN,
    };
    let object = object(mutex, mode);
    report::misused(misuse, object.address, object.kind, owner);
}

/// Takes the mutex after a wait for a condition variable. The acquisition is reported, but not
/// counted, since the program did not call for it. `is_notified`: the notifier may still hold the
/// mutex.
pub(super) fn relock(mutex: &Mutex, mode: Mode, is_notified: bool) -> c_int {
    if !mode.reports() {
        return relock_untraced(mutex, mode, is_notified);
    }
    let mode = mode.uncounted();
    let wait = || relock_untraced(mutex, mode, is_notified);
    traced_lock(mutex, mode, Limit::Never, wait)
}

fn relock_untraced(mutex: &Mutex, mode: Mode, is_notified: bool) -> c_int {
    match mutex.kind(mode) {
        Some(kind) if is_notified => mutex.posix_lock_notified(mode, kind),
        _ => lock(mutex, mode, Limit::Never),
    }
}

/// Called before the C library's wait for a condition variable, which releases the mutex and takes
/// it again by internal calls. Returns the mutex if the wait releases it.
pub(super) fn before_libc_wait(mutex: &Mutex, mode: Mode) -> Option<Object<'_>> {
    if !mode.reports() {
        return None;
    }
    let object = object(mutex, mode);
    let is_released = mutex.would_be_free();
    if is_released {
        report::release(object, None, mutex.seems_held(mode));
    }
    is_released.then_some(object)
}

/// Called after that wait, with what [`before_libc_wait`] returned.
pub(super) fn after_libc_wait(released: Option<Object<'_>>, result: c_int) {
    // With other results the thread may not hold the mutex.
    if let (Some(object), 0 | libc::ETIMEDOUT | libc::EOWNERDEAD) = (released, result) {
        report::taken_again(object);
    }
}

/// The marks of a mutex of ours.
fn marks(mutex: &Mutex) -> Marks<'_> {
    Marks {
        serial: &mutex.serial,
        last: &mutex.last,
        domain: &mutex.domain,
    }
}

fn object(mutex: &Mutex, mode: Mode) -> Object<'_> {
    let mut kind = mutex.kind.load(Relaxed);
    if kind == 0 && !mode.delegates() {
        kind = mutex.declared.load(Relaxed);
    }
    Object {
        // A delegated mutex has no room for marks: the C library uses these words.
        marks: (!mutex.is_delegated(mode)).then_some(marks(mutex)),
        is_nested: mode.reports() && kind & KINDS == RECURSIVE && mutex.is_callers(),
        ..Object::new(mutex.address() as u64, kind)
    }
}

/// Takes a mutex for a report. Each unusual case is a tail call, so the usual case has no registers
/// to save.
#[inline(never)]
fn lock_reported(mutex: &Mutex, path: u32) -> c_int {
    if path != REPORTS {
        return lock_other_reported(mutex, path);
    }
    if !mutex.word.try_lock() {
        return wait_reported(mutex);
    }
    if !report::count_taken(mutex.address() as u64, marks(mutex)) {
        return taken_at_once(mutex);
    }
    mutex.note_owner()
}

/// Called when the thread has taken a mutex of ours, and counting alone is not enough.
#[cold]
#[inline(never)]
fn taken_at_once(mutex: &Mutex) -> c_int {
    report::taken_at_once(object(mutex, mode()));
    match mutex.kind.load(Relaxed) {
        0 => mutex.note_owner(),
        _ => mutex.own(thread_id()),
    }
}

/// Takes a normal mutex of ours that is held, for a report.
#[cold]
#[inline(never)]
fn wait_reported(mutex: &Mutex) -> c_int {
    let object = reported(mutex);
    let wait = Wait::begin(object, true);
    mutex.wait_for(false, Limit::Never);
    report::taken_after(object, wait.end());
    mutex.note_owner()
}

/// A normal mutex of ours, as the report sees it.
fn reported(mutex: &Mutex) -> Object<'_> {
    Object {
        marks: Some(marks(mutex)),
        ..Object::new(mutex.address() as u64, 0)
    }
}

/// Releases a mutex for a report.
#[inline(never)]
fn unlock_reported(mutex: &Mutex, path: u32) -> c_int {
    if path != REPORTS {
        return unlock_other_reported(mutex, path);
    }
    if !report::count_release(mutex.address() as u64, marks(mutex)) {
        return release_reported(mutex);
    }
    mutex.release();
    0
}

/// Releases a normal mutex of ours, when counting alone is not enough.
#[cold]
#[inline(never)]
fn release_reported(mutex: &Mutex) -> c_int {
    // The clock is read first: the code and data that follow are rarely cached, and loading them
    // would make a short hold seem twice as long.
    let now = Some(Native::now());
    report::release(reported(mutex), now, mutex.word.is_locked());
    mutex.release();
    0
}

const RECURSIVE_REPORTS: u32 = RECURSIVE | REPORTS;
const ERROR_CHECKING_REPORTS: u32 = ERROR_CHECKING | REPORTS;

/// Takes a mutex that is not a normal one of ours, for a report.
#[inline(never)]
fn lock_other_reported(mutex: &Mutex, path: u32) -> c_int {
    let (address, marks) = (mutex.address() as u64, marks(mutex));
    let is_recursive = match path {
        RECURSIVE_REPORTS => true,
        ERROR_CHECKING_REPORTS => false,
        _ => return cold_lock_endless(mutex),
    };
    match known_thread_id() {
        Some(thread) if !mutex.is_owned_by(thread) && mutex.word.try_lock() => {
            if !report::count_taken(address, marks) {
                return taken_at_once(mutex);
            }
            mutex.own(thread)
        }
        Some(thread)
            if is_recursive
                && mutex.is_owned_by(thread)
                && report::count_nested(address, marks) =>
        {
            mutex.deepen()
        }
        _ => cold_lock_endless(mutex),
    }
}

/// Releases a mutex that is not a normal one of ours, for a report.
#[inline(never)]
fn unlock_other_reported(mutex: &Mutex, path: u32) -> c_int {
    let is_ours = matches!(path, RECURSIVE_REPORTS | ERROR_CHECKING_REPORTS);
    let thread = known_thread_id().filter(|_| is_ours);
    match thread {
        Some(thread) if mutex.is_owned_by(thread) => {
            let is_noted =
                mutex.is_deeper() || report::count_release(mutex.address() as u64, marks(mutex));
            match is_noted {
                true => mutex.unlock_owned(thread),
                false => cold_unlock(mutex),
            }
        }
        _ => cold_unlock(mutex),
    }
}

/// Tries a normal mutex of ours, for a report.
#[inline(never)]
fn try_reported(mutex: &Mutex) -> c_int {
    if !mutex.word.try_lock() {
        return cold_lock(mutex, Limit::Now);
    }
    if !report::count_tried(mutex.address() as u64, marks(mutex)) {
        return tried_at_once(mutex);
    }
    mutex.note_owner()
}

/// Called when the thread has tried a normal mutex of ours and has it, and counting alone is not
/// enough.
#[cold]
#[inline(never)]
fn tried_at_once(mutex: &Mutex) -> c_int {
    let outcome = Outcome {
        is_try: true,
        is_endless: false,
        ..Outcome::AT_ONCE
    };
    report::acquisition(object(mutex, mode()), outcome);
    mutex.note_owner()
}

/// Tells the report that the program tried to destroy a mutex in use. The C library also refuses to
/// destroy a mutex that nobody holds, if a thread in a wait for a condition variable will take it
/// again.
#[cold]
#[inline(never)]
fn refused_destruction(mutex: &Mutex, mode: Mode) {
    let object = object(mutex, mode);
    match mutex.seems_held(mode) {
        true => report::destroyed_held(object),
        false => report::misused(DESTROYED_AWAITED, object.address, object.kind, 0),
    }
}

// ---- the functions --------------------------------------

/// Makes the memory a normal mutex of ours.
fn clear(mutex: *mut Mutex) {
    probe!("mutex_init", mutex);
    counts::call(mode(), || 0);
    end_reported(mode(), mutex);
    // SAFETY: invariant 1. The object is the caller's alone. The C library writes as many bytes.
    unsafe { mutex.cast::<[u64; 5]>().write([0; 5]) };
}

/// Makes a mutex of ours, normal or recursive.
pub(super) fn initialise(mutex: *mut Mutex, recursive: bool) {
    clear(mutex);
    // SAFETY: invariant 1.
    unsafe { &*mutex }
        .kind
        .store(u32::from(recursive) * RECURSIVE, Relaxed);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_mutex_init(mutex: *mut Mutex, attributes: *const c_void) -> c_int {
    clear(mutex);
    if attributes.is_null() && !mode().delegates() {
        return 0;
    }
    // The C library checks the attributes. What it writes for a kind of ours is an unlocked mutex
    // of ours.
    // SAFETY: invariant 3.
    let result = unsafe { real::pthread_mutex_init(mutex.cast(), attributes) };
    if result == 0 {
        // SAFETY: invariant 1.
        unsafe { &*mutex }.simplify_kind(mode());
    }
    result
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pthread_mutex_destroy(pointer: *mut Mutex) -> c_int {
    let mode = mode();
    // SAFETY: invariant 1.
    let mutex = unsafe { mutex(pointer) };
    counts::call(mode, || delegated_kind(mutex, mode));
    let result = match mutex.kind(mode) {
        _ if mutex.is_destroyed() => 0,
        Some(_) => mutex.posix_destroy(mode),
        // SAFETY: invariant 3.
        None => unsafe { real::pthread_mutex_destroy(mutex.address()) },
    };
    match result {
        0 => end_reported(mode, pointer),
        libc::EBUSY if mode.reports() => refused_destruction(mutex, mode),
        _ => {}
    }
    result
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn pthread_mutex_lock(pointer: *mut Mutex) -> c_int {
    // SAFETY: invariant 1.
    let mutex = unsafe { mutex(pointer) };
    probe!("mutex_entry", mutex);
    match path(mutex) {
        0 if mutex.word.lock_at_once() => mutex.note_owner(),
        0 => wait(mutex),
        kind @ (RECURSIVE | ERROR_CHECKING) => match known_thread_id() {
            Some(thread) => mutex.lock_owned(thread, kind),
            None => cold_lock_endless(mutex),
        },
        path => lock_reported(mutex, path),
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pthread_mutex_trylock(pointer: *mut Mutex) -> c_int {
    // SAFETY: invariant 1.
    let mutex = unsafe { mutex(pointer) };
    match path(mutex) {
        0 if mutex.word.try_lock() => mutex.note_owner(),
        0 => libc::EBUSY,
        REPORTS => try_reported(mutex),
        _ => cold_lock(mutex, Limit::Now),
    }
}

exported! {
    pub(super) pthread_mutex_timedlock(pointer: *mut Mutex, until: *const libc::timespec) = {
        probe!("mutex_timedlock_entry", mutex(pointer));
        timed_lock(mutex(pointer), Limit::at(libc::CLOCK_REALTIME, until))
    };
    pthread_mutex_clocklock(
        pointer: *mut Mutex, clock: libc::clockid_t, until: *const libc::timespec
    ) = {
        if !time::is_known(clock) {
            return libc::EINVAL;
        }
        probe!("mutex_clocklock_entry", mutex(pointer));
        timed_lock(mutex(pointer), Limit::at(clock, until))
    };
}

fn timed_lock(mutex: &Mutex, limit: Limit) -> c_int {
    let result = cold_lock(mutex, limit);
    if result == 0 {
        probe!("mutex_timedlock_acquired", mutex);
    }
    result
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pthread_mutex_unlock(pointer: *mut Mutex) -> c_int {
    // SAFETY: invariant 1.
    let mutex = unsafe { mutex(pointer) };
    match path(mutex) {
        0 => mutex.release(),
        RECURSIVE | ERROR_CHECKING => {
            return match known_thread_id() {
                Some(thread) => mutex.unlock_owned(thread),
                None => cold_unlock(mutex),
            };
        }
        path => return unlock_reported(mutex, path),
    }
    0
}

// Names by which older C++ libraries and programs call the same functions.
exported! {
    __pthread_mutex_init(mutex: *mut Mutex, attributes: *const c_void) =
        pthread_mutex_init(mutex, attributes);
    __pthread_mutex_destroy(mutex: *mut Mutex) = pthread_mutex_destroy(mutex);
    __pthread_mutex_lock(mutex: *mut Mutex) = pthread_mutex_lock(mutex);
    __pthread_mutex_trylock(mutex: *mut Mutex) = pthread_mutex_trylock(mutex);
    __pthread_mutex_unlock(mutex: *mut Mutex) = pthread_mutex_unlock(mutex);
}
