//! A shared library with a copy of this crate, which works on locks in its caller's memory: what a
//! plugin is. See the test `copies`.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. Callers release what they have taken. The locks are alive, and began as zeros.

use kinlock::lock_api::{
    RawMutex as _, RawRwLock as _, RawRwLockTimed as _, RawRwLockUpgrade as _,
    RawRwLockUpgradeTimed as _,
};
use kinlock::{Condvar, Mutex, Once, RawMutex, RawRwLock, RawSpinLock, ReentrantMutex};
use kinlock_core::platform::Platform;
use kinlock_core::raw::rwlock::QueuedRwLock;
use kinlock_linux::Native;
use kinlock_linux::config::AsConfigured;
use std::ptr;
use std::time::Duration;

/// What copies share. All zeros: free.
#[repr(C)]
pub struct Locks {
    mutex: RawMutex,
    spin: RawSpinLock,
    rwlock: RawRwLock,
    once: Once,
    count: Mutex<u32>,
    changed: Condvar,
    again: ReentrantMutex<()>,
}

/// Makes this copy one of another version.
#[unsafe(no_mangle)]
pub extern "C" fn pretend_other_version() {
    kinlock_linux::native::pretend_other_version();
}

/// Decides how waiters queue, as the first sixteen waits of a process do.
#[unsafe(no_mangle)]
pub extern "C" fn decide() {
    let _ = kinlock::config::decision();
}

/// How many waiter slots are in use, as far as this copy knows.
#[unsafe(no_mangle)]
pub extern "C" fn slots() -> u32 {
    Native::waiters().in_use()
}

/// Whether this copy has a table in which readers announce themselves: it is not apart.
#[unsafe(no_mangle)]
pub extern "C" fn has_table() -> bool {
    Native::visible_readers().is_some()
}

/// How often the process has forked, as far as this copy knows.
#[unsafe(no_mangle)]
pub extern "C" fn forks() -> u32 {
    Native::forks().into()
}

/// The word of the mutex.
#[unsafe(no_mangle)]
pub extern "C" fn mutex_word(locks: &Locks) -> u32 {
    // SAFETY: it has four bytes, which are atomics.
    unsafe { ptr::from_ref(&locks.mutex).cast::<u32>().read_volatile() }
}

/// Takes the mutex.
#[unsafe(no_mangle)]
pub extern "C" fn mutex_lock(locks: &Locks) {
    locks.mutex.lock();
}

/// Releases the mutex.
#[unsafe(no_mangle)]
pub extern "C" fn mutex_unlock(locks: &Locks) {
    // SAFETY: invariant 1.
    unsafe { locks.mutex.unlock() };
}

/// The word of the spinlock.
#[unsafe(no_mangle)]
pub extern "C" fn spin_word(locks: &Locks) -> u32 {
    // SAFETY: it has four bytes, which are atomics.
    unsafe { ptr::from_ref(&locks.spin).cast::<u32>().read_volatile() }
}

/// Takes the spinlock.
#[unsafe(no_mangle)]
pub extern "C" fn spin_lock(locks: &Locks) {
    locks.spin.lock();
}

/// Releases the spinlock.
#[unsafe(no_mangle)]
pub extern "C" fn spin_unlock(locks: &Locks) {
    // SAFETY: invariant 1.
    unsafe { locks.spin.unlock() };
}

/// The queue of the reader-writer lock.
#[unsafe(no_mangle)]
pub extern "C" fn write_word(locks: &Locks) -> u32 {
    // SAFETY: it has eight bytes, which are atomics; the last four are the queue and hints.
    unsafe {
        ptr::from_ref(&locks.rwlock)
            .cast::<u32>()
            .add(1)
            .read_volatile()
    }
}

/// Takes the reader-writer lock for writing.
#[unsafe(no_mangle)]
pub extern "C" fn write_lock(locks: &Locks) {
    locks.rwlock.lock_exclusive();
}

/// Takes the reader-writer lock for writing if that is possible at once.
#[unsafe(no_mangle)]
pub extern "C" fn write_try(locks: &Locks) -> bool {
    locks.rwlock.try_lock_exclusive()
}

