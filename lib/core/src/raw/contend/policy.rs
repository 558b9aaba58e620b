//! What a waiter at the front does next: a pure function of what it has seen and of the time.
//!
//! A holder that takes the lock again sooner than its cache line could be elsewhere gains more from
//! its warm cache than others could gain from the time in between. So its lock is *kept*: the front
//! waiter leaves it alone for a quantum, and then requests a hand-off. Any other lock is *shared*:
//! the front waiter takes it as soon as it is free. `docs/guide/mutex.md` has a drawing, and
//! [`constants`](super::constants) says how long each step lasts.

use super::constants::{FIRST_PAUSE_NS, IDLE_NS, SPIN_NS, UNLOCKS_SAMPLED};

/// What a waiter at the front sees in one look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) now: u64,
    /// How long the look took, in nanoseconds. After an unlock the line came from the holder.
    pub(super) look: u64,
    pub(super) free: bool,
    /// No unlock since the waiter began to watch.
    pub(super) watched: bool,
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
    /// Sections that outlast a pause are reason enough to share the lock.
    shares_long_sections: bool,
    /// This waiter is to find out whether the lock should be kept.
    trial: bool,
    /// It has left the lock alone before.
    rested: bool,
    /// How many unlocks it has seen while it watched. Never reset: the first watch samples as many
    /// as [`UNLOCKS_SAMPLED`], each later one ends with the first unlock.
    pub(super) unlocks: u32,
    /// How long the line took to come from the holder, or 0.
    transfer: u64,
    phase: Phase,
}

impl Front {
    pub(in crate::raw) fn new(quantum: u64, trial: bool) -> Self {
        Front {
            since: 0,
            quantum,
            shares_long_sections: false,
            trial,
            rested: false,
            unlocks: 0,
            transfer: 0,
            phase: Phase::Arrived,
        }
    }

    /// For a lock that others can read beside each other: if its sections are long, leaving it to
    /// one thread would cost what others read meanwhile.
    pub(in crate::raw) fn sharing_long_sections(self) -> Self {
        Front {
            shares_long_sections: true,
            ..self
        }
    }

    /// Whether this waiter finds out whether the lock should be kept.
    pub(in crate::raw) fn is_trial(&self) -> bool {
        self.trial
    }

    pub(super) fn next(&mut self, seen: Seen) -> Step {
        if self.phase == Phase::Arrived {
            self.since = seen.now;
        }
        if self.shares_long_sections && self.is_in_one_section(seen) {
            self.share(seen.now);
            return Step::Share;
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

    /// Whether the same critical section goes on since the watch began.
    fn is_in_one_section(&self, seen: Seen) -> bool {
        matches!(self.phase, Phase::Watching { free: false, .. }) && seen.watched && !seen.free
    }

    /// The lock is better shared. The waiter has polled it since `start`.
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
        } else if spun < SPIN_NS {
            Step::Poll((SPIN_NS - spun).min(left))
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

    /// After this time a lock that is free still is idle.
    fn idle(&self) -> u64 {
        match self.transfer {
            0 => IDLE_NS,
            nanos => nanos.min(IDLE_NS),
        }
    }

    /// `start`: the watch began. `free`: its last look found the lock free.
    fn watching(&mut self, start: u64, free: bool, seen: Seen, left: u64) -> Step {
        let watched = seen.since(start);
        if !seen.watched {
            self.transfer = self.transfer.max(seen.look);
            self.unlocks += 1;
            if self.unlocks < UNLOCKS_SAMPLED {
                return self.watch(seen);
            }
        } else if seen.free && free {
            self.trial = false;
            self.phase = Phase::Rested;
            return Step::Take { idle: true };
        } else if seen.free {
            self.phase = Phase::Watching { start, free: true };
            return Step::Pause(self.idle());
        } else if watched < SPIN_NS {
            // The same critical section goes on. The pauses double.
            return Step::Pause(watched.clamp(FIRST_PAUSE_NS, IDLE_NS));
        } else if self.trial {
            self.share(start);
            return Step::Share;
        }
        self.trial = false;
        self.timed_sleep(left)
    }

    fn timed_sleep(&mut self, left: u64) -> Step {
        // The first time briefly: a lock that others take in turn looks kept, until they queue.
        let nanos = if self.rested { left } else { left.min(SPIN_NS) };
        self.rested = true;
        self.phase = Phase::Rested;
        Step::TimedSleep(nanos)
    }
}
