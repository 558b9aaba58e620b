//! The exported functions for reader-writer locks.
//!
//! The cold path decides in this order: is the call traced; is the lock ours or delegated to the C
//! library.

use super::choice::{mode, rwlock_mode};
use crate::libc::lock::{libc_read, libc_write};
use crate::libc::real;
use crate::mode::{HOLDS, Mode, REPORTS, RWLOCK_MODE};
use crate::posix::rwlock::{Access, RwLock};
use crate::time::Limit;
use crate::traced::report::{self, Behind, Object, Outcome};
use crate::traced::{acquire, counts};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;
use kinlock_linux::probe;
use kinlock_report::{DESTROYED_HELD, RWLOCK};

/// Which path a call takes. 0: the usual one, a lock of ours, untraced. [`HOLDS`]: the same, but
/// readers are noted. [`REPORTS`] and [`REPORTS_HOLDS`]: the same two, for a report. All other
/// values: the cold path.
#[inline]
fn path(lock: &RwLock) -> u32 {
    lock.path(RWLOCK_MODE.load(Relaxed))
}

type Time = *const libc::timespec;

const REPORTS_HOLDS: u32 = REPORTS | HOLDS;

/// # Safety
///
/// Invariant 1.
#[inline]
unsafe fn rwlock<'a>(pointer: *const RwLock) -> &'a RwLock {
    // SAFETY: invariant 1.
    unsafe { &*pointer }
}

// ---- the cold path --------------------------------------

/// [`cold_lock`] without a limit: a limit would lie on the stack, and the fast path would have to
/// make room for it.
#[cold]
#[inline(never)]
fn cold_lock_endless(rwlock: &RwLock, access: Access) -> c_int {
    cold_lock(rwlock, access, Limit::Never)
}

/// Takes a lock for which there is no fast path.
fn cold_lock(rwlock: &RwLock, access: Access, limit: Limit) -> c_int {
    // The C library, too, checks the limit before any attempt.
    match limit.check() {
        0 => {}
        error => return error,
    }
    let mode = rwlock_mode();
    if !mode.traces() {
        return lock(rwlock, mode, access, limit);
    }
    counts::call(mode, || delegated_kind(rwlock));
    traced_lock(rwlock, mode, access, limit)
}

/// As [`lock`], counted and reported as the mode says.
fn traced_lock(rwlock: &RwLock, mode: Mode, access: Access, limit: Limit) -> c_int {
    let side = side(rwlock, access);
    let wait = || lock(rwlock, mode, access, limit);
    let first = || match limit {
        Limit::Now => wait(),
        _ => try_once(rwlock, mode, access),
    };
    if mode.reports() && !matches!(limit, Limit::Now) {
        let is_endless = matches!(limit, Limit::Never);
        report::rwlock_asked(side, is_endless, !rwlock.is_recursive());
    }
    let result = acquire(mode, side, limit, first, || behind(rwlock), wait);
    mark(rwlock, mode, access, result);
    result
}

/// Called when the thread has taken a lock of ours for a report: stores the serial number of that
/// side in the lock, by which the next acquisition finds its counts.
fn mark(rwlock: &RwLock, mode: Mode, access: Access, result: c_int) {
    if result != 0 || !mode.reports() || rwlock.is_delegated(mode) {
        return;
    }
    let serial = report::serial_of_side(side(rwlock, access));
    let mark = rwlock.serial(access);
    // Other readers may read the mark now.
    if mark.load(Relaxed) != serial {
        mark.store(serial, Relaxed);
    }
}

#[inline]
fn side(rwlock: &RwLock, access: Access) -> Object<'_> {
    Object::side(rwlock.address() as u64, access == Access::Read)
}

/// Counts an acquisition for a report. The lock was taken without a wait. Returns whether nothing
/// more is needed.
#[inline(always)]
fn count(rwlock: &RwLock, access: Access) -> bool {
    report::count_rwlock(side(rwlock, access), rwlock.serial(access))
}

/// Takes a lock for reading, for a report. As for mutexes, each unusual case is a tail call.
#[inline(never)]
fn read_reported(lock: &RwLock, path: u32) -> c_int {
    if !matches!(path, REPORTS | REPORTS_HOLDS) || !lock.word.read_at_once() {
        return cold_lock_endless(lock, Access::Read);
    }
    count_reader(lock, path)
}

