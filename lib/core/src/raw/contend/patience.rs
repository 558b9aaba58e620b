//! How long a waiter depends on another one that may not run.

use super::constants::FIRST_PAUSE_NS;
use crate::platform::{NEVER, Platform};

/// What the patience grows by for each living thread of the process that has queued before, in
/// nanoseconds.
/// It is longer than a turn lasts in a long queue, if the critical sections are short.
const PER_THREAD_NS: u64 = 100_000;
/// The times between late looks double. From this one on they are [last](Glance::Last) looks.
const LOOKS: u32 = 3;

/// A waiter near the front also looks early: the first time after a fiftieth of the 10 ms, 0.2 ms,
/// times the number of waiters ahead of it. The scheduler may leave a woken thread on the CPU of
/// one that computes, for a whole time slice, while another CPU is idle.
const EARLY_LOOK_DIVISOR: u64 = 50;
/// With how many waiters ahead a waiter is near the front. In a longer queue some others run, and
/// the timers would cost them more than they bring.
const NEAR: u64 = 8;

/// What a look has to find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::raw) enum Glance {
    /// The lock stays free for a [while](super::constants::BARGE_NS): between two sections it is
    /// free for a moment, too. Not a lock that was handed over: the waiter for which it is meant
    /// may be under way.
    Early,
    /// The lock is free, or was handed over.
    Late,
    /// As `Late`, or nobody has asked to go next. The lock may be taken each time that a waiter
    /// looks, and the one at the front may still not run. If that one has asked to go next, no
    /// newcomer takes the lock, so the queue moves with the next release, or a look finds the lock
    /// free. With long critical sections that is what nearly all of these looks find.
    Last,
}

/// The patience of a waiter, which begins with the wait.
#[derive(Debug)]
pub(in crate::raw) struct Patience {
    /// How long it is from the late look before, or from the beginning, to the next one; [`NEVER`]:
    /// there is none.
    length: u64,
    /// When the next late look is due.
    end: u64,
    looks: u32,
    /// How long it is to the next early look; until they are counted, for each waiter ahead.
    /// [`NEVER`]: there are no early looks.
    early: u64,
    /// When a look is due, an early one or not.
    next: u64,
}

impl Patience {
    /// As long as the waiter waits.
    pub(in crate::raw) const ENDLESS: Self = Patience {
        length: NEVER,
        end: NEVER,
        looks: 0,
        early: NEVER,
        next: NEVER,
    };

    pub(in crate::raw) fn begin<P: Platform>() -> Self {
        match P::patience() {
            NEVER => Self::ENDLESS,
            nanos => {
                let length = nanos + u64::from(P::waiters().in_use()) * PER_THREAD_NS;
                let end = P::now().saturating_add(length);
                Patience {
                    length,
                    end,
                    looks: 0,
                    early: NEVER,
                    next: end,
                }
            }
        }
    }

    /// As [`begin`](Self::begin), with early looks for a waiter that [counts](Self::count_ahead)
    /// those ahead.
    pub(in crate::raw) fn begin_in_queue<P: Platform>() -> Self {
        let patience = Self::begin::<P>();
        match patience.length {
            NEVER => patience,
            _ => Patience {
                early: (P::patience() / EARLY_LOOK_DIVISOR).max(FIRST_PAUSE_NS),
                ..patience
            },
        }
    }

    /// Decides on early looks at the beginning of the wait. `ahead` counts the waiters ahead, up to
    /// a limit that it is given; `None`: there are more, or it is not known.
    pub(in crate::raw) fn count_ahead(&mut self, ahead: impl FnOnce(u64) -> Option<u64>) {
        if self.early == NEVER {
            return;
        }
        if let Some(ahead) = ahead(NEAR) {
            let begun = self.end - self.length;
            self.early = self.early.saturating_mul(ahead);
            self.next = begun.saturating_add(self.early).min(self.end);
        }
    }

    /// When a sleep has to end: at the next look, or at `deadline`.
    pub(in crate::raw) fn or(&self, deadline: u64) -> u64 {
        self.next.min(deadline)
    }

    /// Whether the waiter goes on without the other one. `stuck` looks at the lock, and returns
    /// whether nobody comes for it. It is called only if a look is due, and then the next one is
    /// put off.
    pub(in crate::raw) fn is_lost<P: Platform>(
        &mut self,
        stuck: impl FnOnce(Glance) -> bool,
    ) -> bool {
        let now = P::now();
        if now < self.next {
            return false;
        }
        if now < self.end {
            self.early = self.early.saturating_mul(2);
            self.next = now.saturating_add(self.early).min(self.end);
            return stuck(Glance::Early);
        }
        self.looks = (self.looks + 1).min(LOOKS);
        let last = self.looks == LOOKS;
        let lost = stuck(if last { Glance::Last } else { Glance::Late });
        self.length = self.length.saturating_mul(2);
        self.end = now.saturating_add(self.length);
        self.next = self.end;
        lost
    }
}
