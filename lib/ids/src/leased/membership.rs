//! The domains that the calling thread is a member of.
//!
//! # Copies of this library
//!
//! A domain of another copy is refused when a thread is to become a member. The common path, a look
//! at the first place of the table, compares serials only, which no two copies give out. Copies
//! that cannot share a counter leave the first place empty: all members come to where the copies
//! are compared.
//!
//! # Invariants
//!
//! 1. `more` is null or comes from a box that belongs to this table. Only the table's thread, its
//!    signal handlers included, accesses it, and frees it when the thread's memberships have ended.
//! 2. Functions here keep no reference into a table beyond their return, and [`forget_all`] unlinks
//!    tables before it frees them. So a signal handler never meets a freed one.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};
use core::{iter, ptr};

use super::{LIST, Leased, are_serials_shared};
use crate::raw::NO_MEMBER;
use crate::thread;

/// How many domains a table has room for.
const MEMBERSHIPS: usize = 8;

struct Table {
    /// Upper half: serial; lower half: member index; 0 = unused. Atomic because of signal handlers.
    words: [AtomicU64; MEMBERSHIPS],
    /// The table for more domains.
    more: AtomicPtr<Table>,
}

impl Table {
    const fn new() -> Self {
        Table {
            words: [const { AtomicU64::new(0) }; MEMBERSHIPS],
            more: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// This table and those behind it.
    fn all(&self) -> impl Iterator<Item = &Table> {
        // SAFETY: invariants 1 and 2.
        iter::successors(Some(self), |table| unsafe {
            table.more.load(Relaxed).as_ref()
        })
    }

    fn places(&self) -> impl Iterator<Item = &AtomicU64> {
        self.all().flat_map(|table| &table.words)
    }

    /// Occupies a free place with `word`.
    fn claim(&self, word: u64) -> Option<&AtomicU64> {
        let take = |place: &&AtomicU64| place.compare_exchange(0, word, Relaxed, Relaxed).is_ok();
        // Who finds its domain in the first place does not look which copy has made that.
        let first = usize::from(!are_serials_shared());
        self.places().skip(first).find(take)
    }

    /// Makes room for more domains. Allocates.
    fn extend(&self) {
        let new = Box::into_raw(Box::new(Table::new()));
        for table in self.all() {
            let more = &table.more;
            if more
                .compare_exchange(ptr::null_mut(), new, Relaxed, Relaxed)
                .is_ok()
            {
                return;
            }
        }
    }
}

thread_local! {
    // No destructor, so accessible until the thread is gone.
    static JOINED: Table = const { Table::new() };
}

fn serial_of(place: &AtomicU64) -> u32 {
    (place.load(Relaxed) >> 32) as u32
}

/// The calling thread's member index. Makes it a member if need be. `None`: it has ended.
#[inline]
pub(super) fn of(leased: &Leased) -> Option<u32> {
    let first = JOINED.with(|joined| joined.words[0].load(Relaxed));
    if (first >> 32) as u32 == leased.serial {
        return Some(first as u32);
    }
    others(leased)
}

#[inline(never)]
fn others(leased: &Leased) -> Option<u32> {
    let known = leased.is_of_this_copy();
    let remembered = known.then(|| remembered(leased.serial)).flatten();
    remembered.or_else(|| join(leased))
}

/// As [`of`], without making the thread a member.
pub(super) fn remembered(serial: u32) -> Option<u32> {
    JOINED.with(|joined| {
        let mut words = joined.places().map(|place| place.load(Relaxed));
        let ours = words.find(|word| (word >> 32) as u32 == serial);
        ours.map(|word| word as u32)
    })
}

/// Makes the calling thread a member.
#[cold]
pub(super) fn join(leased: &Leased) -> Option<u32> {
    if !leased.is_of_this_copy() {
        eprintln!(
            "kinlock: fatal: a domain of concurrency IDs is used by another copy of kinlock-ids \
             than the one that made it"
        );
        std::process::abort();
    }
    if !thread::will_end() {
        thread::comes_again();
        return (!thread::has_ended()).then_some(NO_MEMBER);
    }
    let word = |member: u32| u64::from(leased.serial) << 32 | u64::from(member);
    JOINED.with(|joined| {
        // A signal handler that comes after this finds the thread to be a member already.
        let place = loop {
            if let Some(place) = joined.claim(word(NO_MEMBER)) {
                break place;
            }
            if !forget_gone(joined) {
                joined.extend();
            }
        };
        // A signal handler that came just before may have made it a member. One membership is
        // enough.
        let mut others = joined.places().filter(|other| !ptr::eq(*other, place));
        if let Some(other) = others.find(|other| serial_of(other) == leased.serial) {
            place.store(0, Relaxed);
            return Some(other.load(Relaxed) as u32);
        }
        let member = leased.claim_member();
        leased.ids.join();
        place.store(word(member), Relaxed);
        Some(member)
    })
}

/// Frees the entries of dropped domains. Returns whether there were any.
fn forget_gone(joined: &Table) -> bool {
    let mut any = false;
    for place in joined.places() {
        let seen = place.load(Relaxed);
        // A signal handler may have interrupted the holder of the list's lock.
        let alive = LIST.try_any(|leased| leased.serial == (seen >> 32) as u32);
        if alive == Some(false) {
            any |= place.compare_exchange(seen, 0, Relaxed, Relaxed).is_ok();
        }
    }
    any
}

/// Forgets that the calling thread is a member. Returns its member index.
pub(super) fn take(serial: u32) -> Option<u32> {
    JOINED.with(|joined| {
        let place = joined.places().find(|place| serial_of(place) == serial)?;
        Some(place.swap(0, Relaxed) as u32)
    })
}

/// Frees the tables but the first. The thread has left all domains, or keeps none of them.
pub(super) fn forget_all() {
    let mut next = JOINED.with(|joined| joined.more.swap(ptr::null_mut(), Relaxed));
    while !next.is_null() {
        // SAFETY: invariants 1 and 2: it was unlinked, and came from a box.
        next = unsafe { Box::from_raw(next) }.more.into_inner();
    }
}
