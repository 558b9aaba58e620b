//! At the head of the queue: learning how fast the lock cycles, leaving a fast one alone for a quantum, claiming.

use super::wait::{Wait, passed};
use super::*;

/// A lock cycles fast if it is taken and released within so many nanoseconds. Then more than a thousand critical sections fit into a quantum, and
/// waiting for it is rarer than one in a thousand.
const FAST_CYCLE: u64 = 110;
/// How many unlocks in a row it takes to believe that.
const FAST_UNLOCKS: u64 = 3;

/// A lock is *shared* if threads come to wait for it while its head leaves it alone: then several run that take it, its line travels anyway, and nothing is gained by keeping off.
/// It is taken as shared for so many waits, without being watched.
pub(super) const SHARED_WAITS: u32 = 7;

/// When to look at the lock first, in nanoseconds: about when a short critical section is over, ...
pub(super) const FIRST_LOOK: u64 = 150;
/// ... and where the lock has cycled fast, or where more threads wait than there are CPUs: when it can have cycled so often.
const LATE_FIRST_LOOK: u64 = 700;
const SHORTEST_PAUSE: u64 = 50;
/// For how long a lock that cycles fast is left alone before it is looked at whether it still does: at first, and then twice as long each time. Several threads on several
/// CPUs can make a lock look fast for a moment that nobody needs to be kept off.
const FIRST_REST: u64 = 3_000;

/// How long a head naps between two looks at a lock that cycles fast, while there are more waiters than CPUs.
const NAP: u64 = 50_000;
/// How long a head has been there before it keeps its claim while it sleeps: the lock is then idle until it has woken up.
const STARVING: u64 = 1_000_000;

impl<P: Platform, C: MutexConfig> QueuedMutex<P, C> {
    /// Whether the last head to watch has seen so.
    pub(super) fn cycles_fast(&self) -> bool {
        (self.flags.load(Relaxed) / UNLOCK) as u64 >= FAST_UNLOCKS
    }

    /// If the lock is shared: takes it as soon as it is free (`true`), unless that takes so long that it is time to claim it.
    pub(super) fn take_shared(&self, wait: &mut Wait) -> bool {
        // Without a clock there would be no end to it.
        if wait.crowded || wait.shared == 0 || !P::CAN_PARK {
            return false;
        }
        let patience = wait.quantum.min(SHORT_QUANTUM);
        loop {
            let now = P::now();
            let left = patience.saturating_sub(now.saturating_sub(wait.since));
            let left = left.min(wait.deadline.saturating_sub(now));
            let free = P::wait_for(&self.locked, Relaxed, left, |locked| locked == FREE).is_ok();
            if free && self.take() {
                wait.shared -= 1;
                return true;
            }
            if !free || left == 0 {
                return false;
            }
        }
    }

