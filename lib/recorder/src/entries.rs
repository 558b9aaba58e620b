//! Numbers of the table, and arrays whose entries are found by way of an index.

use super::memory::{is_present, provide};
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use kinlock_report::{FREED, Table};

/// Adds to a number to which other threads may add at the same time.
pub(super) fn add(number: &AtomicU64, n: u64) {
    number.fetch_add(n, Relaxed);
}

/// Adds to a number that no other thread changes at the same time.
#[inline]
pub(super) fn bump(number: &AtomicU64, n: u64) {
    number.store(number.load(Relaxed).wrapping_add(n), Relaxed);
}

/// Makes a number at least `n`. No other thread changes it at the same time.
pub(super) fn raise(number: &AtomicU64, n: u64) {
    if number.load(Relaxed) < n {
        number.store(n, Relaxed);
    }
}

/// Adds numbers to others, and clears them.
pub(super) fn merge<'a>(
    from: impl IntoIterator<Item = &'a AtomicU64>,
    to: impl IntoIterator<Item = &'a AtomicU64>,
) {
    for (from, to) in from.into_iter().zip(to) {
        let n = from.swap(0, Relaxed);
        if n != 0 {
            add(to, n);
        }
    }
}

/// The index of an entry of an array.
pub(super) fn index_in<T>(all: &[T], one: &T) -> usize {
    (ptr::from_ref(one).addr() - all.as_ptr().addr()) / size_of::<T>()
}

/// The index plus 1: the form in which fields refer to an entry.
pub(super) fn number_in<T>(all: &[T], one: &T) -> u32 {
    index_in(all, one) as u32 + 1
}

/// How many places of an index to search, from the one that the hash chooses.
const REACH: usize = 64;

/// A hash of a key.
pub(super) fn scattered(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

/// The entry to which a place of an index refers, if any, of `size` entries. The table is shared
/// memory: whatever it contains must not end the program.
#[inline]
pub(super) fn number_at(table: &Table, place: &AtomicU32, size: usize) -> Option<usize> {
    // Acquire pairs with the release in `Array::place` that published the entry.
    let number = is_present(table, place).then(|| place.load(Acquire));
    let at = (number.unwrap_or(0) as usize).checked_sub(1)?;
    (at < size).then_some(at)
}

/// The places of an index where an entry with this hash may be.
pub(super) fn places(index: &[AtomicU32], hash: u64) -> impl Iterator<Item = &AtomicU32> {
    let first = hash as usize;
    (0..REACH).map(move |step| &index[(first + step) % index.len()])
}

/// An array of entries, and the index by which they are found: a hash table with open addressing.
///
/// A freed entry may be used again for another key, from another place of the index. The former
/// place then still refers to it. That is harmless, since the key is compared.
pub(super) struct Array<'a, T> {
    pub(super) entries: &'a [T],
    pub(super) index: &'a [AtomicU32],
    pub(super) used: &'a AtomicU32,
    pub(super) freed: &'a AtomicU32,
    pub(super) key_of: fn(&T) -> &AtomicU64,
    pub(super) hash_of: fn(u64) -> u64,
}

impl<'a, T> Array<'a, T> {
    fn key_at(&self, at: usize) -> &AtomicU64 {
        (self.key_of)(&self.entries[at])
    }

    /// Finds the entry with a key, or adds one and calls `fill` for it. Also returns whether it is
    /// new. `None`: there is no room.
    pub(super) fn place(
        &self,
        table: &Table,
        key: u64,
        fill: impl Fn(&T),
    ) -> Option<(&'a T, bool)> {
        // Another thread may take the place first. Then this one searches again.
        for _ in 0..8 {
            let (mut freed, mut free, mut left) = (None, None, None);
            for place in places(self.index, (self.hash_of)(key)) {
                let Some(at) = number_at(table, place, self.entries.len()) else {
                    free = Some((place, 0));
                    break;
                };
                match self.key_at(at).load(Relaxed) {
                    known if known == key => return Some((&self.entries[at], false)),
                    FREED => freed = freed.or(Some(at)),
                    other if !self.is_place_of(place, other) => {
                        left = left.or(Some((place, at as u32 + 1)));
                    }
                    _ => {}
                }
            }
            if let Some(at) = freed {
                if self.takes_freed(at, key) {
                    fill(&self.entries[at]);
                    return Some((&self.entries[at], true));
                }
                continue;
            }
            let (place, seen) = free.or(left)?;
            if !provide(table, place) {
                return None;
            }
            let at = self
                .new_entry(table, key)
                .or_else(|| self.any_freed(table, key))?;
            fill(&self.entries[at]);
            let taken = place.compare_exchange(seen, at as u32 + 1, Release, Relaxed);
            if taken.is_ok() {
                return Some((&self.entries[at], true));
            }
            self.key_at(at).store(FREED, Relaxed);
            self.freed.fetch_add(1, Relaxed);
        }
        None
    }

    /// Whether a search for this key looks at this place of the index.
    fn is_place_of(&self, place: &AtomicU32, key: u64) -> bool {
        let at = index_in(self.index, place);
        let length = self.index.len();
        (at + length - (self.hash_of)(key) as usize % length) % length < REACH
    }

    /// The next entry that has never been used.
    fn new_entry(&self, table: &Table, key: u64) -> Option<usize> {
        let next = self.used.load(Relaxed) as usize;
        // Tested before the count grows, so that the count cannot wrap, and an entry that gets no
        // memory is not lost.
        if next >= self.entries.len() || !provide(table, &self.entries[next]) {
            return None;
        }
        let at = self.used.fetch_add(1, Relaxed) as usize;
        if at >= self.entries.len() || !provide(table, &self.entries[at]) {
            return None;
        }
        self.key_at(at).store(key, Relaxed);
        Some(at)
    }

    /// An entry that has become free, anywhere in the array.
    fn any_freed(&self, table: &Table, key: u64) -> Option<usize> {
        if self.freed.load(Relaxed) == 0 {
            return None;
        }
        let used = (self.used.load(Relaxed) as usize).min(self.entries.len());
        let first = (self.hash_of)(key) as usize;
        let all = (0..used).map(|step| (first + step) % used);
        // An entry that got no memory counts as used if two threads have asked at the same time.
        let is_freed = |key: &AtomicU64| is_present(table, key) && key.load(Relaxed) == FREED;
        let mut free = all.filter(|&at| is_freed(self.key_at(at)));
        free.find(|&at| self.takes_freed(at, key))
    }

    /// Takes an entry that has become free, unless another thread does.
    fn takes_freed(&self, at: usize, key: u64) -> bool {
        let taken = self
            .key_at(at)
            .compare_exchange(FREED, key, Acquire, Relaxed);
        if taken.is_ok() {
            self.freed.fetch_sub(1, Relaxed);
        }
        taken.is_ok()
    }
}
