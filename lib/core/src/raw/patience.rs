//! How long a waiter relies on another waiter that may not run.
//!
//! A waiter in the queue looks at the lock when its turn would have come long ago if all waiters
//! ran: after [`Parking::patience`](crate::platform::Parking::patience) for each waiter ahead. If
//! sections are short and the queue moves, its turn comes before its second look, and mostly before
//! the first.

use crate::platform::{NEVER, Platform};

/// A waiter counts the waiters ahead of it up to this number, with a cache miss for each. If there
/// are more, it uses the number of living threads of the process that have ever queued instead, at
/// most [`MOST_AHEAD`].
pub(in crate::raw) const COUNTED: u64 = 8;
const MOST_AHEAD: u32 = 256;
/// The time from the first look to the second, as a multiple of the time to the first look: at a
/// lock with long sections most looks find nothing.
pub(in crate::raw) const GROWTH: u64 = 8;
/// Each later interval between two looks, as a multiple of the interval before. So if the front
/// waiter stops, a waiter that has looked twice notices after at most three times as long as it has
/// waited. If this were 8, too, it would be seven times as long.
const LATER_GROWTH: u64 = 4;

/// When a waiter next checks whether another waiter runs.
#[derive(Debug)]
pub(in crate::raw) struct Patience {
    /// The time for each waiter ahead, in nanoseconds.
    each: u64,
    /// The time from the previous look, or from the beginning, to the next look; [`NEVER`]: there
    /// are no looks.
    length: u64,
    /// When the next look is due.
    next: u64,
    looked: bool,
}

impl Patience {
    /// A patience that never ends.
    pub(in crate::raw) const ENDLESS: Self = Patience {
        each: NEVER,
        length: NEVER,
        next: NEVER,
        looked: false,
    };

    /// For a waiter that does not know how many are ahead of it.
    pub(in crate::raw) fn begin<P: Platform>() -> Self {
        match P::patience() {
            NEVER => Self::ENDLESS,
            each => {
                let each = each.max(1);
                let threads = P::waiters().in_use().clamp(1, MOST_AHEAD);
                let length = each.saturating_mul(u64::from(threads));
                Patience {
                    each,
                    length,
                    next: P::now().saturating_add(length),
                    looked: false,
                }
            }
        }
    }

    /// Shortens the time for a waiter with only a few waiters `ahead`. `None`: there are more than
    /// [`COUNTED`].
    pub(in crate::raw) fn count_ahead(&mut self, ahead: Option<u64>) {
        let Some(ahead) = ahead.filter(|_| self.length != NEVER) else {
            return;
        };
        let begun = self.next - self.length;
        self.length = self.each.saturating_mul(ahead.max(1));
        self.next = begun.saturating_add(self.length);
    }

    /// When a sleep has to end: at the next look, or at `deadline`.
    pub(in crate::raw) fn or(&self, deadline: u64) -> u64 {
        self.next.min(deadline)
    }

    /// Whether a look at the lock is due, by which the waiter finds out whether the other waiter
    /// comes for the lock. `Some` says whether it has looked before. Also schedules the next look,
    /// whatever this look finds.
    pub(in crate::raw) fn look_is_due<P: Platform>(&mut self) -> Option<bool> {
        let now = P::now();
        if now < self.next {
            return None;
        }
        let looked = core::mem::replace(&mut self.looked, true);
        let growth = if looked { LATER_GROWTH } else { GROWTH };
        self.length = self.length.saturating_mul(growth);
        self.next = now.saturating_add(self.length);
        Some(looked)
    }
}
