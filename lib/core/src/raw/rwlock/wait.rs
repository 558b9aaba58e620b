//! Waiting: one loop that does what the mutex's [policy](crate::raw::mutex::policy) says, for
//! readers and for the writer at the front of the queue.

use super::*;
use crate::raw::mutex::policy::{Front, Seen, Step};
use crate::raw::waiter::{left, sleep_until};

/// A waiter with a time limit takes turns after an eighth of what is left of it, if that is less
/// than the quantum. The rest is for those that hold the lock: they need not be in the middle of
/// their sections just then.
const EARLY: u64 = 8;

/// A wait that has begun.
#[derive(Debug)]
pub(super) struct Stay {
    pub(super) deadline: u64,
    quantum: u64,
    front: Front,
    /// The lock has been marked as kept for the trial.
    tries: bool,
}

impl Stay {
    /// Whether this waiter finds out whether the lock should be kept.
    pub(super) fn is_trial(&self) -> bool {
        self.front.trial
    }
}

/// What the policy has come to.
#[derive(Debug)]
pub(super) enum End<T> {
    Taken(T),
    TimeUp,
    /// Sleep until the lock is free, until then at most.
    Sleep(u64),
    /// Wait for the turn that nobody can take away.
    Request,
}

impl<P: Platform, C: RwLockConfig> QueuedRwLock<P, C> {
    pub(super) fn begin(&self, tuning: Tuning, deadline: u64) -> Stay {
        let quantum = tuning.quantum.nanos();
        let tries = Self::PARKS && C::TRIALS > 0 && quantum > 0;
        // Not 0: without a source of randomness each wait would be a trial.
        let trial = tries && P::random() % C::TRIALS == C::TRIALS - 1;
        Stay {
            deadline,
            quantum,
            front: Front::new(quantum, trial),
            tries: false,
        }
    }

    /// The waiter is at the front of the queue, or has none.
    pub(super) fn arrive(&self, stay: &mut Stay) {
        let quantum = match stay.deadline {
            NEVER => stay.quantum,
            deadline => stay.quantum.min(left(deadline, P::now) / EARLY),
        };
        stay.front = Front::new(quantum, stay.is_trial());
    }

    /// Does what the policy says until it is time to take turns. `free`: this waiter could `take`
    /// the lock.
    pub(super) fn follow_policy<T>(
        &self,
        stay: &mut Stay,
        free: impl Fn(u32) -> bool,
        take: impl Fn() -> Option<T>,
    ) -> End<T> {
        if stay.front.trial && !stay.tries {
            stay.tries = true;
            self.hints.keep();
        }
        let mut looks = false;
        loop {
            let before = P::now();
            let word = self.state.load(Relaxed);
            let now = P::now();
            let seen = Seen {
                now,
                look: now.saturating_sub(before),
                free: free(word),
                watched: word & WATCHED != 0,
                kept: self.hints.is_kept(),
            };
            if passed(stay.deadline, || seen.now) {
                self.end_trial(stay);
                return End::TimeUp;
            }
            if core::mem::take(&mut looks) && seen.watched && !seen.free {
                // Sections are long. To leave the lock to one thread would cost what others read
                // beside it.
                self.hints.share();
                stay.front.share(seen.now);
            }
            let left = stay.deadline.saturating_sub(seen.now);
            let until = |nanos: u64| seen.now.saturating_add(nanos).min(stay.deadline);
            match stay.front.next(seen) {
                Step::Take { idle } => {
                    if let Some(taken) = take() {
                        if idle {
                            self.hints.share();
                        }
                        return End::Taken(taken);
                    }
                }
                Step::Share => self.hints.share(),
                Step::Watch(pause) => {
                    self.state.set(WATCHED);
                    P::back_off(pause.min(left));
                    looks = !seen.free;
                }
                Step::Pause(pause) => P::back_off(pause.min(left)),
                Step::Poll(nanos) => _ = self.state.wait_for(nanos.min(left), &free),
                Step::TimedSleep(nanos) if Self::PARKS => {
                    P::count(Event::Park);
                    sleep_until::<P>(until(nanos));
                }
                Step::TimedSleep(nanos) => P::back_off(nanos.min(left)),
                Step::Sleep(nanos) => return End::Sleep(until(nanos)),
                Step::Request => {
                    self.end_trial(stay);
                    return End::Request;
                }
            }
        }
    }

    /// A trial that ends without a verdict leaves the lock shared.
    pub(super) fn end_trial(&self, stay: &Stay) {
        if stay.front.trial {
            self.hints.share();
        }
    }
}
