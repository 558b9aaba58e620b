//! What a waiter at the front does next: a state machine that reads no clock and does not touch the
//! lock.
//!
//! A holder that takes the lock again sooner than its cache line could be elsewhere gains more from
//! its warm cache than others could gain from the time in between. So the lock is *kept*: the front
//! waiter leaves it alone for a quantum, and then requests a hand-off. Any other lock is *shared*:
//! the front waiter takes it as soon as it is free. `docs/guide/mutex.md` has a drawing, and
//! [`constants`](super::constants) says how long each step lasts.

use super::constants::{FIRST_PAUSE_NS, IDLE_NS, SPIN_NS, UNLOCKS_MEASURED, UNLOCKS_SAMPLED};

/// What a waiter at the front sees in one look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) now: u64,
    /// How long the look took, in nanoseconds, if it was [measured](Front::measures). If the lock
    /// has been unlocked since the previous look, this is how long the line takes to come from the
    /// holder.
    pub(super) look: Option<u64>,
    pub(super) free: bool,
    /// There was no unlock since the waiter began to watch.
    pub(super) no_unlock: bool,
    /// The lock is kept by its holders.
    pub(super) kept: bool,
}

impl Seen {
    fn since(&self, start: u64) -> u64 {
        self.now.saturating_sub(start)
    }
}

/// What to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Take the lock, which is free. If it is idle, and taking it succeeds, mark it as shared.
    Take { idle: bool },
    /// Mark the lock as shared, and look again at once.
    Share,
    /// Begin to watch for an unlock, and look again after this time, in nanoseconds.
    Watch(u64),
    /// Look again after this time, in nanoseconds.
    Pause(u64),
    /// Wait until the lock is free, for at most this time, in nanoseconds.
    Poll(u64),
    /// Leave the lock alone for this time, in nanoseconds.
    TimedSleep(u64),
    /// Sleep until an unlock, for at most this time, in nanoseconds.
    Sleep(u64),
    /// Request a hand-off.
    Request,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Nothing is known yet.
    Arrived,
    /// Polls until the lock is free, since this time.
    Polling(u64),
    /// Finds out whether the lock should be kept. The watch began at `start`, and the last look
    /// found the lock `free` or not.
    Watching { start: u64, free: bool },
    /// Sleeps until an unlock wakes it or its quantum is over, or has done so.
    Woken,
    /// Leaves the lock alone in a timed sleep, or has done so, or is about to take a lock that it
    /// found idle.
    Rested,
}

/// A stay at the front.
#[derive(Clone, Copy, Debug)]
pub(in crate::raw) struct Front {
    /// When the waiter arrived at the front.
    since: u64,
    /// How long the waiter stays there before it requests a hand-off, in nanoseconds.
    quantum: u64,
    /// See [`among_readers`](Self::among_readers).
    has_readers: bool,
    /// How long the waiter polls a shared lock before it sleeps, in nanoseconds.
    spin: u64,
    /// This wait is a trial without a verdict so far: the waiter treats the lock as kept, to find
    /// out whether it should be.
    trial: bool,
    /// The waiter has had the first timed sleep at a kept lock, the short one.
    rested: bool,
    /// How long the waiter rests the next time that it is woken and finds the lock taken again, in
    /// nanoseconds.
    rest: u64,
    /// How many unlocks the waiter has seen while it watched. Never reset: a watch goes on until
    /// there are [`UNLOCKS_SAMPLED`] of them, and any later watch ends with its first unlock.
    pub(super) unlocks: u32,
    /// The longest [measured](Self::measures) time that the line has taken to come from the holder;
    /// 0 = unknown.
    transfer: u64,
    phase: Phase,
}

impl Front {
    pub(in crate::raw) fn new(quantum: u64, trial: bool) -> Self {
        Front {
            since: 0,
            quantum,
            has_readers: false,
            spin: SPIN_NS,
            trial,
            rested: false,
            rest: SPIN_NS,
            unlocks: 0,
            transfer: 0,
            phase: Phase::Arrived,
        }
    }

    /// For a lock that readers can share. A section that still goes on after a pause is reason
    /// enough to share the lock: while one thread keeps it, others cannot read.
    pub(in crate::raw) fn among_readers(self) -> Self {
        Front {
            has_readers: true,
            ..self
        }
    }

    /// For a thread whose spins are limited.
    pub(super) fn spinning_for(self, nanos: u64) -> Self {
        Front {
            spin: nanos,
            ..self
        }
    }

    /// Whether this waiter is a trial without a verdict so far.
    pub(in crate::raw) fn is_trial(&self) -> bool {
        self.trial
    }

