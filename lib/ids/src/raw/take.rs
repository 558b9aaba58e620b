//! Acquisitions for which the fast path finds no ID.

use super::record::{Record, Word};
use super::{AGE, BLOCK, Exhausted, Held, IdAllocator, NOWHERE, Policy, Storage};
use kinlock_core::platform::{Atomic, Ordering::*, Platform};

/// How many kept IDs an acquisition compares to find an old one.
const CANDIDATES: u32 = 8;

impl<P: Platform, S: Storage<P>> IdAllocator<P, S> {
    #[cold]
    #[inline(never)]
    pub(super) fn acquire_slow(&self, cpu: u32, member: u32) -> Result<Held, Exhausted> {
        if self.ages {
            let now = P::now();
            if self.shape.is_time_to_age(now) {
                self.reclaim(now);
            }
        }
        loop {
            if let Some(result) = self.try_once(cpu, member).transpose() {
                return result;
            }
            P::relax();
        }
    }

    /// One round. `None`: another thread was faster, try again.
    fn try_once(&self, cpu: u32, member: u32) -> Result<Option<Held>, Exhausted> {
        let control = self.shape.control();
        let limit = control.limit();
        let (at, first) = match self.policy {
            Policy::PerCpu => (self.place(false, cpu, member), self.cpus),
            _ => (self.place(control.by_member(), cpu, member), 0),
        };
        if let Some(record) = self.storage.records().get(at as usize) {
            let word = Word(record.word.load(Relaxed));
            if word.keeps() && word.id() < limit {
                let id = word.id();
                return Ok(exchange(record, word, Word::lent(id)).then_some(Held { at, id }));
            }
            let old = match self.policy {
                Policy::PerCpu => Some(at),
                Policy::LowestFree => None,
                _ => word.recent().filter(|&id| id < limit),
            };
            if let Some(id) = old.filter(|&id| self.claim(id)) {
                return Ok(Some(self.settle(at, id)));
            }
        }
        if let Some(id) = self.find_below(limit) {
            return Ok(Some(self.settle(at, id)));
        }
        self.find_above(first.max(limit), first)
            .map(|found| found.map(Held::nowhere))
    }

    /// An ID below the limit that is fresh, free, or kept by another record.
    pub(super) fn find_below(&self, limit: u32) -> Option<u32> {
        // A free ID at or above `grown` is fresh, and is handed out only by making `grown` larger.
        let lowest = || self.claim_lowest(0, limit.min(self.shape.grown()));
        match self.policy {
            Policy::PerCpu => return None,
            Policy::RecentFirst => self.spread(limit).or_else(lowest),
            Policy::LowestFree | Policy::TaskOwned => lowest().or_else(|| self.spread(limit)),
        }
        .or_else(|| self.take_idle(limit))
    }

    /// A fresh ID below the limit. The limit may have come down since the caller saw it, so the ID
    /// has to be below the current limit, too.
    fn spread(&self, seen: u32) -> Option<u32> {
        let fresh = self
            .shape
            .grow(|grown| grown < seen.min(self.shape.control().limit()));
        fresh.and_then(|id| self.take_fresh(id))
    }

    /// An ID at or above the limit `from`: one that was handed out before, or a fresh one if a
    /// search finds all IDs from `first` on held. `Ok(None)`: another thread has changed something
    /// during the search, so the caller has to try again.
    pub(super) fn find_above(&self, from: u32, first: u32) -> Result<Option<u32>, Exhausted> {
        let grown = self.shape.grown();
        if let Some(id) = self.claim_lowest(from, grown) {
            return Ok(Some(id));
        }
        // The fast path of a release keeps an ID without comparing it with the limit. No other
        // acquisition might ever take it: its CPU may never run a thread again. And as long as it
        // is kept, the search below fails.
        if let Some(id) = (from..grown).find_map(|id| self.take_from_keeper(id)) {
            return Ok(Some(id));
        }
        if !self.all_held(first, grown) {
            return Ok(None);
        }
        if grown >= self.capacity() {
            return Err(Exhausted);
        }
        let fresh = self.shape.grow(|now| now == grown);
        Ok(fresh.and_then(|id| self.take_fresh(id)))
    }

    /// Whether each ID of the range is found held. The IDs are looked at one after the other, not
    /// at one moment.
    ///
    /// The looks are read-modify-writes because these read the newest values. A plain load may read
    /// an old one, and so find an ID held that was given back before this acquisition began.
    fn all_held(&self, from: u32, to: u32) -> bool {
        let mut start = from;
        while start < to {
            let end = (start / BLOCK + 1) * BLOCK;
            let asked = u32::MAX >> (end - end.min(to)) & u32::MAX << (start % BLOCK);
            if !self.used(start).fetch_or(0, AcqRel) & asked != 0 {
                return false;
            }
            start = end;
        }
        let mut words = self.storage.records().iter().map(|record| &record.word);
        words.all(|word| {
            let word = Word(word.fetch_or(0, AcqRel));
            !(word.keeps() && (from..to).contains(&word.id()))
        })
    }

