//! A shared library that takes a lock: what `dlclose` must not unload. See the test `process`.

use kinlock_core::platform::Platform;
use kinlock_core::raw::LockConfig;
use kinlock_core::raw::qspinlock::QueuedSpinLock;
use kinlock_linux::Native;

#[derive(Clone, Copy, Debug)]
struct Queueing;

impl LockConfig for Queueing {
    // Without a first waiter that needs no slot.
    const PENDING_BIT: bool = false;
}

static LOCK: QueuedSpinLock<Native, Queueing> = QueuedSpinLock::new();

/// Takes the lock, and waits for `others` threads in [`contend`] meanwhile.
#[unsafe(no_mangle)]
pub extern "C" fn hold(others: u32) {
    LOCK.lock();
    while Native::waiters().in_use() < others {
        Native::yield_now();
    }
    // SAFETY: this thread has just taken the lock.
    unsafe { LOCK.unlock() };
}

/// Waits for the lock, so that the thread keeps a slot from now on.
#[unsafe(no_mangle)]
pub extern "C" fn contend() {
    LOCK.lock();
    // SAFETY: this thread has just taken the lock.
    unsafe { LOCK.unlock() };
}
