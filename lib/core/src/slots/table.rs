//! Storage for waiter slots.

use super::{Slot, Waiters};
use crate::atomic::{Atomics, zero};

/// Storage for `SLOTS` slots. `WORDS` is at least `SLOTS / 32`, rounded up.
///
/// An unused table is all zeros. A static table takes up to 384 bytes per slot, which an operating
/// system allocates only for slots that have been used.
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

    /// A table without slots to claim: locks use it only to look up names that other copies gave.
    pub const fn no_waiters(&'static self) -> Waiters<P> {
        Waiters {
            slots: &self.slots,
            claimed: &[],
            in_use: &self.in_use,
        }
    }
}
