//! A shared library with a copy of this crate, which works on locks in its caller's memory, as a
//! plugin does. The test `copies` loads it, and has the same functions for its own copy.
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

/// The locks that copies share. All zeros: unlocked.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Locks {
    mutex: RawMutex,
    spin: RawSpinLock,
    rwlock: RawRwLock,
    once: Once,
    count: Mutex<u32>,
    changed: Condvar,
    again: ReentrantMutex<()>,
}

/// The functions of a kind of lock.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    /// The word that shows whether a waiter has come.
    pub(crate) word: fn(&Locks) -> u32,
    pub(crate) lock: fn(&Locks),
    pub(crate) unlock: fn(&Locks),
}

/// What a copy can do. The same compiler makes all copies, so that the copies can call each other.
#[repr(C)]
pub(crate) struct Functions {
    /// Makes this copy pass for one of another version.
    pub(crate) pretend_other_version: fn(),
    /// Decides how waiters queue, as the first sixteen waits of a process do.
    pub(crate) decide: fn(),
    /// The number of waiter slots in use, as far as this copy knows.
    pub(crate) slots: fn() -> u32,
    /// Whether this copy has a table in which readers announce themselves: it is not apart.
    pub(crate) has_table: fn() -> bool,
    /// How often the process has forked, as far as this copy knows.
    pub(crate) forks: fn() -> u8,
    pub(crate) mutex: Kind,
    pub(crate) spin: Kind,
    pub(crate) write: Kind,
    pub(crate) write_try: fn(&Locks) -> bool,
    /// Takes the reader-writer lock for writing if that is possible within this time, in
    /// milliseconds.
    pub(crate) write_for: fn(&Locks, u64) -> bool,
    /// Becomes an upgradable reader, and then a writer if that is possible within this time, in
    /// milliseconds. Otherwise ends reading.
    pub(crate) upgrade_for: fn(&Locks, u64) -> bool,
    /// Whether the reader-writer lock is held in any way, as far as this copy knows.
    pub(crate) is_locked: fn(&Locks) -> bool,
    pub(crate) read_lock: fn(&Locks),
    pub(crate) read_unlock: fn(&Locks),
    /// Makes the reader-writer lock read-biased, as contending readers do.
    pub(crate) bias: fn(&Locks),
    /// Waits until the count has reached the given number.
    pub(crate) await_count: fn(&Locks, u32),
    /// Adds one to the count and notifies one thread, or all.
    pub(crate) add_to_count: fn(&Locks, bool),
    /// Whether a thread waits for the count.
    pub(crate) is_awaited: fn(&Locks) -> bool,
    /// Calls the function, unless a function was called through any copy before.
    pub(crate) call_once: fn(&Locks, fn()),
    /// Takes the reentrant mutex, if no other thread has it.
    pub(crate) lock_again: fn(&Locks) -> bool,
    pub(crate) unlock_again: fn(&Locks),
}

/// Word number `at` of a lock; a word has four bytes.
fn word<T>(lock: &T, at: usize) -> u32 {
    // SAFETY: the callers below name words that lie in the lock, and its bytes are atomics.
    unsafe { ptr::from_ref(lock).cast::<u32>().add(at).read_volatile() }
}

/// The functions of this copy.
pub(crate) static FUNCTIONS: Functions = Functions {
    pretend_other_version: kinlock_linux::native::pretend_other_version,
    decide: || _ = kinlock::config::decision(),
    slots: || Native::waiters().in_use(),
    has_table: || Native::visible_readers().is_some(),
    forks: Native::forks,
    mutex: Kind {
        word: |locks| word(&locks.mutex, 0),
        lock: |locks| locks.mutex.lock(),
        // SAFETY: invariant 1.
        unlock: |locks| unsafe { locks.mutex.unlock() },
    },
    spin: Kind {
        word: |locks| word(&locks.spin, 0),
        lock: |locks| locks.spin.lock(),
        // SAFETY: invariant 1.
        unlock: |locks| unsafe { locks.spin.unlock() },
    },
    write: Kind {
        // The word with the queue and the hints.
        word: |locks| word(&locks.rwlock, 1),
        lock: |locks| locks.rwlock.lock_exclusive(),
        // SAFETY: invariant 1.
        unlock: |locks| unsafe { locks.rwlock.unlock_exclusive() },
    },
    write_try: |locks| locks.rwlock.try_lock_exclusive(),
    write_for: |locks, millis| {
        let limit = Duration::from_millis(millis);
        locks.rwlock.try_lock_exclusive_for(limit)
    },
    upgrade_for: |locks, millis| {
        let (lock, limit) = (&locks.rwlock, Duration::from_millis(millis));
        lock.lock_upgradable();
        // SAFETY: taken above.
        let upgraded = unsafe { lock.try_upgrade() || lock.try_upgrade_for(limit) };
        if !upgraded {
            // SAFETY: as above.
            unsafe { lock.unlock_upgradable() };
        }
        upgraded
    },
    is_locked: |locks| locks.rwlock.is_locked(),
    read_lock: |locks| locks.rwlock.lock_shared(),
    // SAFETY: invariant 1.
    read_unlock: |locks| unsafe { locks.rwlock.unlock_shared() },
    bias: |locks| {
        let raw: *const RawRwLock = &locks.rwlock;
        // SAFETY: `RawRwLock` is a transparent wrapper of `QueuedRwLock<Native, AsConfigured>`.
        unsafe { &*raw.cast::<QueuedRwLock<Native, AsConfigured>>() }.set_biased();
    },
    await_count: |locks, least| {
        let mut count = locks.count.lock();
        locks.changed.wait_while(&mut count, |count| *count < least);
    },
    add_to_count: |locks, all| {
        let mut count = locks.count.lock();
        *count += 1;
        if all {
            locks.changed.notify_all();
        } else {
            locks.changed.notify_one();
        }
    },
    // The lowest bit of the condition variable's first word says whether a thread waits.
    is_awaited: |locks| word(&locks.changed, 0) & 1 != 0,
    call_once: |locks, once| locks.once.call_once(once),
    lock_again: |locks| locks.again.try_lock().map(std::mem::forget).is_some(),
    // SAFETY: invariant 1.
    unlock_again: |locks| unsafe { locks.again.force_unlock() },
};

/// The functions of the copy in this library.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn functions() -> &'static Functions {
    &FUNCTIONS
}

/// Exports some of the functions by name, for programs in C.
macro_rules! for_c {
    ($($name:ident = $($field:ident).+ $(-> $result:ty)?;)*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(locks: &Locks) $(-> $result)? {
            (FUNCTIONS.$($field).+)(locks)
        }
    )*};
}

for_c! {
    mutex_lock = mutex.lock;
    mutex_unlock = mutex.unlock;
    spin_lock = spin.lock;
    spin_unlock = spin.unlock;
    read_lock = read_lock;
    read_unlock = read_unlock;
    bias = bias;
    write_try = write_try -> bool;
    write_unlock = write.unlock;
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn decide() {
    (FUNCTIONS.decide)();
}
