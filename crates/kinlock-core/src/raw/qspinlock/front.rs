//! At the front of the queue: waiting for the lock itself, and sleeping on its word.

use super::{Config, Fault, PARKED, PENDING, QueuedSpinLock, STEAL, STEAL_LIMIT, Terms};
use super::{compose, left, passed, sleep_limit, spin_limit};
use crate::events::Event;
use crate::platform::{Atomic, Ordering::*, Platform};

/// How many can sleep on the word: the pending waiter and the head waiter.
const AT_FRONT: u32 = 2;

/// Who comes first when the lock is released.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Front {
    Pending,
    Head,
}

/// When the lock was found free.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Free {
    /// At the first look at it.
    AtOnce,
    Later,
}

impl<P: Platform, C: Config> QueuedSpinLock<P, C> {
    // ---- the pending waiter --------------------------------------------------------------------------------

    pub(super) fn become_pending(&self) -> bool {
        if self.tail.load(Relaxed) != 0 || self.pending.load(Relaxed) != 0 {
            return false;
        }
        if self
            .pending
            .compare_exchange(0, PENDING, SeqCst, Relaxed)
            .is_err()
        {
            return false;
        }
        if self.tail.load(SeqCst) == 0 {
            return true;
        }
        // Somebody has queued: step back behind them.
        self.leave_pending();
        false
    }

    pub(super) fn wait_pending(&self, terms: Terms) -> bool {
        P::count(Event::Pending);
        let taken = self.wait_at_front(Front::Pending, terms).is_some();
        if taken {
            // Release: a head that sees the bit gone also sees who has the lock, and does not fight for it in vain.
            self.pending.fetch_and(!(PENDING | STEAL), Release);
        } else {
            self.leave_pending();
        }
        taken
    }

    /// Goes without having had the lock.
    fn leave_pending(&self) {
        if self.pending.fetch_and(!(PENDING | STEAL), Release) & PARKED != 0 {
            // The head may sleep because of us while the lock is free, and then no unlock is going to wake it.
            self.wake_sleepers();
        }
    }

    /// Waits until the lock is taken. `None`: the time is up.
    pub(super) fn wait_at_front(&self, front: Front, terms: Terms) -> Option<Free> {
        if front == Front::Head && matches!(C::FAULT, Fault::NoExclusion) {
            self.locked.store(1, Relaxed);
            return Some(Free::Later);
        }
        let (tuning, deadline) = (terms.tuning, terms.deadline);
        let mut since = None;
        let mut when = Free::AtOnce;
        loop {
            // We run: from here on nobody overtakes us, unless they looked before.
            let pending = self.forbid_stealing(front);
            let limit = spin_limit::<P, C>(terms.oversubscribed).min(left(deadline, P::now));
            let mut my_turn = may_try(front, pending);
            if !my_turn {
                when = Free::Later;
                my_turn = P::wait_for(&self.pending, SeqCst, limit, |p| may_try(front, p)).is_ok();
            }
            let mut is_free = |locked| {
                if locked != 0 {
                    when = Free::Later;
                }
                locked == 0
            };
            let free = my_turn && P::wait_for(&self.locked, Relaxed, limit, &mut is_free).is_ok();
            if free && self.take() {
                // Whoever made us head may have set the bit after we began to run.
                self.forbid_stealing(front);
                return Some(when);
            }
            if passed(deadline, P::now) {
                P::count(Event::Timeout);
                return None;
            }
            when = Free::Later;
            if !free && P::CAN_PARK && C::PARK {
                let mut patient = || {
                    let now = P::now();
                    now.saturating_sub(*since.get_or_insert(now)) <= STEAL_LIMIT
                };
                let steal = tuning.stealing && patient() && self.is_front(front);
                self.sleep_on_word(front, if steal { STEAL } else { 0 }, deadline);
            }
        }
    }

    /// Sleeps until an unlock, or until it is our turn to try. `steal`: what we permit meanwhile.
    fn sleep_on_word(&self, front: Front, steal: u8, deadline: u64) {
        P::count(Event::Park);
        self.pending.fetch_or(PARKED | steal, SeqCst);
        // Pairs with the light fence in `unlock`: either we see the lock free, or the holder sees PARKED.
        let until = sleep_limit(P::heavy_fence(), deadline, P::now);
        // Whose turn it is may have fallen asleep on our PARKED, before our fence covered it: then no unlock is going to
        // wake it, or us. PARKED stays, since only this one is covered: whoever takes the lock after this look sees it.
        if self.locked.load(Relaxed) == 0 && !may_try(front, self.pending.load(Relaxed)) {
            P::unpark(self.word_key(), AT_FRONT);
        }
        loop {
            let (locked, pending, tail) = self.word();
            let can_act = locked == 0 && may_try(front, pending);
            if can_act || pending & PARKED == 0 || passed(until, P::now) {
                return;
            }
            P::park(
                self.word_key(),
                compose((locked, pending, tail)),
                until,
                || compose(self.word()),
            );
        }
    }

    /// Returns what it saw of `pending`. SeqCst: see become_pending.
    pub(super) fn forbid_stealing(&self, front: Front) -> u8 {
        let pending = self.pending.load(SeqCst);
        if pending & STEAL == 0 || front == Front::Head && pending & PENDING != 0 {
            return pending;
        }
        self.pending.fetch_and(!STEAL, Relaxed) & !STEAL
    }

    fn is_front(&self, front: Front) -> bool {
        front == Front::Pending || self.pending.load(Relaxed) & PENDING == 0
    }

    #[cold]
    #[inline(never)]
    pub(super) fn wake_sleepers(&self) {
        if self.pending.fetch_and(!PARKED, Relaxed) & PARKED != 0 {
            P::count(Event::Wake);
            P::unpark(self.word_key(), AT_FRONT);
        }
    }
}

/// Whether a waiter may try to take a free lock: the front waiter always, the head behind a pending waiter if that
/// one is not running, like any thread.
fn may_try(front: Front, pending: u8) -> bool {
    front == Front::Pending || pending & PENDING == 0 || pending & STEAL != 0
}
