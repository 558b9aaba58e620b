//! The exported functions for reader-writer locks.
//!
//! The cold path decides in this order: are calls counted; is the lock ours or delegated to the C
//! library. The report only adds up how often such locks are taken, and notes their misuse and, if
//! asked for, their order.

use super::choice::{mode, rwlock_mode};
use crate::libc::lock::{libc_read, libc_write};
use crate::libc::real;
use crate::mode::{Mode, RWLOCK_MODE};
use crate::posix::rwlock::RwLock;
use crate::time::Limit;
use crate::traced::counts::{self, Access, CountedAccess};
use crate::traced::report::RwAccess;
use crate::traced::{is_taken, report};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;
use kinlock_report::{DESTROYED_HELD, READS, RWLOCK};

/// Whether the usual path applies: the lock is ours, and untraced.
#[inline]
fn is_usual(lock: &RwLock) -> bool {
    lock.is_usual(RWLOCK_MODE.load(Relaxed))
}

/// # Safety
///
/// Invariant 1.
#[inline]
unsafe fn rwlock<'a>(pointer: *const RwLock) -> &'a RwLock {
    // SAFETY: invariant 1.
    unsafe { &*pointer }
}

// ---- the cold path --------------------------------------

/// Takes a lock for which there is no shorter way.
fn cold_lock(rwlock: &RwLock, access: Access, limit: Limit) -> c_int {
    // Before any attempt, as the C library does.
    match limit.check() {
        0 => {}
        error => return error,
    }
    let mode = rwlock_mode();
    counts::call(mode, || delegated_kind(rwlock));
    let reported = RwAccess {
        address: rwlock.address() as u64,
        mode: u32::from(access == Access::Read) * READS,
    };
    if mode.reports() && !matches!(limit, Limit::Now) {
        let is_endless = matches!(limit, Limit::Never);
        report::rwlock_asked(reported, is_endless, !rwlock.is_recursive());
    }
    let result = match mode.counts() {
        true => counted_lock(rwlock, mode, access, limit),
        false => lock(rwlock, mode, access, limit),
    };
    if mode.reports() && is_taken(result) {
        report::rwlock_taken(reported);
    }
    result
}

/// As [`lock`], counted.
fn counted_lock(rwlock: &RwLock, mode: Mode, access: Access, limit: Limit) -> c_int {
    let is_try = matches!(limit, Limit::Now);
    let mut count = CountedAccess::begin(access, is_try);
    let mut result = lock(rwlock, mode, access, Limit::Now);
    if count.must_wait(result) {
        result = lock(rwlock, mode, access, limit);
    }
    count.end(result)
}

/// Takes a lock, by this library or by the C library. Returns what POSIX says.
fn lock(rwlock: &RwLock, mode: Mode, access: Access, limit: Limit) -> c_int {
    match (rwlock.is_delegated(mode), access) {
        (false, Access::Read) => rwlock.posix_read(limit),
        (false, Access::Write) => rwlock.posix_write(limit),
        // SAFETY: invariant 3.
        (true, Access::Read) => unsafe { libc_read(rwlock.address(), limit) },
        // SAFETY: invariant 3.
        (true, Access::Write) => unsafe { libc_write(rwlock.address(), limit) },
    }
}

/// Why the lock is delegated, as the kind of a mutex would say it; 0: because of the mode, or not
/// at all.
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
    report::lock_ended(address);
}

// ---- the functions --------------------------------------

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_rwlock_init(lock: *mut RwLock, attributes: *const c_void) -> c_int {
    counts::call(mode(), || 0);
    if mode().reports() {
        report::lock_ended(lock as u64);
    }
    // The C library checks the attributes. But for these it writes zeros: an unlocked lock of ours.
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
        false => 0,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_rwlock_rdlock(pointer: *mut RwLock) -> c_int {
    // SAFETY: invariant 1.
    let lock = unsafe { rwlock(pointer) };
    if is_usual(lock) && lock.word.read_at_once() {
        return lock.count_read();
    }
    cold_lock(lock, Access::Read, Limit::Never)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_rwlock_wrlock(pointer: *mut RwLock) -> c_int {
    // SAFETY: invariant 1.
    let lock = unsafe { rwlock(pointer) };
    if is_usual(lock) && lock.word.write_at_once() {
        return lock.note_writer();
    }
    cold_lock(lock, Access::Write, Limit::Never)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_rwlock_unlock(pointer: *mut RwLock) -> c_int {
    // SAFETY: invariant 1.
    let lock = unsafe { rwlock(pointer) };
    if !is_usual(lock) {
        counts::call(mode(), || delegated_kind(lock));
        if rwlock_mode().reports() {
            let is_held = lock.is_delegated(rwlock_mode()) || lock.word.is_locked();
            report::rwlock_release(lock.address() as u64, is_held, lock.writer());
        }
        if lock.is_delegated(rwlock_mode()) {
            // SAFETY: invariant 3.
            return unsafe { real::pthread_rwlock_unlock(pointer.cast()) };
        }
    }
    lock.posix_unlock();
    0
}

/// Functions that do not wait, or only for a limited time.
macro_rules! limited {
    ($($name:ident($($parameter:ident: $type:ty),*) = $access:ident, $limit:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name(
                pointer: *mut RwLock,
                $($parameter: $type),*
            ) -> c_int {
                // SAFETY: invariants 1 and 3.
                unsafe { cold_lock(rwlock(pointer), Access::$access, $limit) }
            }
        )*
    };
}

limited! {
    pthread_rwlock_tryrdlock() = Read, Limit::Now;
    pthread_rwlock_trywrlock() = Write, Limit::Now;
    pthread_rwlock_timedrdlock(until: *const libc::timespec) =
        Read, Limit::at(libc::CLOCK_REALTIME, until);
    pthread_rwlock_timedwrlock(until: *const libc::timespec) =
        Write, Limit::at(libc::CLOCK_REALTIME, until);
    pthread_rwlock_clockrdlock(clock: libc::clockid_t, until: *const libc::timespec) =
        Read, Limit::at(clock, until);
    pthread_rwlock_clockwrlock(clock: libc::clockid_t, until: *const libc::timespec) =
        Write, Limit::at(clock, until);
}

/// Names by which older C++ libraries and programs call the same functions.
macro_rules! aliases {
    ($($alias:ident = $name:ident($($parameter:ident: $type:ty),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $alias(
                pointer: *mut RwLock,
                $($parameter: $type),*
            ) -> c_int {
                // SAFETY: as that function demands.
                unsafe { $name(pointer, $($parameter),*) }
            }
        )*
    };
}

aliases! {
    __pthread_rwlock_init = pthread_rwlock_init(attributes: *const c_void);
    __pthread_rwlock_destroy = pthread_rwlock_destroy();
    __pthread_rwlock_rdlock = pthread_rwlock_rdlock();
    __pthread_rwlock_wrlock = pthread_rwlock_wrlock();
    __pthread_rwlock_tryrdlock = pthread_rwlock_tryrdlock();
    __pthread_rwlock_trywrlock = pthread_rwlock_trywrlock();
    __pthread_rwlock_unlock = pthread_rwlock_unlock();
}
