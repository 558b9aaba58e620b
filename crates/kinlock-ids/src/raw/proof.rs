//! The proof that all IDs of a range were held at one instant.
//!
//! A search that finds no free or kept ID proves nothing: one may have been released behind the
//! search while another was acquired ahead of it. So the proof scans everything twice.
//!
//! | an ID becomes available by | and can be unavailable again only after | counted |
//! | --- | --- | --- |
//! | its bit being cleared | (at once) | in the block, with the clearing |
//! | a record keeping it | the record gives it up | in the record, with the giving up |
//!
//! All counts only go up. Suppose that both scans find every bit of the range set, no record that
//! keeps one of its IDs, and the same sum of counts. Then no ID was available at any time between
//! the end of the first scan and the start of the second: it would still show, or have been
//! counted. An ID that is neither free nor kept is held.

use super::{BLOCK, IdAllocator, IdConfig, IdFault, Storage, record::Word};
use kinlock_core::platform::{Atomic, Ordering::*, Platform};

impl<P: Platform, S: Storage<P>, C: IdConfig> IdAllocator<P, S, C> {
    /// Whether at one instant during the call all IDs in the range were held. `false` may be wrong
    /// if other threads were active. O(records + IDs / 32), each line twice.
    #[cold]
    pub(super) fn all_held(&self, from: u32, to: u32) -> bool {
        if matches!(C::FAULT, IdFault::AboveBound) {
            return true;
        }
        let first = self.scan(from, to, |word| word.load(Acquire));
        // The second scan uses read-modify-writes, which read the newest value.
        first.is_some() && first == self.scan(from, to, |word| word.fetch_or(0, AcqRel))
    }

    /// One scan. `None` if an ID of the range is free or kept, else the sum of the counts.
    fn scan(&self, from: u32, to: u32, read: impl Fn(&P::AtomicU64) -> u64) -> Option<u64> {
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
