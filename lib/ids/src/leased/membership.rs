//! The domains that the calling thread is a member of.
//!
//! A domain of another copy of this library is refused when a thread is to become a member. The
//! common path, a look at the first place of the table, compares serials only; no two copies give
//! out the same one.
//!
//! # Invariants
//!
//! 1. `more` is null or comes from a box that belongs to this table. Only the table's thread, its
//!    signal handlers included, accesses it, and frees it when the thread's memberships have ended.
//! 2. Functions here keep no reference into a table beyond their return, and [`forget_all`] unlinks
//!    tables before it frees them. So a signal handler never meets a freed one.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};
use core::{iter, ptr};

use super::{LIST, Leased};
use crate::thread;

/// How many domains a table has room for.
const MEMBERSHIPS: usize = 8;

struct Table {
    /// The domains' serials; 0 = unused. Atomic because of signal handlers.
    serials: [AtomicU64; MEMBERSHIPS],
    /// The table for more domains.
    more: AtomicPtr<Table>,
}

impl Table {
    const fn new() -> Self {
        Table {
            serials: [const { AtomicU64::new(0) }; MEMBERSHIPS],
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
        self.all().flat_map(|table| &table.serials)
    }

    /// Occupies a free place with `serial`.
    fn claim(&self, serial: u64) -> Option<&AtomicU64> {
        let take = |place: &&AtomicU64| place.compare_exchange(0, serial, Relaxed, Relaxed).is_ok();
        self.places().find(take)
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

/// Makes the calling thread a member if need be. `false`: it has ended.
#[inline]
pub(super) fn enter(leased: &Leased) -> bool {
    let first = JOINED.with(|joined| joined.serials[0].load(Relaxed));
    first == leased.serial || enter_slow(leased)
}

#[inline(never)]
fn enter_slow(leased: &Leased) -> bool {
    is_remembered(leased.serial) || join(leased)
}

/// Whether the calling thread is a member.
pub(super) fn is_remembered(serial: u64) -> bool {
    JOINED.with(|joined| joined.places().any(|place| place.load(Relaxed) == serial))
}

/// Makes the calling thread a member. `false`: it has ended.
#[cold]
pub(super) fn join(leased: &Leased) -> bool {
    if !leased.is_of_this_copy() {
        eprintln!(
            "kinlock: fatal: a domain of concurrency IDs is used by another copy of kinlock-ids \
             than the one that made it"
        );
        std::process::abort();
    }
    if !thread::will_end() {
        thread::comes_again();
        return !thread::has_ended();
    }
    JOINED.with(|joined| {
        // A signal handler that comes after this finds the thread to be a member already.
        let place = loop {
            if let Some(place) = joined.claim(leased.serial) {
                break place;
            }
            if !forget_gone(joined) {
                joined.extend();
            }
        };
        // A signal handler that came just before may have made the thread a member. One membership
        // is enough.
        let mut others = joined.places().filter(|other| !ptr::eq(*other, place));
        if others.any(|other| other.load(Relaxed) == leased.serial) {
            place.store(0, Relaxed);
        } else {
            leased.ids.join();
        }
        true
    })
}

/// Frees the entries of dropped domains. Returns whether there were any.
fn forget_gone(joined: &Table) -> bool {
    let mut any = false;
    for place in joined.places() {
        let seen = place.load(Relaxed);
        if seen == 0 {
            continue;
        }
        // A signal handler may have interrupted the holder of the list's lock.
        let alive = LIST.try_any(|leased| leased.serial == seen);
        if alive == Some(false) {
            any |= place.compare_exchange(seen, 0, Relaxed, Relaxed).is_ok();
        }
    }
    any
}

/// Forgets that the calling thread is a member. Returns whether it was.
pub(super) fn forget(serial: u64) -> bool {
    JOINED.with(|joined| {
        let place = joined.places().find(|place| place.load(Relaxed) == serial);
        place.is_some_and(|place| place.swap(0, Relaxed) == serial)
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
