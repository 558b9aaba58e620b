//! Simulated atomics: each access goes to the simulation under way, then to a plain word of the
//! host.

use crate::world::{How, access, with};
use kinlock_core::platform::{Atomic, Ordering};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

macro_rules! simulated_atomic {
    ($(#[$doc:meta])* $name:ident, $hardware:ty, $value:ty) => {
        $(#[$doc])*
        ///
        /// It has the size and alignment of the hardware's. All orderings are sequentially
        /// consistent.
        #[derive(Debug)]
        #[repr(transparent)]
        pub struct $name($hardware);

        impl $name {
            #[inline(always)]
            fn locked(&self, change: impl FnOnce($value) -> Option<$value>) -> $value {
                access(self.0.as_ptr().addr(), How::Locked);
                // All threads of a simulation share one host thread, so nothing comes between.
                let old = self.0.load(Relaxed);
                if let Some(new) = change(old) {
                    self.write(new);
                }
                old
            }

            #[inline(always)]
            fn write(&self, value: $value) {
                let old = self.0.load(Relaxed);
                with(|w| w.wrote(self.0.as_ptr().addr(), old.into()));
                self.0.store(value, Relaxed);
            }
        }

        impl Atomic for $name {
            type Value = $value;
            const ZERO: Self = Self(<$hardware>::new(0));

            fn new(value: $value) -> Self {
                Self(<$hardware>::new(value))
            }
            #[inline(always)]
            fn load(&self, _: Ordering) -> $value {
                access(self.0.as_ptr().addr(), How::Load);
                self.0.load(Relaxed)
            }
            #[inline(always)]
            fn glance(&self, _: Ordering) -> $value {
                let address = self.0.as_ptr().addr();
                access(address, How::Glance);
                match with(|w| w.stale(address)) {
                    // The stale value is an earlier value of this atomic, so it fits.
                    Some(stale) => stale as $value,
                    None => self.0.load(Relaxed),
                }
            }
            #[inline(always)]
            fn load_ahead(&self, _: Ordering) -> $value {
                access(self.0.as_ptr().addr(), How::Ahead);
                self.0.load(Relaxed)
            }
            #[inline(always)]
            fn store(&self, value: $value, _: Ordering) {
                access(self.0.as_ptr().addr(), How::Store);
                self.write(value);
            }
            #[inline(always)]
            fn swap(&self, value: $value, _: Ordering) -> $value {
                self.locked(|_| Some(value))
            }
            #[inline(always)]
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                _: Ordering,
                _: Ordering,
            ) -> Result<$value, $value> {
                let old = self.locked(|old| (old == current).then_some(new));
                if old == current { Ok(old) } else { Err(old) }
            }
            #[inline(always)]
            fn fetch_add(&self, value: $value, _: Ordering) -> $value {
                self.locked(|old| Some(old.wrapping_add(value)))
            }
            #[inline(always)]
            fn fetch_or(&self, value: $value, _: Ordering) -> $value {
                self.locked(|old| Some(old | value))
            }
            #[inline(always)]
            fn fetch_and(&self, value: $value, _: Ordering) -> $value {
                self.locked(|old| Some(old & value))
            }
        }
    };
}

simulated_atomic!(
    /// One simulated byte.
    SimU8, AtomicU8, u8
);
simulated_atomic!(
    /// Two simulated bytes.
    SimU16, AtomicU16, u16
);
simulated_atomic!(
    /// Four simulated bytes.
    SimU32, AtomicU32, u32
);
simulated_atomic!(
    /// Eight simulated bytes.
    SimU64, AtomicU64, u64
);

impl SimU64 {
    /// Adds one to plain data that no other thread writes at the same time.
    ///
    /// The processor does not wait for the line. The addition retires when the line arrives, and
    /// later stores, such as the unlock, become visible after it.
    pub fn increment(&self) {
        access(self.0.as_ptr().addr(), How::Store);
        self.write(self.0.load(Relaxed) + 1);
    }
}

impl SimU32 {
    /// Stores the bits of `value` that `part` has, like a plain store of a byte or a half of the
    /// word: other threads may change the rest at the same time.
    pub fn store_part(&self, part: u32, value: u32) {
        access(self.0.as_ptr().addr(), How::Store);
        self.write(self.0.load(Relaxed) & !part | value & part);
    }

    /// Exchanges the bits that `part` has for those of `value`, in one atomic operation on a byte
    /// or a half of the word. Returns the previous word.
    pub fn swap_part(&self, part: u32, value: u32) -> u32 {
        self.locked(|old| Some(old & !part | value & part))
    }
}
