//! Generation, next and mark in eight bytes.
//!
//! ```text
//!   63 ............ 14   13   12 ..... 0
//!       generation       mark   next: a place, 0 = none
//! ```
//!
//! 2^50 generations last for three and a half years at ten million sections a second.

use super::MAX_PLACES;
use super::list::{Pair, Seen};
use kinlock_core::platform::{Atomic, Ordering::*, Platform};

const NEXT: u64 = MAX_PLACES as u64;
const MARK: u64 = NEXT + 1;
const SHIFT: u32 = MARK.trailing_zeros() + 1;

/// A pair of eight bytes; see the top of this file.
#[derive(Debug)]
pub struct PackedPair<P: Platform>(P::AtomicU64);

fn encode(seen: Seen) -> u64 {
    seen.generation << SHIFT | if seen.marked { MARK } else { 0 } | seen.next as u64
}

fn decode(raw: u64) -> Seen {
    Seen {
        generation: raw >> SHIFT,
        next: (raw & NEXT) as u16,
        marked: raw & MARK != 0,
    }
}

impl<P: Platform> Pair for PackedPair<P> {
    const NAME: &'static str = "packed";
    const NEWEST: u64 = u64::MAX >> SHIFT;

    fn new(generation: u64) -> Self {
        PackedPair(Atomic::new(generation << SHIFT))
    }

    #[inline]
    fn load(&self) -> Seen {
        decode(self.0.load(Acquire))
    }

    #[inline]
    fn generation(&self) -> u64 {
        self.0.load(Acquire) >> SHIFT
    }

    #[inline]
    fn exchange(&self, current: Seen, new: Seen) -> bool {
        self.0
            .compare_exchange(encode(current), encode(new), AcqRel, Relaxed)
            .is_ok()
    }

    #[inline]
    fn mark(&self) -> Seen {
        // AcqRel: acquires donations. An addition, since the mark is not set: x86 has no `or` that
        // returns the old value.
        decode(self.0.fetch_add(MARK, AcqRel))
    }

    #[inline]
    fn publish(&self, new: Seen) {
        self.0.overwrite(encode(new), Release);
    }
}
