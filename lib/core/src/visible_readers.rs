//! The visible readers table: where readers of read-biased locks announce themselves. All locks
//! share it.
//!
//! Source: the visible readers table of BRAVO (Dice and Kogan, USENIX ATC 2019). In BRAVO a hash of
//! lock and thread selects the entry. Here each thread has a row of the table and each lock a
//! column. So a thread writes only to its own cache lines, and a writer that looks for readers of
//! its lock reads one entry of each row.
//!
//! ```text
//!             column 0   1   2        15
//!   row 0          [ A ][   ][   ] .. [   ]   thread 0, 256, 512 ..
//!   row 1          [ A ][   ][ B ] .. [   ]   thread 1, 257 ..
//! ```
//!
//! An entry is 0 or the address of a lock. Addresses are only compared, never followed. Threads may
//! share a row, and locks may share a column: a reader that finds its entry taken counts itself in
//! the lock.
//!
//! # Fork
//!
//! In a child the readers in rows of other threads do not exist. The platform empties those rows.
//!
//! # Several copies of this code in one process
//!
//! The copies may share the table. Raise [`MEANING`](crate::slots::MEANING) with each change of
//! what an entry means, or of the row of a thread or the column of a lock.

use crate::atomic::{Atomic, Atomics, Ordering::*, const_fn, zero};

/// Entries per row: two cache lines of 64 bytes, since some CPUs fetch lines in pairs. One under a
/// model checker: with several, a lock's column would depend on its address.
pub const COLUMNS: usize = if cfg!(loom) { 1 } else { 16 };

/// The entries of one thread, or of several threads that share them.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Row<P: Atomics>([P::AtomicU64; COLUMNS]);

impl<P: Atomics> Row<P> {
    const_fn! {
        /// A row without readers.
        pub const fn new() -> Self {
            Row(zero!(COLUMNS))
        }
    }

    /// The entry for a lock at `address`.
    #[inline]
    pub(crate) fn entry(&self, address: u64) -> &P::AtomicU64 {
        &self.0[column(address)]
    }
}

impl<P: Atomics> Default for Row<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// The table. Its memory is fixed: 128 bytes per row.
#[repr(C)]
#[derive(Debug)]
pub struct VisibleReaders<P: Atomics> {
    rows: &'static [Row<P>],
    /// How many rows, counted from the first, have been given to threads.
    in_use: &'static P::AtomicU32,
}

impl<P: Atomics> VisibleReaders<P> {
    /// A table of these rows, which must be empty.
    pub const fn new(rows: &'static [Row<P>], in_use: &'static P::AtomicU32) -> Self {
        assert!(!rows.is_empty() && COLUMNS.is_power_of_two());
        VisibleReaders { rows, in_use }
    }

    /// A row for a new thread. Threads get the rows in turn.
    pub fn assign(&self) -> usize {
        let count = self.rows.len() as u32;
        // SeqCst: if a writer misses the new row, it has ended the bias before a reader in that row
        // looks at the bias.
        let seen = self.in_use.fetch_add(1, SeqCst);
        if seen > u32::MAX / 2 {
            // All rows stay in use: the number must not wrap.
            self.in_use.store(count, SeqCst);
        }
        (seen % count) as usize
    }

    /// The row with this number, modulo the number of rows: if there are more threads than rows,
    /// threads share rows.
    pub fn row(&self, number: usize) -> &'static Row<P> {
        &self.rows[number % self.rows.len()]
    }

    /// The entries in which readers of a lock at `address` may be announced.
    pub(crate) fn entries(&self, address: u64) -> impl Iterator<Item = &'static P::AtomicU64> {
        self.used().iter().map(move |row| row.entry(address))
    }

    /// The rows that were given to threads.
    fn used(&self) -> &'static [Row<P>] {
        // SeqCst pairs with `assign`.
        let used = self.in_use.load(SeqCst) as usize;
        &self.rows[..used.min(self.rows.len())]
    }

    /// In the child of a fork: empties all rows but those of the forking thread.
    ///
    /// # Safety
    ///
    /// No thread of this process reads with an entry in another row: a writer would not see it. In
    /// the child of a fork this holds, since such threads do not exist there.
    pub unsafe fn reset_in_child(&self, is_own: impl Fn(&Row<P>) -> bool) {
        for row in self.used().iter().filter(|row| !is_own(row)) {
            row.0.iter().for_each(|entry| entry.store(0, Relaxed));
        }
    }
}

#[inline]
fn column(address: u64) -> usize {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    (address.wrapping_mul(ODD) >> 32) as usize & (COLUMNS - 1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Native;
    use core::sync::atomic::AtomicU32;

    #[test]
    fn rows_stay_in_use_however_many_threads_there_were() {
        static ROWS: [Row<Native>; 4] = [const { Row::new() }; 4];
        static IN_USE: AtomicU32 = AtomicU32::new(3);
        let table = VisibleReaders::<Native>::new(&ROWS, &IN_USE);
        assert_eq!(
            (table.assign(), table.assign(), table.used().len()),
            (3, 0, 4)
        );
        IN_USE.store(u32::MAX, Relaxed);
        assert!(table.assign() < 4 && table.assign() < 4);
        assert_eq!(table.used().len(), 4);
    }
}
