//! Bare test-and-set: one exchange in, one store out, and nothing against contention.
//!
//! It is the measure of what an uncontended lock costs at least, and of how badly the simplest one behaves in a crowd.

use std::hint::spin_loop;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};

use lock_api::{GuardSend, RawMutex};

/// A flag.
pub struct RawTas(AtomicBool);

// SAFETY: only the thread that turned the flag from false to true returns from `lock`, until `unlock` clears it. The
// acquire exchange pairs with the release store of `unlock`.
unsafe impl RawMutex for RawTas {
    const INIT: Self = Self(AtomicBool::new(false));
    type GuardMarker = GuardSend;

    #[inline(always)]
    fn lock(&self) {
        while self.0.swap(true, Acquire) {
            spin_loop();
        }
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        !self.0.swap(true, Acquire)
    }

    #[inline(always)]
    unsafe fn unlock(&self) {
        self.0.store(false, Release);
    }
}
