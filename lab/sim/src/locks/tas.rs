//! Test-and-test-and-set: all waiters spin on the word, and all try when it is free.

use super::Lock;
use crate::platform::{Sim, SimU32};
use kinlock_core::platform::{Atomic, Ordering::*, Platform};

struct Tas(SimU32);

pub(super) fn place(_: usize) -> &'static dyn Lock {
    crate::place(Tas(SimU32::new(0)))
}

impl Lock for Tas {
    fn lock(&self, _: usize) {
        while self.0.swap(1, Acquire) != 0 {
            Sim::wait(&self.0, Relaxed, |v| v == 0);
        }
    }

    fn unlock(&self, _: usize) {
        self.0.store(0, Release);
    }
}
