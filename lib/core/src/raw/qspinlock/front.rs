//! The pending waiter and the head: waiting for the lock itself, and sleeping on its word.

use super::timing::spin_limit;
use super::{EXTENDED, PARKED, PENDING, QueuedSpinLock, STEAL, STEAL_LIMIT_NS, Seen, Terms};
use super::{compose, pending_bit};
use crate::events::Event;
use crate::platform::{Atomic, Ordering::*, Platform, Ticket};
use crate::raw::LockConfig;
use crate::raw::waiter::{expired, left, sleep_limit};

/// How many threads can sleep on the word: the pending waiter and the head.
const AT_FRONT: u32 = 2;

/// The two waiters that wait for the lock itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Front {
    Pending,
    Head,
}

/// How a waiter at the front got the lock.
#[derive(Clone, Copy, Default)]
pub(super) struct Taken {
    /// The waiter found the lock free at its first look.
    pub(super) at_once: bool,
    /// The waiter was a head that went ahead of a sleeping pending waiter.
    pub(super) overtook: bool,
}

impl<P: Platform, C: LockConfig> QueuedSpinLock<P, C> {
    /// Tries to become the pending waiter. Invariant 3 of the [lock](super) needs SeqCst here and
    /// for `tail`.
    pub(super) fn become_pending(&self, seen: Seen) -> bool {
        let bit = pending_bit::<P>();
        let marks = seen.pending;
        if seen.tail != 0 || marks & !EXTENDED != 0 || bit == 0 {
            return false;
        }
        if self
            .pending
            .compare_exchange(marks, marks | bit, SeqCst, Relaxed)
            .is_err()
        {
            return false;
        }
        if self.tail.load(SeqCst) == 0 {
            return true;
        }
        // Another thread has queued: clear the bit, and queue behind it.
        self.leave_pending();
        false
    }

    pub(super) fn wait_pending(&self, terms: Terms) -> bool {
        P::count(Event::Pending);
        let taken = self.wait_at_front(Front::Pending, terms).is_some();
        if taken {
            // Release: a head that sees the bit cleared also sees `locked` set, and does not try to
            // take a held lock.
            self.pending.fetch_and(!(PENDING | STEAL), Release);
        } else {
            self.leave_pending();
        }
        taken
    }

    /// Stops being the pending waiter without having had the lock.
    fn leave_pending(&self) {
        if self.pending.fetch_and(!(PENDING | STEAL), Release) & PARKED != 0 {
            // The head may sleep behind this waiter while the lock is free, and then no unlock
            // wakes the head.
            self.wake_sleepers();
        }
    }

    /// In a forked child: clears the bit of a pending waiter that does not exist here. The mark of
    /// a holder may stay: waiters ignore it, and the next unlock clears it.
    pub(super) fn forget_pending_of_parent(&self) {
        let foreign = PENDING & !pending_bit::<P>();
        if self.pending.load(Relaxed) & foreign != 0 {
            self.pending.fetch_and(!(foreign | STEAL), Relaxed);
            self.wake_sleepers();
        }
    }

    /// Waits for the lock and takes it. `None`: the time is up.
    pub(super) fn wait_at_front(&self, front: Front, terms: Terms) -> Option<Taken> {
        let mut at_once = true;
        let (tuning, deadline) = (terms.tuning, terms.deadline);
        let mut since = None;
        loop {
            // This waiter runs: from now on only threads that have already looked can steal.
            let mut pending = self.forbid_stealing(front);
            let limit = spin_limit::<P, C>(terms.oversubscribed).min(left(deadline, P::now));
            if !may_try(front, pending) {
                at_once = false;
                let waited = P::wait_for(&self.pending, SeqCst, limit, |p| may_try(front, p));
                pending = waited.unwrap_or_else(|p| p);
            }
            let mut is_free = |locked| {
                at_once &= locked == 0;
                locked == 0
            };
            let may_take = may_try(front, pending);
            let free = may_take && P::wait_for(&self.locked, Relaxed, limit, &mut is_free).is_ok();
            if free && self.take() {
                let overtook = front == Front::Head && pending & PENDING != 0;
                return Some(Taken { at_once, overtook });
            }
            if expired(deadline, P::now) {
                P::count(Event::Timeout);
                // Without a heavy fence an unlock may have missed the flag that this waiter set,
                // and no other thread would clear it.
                if front == Front::Head && self.pending.load(Relaxed) & PARKED != 0 {
                    self.wake_sleepers();
                }
                return None;
            }
            at_once = false;
            if !free && P::CAN_PARK && C::PARK {
                let mut recent = || {
                    let now = P::now();
                    now.saturating_sub(*since.get_or_insert(now)) <= STEAL_LIMIT_NS
                };
                let steal = tuning.stealing && recent() && self.is_front(front);
                self.sleep_on_word(front, if steal { STEAL } else { 0 }, deadline);
            }
        }
    }