/// Called when the thread has taken a lock of ours for reading, without a wait. It is a function of
/// its own, since its caller needs registers to take the lock.
#[inline(never)]
fn count_reader(lock: &RwLock, path: u32) -> c_int {
    if !count(lock, Access::Read) {
        return taken_at_once(lock, Access::Read);
    }
    match path {
        REPORTS => lock.count_read(),
        _ => lock.note_read(Mode(path)),
    }
}

/// Takes a lock for writing, for a report.
#[inline(never)]
fn write_reported(lock: &RwLock, path: u32) -> c_int {
    if !matches!(path, REPORTS | REPORTS_HOLDS) || !lock.word.write_at_once() {
        return cold_lock_endless(lock, Access::Write);
    }
    if !count(lock, Access::Write) {
        return taken_at_once(lock, Access::Write);
    }
    lock.note_writer()
}

/// Called when the thread has taken a lock of ours without a wait, and counting alone is not
/// enough.
#[cold]
#[inline(never)]
fn taken_at_once(rwlock: &RwLock, access: Access) -> c_int {
    let mode = rwlock_mode();
    let side = side(rwlock, access);
    report::rwlock_asked(side, true, !rwlock.is_recursive());
    match access {
        Access::Read => rwlock.note_read(mode),
        Access::Write => rwlock.note_writer(),
    };
    report::acquisition(side, Outcome::AT_ONCE);
    mark(rwlock, mode, access, 0);
    0
}

/// Releases a lock for a report.
#[inline(never)]
fn unlock_reported(lock: &RwLock, path: u32) -> c_int {
    if !matches!(path, REPORTS | REPORTS_HOLDS) {
        return cold_unlock(lock);
    }
    let access = lock.callers_access();
    let is_noted = access.is_some_and(|access| {
        report::count_rwlock_release(side(lock, access), lock.serial(access))
    });
    if !is_noted {
        return cold_unlock(lock);
    }
    if path == REPORTS_HOLDS {
        lock.note_release();
    }
    lock.posix_unlock();
    0
}

/// The first attempt of a traced acquisition that may wait. It must not overtake a waiting writer
/// as a `tryrdlock` may.
fn try_once(rwlock: &RwLock, mode: Mode, access: Access) -> c_int {
    match (rwlock.is_delegated(mode), access) {
        (true, _) => lock(rwlock, mode, access, Limit::Now),
        (false, Access::Read) if rwlock.word.read_at_once() => rwlock.note_read(mode),
        (false, Access::Write) if rwlock.word.write_at_once() => rwlock.note_writer(),
        (false, _) => libc::EBUSY,
    }
}

/// Who holds a lock that was found taken. If a reader waits for a writer that itself waits for
/// readers, the answer is the readers.
fn behind(rwlock: &RwLock) -> Behind {
    match rwlock.writer() {
        0 => Behind::Readers,
        _ => Behind::Writer,
    }
}

/// Takes a lock, by this library or by the C library. Returns what POSIX says.
fn lock(rwlock: &RwLock, mode: Mode, access: Access, limit: Limit) -> c_int {
    match (rwlock.is_delegated(mode), access) {
        (false, Access::Read) => rwlock.posix_read(mode, limit),
        (false, Access::Write) => rwlock.posix_write(limit),
        // SAFETY: invariant 3.
        (true, Access::Read) => unsafe {
            let result = libc_read(rwlock.address(), rwlock.kind_to_read(), limit);
            if result == 0 {
                rwlock.note_hold(mode);
            }
            result
        },
        // SAFETY: invariant 3.
        (true, Access::Write) => unsafe { libc_write(rwlock.address(), limit) },
    }
}

#[cold]
#[inline(never)]
fn cold_unlock(lock: &RwLock) -> c_int {
    counts::call(mode(), || delegated_kind(lock));
    let mode = rwlock_mode();
    let is_delegated = lock.is_delegated(mode);
    if mode.reports() {
        let is_held = is_delegated || lock.word.is_locked();
        report::rwlock_release(lock.address() as u64, is_held, lock.other_writer());
    }
    if mode.notes_holds() {
        lock.note_release();
    }
    if is_delegated {
        // SAFETY: invariant 3.
        return unsafe { real::pthread_rwlock_unlock(lock.address()) };
    }
    lock.posix_unlock();
    0
}

/// Why the lock is delegated, in the form of a mutex's kind. 0: because of the mode, or it is not
/// delegated.
fn delegated_kind(rwlock: &RwLock) -> u32 {
    match rwlock.is_shared() {
        true => counts::SHARED,
        false => 0,
    }
}

