//! Releases that the fast path cannot handle: on another CPU, or of an ID above the limit. Also the
//! reclamation of idle IDs.

use super::record::Word;
use super::take::{idle_since, mark};
use super::{AGE, BLOCK, Held, IdAllocator, NO_MEMBER, Policy, Storage};
use kinlock_core::platform::{Atomic, Ordering::*, Platform};

impl<P: Platform, S: Storage<P>> IdAllocator<P, S> {
    #[cold]
    #[inline(never)]
    pub(super) fn release_slow(&self, cpu: u32, held: Held) {
        let (id, from) = (held.id(), held.at);
        let to = match self.policy {
            Policy::PerCpu => id,
            _ => self.place(false, cpu, NO_MEMBER),
        };
        let allowed = self.shape.control().allows(id);
        let has_own = self.has_own(from, to);
        let moves = allowed && !has_own && self.keep(to, id);
        if let Some(record) = self.storage.records().get(from as usize) {
            // The word is ours, so a store suffices.
            let stays = allowed && !moves && (!has_own || self.shape.is_full());
            if stays {
                // `keep` may have written another record's index here.
                self.keeper(id).store(from, Relaxed);
            }
            // The CPU that loses its ID has no recent one either. With one it would keep out the
            // IDs of threads that come later.
            let new = if stays { Word::kept(id) } else { Word::NOTHING };
            record.word.overwrite(new.0, Release);
            if stays {
                return;
            }
        }
        if !moves {
            self.free(id);
        }
    }

    /// Whether the record `to`, unless it is `from`, has an ID or had one: then a thread that comes
    /// from `from` brings no ID along, since the data of the ID of `to` is nearer.
    fn has_own(&self, from: u32, to: u32) -> bool {
        let at = |at: u32| self.storage.records().get(at as usize);
        match (at(from), at(to)) {
            (Some(_), Some(record)) if from != to => !Word(record.word.load(Relaxed)).is_nothing(),
            _ => false,
        }
    }

    /// Makes the record keep `id`, which the caller holds. `false`: the record keeps or lends
    /// another ID.
    pub(super) fn keep(&self, at: u32, id: u32) -> bool {
        self.occupy(at, Word::kept(id))
    }

    /// Notes that the CPU with index `cpu` has gone on without its ID at time `now`.
    /// [`reclaim`](Self::reclaim) then frees the ID once it has been unused for [`AGE`], without
    /// having to see it idle twice.
    ///
    /// For schedulers and simulators, which know when a thread stops and what time it is. Otherwise
    /// each lease would have to read the clock.
    pub fn mark_idle(&self, cpu: u32, now: u64) {
        let at = self.place(false, cpu, NO_MEMBER);
        if let Some(record) = self.storage.records().get(at as usize) {
            // Relaxed: the ID's data are not touched here.
            let word = Word(record.word.load(Relaxed));
            if word.keeps() && !word.is_marked() {
                mark(record, word, now);
            }
        }
    }

    /// Frees the kept IDs that have been idle for at least [`AGE`], and those at or above the
    /// limit. Marks the other idle ones. `now` is [`Platform::now`]. Returns how many were freed.
    /// O(capacity).
    ///
    /// With [`aging`](Self::aging) acquisitions call this themselves. Under [`Policy::PerCpu`] and
    /// [`Policy::TaskOwned`] IDs do not age: they have owners.
    pub fn reclaim(&self, now: u64) -> u32 {
        let control = self.shape.control();
        let age = match self.policy {
            Policy::RecentFirst | Policy::LowestFree => true,
            Policy::PerCpu | Policy::TaskOwned => false,
        };
        let mut freed = 0;
        for id in 0..self.capacity() {
            if id % BLOCK == 0 && self.used(id).load(Relaxed) == 0 {
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

    /// Starts anew in the child of a fork, where only the calling thread exists. All IDs but the
    /// `held` ones become free; none is kept. Members and allowed CPUs stay; set them afterwards.
    ///
    /// No other thread may use the allocator during the call. `held` maps the IDs that the calling
    /// thread has held since before the fork to what it will release. It may release those as
    /// usual. IDs that other threads held must not be released.
    pub fn reset<'h>(&self, held: impl Fn(u32) -> Option<&'h Held>) {
        for (record, at) in self.storage.records().iter().zip(0..) {
            let word = Word(record.word.load(Relaxed));
            // A lent ID that the calling thread will bring back stays lent, by the record that lent
            // it. Another record may claim to lend the same ID: its thread, which does not exist
            // here, had moved the ID on and had not yet updated its record.
            let lender = |held: &Held| held.at == at;
            if !(word.is_lent() && held(word.id()).is_some_and(lender)) {
                record.word.store(Word::NOTHING.0, Relaxed);
            }
        }
        for id in self.ids_in_use().filter(|&id| held(id).is_none()) {
            self.free(id);
        }
    }
}
