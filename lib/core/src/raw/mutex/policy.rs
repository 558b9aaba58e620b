//! What a waiter at the front does next: a pure function of what it has seen and of the time.
//!
//! A holder that takes the lock again sooner than its cache line could be elsewhere gains more from
//! its warm cache than others could gain from the time in between. So its lock is *kept*: the front
//! waiter leaves it alone for a quantum, and then requests a hand-off. Any other lock is *shared*:
//! the front waiter takes it as soon as it is free. `docs/guide/mutex.md` has a drawing.

/// The first pause between two looks at the lock, in nanoseconds. Each look takes the line from the
/// holder, so the pauses double.
pub(in crate::raw) const LOOK: u64 = 100;
/// A lock that stays free for longer than its cache line takes to come is idle: for at most so many
/// nanoseconds, more than that takes on any machine.
pub(in crate::raw) const IDLE: u64 = 400;
/// The front watches so many unlocks of a kept lock for one after which it is idle.
pub(in crate::raw) const UNLOCKS: u32 = 32;
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
    /// How long the look took, in nanoseconds. After an unlock the line came from the holder.
    pub(in crate::raw) look: u64,
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
    Watching { start: u64, free: bool },
    /// Has left the lock alone.
    Rested,
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
    /// How many unlocks it has seen while it watched.
    pub(in crate::raw) unlocks: u32,
    /// How long the line took to come from the holder, or 0.
    transfer: u64,
    phase: Phase,
}

impl Front {
    pub(in crate::raw) fn new(quantum: u64, trial: bool) -> Self {
        Front {
            since: 0,
            quantum,
            trial,
            rested: false,
            unlocks: 0,
            transfer: 0,
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
            Phase::Watching { start, free } => self.watching(start, free, seen, left),
        }
    }

    /// The lock is better shared. The waiter has polled it since `start`.
    pub(in crate::raw) fn share(&mut self, start: u64) {
        self.trial = false;
        self.phase = Phase::Polling(start);
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
        let (start, free) = (seen.now, seen.free);
        self.phase = Phase::Watching { start, free };
        Step::Watch(if free { self.idle() } else { LOOK })
    }

    /// After this time a lock that is free still is idle.
    fn idle(&self) -> u64 {
        match self.transfer {
            0 => IDLE,
            nanos => nanos.min(IDLE),
        }
    }

    /// `start`: the watch began. `free`: its last look found the lock free.
    fn watching(&mut self, start: u64, free: bool, seen: Seen, left: u64) -> Step {
        let watched = seen.since(start);
        if !seen.watched {
            self.transfer = self.transfer.max(seen.look);
            self.unlocks += 1;
            if self.unlocks < UNLOCKS {
                return self.watch(seen);
            }
        } else if seen.free && free {
            self.trial = false;
            self.phase = Phase::Rested;
            return Step::Take { idle: true };
        } else if seen.free {
            self.phase = Phase::Watching { start, free: true };
            return Step::Pause(self.idle());
        } else if watched < SPIN {
            // The same critical section goes on. The pauses double.
            return Step::Pause(watched.clamp(LOOK, IDLE));
        } else if self.trial {
            self.share(start);
            return Step::Share;
        }
        self.trial = false;
        self.timed_sleep(left)
    }

    fn timed_sleep(&mut self, left: u64) -> Step {
        // The first time briefly: a lock that others take in turn looks kept, until they queue.
        let nanos = if self.rested { left } else { left.min(SPIN) };
        self.rested = true;
        self.phase = Phase::Rested;
        Step::TimedSleep(nanos)
    }
}