/// Tells the report that a lock is destroyed.
#[cold]
#[inline(never)]
fn end_reported(lock: &RwLock) {
    let address = lock.address() as u64;
    if !lock.is_delegated(rwlock_mode()) && lock.word.is_locked() {
        report::misused(DESTROYED_HELD, address, RWLOCK, lock.writer());
    }
    report::rwlock_ended(address);
    if !lock.is_delegated(rwlock_mode()) {
        lock.clear_marks();
    }
}

// ---- the functions --------------------------------------

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_rwlock_init(lock: *mut RwLock, attributes: *const c_void) -> c_int {
    counts::call(mode(), || 0);
    if mode().reports() {
        report::rwlock_ended(lock as u64);
    }
    // The C library checks the attributes and stores them. All other words become zeros, which are
    // an unlocked lock of ours.
    // SAFETY: invariant 3.
    unsafe { real::pthread_rwlock_init(lock.cast(), attributes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_rwlock_destroy(pointer: *mut RwLock) -> c_int {
    // SAFETY: invariant 1.
    let lock = unsafe { rwlock(pointer) };
    counts::call(mode(), || delegated_kind(lock));
    if rwlock_mode().reports() {
        end_reported(lock);
    }
    match lock.is_delegated(rwlock_mode()) {
        // SAFETY: invariant 3.
        true => unsafe { real::pthread_rwlock_destroy(pointer.cast()) },
        false => {
            probe!("rwlock_destroy", lock);
            0
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_rwlock_rdlock(pointer: *mut RwLock) -> c_int {
    // SAFETY: invariant 1.
    let lock = unsafe { rwlock(pointer) };
    probe!("rdlock_entry", lock);
    match path(lock) {
        0 if lock.word.read_at_once() => lock.count_read(),
        HOLDS if lock.word.read_at_once() => lock.note_read(Mode(HOLDS)),
        path => read_reported(lock, path),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_rwlock_wrlock(pointer: *mut RwLock) -> c_int {
    // SAFETY: invariant 1.
    let lock = unsafe { rwlock(pointer) };
    probe!("wrlock_entry", lock);
    match path(lock) {
        0 | HOLDS if lock.word.write_at_once() => lock.note_writer(),
        path => write_reported(lock, path),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_rwlock_unlock(pointer: *mut RwLock) -> c_int {
    // SAFETY: invariant 1.
    let lock = unsafe { rwlock(pointer) };
    match path(lock) {
        0 => {}
        HOLDS => lock.note_release(),
        path => return unlock_reported(lock, path),
    }
    lock.posix_unlock();
    0
}

exported! {
    pthread_rwlock_tryrdlock(lock: *mut RwLock) =
        cold_lock(rwlock(lock), Access::Read, Limit::Now);
    pthread_rwlock_trywrlock(lock: *mut RwLock) =
        cold_lock(rwlock(lock), Access::Write, Limit::Now);
    pthread_rwlock_timedrdlock(lock: *mut RwLock, until: Time) =
        cold_lock(rwlock(lock), Access::Read, Limit::at(libc::CLOCK_REALTIME, until));
    pthread_rwlock_timedwrlock(lock: *mut RwLock, until: Time) =
        cold_lock(rwlock(lock), Access::Write, Limit::at(libc::CLOCK_REALTIME, until));
    pthread_rwlock_clockrdlock(lock: *mut RwLock, clock: libc::clockid_t, until: Time) =
        cold_lock(rwlock(lock), Access::Read, Limit::at(clock, until));
    pthread_rwlock_clockwrlock(lock: *mut RwLock, clock: libc::clockid_t, until: Time) =
        cold_lock(rwlock(lock), Access::Write, Limit::at(clock, until));
}

// Names by which older C++ libraries and programs call the same functions.
exported! {
    __pthread_rwlock_init(lock: *mut RwLock, attributes: *const c_void) =
        pthread_rwlock_init(lock, attributes);
    __pthread_rwlock_destroy(lock: *mut RwLock) = pthread_rwlock_destroy(lock);
    __pthread_rwlock_rdlock(lock: *mut RwLock) = pthread_rwlock_rdlock(lock);
    __pthread_rwlock_wrlock(lock: *mut RwLock) = pthread_rwlock_wrlock(lock);
    __pthread_rwlock_tryrdlock(lock: *mut RwLock) = pthread_rwlock_tryrdlock(lock);
    __pthread_rwlock_trywrlock(lock: *mut RwLock) = pthread_rwlock_trywrlock(lock);
    __pthread_rwlock_unlock(lock: *mut RwLock) = pthread_rwlock_unlock(lock);
}