    /// Sleeps until an unlock, or until this waiter may try. `steal`: [`STEAL`] to permit stealing
    /// during the sleep, or 0.
    fn sleep_on_word(&self, front: Front, steal: u8, deadline: u64) {
        P::count(Event::Park);
        self.pending.fetch_or(PARKED | steal, SeqCst);
        let mut ticket = Ticket::default();
        loop {
            let (locked, pending, tail) = self.word();
            let can_act = locked == 0 && may_try(front, pending);
            if can_act || pending & PARKED == 0 || expired(deadline, P::now) {
                return;
            }
            // The pending waiter may have fallen asleep relying on the PARKED set here, before a
            // fence covered it. Then no unlock wakes either waiter. PARKED stays: a thread that
            // takes the lock after this look sees it.
            if locked == 0 {
                P::unpark(self.word_key(), AT_FRONT);
            }
            // Pairs with the light fence in `unlock`: either this thread finds the lock free, at
            // its look or when the kernel compares the word, or the holder sees PARKED.
            let until = sleep_limit::<P>(P::heavy_fence(&mut ticket), deadline);
            P::park(
                self.word_key(),
                compose((locked, pending, tail)),
                until,
                || compose(self.word()),
            );
        }
    }

    /// Clears `STEAL` if `front` is the front waiter. Returns the pending byte that is left.
    /// SeqCst: see [`become_pending`](Self::become_pending).
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
        self.clear_marks(PARKED, || ());
    }

    /// The end of an unlock that found a mark.
    #[cold]
    #[inline(never)]
    pub(super) fn unlocked_marked(&self) {
        self.clear_marks(PARKED | EXTENDED, P::end_slice);
    }

    fn clear_marks(&self, marks: u8, before_wake_up: impl FnOnce()) {
        let before = self.pending.fetch_and(!marks, Relaxed);
        before_wake_up();
        if before & PARKED != 0 {
            P::count(Event::Wake);
            P::unpark(self.word_key(), AT_FRONT);
        }
    }
}

/// Whether a waiter may try to take a free lock. The front waiter always may. A head behind a
/// pending waiter may if the pending waiter does not run, like any other thread.
fn may_try(front: Front, pending: u8) -> bool {
    front == Front::Pending || pending & PENDING == 0 || pending & STEAL != 0
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Native;
    use crate::platform::Parked;
    use crate::raw::Usual;
    use std::sync::Arc;

    /// Invariant 1 of the lock: an unlock has missed the flag that the head set, and the pending
    /// waiter relies on that flag and sleeps without a limit.
    #[test]
    fn a_head_that_finds_the_lock_free_wakes_the_pending_waiter() {
        let lock = Arc::new(QueuedSpinLock::<Native, Usual>::new());
        lock.pending
            .store(pending_bit::<Native>() | PARKED, Relaxed);
        lock.tail.store(1, Relaxed);
        let pending_waiter = std::thread::spawn({
            let lock = lock.clone();
            move || {
                let limit = Native::now() + 10_000_000_000;
                Native::park(lock.word_key(), compose(lock.word()), limit, || {
                    compose(lock.word())
                })
            }
        });
        // This counts sleepers, and wakes none.
        while <Native as Platform>::unpark_some(lock.word_key(), 0) == 0 {
            std::thread::yield_now();
        }
        lock.sleep_on_word(Front::Head, 0, Native::now() + 5_000_000);
        assert_eq!(pending_waiter.join().unwrap(), Parked::Woken);
    }
}
