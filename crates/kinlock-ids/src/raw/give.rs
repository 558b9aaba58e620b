//! Giving an ID back where the fast path cannot: to another CPU, above the limit, or because it has been idle for long.

use super::record::{Record, Word};
use super::take::{idle_since, mark};
use super::{AGE, BLOCK, Held, IdAllocator, IdConfig, IdFault, NO_MEMBER, Policy, Storage};
use kinlock_core::platform::{Atomic, Ordering::*, Platform};

impl<P: Platform, S: Storage<P>, C: IdConfig> IdAllocator<P, S, C> {
    #[cold]
    #[inline(never)]
    pub(super) fn release_slow(&self, cpu: u32, held: Held) {
        let (id, from) = (held.id(), held.at);
        let to = match self.policy {
            Policy::PerCpu => id,
            _ => self.place(false, cpu, NO_MEMBER),
        };
        let allowed = self.shape.control().allows(id);
        let moves = allowed && !self.stays_behind(from, to) && self.keep(to, id);
        if let Some(record) = self.storage.records().get(from as usize) {
            // The word is ours: a store will do.
            let word = Word(held.word);
            let stays = allowed && !moves;
            if stays {
                // `keep` may have tried another.
                self.keeper(id).store(from, Relaxed);
            }
            let new = if stays { word.kept() } else { word.given_up() };
            record.word.overwrite(new.0, Self::RELEASE);
            if stays {
                return;
            }
        }
        if !moves && !matches!(C::FAULT, IdFault::Leaked) {
            self.free(id);
        }
    }

    /// Whether an ID that belongs at the record `from` stays there although its thread has moved to `to`.
    fn stays_behind(&self, from: u32, to: u32) -> bool {
        let at = |at: u32| self.storage.records().get(at as usize);
        match (at(from), at(to)) {
            (Some(_), Some(record)) if from != to => {
                let word = Word(record.word.load(Relaxed));
                word.keeps() || word.is_lent() || !word.is_nothing() && self.shape.is_full()
            }
            _ => false,
        }
    }

    /// Makes the record keep `id`, which the caller holds. `false`: it keeps or lends another.
    pub(super) fn keep(&self, at: u32, id: u32) -> bool {
        self.occupy(at, id, |word| word.keeping(id)).is_some()
    }

    /// A thread that holds no ID moves from one CPU to another, both by index, and the ID that it left behind may move along. For schedulers and simulators: user space learns of
    /// migrations too late, and [`release`](Self::release) moves IDs anyway.
    ///
    /// If the destination has an ID or a recent one, and there are no fewer members than allowed CPUs, nothing happens. Else the source's ID moves, unless it is in use there; if
    /// the destination keeps one already, the source's is freed.
    pub fn migrate(&self, from: u32, to: u32) {
        if self.policy == Policy::PerCpu || from >= self.cpus || to >= self.cpus || from == to {
            return;
        }
        let records = self.storage.records();
        let there = Word(records[to as usize].word.load(Relaxed));
        if !there.is_nothing() && self.shape.is_full() {
            return;
        }
        let moved = self.empty(&records[from as usize]);
        if let Some(id) =
            moved.filter(|&id| !(self.shape.control().allows(id) && self.keep(to, id)))
        {
            self.free(id);
        }
    }

    /// The CPU with index `cpu` has gone on without its ID at `now`: [`reclaim`](Self::reclaim) frees what it keeps when that is [`AGE`] ago, and need not have seen it idle before. For schedulers
    /// and simulators, which know when a thread stops and what time it is: users would pay for the clock in each lease.
    pub fn mark_idle(&self, cpu: u32, now: u64) {
        let at = self.place(false, cpu, NO_MEMBER);
        if let Some(record) = self.storage.records().get(at as usize) {
            // Relaxed: what it keeps is looked at only when it is taken away.
            let word = Word(record.word.load(Relaxed));
            if word.keeps() && !word.is_marked() {
                mark(record, word, now);
            }
        }
    }

    /// Frees the IDs that have been idle for [`AGE`] at least, and those that idle records keep above the limit; marks the other idle ones. `now`: [`Platform::now`]. Returns how many were freed. O(capacity).
    ///
    /// Nobody needs to call it: whoever needs an ID takes one that is idle. It is for those who want few IDs in use. Under [`Policy::PerCpu`] and [`Policy::TaskOwned`] IDs do not age: they belong to somebody.
    pub fn reclaim(&self, now: u64) -> u32 {
        let control = self.shape.control();
        let age = match self.policy {
            Policy::RecentFirst | Policy::LowestFree => true,
            Policy::PerCpu | Policy::TaskOwned => false,
        };
        let mut freed = 0;
        for id in 0..self.capacity() {
            if id % BLOCK == 0 && self.used(id).load(Relaxed) as u32 == 0 {
                continue;
            }
            let Some((record, word)) = self.kept(id) else {
                continue;
            };
            match idle_since(record, word, now) {
                _ if id >= control.limit() => {}
                _ if !age => continue,
                Some(idle) if idle >= AGE => {}
                Some(_) => continue,
                None => {
                    mark(record, word, now);
                    continue;
                }
            }
            if let Some(id) = self.take_from_keeper(id) {
                self.free(id);
                freed += 1;
            }
        }
        freed
    }

    /// Frees what the record keeps.
    pub(super) fn clear_out(&self, record: &Record<P>) {
        if let Some(id) = self.empty(record) {
            self.free(id);
        }
    }

    /// Takes what the record keeps, and lets it forget that.
    fn empty(&self, record: &Record<P>) -> Option<u32> {
        let mut word = Word(record.word.load(Relaxed));
        while word.keeps() {
            // Acquire pairs with the Release of who made the record keep it.
            match record
                .word
                .compare_exchange(word.0, word.emptied().0, Acquire, Relaxed)
            {
                Ok(_) => return Some(word.id()),
                Err(seen) => word = Word(seen),
            }
        }
        None
    }

    /// Starts anew in the child of a fork, where only the calling thread is left: all IDs that are not `held` are free, nothing is kept. Members and allowed CPUs stay; set them afterwards.
    ///
    /// Nobody else may use the allocator meanwhile. `held` knows the IDs that the calling thread has held since before the process forked, with what it will release: they can be released as usual; those of other threads must not be.
    pub fn reset<'h>(&self, held: impl Fn(u32) -> Option<&'h Held>) {
        for (record, at) in self.storage.records().iter().zip(0..) {
            let word = Word(record.word.load(Relaxed));
            // What a lease is to bring back stays lent, by the record that lent it. Another one may say that it lends the same: a thread that is not here had just left the ID elsewhere, and had not yet written so.
            let lender = |held: &Held| held.at == at;
            if !(word.is_lent() && held(word.id()).is_some_and(lender)) {
                record.word.store(word.emptied().0, Relaxed);
            }
        }
        for (block, first) in self
            .storage
            .blocks()
            .iter()
            .zip((0..).step_by(BLOCK as usize))
        {
            let used = block.used.0.load(Relaxed);
            let stays = |bit: &u32| used >> bit & 1 != 0 && held(first + bit).is_some();
            let stay = (0..BLOCK).filter(stays).map(|bit| 1 << bit).sum();
            block.used.0.store(stay, Relaxed);
        }
        self.shape.open();
    }
}
