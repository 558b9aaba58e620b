//! Waiting for the reader-writer lock: implements the steps of a [contended](crate::raw::contend)
//! wait, for readers and for waiters that queue.

use super::*;
use crate::raw::contend::{self, Headship, Next, Sight, Target, Wait};
use crate::raw::waiter::{UNNOTICED_SLEEP_NS, left};

impl<P: Platform, C: LockConfig> QueuedRwLock<P, C> {
    pub(super) fn begin_wait(deadline: u64) -> Wait {
        let trials = if Self::PARKS { C::TRIALS } else { 0 };
        Wait::begin::<P>(C::tuning(), deadline, trials)
    }

    fn sight(&self, word: u32, free: bool) -> Sight {
        let kept = self.hints.is_kept();
        Sight {
            free,
            no_unlock: word & WATCHED != 0,
            kept,
            reserved: kept || is_requested::<P>(word),
            unclaimed: is_free(word),
            requested: is_requested::<P>(word),
        }
    }
}

/// A thread that waits to write, or for an upgradable read.
#[derive(Debug)]
pub(super) struct Writer<'a, P: Platform, C: LockConfig> {
    pub(super) lock: &'a QueuedRwLock<P, C>,
    pub(super) want: Want,
    /// The waiter is at the front of the queue, or stands beside it.
    pub(super) front: bool,
}

impl<P: Platform, C: LockConfig> Writer<'_, P, C> {
    /// Waits at the front of the queue, and takes the lock. Returns the previous word, or `None` if
    /// the time is up, or the lock is full.
    pub(super) fn wait_at_front(&mut self, wait: &Wait, headship: &Headship<'_, P>) -> Option<u32> {
        self.front = true;
        let beside = headship.is_beside();
        // If as many waiters stand beside the queue as can be counted, no holder would know of this
        // waiter, so it does not sleep on the word.
        while beside && !self.lock.hints.come_beside() {
            if let Some(before) = self.take() {
                self.lock.leave_mark(false);
                return Some(before);
            }
            if expired(wait.deadline, P::now) {
                return None;
            }
            self.timed_sleep(UNNOTICED_SLEEP_NS.min(left(wait.deadline, P::now)));
        }
        let taken = contend::wait_at_front(self, wait, headship);
        match taken {
            Some(_) => self.lock.leave_mark(beside),
            None => self.lock.leave_front(beside),
        }
        taken
    }

    fn finds_free(&self, word: u32) -> bool {
        taken::<P>(word, self.want, self.front).is_some()
    }
}

impl<P: Platform, C: LockConfig> Target<P> for Writer<'_, P, C> {
    type Look = u32;
    /// The previous word.
    type Taken = u32;
    const PARKS: bool = QueuedRwLock::<P, C>::PARKS;
    const HAS_READERS: bool = true;

    fn look(&self) -> u32 {
        self.lock.state.load(Relaxed)
    }

    fn sight(&self, word: u32) -> Sight {
        let sight = self.lock.sight(word, self.finds_free(word));
        Sight {
            // A queued waiter gives up at a full lock only when it is at the front, so a full lock
            // sends it there.
            unclaimed: sight.unclaimed || is_full_for(word, self.want),
            ..sight
        }
    }

    fn take(&mut self) -> Option<u32> {
        self.lock.take(self.want, self.front).ok()
    }

    fn wait_until_free(&self, nanos: u64) -> bool {
        let free = |word| self.finds_free(word);
        self.lock.state.wait_for(nanos, free)
    }

    fn watch(&self) {
        self.lock.state.set(WATCHED);
    }

    fn keep(&self) {
        self.lock.hints.keep();
    }

    fn share(&self) {
        self.lock.hints.share();
    }

    fn sleep(&mut self, wait: &Wait, until: u64) -> Next<u32> {
        self.lock.sleep_at_front(self.want, until, |_| true);
        let word = self.look();
        if is_full_for(word, self.want) {
            return Next::End(None);
        }
        // A fair release may have made this waiter the next: no other thread enters, so every
        // moment in which it does not look at the lock is lost.
        if !is_requested::<P>(word) {
            return Next::Look;
        }
        Next::End(self.lock.take_in_turn(self.want, wait.deadline))
    }

    fn request(&mut self, wait: &Wait, _: u64) -> Next<u32> {
        Next::End(self.lock.take_in_turn(self.want, wait.deadline))
    }
}

/// A thread that waits to read, until it registers. Readers do not queue.
#[derive(Debug)]
struct Reader<'a, P: Platform, C: LockConfig> {
    lock: &'a QueuedRwLock<P, C>,
    /// The reader passes waiting writers.
    passing: bool,
}

impl<P: Platform, C: LockConfig> QueuedRwLock<P, C> {
    /// Follows the policy: enters as soon as possible (or registers, if a writer comes right then),
    /// or, if the lock is kept, leaves it alone for a while. `None`: a waiter at the front would
    /// now sleep or request to go next, or the deadline has come.
    pub(super) fn leave_alone(&self, deadline: u64, passing: bool) -> Option<Counted> {
        let (wait, headship) = (Self::begin_wait(deadline), Headship::beside());
        let lock = self;
        contend::wait_at_front(&mut Reader { lock, passing }, &wait, &headship)
    }
}

impl<P: Platform, C: LockConfig> Target<P> for Reader<'_, P, C> {
    type Look = u32;
    type Taken = Counted;
    const PARKS: bool = QueuedRwLock::<P, C>::PARKS;
    const HAS_READERS: bool = true;

    fn look(&self) -> u32 {
        self.lock.state.load(Relaxed)
    }

    fn sight(&self, word: u32) -> Sight {
        let free = with_reader::<P>(word, self.passing).is_some();
        self.lock.sight(word, free)
    }

    fn take(&mut self) -> Option<Counted> {
        self.lock.enter(self.passing)
    }

    fn wait_until_free(&self, nanos: u64) -> bool {
        let free = |word| with_reader::<P>(word, self.passing).is_some();
        self.lock.state.wait_for(nanos, free)
    }

    fn watch(&self) {
        self.lock.state.set(WATCHED);
    }

    fn keep(&self) {
        self.lock.hints.keep();
    }

    fn share(&self) {
        self.lock.hints.share();
    }

    fn sleep(&mut self, _: &Wait, _: u64) -> Next<Counted> {
        Next::End(None)
    }

    fn request(&mut self, _: &Wait, _: u64) -> Next<Counted> {
        Next::End(None)
    }
}
