//! How long a waiter depends on another one that may not run.
//!
//! A waiter behind others looks at the lock when its place in the queue would have come long ago,
//! if all ran: after [`Parking::patience`](crate::platform::Parking::patience) for each waiter
//! ahead. If sections are short and the queue moves, its turn comes before its second look, and
//! mostly before the first.

use crate::platform::{NEVER, Platform};

/// Up to this number a waiter counts those ahead of it, with a cache miss for each. If there are
/// more, it uses the number of living threads of the process that have ever queued instead, but no
/// more than [`MOST_AHEAD`].
pub(in crate::raw) const COUNTED: u64 = 8;
const MOST_AHEAD: u32 = 256;
/// The time from the first look to the second is this many times as long as that to the first:
/// beside long sections most looks find nothing.
pub(in crate::raw) const GROWTH: u64 = 8;
/// Each further time between two looks is this many times as long as the one before. So a waiter
/// that has looked twice notices a front that stops after at most three times as long as it has
/// waited. With eight times for all it would be seven times as long.
const LATER_GROWTH: u64 = 4;

/// When a waiter looks next whether another one runs.
#[derive(Debug)]
pub(in crate::raw) struct Patience {
    /// The patience for each waiter ahead.
    each: u64,
    /// The time from the look before, or from the beginning, to the next one; [`NEVER`]: there is
    /// none.
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

    /// Shortens it for a waiter with few others ahead. `None`: there are more than [`COUNTED`].
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

    /// Whether a look at the lock is due, by which the waiter finds out whether the other one comes
    /// for it. `Some` says whether it has looked before. The next look is due later, whatever this
    /// one finds.
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
