//! The second word of a condition variable: where its mutex is, and how many threads wait.
//!
//! ```text
//!   bit 0..11   how many wait without spinning and are not notified, about
//!       12..31  the distance to the mutex in units of four bytes, below 1 MiB,
//!               or NONE (0), a far one (2^18 to 2^19 - 1), SEVERAL
//! ```
//!
//! A far distance is a hash of the true distance. It serves only to tell a second mutex from the
//! first.
//!
//! The distance changes from `NONE` to a number, and from a number to `SEVERAL`, never back.
//!
//! # The number of waiters
//!
//! A notifier uses the number to tell waiters that are about to sleep from waiters that have left.
//! A waiter that does not spin adds 1 when it registers. A notifier subtracts the waiters that it
//! has notified. A waiter subtracts itself if its time is up, or if it finds another count. In the
//! last case a notifier may have subtracted it already, since the waiter cannot know whether the
//! notification was meant for it. So the number may be too small while waiters are about to sleep.
//! It only affects what notifiers report.

use crate::platform::{Atomic, Ordering::*, Platform, const_fn, zero};

/// A distance of four bytes.
pub(super) const UNIT: u32 = 1 << 12;
/// The bits of the number of waiters, and its upper bound.
const WAITING: u32 = UNIT - 1;

/// No mutex yet.
const NONE: u32 = 0;
/// The first of the far distances, which stand for mutexes whose distance does not fit. This one
/// stands for a lock on which waiters cannot sleep.
pub(super) const FAR: u32 = 1 << 30;
/// There has been more than one mutex.
pub(super) const SEVERAL: u32 = i32::MIN as u32;

/// Whether waiters cannot be moved to a mutex at this distance.
pub(super) fn is_far(distance: u32) -> bool {
    distance as i32 >= FAR as i32
}

#[repr(transparent)]
#[derive(Debug)]
pub(super) struct Place<P: Platform>(P::AtomicU32);

impl<P: Platform> Place<P> {
    const_fn! {
        /// No mutex yet ([`NONE`]), and no waiters.
        pub const fn new() -> Self {
            Place(zero!())
        }
    }

    /// Records the use of a mutex that is `distance` away. Returns the distance that is then
    /// stored, and whether this is the first use of a second mutex.
    pub fn learn(&self, distance: u32) -> (u32, bool) {
        let mut seen = self.0.load(Relaxed);
        loop {
            let known = match seen & !WAITING {
                NONE => distance,
                known if known == distance || known == SEVERAL => return (known, false),
                _ => SEVERAL,
            };
            match self.fetch_update(seen, seen & WAITING | known) {
                Ok(()) => return (known, known == SEVERAL),
                Err(now) => seen = now,
            }
        }
    }

    /// The address of the mutex of a condition variable at `from`, if waiters can be moved there.
    pub fn mutex(&self, from: *const u32) -> Option<*const u32> {
        match self.0.load(Relaxed) & !WAITING {
            NONE | SEVERAL => None,
            far if is_far(far) => None,
            distance => Some(from.wrapping_offset((distance as i32 / UNIT as i32) as isize)),
        }
    }

    pub fn waiting(&self) -> u32 {
        self.0.load(Relaxed) & WAITING
    }

    /// Sets the number of waiters to 0. Returns the number before.
    pub fn take_waiting(&self) -> u32 {
        self.0.fetch_and(!WAITING, Relaxed) & WAITING
    }

    pub fn add_one(&self) {
        let mut seen = self.0.load(Relaxed);
        while seen & WAITING != WAITING {
            match self.fetch_update(seen, seen + 1) {
                Ok(()) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Does not go below 0.
    pub fn subtract_one(&self) {
        let mut seen = self.0.load(Relaxed);
        while seen & WAITING != 0 {
            match self.fetch_update(seen, seen - 1) {
                Ok(()) => return,
                Err(now) => seen = now,
            }
        }
    }

    fn fetch_update(&self, seen: u32, next: u32) -> Result<(), u32> {
        let changed = self.0.compare_exchange(seen, next, Relaxed, Relaxed);
        changed.map(drop)
    }
}

/// The distance between two addresses, both multiples of four.
pub(super) fn distance(from: *const u32, to: *const u32) -> u32 {
    let units = to.addr().wrapping_sub(from.addr()) as isize / 4;
    let near = FAR as isize / UNIT as isize;
    if -near < units && units < near {
        return (units * UNIT as isize) as u32;
    }
    // Fibonacci hashing: the upper bits depend on all bits.
    let hash = (units as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 34;
    FAR | hash as u32 & !WAITING
}