    /// Whether the waiter measures how long its next look takes: only in a watch, and only until it
    /// has seen a few unlocks. The clock reading before a look adds to the time for which a lock
    /// has to stay free to count as idle.
    pub(super) fn measures(&self) -> bool {
        matches!(self.phase, Phase::Watching { .. }) && self.unlocks < UNLOCKS_MEASURED
    }

    /// What to do after a look that has `seen` this.
    pub(super) fn next(&mut self, seen: Seen) -> Step {
        if self.phase == Phase::Arrived {
            self.since = seen.now;
        }
        if self.has_readers && self.is_in_one_section(seen) {
            self.share(seen.now);
            return Step::Share;
        }
        let left = self.quantum.saturating_sub(seen.since(self.since));
        if left == 0 && self.phase != Phase::Arrived {
            // Even if the lock is free: a requester takes a free lock, too, and newcomers do not
            // barge past a request. With any other step the waiter could lose the lock to newcomers
            // again and again.
            return Step::Request;
        }
        match self.phase {
            Phase::Arrived | Phase::Rested if seen.kept || self.trial => self.watch(seen),
            Phase::Arrived | Phase::Rested => self.poll(seen, seen.now, left),
            Phase::Polling(start) => self.poll(seen, start, left),
            Phase::Woken if seen.free => Step::Take { idle: false },
            Phase::Woken => self.rest(left),
            Phase::Watching { start, free } => self.watching(start, free, seen, left),
        }
    }

    /// Whether the same critical section goes on since the watch began.
    fn is_in_one_section(&self, seen: Seen) -> bool {
        matches!(self.phase, Phase::Watching { free: false, .. }) && seen.no_unlock && !seen.free
    }

    /// Treats the lock as shared from now on. The time since `start` counts as polling: if that is
    /// as long as a spin, the waiter sleeps unless its next look finds the lock free.
    fn share(&mut self, start: u64) {
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
        } else if spun < self.spin {
            Step::Poll((self.spin - spun).min(left))
        } else {
            self.phase = Phase::Woken;
            Step::Sleep(left)
        }
    }

    fn watch(&mut self, seen: Seen) -> Step {
        let (start, free) = (seen.now, seen.free);
        self.phase = Phase::Watching { start, free };
        Step::Watch(if free { self.idle() } else { FIRST_PAUSE_NS })
    }

    /// How long the lock has to be free to be idle: as long as its line takes to come, if that is
    /// known.
    fn idle(&self) -> u64 {
        match self.transfer {
            0 => IDLE_NS,
            nanos => nanos.min(IDLE_NS),
        }
    }

    /// The next step of a watch that began at `start`, and whose previous look found the lock
    /// `free` or not.
    fn watching(&mut self, start: u64, free: bool, seen: Seen, left: u64) -> Step {
        let watching_for = seen.since(start);
        if !seen.no_unlock {
            self.transfer = self.transfer.max(seen.look.unwrap_or(0));
            self.unlocks += 1;
            if self.unlocks < UNLOCKS_SAMPLED {
                return self.watch(seen);
            }
            // That was the last sample: go on at the end of this function.
        } else if seen.free && free {
            self.trial = false;
            self.phase = Phase::Rested;
            return Step::Take { idle: true };
        } else if seen.free {
            self.phase = Phase::Watching { start, free: true };
            return Step::Pause(self.idle());
        } else if watching_for < SPIN_NS {
            // The same critical section goes on. A pause as long as the watch so far doubles the
            // watch.
            return Step::Pause(watching_for.clamp(FIRST_PAUSE_NS, IDLE_NS));
        } else if self.trial {
            self.share(start);
            return Step::Share;
        }
        // Enough unlocks without an idle lock, or a long section of a kept lock.
        self.trial = false;
        self.timed_sleep(left)
    }

    /// The waiter was woken and finds the lock taken again: other threads are faster, so it leaves
    /// the lock to them for a while. Each rest is twice as long as the last. The first is not the
    /// whole quantum, since no unlock ends a rest, and the lock may be free.
    fn rest(&mut self, left: u64) -> Step {
        let nanos = self.rest.min(left);
        self.rest = self.rest.saturating_mul(2);
        self.phase = Phase::Rested;
        Step::TimedSleep(nanos)
    }

    fn timed_sleep(&mut self, left: u64) -> Step {
        // The first sleep is short: a lock that several threads take in turn before they queue
        // looks like a lock that a single thread takes again and again.
        let nanos = if self.rested { left } else { left.min(SPIN_NS) };
        self.rested = true;
        self.phase = Phase::Rested;
        Step::TimedSleep(nanos)
    }
}