/// Takes the reader-writer lock for writing if that is possible within `millis` milliseconds.
#[unsafe(no_mangle)]
pub extern "C" fn write_for(locks: &Locks, millis: u32) -> bool {
    let limit = Duration::from_millis(millis.into());
    locks.rwlock.try_lock_exclusive_for(limit)
}

/// Becomes an upgradable reader, and then a writer if that is possible within `millis`
/// milliseconds. Otherwise ends reading.
#[unsafe(no_mangle)]
pub extern "C" fn upgrade_for(locks: &Locks, millis: u32) -> bool {
    let limit = Duration::from_millis(millis.into());
    let lock = &locks.rwlock;
    lock.lock_upgradable();
    // SAFETY: taken above.
    let upgraded = unsafe { lock.try_upgrade() || lock.try_upgrade_for(limit) };
    if !upgraded {
        // SAFETY: as above.
        unsafe { lock.unlock_upgradable() };
    }
    upgraded
}

/// Whether the reader-writer lock is held in any way, as far as this copy knows.
#[unsafe(no_mangle)]
pub extern "C" fn is_locked(locks: &Locks) -> bool {
    locks.rwlock.is_locked()
}

/// A number that no other copy gives out.
#[unsafe(no_mangle)]
pub extern "C" fn serial() -> u32 {
    kinlock_linux::native::next_serial().unwrap_or(0)
}

/// Ends writing.
#[unsafe(no_mangle)]
pub extern "C" fn write_unlock(locks: &Locks) {
    // SAFETY: invariant 1.
    unsafe { locks.rwlock.unlock_exclusive() };
}

/// Takes the reader-writer lock for reading.
#[unsafe(no_mangle)]
pub extern "C" fn read_lock(locks: &Locks) {
    locks.rwlock.lock_shared();
}

/// Ends reading.
#[unsafe(no_mangle)]
pub extern "C" fn read_unlock(locks: &Locks) {
    // SAFETY: invariant 1.
    unsafe { locks.rwlock.unlock_shared() };
}

/// Makes the reader-writer lock read-biased, as readers do that get into each other's way.
#[unsafe(no_mangle)]
pub extern "C" fn bias(locks: &Locks) {
    let raw: *const RawRwLock = &locks.rwlock;
    // SAFETY: `RawRwLock` is a transparent wrapper of `QueuedRwLock<Native, AsConfigured>`.
    unsafe { &*raw.cast::<QueuedRwLock<Native, AsConfigured>>() }.set_biased();
}

/// Waits until the count has reached `least`.
#[unsafe(no_mangle)]
pub extern "C" fn await_count(locks: &Locks, least: u32) {
    let mut count = locks.count.lock();
    locks.changed.wait_while(&mut count, |count| *count < least);
}

/// Adds one to the count and notifies one thread, or all.
#[unsafe(no_mangle)]
pub extern "C" fn add_to_count(locks: &Locks, all: bool) {
    let mut count = locks.count.lock();
    *count += 1;
    if all {
        locks.changed.notify_all();
    } else {
        locks.changed.notify_one();
    }
}

/// Whether a thread waits for the count.
#[unsafe(no_mangle)]
pub extern "C" fn is_awaited(locks: &Locks) -> bool {
    // SAFETY: its first four bytes are an atomic, whose lowest bit says that.
    unsafe { ptr::from_ref(&locks.changed).cast::<u32>().read_volatile() & 1 != 0 }
}

/// Calls `once`, unless that has been done through any copy.
#[unsafe(no_mangle)]
pub extern "C" fn call_once(locks: &Locks, once: extern "C" fn()) {
    locks.once.call_once(|| once());
}

/// Takes the reentrant mutex, if no other thread has it.
#[unsafe(no_mangle)]
pub extern "C" fn lock_again(locks: &Locks) -> bool {
    locks.again.try_lock().map(std::mem::forget).is_some()
}

/// Releases it once.
#[unsafe(no_mangle)]
pub extern "C" fn unlock_again(locks: &Locks) {
    // SAFETY: invariant 1.
    unsafe { locks.again.force_unlock() };
}
