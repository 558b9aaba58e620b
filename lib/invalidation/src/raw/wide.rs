//! Generation in eight bytes, next and mark in eight more, exchanged together. On hardware only.
//!
//! Generations last for ever. The price: not every machine can read sixteen bytes in one step. A
//! reader reads the generation, then next, then the generation again. The generation of an element
//! never decreases. So if both values are equal, next was read in between, and all parts belong to
//! one moment.
//!
//! # Two sizes of access
//!
//! Rust has no atomic accesses of different sizes to the same bytes, and no atomics of sixteen
//! bytes. So the exchange is inline assembly, and this file is the only place where the two sizes
//! meet. Hardware guarantees that an aligned access of eight bytes sees all or nothing of an
//! exchange of the aligned sixteen bytes around it. Intel's and AMD's manuals say so of locked
//! instructions, Arm's by the single-copy atomicity of each doubleword of a pair stored by a
//! store-exclusive.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. The exchange accesses the sixteen bytes of a [`WidePair`], which are aligned, and nothing
//!    else. The compiler takes it for a fence (no `nomem`).
//! 2. A [`WidePair`] is made only after [`WidePair::is_supported`] has returned true.

use super::list::{Pair, Seen};
use kinlock_core::platform::{Atomic, Atomics, Ordering::*};
use kinlock_linux::Native;

const MARK: u64 = 1 << 16;

/// A pair of sixteen bytes; see the top of this file.
#[repr(C, align(16))]
#[derive(Debug)]
pub struct WidePair {
    generation: <Native as Atomics>::AtomicU64,
    next: <Native as Atomics>::AtomicU64,
}

impl WidePair {
    /// Whether this CPU can exchange sixteen bytes.
    #[cfg(target_arch = "aarch64")]
    pub fn is_supported() -> bool {
        // Pairs of exclusive accesses are part of the first version of the architecture.
        true
    }

    /// Whether this CPU can exchange sixteen bytes.
    #[cfg(target_arch = "x86_64")]
    pub fn is_supported() -> bool {
        const CMPXCHG16B: u32 = 1 << 13;
        // SAFETY: every x86-64 has the instruction `cpuid` and its leaf 1.
        #[allow(unused_unsafe)]
        let features = unsafe { core::arch::x86_64::__cpuid(1) };
        features.ecx & CMPXCHG16B != 0
    }

    /// Replaces `current` by `new`, each {generation, next}. Returns whether the pair was
    /// `current`. A full fence.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    fn exchange_both(&self, current: [u64; 2], new: [u64; 2]) -> bool {
        let done: u8;
        // SAFETY: invariants 1 and 2. rbx belongs to the compiler, and is restored.
        unsafe {
            core::arch::asm!(
                "xchg rbx, rsi",
                "lock cmpxchg16b xmmword ptr [rdi]",
                "sete r8b",
                "mov rbx, rsi",
                in("rdi") &raw const *self,
                inout("rsi") new[0] => _,
                in("rcx") new[1],
                inout("rax") current[0] => _,
                inout("rdx") current[1] => _,
                out("r8b") done,
                options(nostack),
            );
        }
        done != 0
    }

    /// Replaces `current` by `new`, each {generation, next}. Returns whether the pair was
    /// `current`. Acquires and releases.
    #[cfg(target_arch = "aarch64")]
    #[inline]
    fn exchange_both(&self, current: [u64; 2], new: [u64; 2]) -> bool {
        let failed: u64;
        // SAFETY: invariant 1.
        unsafe {
            core::arch::asm!(
                "2: ldaxp {seen0}, {seen1}, [{pair}]",
                "cmp {seen0}, {current0}",
                "ccmp {seen1}, {current1}, #0, eq",
                "b.ne 3f",
                "stlxp {status:w}, {new0}, {new1}, [{pair}]",
                "cbnz {status:w}, 2b",
                "b 4f",
                "3: clrex",
                "mov {status}, #1",
                "4:",
                pair = in(reg) &raw const *self,
                current0 = in(reg) current[0],
                current1 = in(reg) current[1],
                new0 = in(reg) new[0],
                new1 = in(reg) new[1],
                seen0 = out(reg) _,
                seen1 = out(reg) _,
                status = out(reg) failed,
                options(nostack),
            );
        }
        failed == 0
    }
}

fn encode(seen: Seen) -> [u64; 2] {
    let mark = if seen.marked { MARK } else { 0 };
    [seen.generation, seen.next as u64 | mark]
}

fn decode(generation: u64, next: u64) -> Seen {
    Seen {
        generation,
        next: next as u16,
        marked: next & MARK != 0,
    }
}

impl Pair for WidePair {
    const NAME: &'static str = "wide";
    const NEWEST: u64 = super::NEWEST;

    fn new(generation: u64) -> Self {
        WidePair {
            generation: Atomic::new(generation),
            next: Atomic::new(0),
        }
    }

    #[inline]
    fn load(&self) -> Seen {
        loop {
            let generation = Atomic::load(&self.generation, Acquire);
            let seen = decode(generation, Atomic::load(&self.next, Acquire));
            // The other parts of a marked pair are not used.
            if seen.marked || Atomic::load(&self.generation, Acquire) == generation {
                return seen;
            }
        }
    }

    #[inline]
    fn generation(&self) -> u64 {
        Atomic::load(&self.generation, Acquire)
    }

    #[inline]
    fn exchange(&self, current: Seen, new: Seen) -> bool {
        self.exchange_both(encode(current), encode(new))
    }

    #[inline]
    fn mark(&self) -> Seen {
        // From here on every exchange by another thread fails, so the generation stays as it is. An
        // addition, since the mark is not set: x86 has no `or` that returns the old value.
        let next = Atomic::fetch_add(&self.next, MARK, AcqRel);
        decode(Atomic::load(&self.generation, Acquire), next)
    }

    #[inline]
    fn publish(&self, new: Seen) {
        let [generation, next] = encode(new);
        // The mark is removed last. Release pairs with the Acquire of `load`: a reader of the new
        // next reads the new generation after it.
        Atomic::store(&self.generation, generation, Release);
        Atomic::store(&self.next, next, Release);
    }
}
