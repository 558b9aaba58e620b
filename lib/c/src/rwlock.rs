//! `kinlock_rwlock_t`: the reader-writer lock.

use crate::misuse::check_alignment;
use crate::time::{after, timed, tried};
use core::ffi::c_int;
use kinlock_core::platform::NEVER;
use kinlock_core::raw::QueuedRwLock;
use kinlock_linux::Native;
use kinlock_linux::config::AsConfigured;
use kinlock_linux::probe;

type RwLock = QueuedRwLock<Native, AsConfigured>;

const _: () = assert!(size_of::<RwLock>() == 8 && align_of::<RwLock>() == 4);

/// The result of a reader's wait.
fn counted(lock: &RwLock, deadline: u64, taken: bool) -> c_int {
    match taken {
        // A wait without a limit gives up only if the lock has too many readers.
        false if deadline == NEVER || lock.is_full() => libc::EAGAIN,
        _ => timed(taken),
    }
}

/// Defines three functions that take the lock: one waits without a limit, one has a time limit from
/// now, and one has a deadline.
macro_rules! acquire {
    ($lock:ident, $lock_for:ident, $lock_until:ident, $entry:literal, $acquired:literal,
     |$this:ident, $deadline:ident| $at_once:expr, $wait:expr) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $lock(lock: *const RwLock) -> c_int {
            // SAFETY: as this function demands.
            unsafe { $lock_until(lock, NEVER) }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $lock_for(lock: *const RwLock, nanos: u64) -> c_int {
            // SAFETY: invariant 1.
            let $this = unsafe { &*lock };
            if $at_once {
                // Both probes here, because the function that would run them is not called.
                probe!($entry, lock);
                probe!($acquired, lock);
                return 0;
            }
            // SAFETY: as this function demands.
            unsafe { $lock_until(lock, after(nanos)) }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $lock_until(lock: *const RwLock, deadline: u64) -> c_int {
            #[cold]
            #[inline(never)]
            unsafe extern "C" fn wait(lock: *const RwLock, $deadline: u64) -> c_int {
                check_alignment(lock, stringify!($lock));
                // SAFETY: invariant 1.
                let $this = unsafe { &*lock };
                let error = $wait;
                if error == 0 {
                    probe!($acquired, lock);
                }
                error
            }
            probe!($entry, lock);
            // SAFETY: invariant 1.
            let $this = unsafe { &*lock };
            match $at_once {
                true => {
                    probe!($acquired, lock);
                    0
                }
                // SAFETY: as this function demands.
                false => unsafe { wait(lock, deadline) },
            }
        }
    };
}

/// Defines a function that tries once.
macro_rules! attempt {
    ($try_lock:ident, $acquired:literal, |$this:ident| $attempt:expr) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $try_lock(lock: *const RwLock) -> c_int {
            // SAFETY: invariant 1.
            let $this = unsafe { &*lock };
            let taken = $attempt;
            if taken {
                probe!($acquired, lock);
            }
            tried(taken)
        }
    };
}

/// Defines a function that releases the lock.
macro_rules! release {
    ($unlock:ident, $method:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $unlock(lock: *const RwLock) -> c_int {
            probe!("rwlock_unlock", lock);
            // SAFETY: invariants 1 and 2.
            unsafe { (*lock).$method() };
            0
        }
    };
}

/// Defines a function that changes how the lock is held.
macro_rules! change {
    ($change:ident, $method:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $change(lock: *const RwLock) -> c_int {
            // SAFETY: invariants 1 and 2.
            unsafe { (*lock).$method() };
            0
        }
    };
}

acquire!(
    kinlock_rwlock_read_lock,
    kinlock_rwlock_read_lock_for,
    kinlock_rwlock_read_lock_until,
    "rdlock_entry",
    "rdlock_acquire_read",
    |lock, deadline| lock.read_at_once(),
    counted(lock, deadline, lock.read_until(deadline, false))
);
acquire!(
    kinlock_rwlock_read_lock_recursive,
    kinlock_rwlock_read_lock_recursive_for,
    kinlock_rwlock_read_lock_recursive_until,
    "rdlock_entry",
    "rdlock_acquire_read",
    |lock, deadline| lock.read_at_once(),
    counted(lock, deadline, lock.read_until(deadline, true))
);
attempt!(kinlock_rwlock_read_trylock, "rdlock_acquire_read", |lock| {
    lock.try_read(false)
});
attempt!(
    kinlock_rwlock_read_trylock_recursive,
    "rdlock_acquire_read",
    |lock| lock.try_read(true)
);
release!(kinlock_rwlock_read_unlock, unlock_read);
release!(kinlock_rwlock_read_unlock_fair, unlock_read_fair);

acquire!(
    kinlock_rwlock_write_lock,
    kinlock_rwlock_write_lock_for,
    kinlock_rwlock_write_lock_until,
    "wrlock_entry",
    "wrlock_acquire_write",
    |lock, deadline| lock.write_at_once(),
    timed(lock.write_until(deadline))
);
attempt!(
    kinlock_rwlock_write_trylock,
    "wrlock_acquire_write",
    |lock| lock.try_write()
);
release!(kinlock_rwlock_write_unlock, unlock_write);
release!(kinlock_rwlock_write_unlock_fair, unlock_write_fair);
change!(kinlock_rwlock_downgrade, downgrade);
change!(
    kinlock_rwlock_downgrade_to_upgradable,
    downgrade_to_upgradable
);

acquire!(
    kinlock_rwlock_upgradable_lock,
    kinlock_rwlock_upgradable_lock_for,
    kinlock_rwlock_upgradable_lock_until,
    "rdlock_entry",
    "rdlock_acquire_read",
    |lock, deadline| lock.try_upgradable(),
    counted(lock, deadline, lock.upgradable_until(deadline))
);
attempt!(
    kinlock_rwlock_upgradable_trylock,
    "rdlock_acquire_read",
    |lock| lock.try_upgradable()
);
release!(kinlock_rwlock_upgradable_unlock, unlock_upgradable);
release!(
    kinlock_rwlock_upgradable_unlock_fair,
    unlock_upgradable_fair
);
change!(kinlock_rwlock_upgradable_downgrade, downgrade_upgradable);

acquire!(
    kinlock_rwlock_upgrade,
    kinlock_rwlock_upgrade_for,
    kinlock_rwlock_upgrade_until,
    "wrlock_entry",
    "wrlock_acquire_write",
    // SAFETY: invariant 2.
    |lock, deadline| unsafe { lock.try_upgrade() },
    // SAFETY: invariant 2.
    timed(unsafe { lock.upgrade_until(deadline) })
);
attempt!(
    kinlock_rwlock_tryupgrade,
    "wrlock_acquire_write",
    // SAFETY: invariant 2.
    |lock| unsafe { lock.try_upgrade() }
);

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_rwlock_is_locked(lock: *const RwLock) -> c_int {
    // SAFETY: invariant 1.
    c_int::from(unsafe { (*lock).is_locked() })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_rwlock_reset_in_child(lock: *const RwLock) {
    // SAFETY: invariant 1; the header demands what the function does.
    unsafe { (*lock).reset_in_child() }
}
