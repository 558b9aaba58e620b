//! Were all IDs of a range held at one instant?
//!
//! That no free or kept ID was found in a search proves nothing: one may have been released behind the searcher's back while another was taken before its eyes. So it looks at everything twice.
//!
//! | becomes available by | and can be unavailable again only after | which counts |
//! | --- | --- | --- |
//! | its bit being cleared | (at once) | in the block, when the bit is cleared |
//! | a record keeping it | the record gives it up | in the record's word, when it is given up |
//!
//! All counts only go up. If both looks find every bit of the range set and no record that keeps one of its IDs, and the counts add up to the same, then no ID was available at any time between the first look's end and the
//! second's start: it would show still, or have been counted. An ID that is neither free nor kept is held.

use super::{BLOCK, IdAllocator, IdConfig, IdFault, Storage, record::Word};
use kinlock_core::platform::{Atomic, Ordering::*, Platform};

impl<P: Platform, S: Storage<P>, C: IdConfig> IdAllocator<P, S, C> {
    /// Whether at one instant during the call all IDs in the range were held. `false` may be wrong: others were busy. O(records + IDs / 32), each line twice.
    #[cold]
    pub(super) fn all_held(&self, from: u32, to: u32) -> bool {
        if matches!(C::FAULT, IdFault::AboveBound) {
            return true;
        }
        let first = self.look(from, to, |word| word.load(Acquire));
        // The second look by read-modify-writes, which see the newest value.
        first.is_some() && first == self.look(from, to, |word| word.fetch_or(0, AcqRel))
    }

    /// `None` if an ID of the range is free or kept, else the sum of the counts.
    fn look(&self, from: u32, to: u32, read: impl Fn(&P::AtomicU64) -> u64) -> Option<u64> {
        let mut sum = 0u64;
        let mut start = from;
        while start < to {
            let end = (start / BLOCK + 1) * BLOCK;
            let block = read(self.used(start));
            let below_end = u32::MAX >> (end - end.min(to));
            let asked = below_end & (u32::MAX << (start % BLOCK));
            if !(block as u32) & asked != 0 {
                return None;
            }
            sum = sum.wrapping_add(block >> BLOCK);
            start = end;
        }
        for record in self.storage.records() {
            let word = Word(read(&record.word));
            if word.keeps() && (from..to).contains(&word.id()) {
                return None;
            }
            sum = sum.wrapping_add(word.count());
        }
        Some(sum)
    }
}
