//! Storage for waiter slots.

use super::{Slot, Waiters};
use crate::atomic::{Atomics, zero};

/// Storage for `SLOTS` slots. `WORDS` is at least `SLOTS / 32`, rounded up.
///
/// A free table is all zeros. A static one takes up to 384 bytes per slot, and an operating system
/// allocates them only for slots that have been used.
///
/// ```
/// use kinlock_core::bare::Bare;
/// use kinlock_core::slots::{Table, Waiters};
///
/// static TABLE: Table<Bare, 64, 2> = Table::new();
/// static WAITERS: Waiters<Bare> = TABLE.waiters();
/// assert_eq!(WAITERS.in_use(), 0);
/// ```
#[derive(Debug)]
pub struct Table<P: Atomics, const SLOTS: usize, const WORDS: usize> {
    slots: [Slot<P>; SLOTS],
    claimed: [P::AtomicU32; WORDS],
    in_use: P::AtomicU32,
}

impl<P: Atomics, const SLOTS: usize, const WORDS: usize> Table<P, SLOTS, WORDS> {
    /// A table of free slots.
    #[expect(clippy::new_without_default, reason = "it is made in a static")]
    pub const fn new() -> Self {
        Table {
            slots: [const { Slot::new() }; SLOTS],
            claimed: zero!(WORDS),
            in_use: zero!(),
        }
    }

    /// The table that locks use.
    pub const fn waiters(&'static self) -> Waiters<P> {
        Waiters::new(&self.slots, &self.claimed, &self.in_use)
    }

    /// A table that locks use for no queue, only to look up names that are not from here.
    pub const fn no_waiters(&'static self) -> Waiters<P> {
        Waiters {
            slots: &self.slots,
            claimed: &[],
            in_use: &self.in_use,
        }
    }
}
