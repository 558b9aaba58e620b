//! The processor's atomics, as implementations of the trait [`Atomic`], and its hints.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. A load-exclusive reads the atomic at its own size and nothing else. The result only decides
//!    how to pause.
//! 2. WFE and CLREX do not touch memory. At worst they end a pause early or late.
//! 3. A prefetch has no effect that a program can observe: it neither faults nor changes flags.

use crate::atomic::{Atomic, Ordering};
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

macro_rules! hardware_atomic {
    ($atomic:ty, $value:ty, $load_exclusive:literal) => {
        impl Atomic for $atomic {
            type Value = $value;
            const ZERO: Self = <$atomic>::new(0);

            #[inline]
            fn new(value: $value) -> Self {
                <$atomic>::new(value)
            }
            #[inline]
            fn load(&self, order: Ordering) -> $value {
                self.load(order)
            }
            #[inline]
            fn store(&self, value: $value, order: Ordering) {
                self.store(value, order)
            }
            #[inline]
            fn swap(&self, value: $value, order: Ordering) -> $value {
                self.swap(value, order)
            }
            #[inline]
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }
            #[inline]
            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.fetch_add(value, order)
            }
            #[inline]
            fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                self.fetch_or(value, order)
            }
            #[inline]
            fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                self.fetch_and(value, order)
            }

            /// Sleeps in WFE with the exclusive monitor on the word. A write to its line ends the
            /// sleep. If the write came before, the kernel's event stream (some ten kHz) ends it.
            #[cfg(all(target_arch = "aarch64", not(miri)))]
            #[inline]
            fn pause_while(&self, seen: $value) {
                let now: $value;
                // SAFETY: invariant 1.
                unsafe {
                    core::arch::asm!(
                        concat!($load_exclusive, ", [{word}]"),
                        word = in(reg) self.as_ptr(),
                        now = out(reg) now,
                        options(nostack, readonly, preserves_flags),
                    );
                }
                if now == seen {
                    // SAFETY: invariant 2.
                    unsafe { core::arch::asm!("wfe", options(nomem, nostack, preserves_flags)) };
                } else {
                    // SAFETY: invariant 2.
                    unsafe { core::arch::asm!("clrex", options(nomem, nostack, preserves_flags)) };
                }
            }
        }
    };
}

hardware_atomic!(AtomicU8, u8, "ldxrb {now:w}");
hardware_atomic!(AtomicU16, u16, "ldxrh {now:w}");
hardware_atomic!(AtomicU32, u32, "ldxr {now:w}");
hardware_atomic!(AtomicU64, u64, "ldxr {now:x}");

/// See [`Platform::prefetch_for_writing`](crate::platform::Platform::prefetch_for_writing).
#[inline]
pub fn prefetch_for_writing<A: Atomic>(word: &A) {
    // SAFETY: invariant 3.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        core::arch::asm!(
            "prefetchw [{}]",
            in(reg) word,
            options(readonly, nostack, preserves_flags),
        );
    }
    // SAFETY: invariant 3.
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    unsafe {
        core::arch::asm!(
            "prfm pstl1keep, [{}]",
            in(reg) word,
            options(readonly, nostack, preserves_flags),
        );
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = word;
}

/// See [`Platform::light_fence`](crate::platform::Platform::light_fence): stops the compiler only.
#[inline]
pub fn light_fence() {
    // Miri has no membarrier, but its loads may return old values.
    #[cfg(miri)]
    core::sync::atomic::fence(Ordering::SeqCst);
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
}
