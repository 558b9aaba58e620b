//! What a waiter does from its registration to its wake-up.

use super::*;

/// How long a waiter spins before it sleeps: about the cost of a sleep and a wake-up to both
/// threads, in system calls and context switches.
const SPIN_NS: u64 = 50_000;
/// After a spin without a notification, one waiter in this many checks whether spinning pays again.
/// If this were 16, about two of 64 threads would yield all the time, at twice the CPU time.
const WAITS_PER_RETRY: u32 = 256;

/// How often a debug build looks for a waiter that uses another mutex, and the pause between two
/// looks in nanoseconds: a waiter that has a CPU falls asleep within a few of these pauses.
const MISUSE_LOOKS: u32 = 1000;
const MISUSE_PAUSE_NS: u64 = 10_000;

impl<P: Platform, C: LockConfig> QueuedCondvar<P, C> {
    /// Stores the distance to the mutex. Returns the stored distance, perhaps `SEVERAL`.
    pub(super) fn learn(&self, distance: u32) -> u32 {
        let (known, second) = self.place.learn(distance);
        if second && cfg!(debug_assertions) {
            self.expect_nobody();
        }
        known
    }

    /// Panics if a thread waits here: it must be using another mutex. Also wakes the sleepers, so
    /// that they notice, too.
    ///
    /// A thread between spinning and sleeping shows only in the number of waiters, which may still
    /// include waiters that are notified already. So that number is no proof, but a reason to look
    /// again.
    pub(super) fn expect_nobody(&self) {
        for _ in 0..MISUSE_LOOKS {
            let sleepers = P::unpark_in(self.key(), u32::MAX, EVERY_SET);
            let spinner = self.sequence.load(Relaxed) & SPINNER != 0 && !P::forked();
            assert!(
                sleepers == 0 && !spinner,
                "a condition variable is used with two mutexes at the same time"
            );
            if self.place.waiting() == 0 {
                return;
            }
            P::back_off(MISUSE_PAUSE_NS);
        }
    }

    /// Makes this waiter known to notifiers. Returns the ticket, and whether the waiter is to spin.
    /// The mutex must be held.
    pub(super) fn register(&self, several: bool) -> (u32, bool) {
        // Relaxed: releasing the mutex publishes the registration. A stale value is an outdated
        // ticket, and the wait ends at once.
        let mut seen = self.sequence.load(Relaxed);
        loop {
            let spins = self.may_spin(seen);
            let next = seen | REGISTERED | if spins { SPINNER } else { 0 };
            // If there are several mutexes, this Release must pair with `announce_requeueing`,
            // whatever the flags are.
            if several || next != seen {
                let registered = self.sequence.compare_exchange(seen, next, Release, Relaxed);
                if let Err(now) = registered {
                    seen = now;
                    continue;
                }
            }
            if !spins {
                self.place.add_one();
            }
            return (seen & !FLAGS, spins);
        }
    }

    /// Whether a waiter is to spin: no other waiter does, and the last spin ended with a
    /// notification.
    fn may_spin(&self, seen: u32) -> bool {
        let vain = || seen & VAIN != 0 && P::random() % WAITS_PER_RETRY != 0;
        P::CAN_PARK && seen & SPINNER == 0 && !vain()
    }

    /// Waits until the count is no longer `ticket`, or until `limit` says that the time is up.
    pub(super) fn sleep<M: Partner<P>>(
        &self,
        mutex: &M,
        ticket: u32,
        first: u64,
        mut limit: impl FnMut() -> Option<u64>,
    ) -> End {
        let mut until = first;
        loop {
            // Acquire pairs with `advance`.
            let seen = self.sequence.load(Acquire);
            if seen & !FLAGS != ticket {
                self.place.subtract_one();
                return End::Awake;
            }
            match self.sleep_once(mutex, seen, until) {
                Parked::Woken => {
                    P::count(Event::Notified);
                    if self.sequence.load(Acquire) & !FLAGS == ticket {
                        // See 5 at the top.
                        self.notify_all();
                    }
                    return End::Woken;
                }
                // Another count, or only other flags: the next round tells which.
                Parked::Differed => {}
                Parked::Unwoken => match limit() {
                    Some(later) => until = later,
                    None => {
                        self.place.subtract_one();
                        return End::TimeUp;
                    }
                },
            }
        }
    }

    /// Spins on the count for a while, as the owner of `SPINNER`. Returns whether the count has
    /// changed.
    ///
    /// On an oversubscribed machine the spinner yields its CPU to others. Spinning still pays: a
    /// CPU without a runnable thread falls asleep, and takes longer to wake up than a thread.
    pub(super) fn spin(&self, ticket: u32, until: u64) -> bool {
        let nanos = match until {
            NEVER => SPIN_NS,
            until => until.saturating_sub(P::now()).min(SPIN_NS),
        };
        let moved_on = |s: u32| s & !FLAGS != ticket;
        // Acquire pairs with `advance`.
        let waited = match P::oversubscribed() {
            true => P::wait_yielding(&self.sequence, Acquire, nanos, moved_on),
            false => P::wait_for(&self.sequence, Acquire, nanos, moved_on),
        };
        match waited {
            Ok(now) => {
                P::count(Event::NotifiedSpinning);
                if now & VAIN != 0 {
                    self.sequence.fetch_and(!VAIN, Relaxed);
                }
                true
            }
            Err(now) => !self.stop_spinning(now, ticket),
        }
    }

    /// Takes a registration back: the caller did not hold the mutex. If this spinner has taken a
    /// notification since, it passes it on to the waiters.
    pub(super) fn unregister(&self, ticket: u32, spins: bool) {
        if !spins || self.stop_spinning(self.sequence.load(Relaxed), ticket) {
            self.place.subtract_one();
        } else {
            self.notify_all();
        }
    }

    /// Clears `SPINNER`, since the waiter is about to sleep. `false`: the count has changed.
    pub(super) fn stop_spinning(&self, mut seen: u32, ticket: u32) -> bool {
        self.place.add_one();
        while seen & !FLAGS == ticket {
            // This waiter owns the flag as long as the count is its ticket: see 4 at the top.
            let without = seen & !SPINNER | VAIN;
            match self
                .sequence
                .compare_exchange(seen, without, Relaxed, Acquire)
            {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        self.place.subtract_one();
        false
    }

    /// Sleeps while the word is `seen`, at most until `until`.
    pub(super) fn sleep_once<M: Partner<P>>(&self, mutex: &M, seen: u32, until: u64) -> Parked {
        if !P::CAN_PARK {
            let left = match until {
                NEVER => NEVER,
                until => until.saturating_sub(P::now()),
            };
            let other = |s: u32| s & !FLAGS != seen & !FLAGS;
            return match P::wait_for(&self.sequence, Acquire, left, other) {
                Ok(_) => Parked::Differed,
                Err(_) => Parked::Unwoken,
            };
        }
        P::count(Event::Park);
        // In this park set a waiter that is requeued onto the mutex is woken neither as the mutex's
        // requester nor as a waiter at its front.
        mutex.park(self.key(), seen, until, NOTIFIED, || {
            self.sequence.load(Relaxed)
        })
    }
}
