//! What a waiter at the front does next: a pure function of what it has seen and of the time.
//!
//! A holder that takes the lock again within [`IDLE`] of unlocking it gains more from its warm
//! cache than others could gain from the time in between. So its lock is *kept*: the front waiter
//! leaves it alone for a quantum, and then requests a hand-off. Any other lock is *shared*: the
//! front waiter takes it as soon as it is free. `docs/guide/mutex.md` has a drawing.

/// The first pause between two looks at the lock, in nanoseconds. Each look takes the line from the
/// holder, so the pauses double.
pub(in crate::raw) const LOOK: u64 = 100;
/// A lock that stays free for so many nanoseconds is idle: about what it takes to move a lock and
/// the data behind it to another core.
pub(in crate::raw) const IDLE: u64 = 400;
/// How long a waiter spins before it sleeps, in nanoseconds: about what it costs to fall asleep and
/// to be woken.
pub(in crate::raw) const SPIN: u64 = 20_000;

/// How long a waiter in the queue spins before it sleeps, in nanoseconds, where there is a CPU for
/// every waiter: about what a queue of 64 sleepers takes to wake up one after the other. With less,
/// a queue that once sleeps does so for ever.
pub(in crate::raw) const FOLLOW: u64 = 400_000;
/// How long a newcomer tries to do without the queue, in nanoseconds, where nobody queues.
pub(in crate::raw) const BRIEF: u64 = 2_000;

/// What a waiter at the front sees in one look.
#[derive(Clone, Copy, Debug)]
pub(in crate::raw) struct Seen {
    pub(in crate::raw) now: u64,
    pub(in crate::raw) free: bool,
    /// No unlock since the waiter began to watch.
    pub(in crate::raw) watched: bool,
    /// The lock is kept by its holders.
    pub(in crate::raw) kept: bool,
}

impl Seen {
    fn since(&self, start: u64) -> u64 {
        self.now.saturating_sub(start)
    }
}

/// What to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::raw) enum Step {
    /// Take the lock, which is free. If it is idle, it is not kept.
    Take { idle: bool },
    /// The lock is not known to be kept.
    Share,
    /// Watch for an unlock from now on, and look again after so many nanoseconds.
    Watch(u64),
    /// Look again after so many nanoseconds.
    Pause(u64),
    /// Wait for so many nanoseconds until it is free.
    Poll(u64),
    /// Leave the lock alone for so many nanoseconds.
    TimedSleep(u64),
    /// Sleep until an unlock, for at most so many nanoseconds.
    Sleep(u64),
    /// Request a hand-off.
    Request,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Nothing is known yet.
    Arrived,
    /// Waits for the lock to be free, since this time.
    Polling(u64),
    /// Has slept until an unlock.
    Woken,
    /// Finds out whether the lock is kept.
    Watching(Watch),
    /// Has left the lock alone.
    Rested,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Watch {
    /// The time of the first look.
    start: u64,
    /// The last look found the lock free.
    free: bool,
    /// It has been free since an unknown time.
    arrived: bool,
    /// The pause before the next look.
    pause: u64,
}

/// A stay at the front.
#[derive(Clone, Copy, Debug)]
pub(in crate::raw) struct Front {
    since: u64,
    quantum: u64,
    /// This waiter is to find out whether the lock should be kept.
    pub(in crate::raw) trial: bool,
    /// It has left the lock alone before.
    rested: bool,
    phase: Phase,
}

impl Front {
    pub(in crate::raw) fn new(quantum: u64, trial: bool) -> Self {
        Front {
            since: 0,
            quantum,
            trial,
            rested: false,
            phase: Phase::Arrived,
        }
    }

    pub(in crate::raw) fn next(&mut self, seen: Seen) -> Step {
        if self.phase == Phase::Arrived {
            self.since = seen.now;
        }
        let left = self.quantum.saturating_sub(seen.since(self.since));
        if left == 0 && self.phase != Phase::Arrived {
            // Nobody barges past a request, and the requester takes a lock that is free. Any other
            // step could be lost to newcomers again and again.
            return Step::Request;
        }
        match self.phase {
            Phase::Arrived | Phase::Rested if seen.kept || self.trial => self.watch(seen),
            Phase::Arrived => self.poll(seen, seen.now, left),
            Phase::Polling(start) => self.poll(seen, start, left),
            Phase::Rested | Phase::Woken if seen.free => Step::Take { idle: false },
            Phase::Rested => self.poll(seen, seen.now, left),
            Phase::Woken => self.timed_sleep(left),
            Phase::Watching(watch) => self.watching(watch, seen, left),
        }
    }

    /// The waiter has found out by itself that the lock is better shared.
    pub(in crate::raw) fn share(&mut self, now: u64) {
        self.trial = false;
        self.phase = Phase::Polling(now);
    }

    fn poll(&mut self, seen: Seen, start: u64, left: u64) -> Step {
        self.phase = Phase::Polling(start);
        let spun = seen.since(start);
        if seen.free {
            Step::Take { idle: false }
        } else if left == 0 {
            Step::Request
        } else if spun < SPIN {
            Step::Poll((SPIN - spun).min(left))
        } else {
            self.phase = Phase::Woken;
            Step::Sleep(left)
        }
    }

    fn watch(&mut self, seen: Seen) -> Step {
        let pause = if seen.free { IDLE } else { LOOK };
        self.phase = Phase::Watching(Watch {
            start: seen.now,
            free: seen.free,
            arrived: seen.free && self.phase == Phase::Arrived,
            pause,
        });
        Step::Watch(pause)
    }

    fn watching(&mut self, mut watch: Watch, seen: Seen, left: u64) -> Step {
        let pause = match (seen.watched, seen.free) {
            // Free for a whole pause.
            (true, true) if watch.free => {
                self.trial = false;
                self.phase = Phase::Rested;
                return Step::Take { idle: true };
            }
            // Unlocked since the last look: is it taken again at once?
            (false, true) if !watch.free => return self.watch(seen),
            // How long it had been free on arrival is not known. So this look tells nothing.
            (false, _) if watch.arrived => return self.watch(seen),
            (true, true) => IDLE,
            // The same critical section goes on.
            (true, false) if seen.since(watch.start) < SPIN => (watch.pause * 2).min(IDLE),
            (true, false) if self.trial => {
                self.trial = false;
                self.phase = Phase::Polling(watch.start);
                return Step::Share;
            }
            // Taken again at once, or held for long.
            _ => {
                self.trial = false;
                return self.timed_sleep(left);
            }
        };
        (watch.free, watch.pause) = (seen.free, pause);
        self.phase = Phase::Watching(watch);
        Step::Pause(pause)
    }

    fn timed_sleep(&mut self, left: u64) -> Step {
        // The first time briefly: a lock that others take in turn looks kept, until they queue.
        let nanos = if self.rested { left } else { left.min(SPIN) };
        self.rested = true;
        self.phase = Phase::Rested;
        Step::TimedSleep(nanos)
    }
}
