//! How long a waiter depends on another one that may not run.

use crate::platform::{NEVER, Platform};

/// What the patience grows by for each thread of the process that has ever queued, in nanoseconds.
/// It is longer than a turn lasts in a long queue, if the critical sections are short.
const PER_THREAD_NS: u64 = 100_000;
/// From look to look it takes twice as long as before. A waiter that has never found anything wrong
/// loses its patience at this look all the same: the lock may be taken each time that it looks, and
/// the one at the front may still not run.
const LOOKS: u32 = 3;

/// The patience of a waiter, which begins with the wait.
#[derive(Debug)]
pub(in crate::raw) struct Patience {
    /// How long it is from the look before, or from the beginning, to the next look; [`NEVER`]:
    /// there is none.
    length: u64,
    /// When the next look is due.
    end: u64,
    looks: u32,
}

impl Patience {
    /// As long as the waiter waits.
    pub(in crate::raw) const ENDLESS: Self = Patience {
        length: NEVER,
        end: NEVER,
        looks: 0,
    };

    pub(in crate::raw) fn begin<P: Platform>() -> Self {
        match P::patience() {
            NEVER => Self::ENDLESS,
            nanos => {
                let length = nanos + u64::from(P::waiters().in_use()) * PER_THREAD_NS;
                Patience {
                    length,
                    end: P::now().saturating_add(length),
                    looks: 0,
                }
            }
        }
    }

    /// When a sleep has to end: at the next look, or at `deadline`.
    pub(in crate::raw) fn or(&self, deadline: u64) -> u64 {
        self.end.min(deadline)
    }

    /// Whether the waiter goes on without the other one. `stuck` is the look: nobody comes for what
    /// is there.
    pub(in crate::raw) fn is_lost<P: Platform>(&mut self, stuck: impl FnOnce() -> bool) -> bool {
        let now = P::now();
        if now < self.end {
            return false;
        }
        self.looks += 1;
        let lost = stuck() || self.looks == LOOKS;
        self.length = self.length.saturating_mul(2);
        self.end = now.saturating_add(self.length);
        lost
    }
}
