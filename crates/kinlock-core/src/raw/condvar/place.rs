//! The second word of a condition variable: where its mutex is, and how many wait.
//!
//! ```text
//!   bit 0..11   how many wait without spinning and are not notified, about
//!       12..31  the distance to the mutex in units of four bytes,
//!               or NONE (0), FAR, SEVERAL
//! ```
//!
//! The distance goes from `NONE` to a number or to `FAR`, and from a number to `SEVERAL`, never
//! back.
//!
//! # The number of waiters
//!
//! It tells waiters on their way to sleep from waiters that have left. A waiter that does not spin
//! adds 1 when it registers. A notifier subtracts those that it has notified. A waiter subtracts
//! itself if its time is up, or if it finds another count. The latter may have been subtracted
//! already, since it cannot know whether the notification was meant for it. So the number may be
//! too small while waiters are on their way. Nothing depends on it but what notifiers report.

use crate::platform::{Atomic, ConstAtomic, ConstPlatform, Ordering::*, Platform};

/// A distance of four bytes.
pub(super) const UNIT: u32 = 1 << 12;
/// The part that is a number of waiters. It does not grow beyond this.
const WAITING: u32 = UNIT - 1;

/// No mutex yet.
const NONE: u32 = 0;
/// A mutex whose distance does not fit, or on which nobody sleeps.
pub(super) const FAR: u32 = i32::MIN as u32;
/// There has been more than one mutex.
pub(super) const SEVERAL: u32 = FAR + UNIT;

#[repr(transparent)]
#[derive(Debug)]
pub(super) struct Place<P: Platform>(P::AtomicU32);

impl<P: ConstPlatform> Place<P> {
    pub const FRESH: Self = Place(P::AtomicU32::ZERO);
}

impl<P: Platform> Place<P> {
    pub fn new() -> Self {
        Place(Atomic::new(NONE))
    }

    /// Notes that a mutex is used that is `distance` away. Returns what is known afterwards, and
    /// whether this is the first use of a second mutex.
    pub fn learn(&self, distance: u32) -> (u32, bool) {
        let mut seen = self.0.load(Relaxed);
        loop {
            let known = match seen & !WAITING {
                NONE => distance,
                known if known == distance || known == FAR || known == SEVERAL => {
                    return (known, false);
                }
                _ => SEVERAL,
            };
            match self.change(seen, seen & WAITING | known) {
                Ok(()) => return (known, known == SEVERAL),
                Err(now) => seen = now,
            }
        }
    }

    /// The address of the mutex of a condition variable at `from`, if waiters can be moved there.
    pub fn mutex(&self, from: *const u32) -> Option<*const u32> {
        match self.0.load(Relaxed) & !WAITING {
            NONE | FAR | SEVERAL => None,
            distance => Some(from.wrapping_offset((distance as i32 / UNIT as i32) as isize)),
        }
    }

    pub fn waiting(&self) -> u32 {
        self.0.load(Relaxed) & WAITING
    }

    /// Subtracts all. Returns how many there were.
    pub fn take_waiting(&self) -> u32 {
        self.0.fetch_and(!WAITING, Relaxed) & WAITING
    }

    pub fn add_one(&self) {
        let mut seen = self.0.load(Relaxed);
        while seen & WAITING != WAITING {
            match self.change(seen, seen + 1) {
                Ok(()) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Not below 0.
    pub fn subtract_one(&self) {
        let mut seen = self.0.load(Relaxed);
        while seen & WAITING != 0 {
            match self.change(seen, seen - 1) {
                Ok(()) => return,
                Err(now) => seen = now,
            }
        }
    }

    fn change(&self, seen: u32, next: u32) -> Result<(), u32> {
        let changed = self.0.compare_exchange(seen, next, Relaxed, Relaxed);
        changed.map(drop)
    }
}

/// The distance between two addresses, both multiples of four, or [`FAR`].
pub(super) fn distance(from: *const u32, to: *const u32) -> u32 {
    let bytes = to.addr().wrapping_sub(from.addr()) as isize;
    match i32::try_from(bytes / 4).map(|units| units.checked_mul(UNIT as i32)) {
        Ok(Some(distance)) if distance > SEVERAL as i32 => distance as u32,
        _ => FAR,
    }
}