    /// Takes the ID by which this thread has just made `grown` larger, if it is free or kept.
    /// `None`: it is held. Another thread was faster, or the ID has been held since before the
    /// limit came down.
    fn take_fresh(&self, id: u32) -> Option<u32> {
        if self.claim(id) {
            return Some(id);
        }
        self.take_from_keeper(id)
    }

    /// Takes an ID below the limit that a record keeps. It takes the first old one that it finds.
    /// If none of the first [`CANDIDATES`] is old, it takes the one among them that has been marked
    /// for longest.
    ///
    /// It also marks the unmarked IDs that it passes, which is the first step of the hand-shake
    /// with their owners.
    fn take_idle(&self, limit: u32) -> Option<u32> {
        if limit == 0 {
            return None;
        }
        let start = self.shape.next_victim() % limit;
        let now = P::now();
        let mut best = None;
        let mut candidates = 0;
        for id in (start..limit).chain(0..start) {
            let Some((record, word)) = self.kept(id) else {
                continue;
            };
            let idle = idle_since(record, word, now);
            if idle.is_some_and(|idle| idle >= AGE) {
                best = Some((idle, id));
                break;
            }
            if idle.is_none() {
                mark(record, word, now);
            }
            if best.is_none_or(|(most, _)| idle > most) {
                best = Some((idle, id));
            }
            candidates += 1;
            if candidates == CANDIDATES {
                break;
            }
        }
        best.and_then(|(_, id)| self.take_from_keeper(id))
    }

    /// The record that keeps `id`, and its word.
    pub(super) fn kept(&self, id: u32) -> Option<(&Record<P>, Word)> {
        // Acquire pairs with the Release of the thread that made the record keep the ID, after
        // naming the record here. A stale name is harmless: the record's word decides.
        let at = self.keeper(id).load(Acquire);
        let record = self.storage.records().get(at as usize)?;
        let word = Word(record.word.load(Acquire));
        word.keeps_id(id).then_some((record, word))
    }

    /// The second step of the hand-shake: takes `id` away from the record that keeps it, unless its
    /// owner has taken it back.
    pub(super) fn take_from_keeper(&self, id: u32) -> Option<u32> {
        let (record, word) = self.kept(id)?;
        exchange(record, word, Word::had(id)).then_some(id)
    }

    /// Makes the record lend `id`, which the caller has just got from elsewhere, unless the record
    /// is occupied.
    fn settle(&self, at: u32, id: u32) -> Held {
        if self.occupy(at, Word::lent(id)) {
            Held { at, id }
        } else {
            Held::nowhere(id)
        }
    }

    /// Puts an ID that the caller holds into the record, whose word becomes `new`. If the record
    /// keeps an ID that the limit does not allow any more, that one is freed. `false`: the record
    /// lends an ID, or keeps one that is still allowed.
    pub(super) fn occupy(&self, at: u32, new: Word) -> bool {
        let Some(record) = self.storage.records().get(at as usize) else {
            return false;
        };
        // Written before the word, whose Release publishes it. Only the ID's holder writes it.
        self.keeper(new.id()).store(at, Relaxed);
        let mut word = Word(record.word.load(Relaxed));
        loop {
            if word.is_lent() || word.keeps() && self.shape.control().allows(word.id()) {
                return false;
            }
            // Release pairs with the Acquire of the thread that takes the ID later. Acquire pairs
            // with the Release of the thread that left an ID above the limit here.
            match record.word.compare_exchange(word.0, new.0, AcqRel, Relaxed) {
                Ok(_) => {
                    if word.keeps() {
                        self.free(word.id());
                    }
                    return true;
                }
                Err(seen) => word = Word(seen),
            }
        }
    }
}

impl Held {
    /// An ID that is held without a record that lends it.
    pub(super) fn nowhere(id: u32) -> Self {
        Held { at: NOWHERE, id }
    }
}

/// Takes the ID that the record keeps, by changing its word from `old` to `new`. `false`: the word
/// is not `old` any more.
fn exchange<P: Platform>(record: &Record<P>, old: Word, new: Word) -> bool {
    // Acquire pairs with the Release of the thread that made the record keep it. Release: a search
    // that sees this word must see what came before it.
    record
        .word
        .compare_exchange(old.0, new.0, AcqRel, Relaxed)
        .is_ok()
}

/// For how long the record has been marked; `None` if it is not. Relaxed suffices: the time of one
/// marking thread may be seen with the mark of another, or a late thread may write a time before
/// the last use. So an ID may seem older or younger than it is, but who owns it does not depend on
/// that.
pub(super) fn idle_since<P: Platform>(record: &Record<P>, word: Word, now: u64) -> Option<u64> {
    word.is_marked()
        .then(|| now.saturating_sub(record.marked_at.load(Relaxed)))
}

/// The first step of the hand-shake, unless the owner was faster.
pub(super) fn mark<P: Platform>(record: &Record<P>, word: Word, now: u64) {
    record.marked_at.store(now, Relaxed);
    // Release: a thread that sees the mark sees its time. The Release of the thread that made the
    // record keep the ID stays visible, since a read-modify-write continues its release sequence.
    let _ = record
        .word
        .compare_exchange(word.0, word.marked().0, AcqRel, Relaxed);
}