    /// Spins near the lock, learning how fast it cycles, until it is taken (`true`), or until nothing happens any more.
    pub(super) fn observe(&self, wait: &mut Wait) -> bool {
        let start = P::now();
        let mut pause = if wait.fast || wait.crowded {
            LATE_FIRST_LOOK
        } else {
            FIRST_LOOK
        };
        let (mut looked, mut progress) = (start, start);
        let mut counted = 0;
        let (mut rest, mut rested) = (FIRST_REST, false);
        let last = self.spinners.last();
        self.watch();
        loop {
            P::back_off(pause);
            let free = self.locked.load(Relaxed) == FREE;
            let unlocks = (self.flags.load(Relaxed) / UNLOCK) as u64;
            let now = P::now();
            wait.paused = wait.paused.saturating_add(pause);
            // From when we came to the front: who sleeps meanwhile shall not begin anew. Without a clock there are the pauses.
            let waited = now.saturating_sub(wait.since).max(wait.paused);
            if unlocks != counted {
                (progress, counted) = (now, unlocks);
            }
            // With more threads than CPUs any lock that its holder keeps taking is left alone: nobody else who is needed runs.
            let enough = wait.crowded || unlocks * FAST_CYCLE >= (now - looked).max(pause);
            if !wait.crowded && wait.shared == 0 && self.spinners.last() != last {
                (wait.shared, wait.fast) = (SHARED_WAITS, false);
                if self.take_shared(wait) {
                    return true;
                }
                (pause, rested) = (SHORTEST_PAUSE.min(wait.deadline.saturating_sub(now)), false);
                continue;
            }
            // After a rest nobody has counted for long: that was the beginning of a look.
            if !rested {
                let kept_off = wait.crowded || wait.shared == 0;
                wait.fast = kept_off && unlocks >= FAST_UNLOCKS && enough;
            }
            let quantum = match (wait.crowded, wait.fast) {
                (true, _) => wait.quantum * QUANTUM_WHEN_CROWDED,
                (false, true) => wait.quantum,
                (false, false) => wait.quantum.min(SHORT_QUANTUM),
            };
            let over = waited >= quantum;
            let deserted = rested && unlocks == 0;
            if free && (over || !wait.fast || deserted) && self.take() {
                return true;
            }
            if over && self.claim(wait) {
                return self.await_grant(wait);
            }
            let stalled = !rested && now - progress >= wait.stalled();
            if stalled || passed(wait.deadline, || now) {
                return false;
            }
            if !over && (!wait.crowded || wait.fast) {
                (looked, counted) = (now, 0);
                self.watch();
            }
            let left = quantum.saturating_sub(waited);
            if wait.crowded && wait.fast {
                self.nap(NAP.min(left), wait.deadline);
                pause = 0;
            } else {
                rested = wait.fast && !rested;
                pause = if rested {
                    rest *= 2;
                    (rest / 2).min(left)
                } else if wait.fast {
                    LATE_FIRST_LOOK.min(left)
                } else {
                    (pause * 2).min(left).min(wait.stalled())
                };
                let before_deadline = wait.deadline.saturating_sub(now);
                pause = pause.max(SHORTEST_PAUSE).min(before_deadline);
            }
        }
    }

    /// Has unlocks count themselves from now on. Tried once: if somebody else changes the flags, the next look is as good.
    pub(super) fn watch(&self) {
        let flags = self.flags.load(Relaxed);
        let _ = self
            .flags
            .compare_exchange(flags, flags & !UNLOCKS | WATCHED, Relaxed, Relaxed);
    }

    /// Sleeps for a while where nobody wakes us.
    fn nap(&self, nanos: u64, deadline: u64) {
        let bed = P::AtomicU32::new(0);
        let until = P::now().saturating_add(nanos).min(deadline);
        P::park((&raw const bed).cast(), 0, until, || bed.load(Relaxed));
    }

    /// Asks the next unlock to hand the lock to us. `false`: somebody else has.
    pub(super) fn claim(&self, wait: &mut Wait) -> bool {
        let mut flags = self.flags.load(Relaxed);
        // Only waiters change the flags, each a few times, and unlocks that count themselves, up to seven: the loop ends.
        while flags & (CLAIMED | GRANTED) == 0 {
            match self
                .flags
                .compare_exchange(flags, flags | CLAIMED, Relaxed, Relaxed)
            {
                Ok(_) => {
                    P::count(Event::Claim);
                    wait.claimed = true;
                    break;
                }
                Err(seen) => flags = seen,
            }
        }
        wait.claimed
    }

    /// Spins until the lock is ours, granted or taken (`true`), or nothing happens any more.
    pub(super) fn await_grant(&self, wait: &mut Wait) -> bool {
        let start = P::now();
        loop {
            // Acquire pairs with the grant.
            if self.flags.load(Acquire) & GRANTED != 0 || self.try_lock() {
                return true;
            }
            P::back_off(SHORTEST_PAUSE);
            let now = P::now();
            if now - start >= wait.stalled() || passed(wait.deadline, || now) {
                let starving = now.saturating_sub(wait.since) >= STARVING;
                return !(starving && now < wait.deadline) && self.withdraw(wait);
            }
        }
    }

    /// Takes the claim back. Returns whether the lock is ours, because it had been granted.
    pub(super) fn withdraw(&self, wait: &mut Wait) -> bool {
        let mut flags = self.flags.load(Relaxed);
        while flags & GRANTED == 0 || C::FAULT == MutexFault::LeakyCancel {
            let withdrawn = flags & !(CLAIMED | CLAIMANT_SLEEPS);
            match self
                .flags
                .compare_exchange(flags, withdrawn, Relaxed, Relaxed)
            {
                Ok(_) => {
                    wait.claimed = false;
                    return false;
                }
                Err(seen) => flags = seen,
            }
        }
        // Acquire pairs with the grant.
        self.flags.load(Acquire) & GRANTED != 0
    }
}
