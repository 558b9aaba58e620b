//! One thread of a crew, as the watchdog sees it and as it sees itself.
//!
//! # Invariants
//!
//! 1. `with_lock` releases the lock once, and only if `acquire` has returned that the calling
//!    thread holds it.

use crate::signal;
use crate::test_lock::Algorithm;
use kinlock_measure::random::Random;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

/// Where a thread is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Phase {
    Outside,
    Waiting,
    Inside,
    Finished,
}

#[derive(Debug)]
pub struct Crew {
    stop: AtomicBool,
    members: Vec<Member>,
}

/// What the watchdog knows of a thread. Only the thread itself writes it.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Member {
    index: usize,
    start: Instant,
    tid: AtomicI32,
    phase: AtomicU8,
    /// When the phase began, in nanoseconds since the start.
    since: AtomicU64,
    acquisitions: AtomicU64,
    longest_wait: AtomicU64,
}

impl Crew {
    pub(super) fn new(threads: usize) -> Self {
        let start = Instant::now();
        let member = |index| Member {
            index,
            start,
            tid: AtomicI32::new(0),
            phase: AtomicU8::new(Phase::Outside as u8),
            since: AtomicU64::new(0),
            acquisitions: AtomicU64::new(0),
            longest_wait: AtomicU64::new(0),
        };
        Crew {
            stop: AtomicBool::new(false),
            members: (0..threads).map(member).collect(),
        }
    }

    /// Sends a signal to a thread drawn at random. Returns whether it was sent: not if the thread
    /// has not started yet or has ended.
    pub fn interrupt(&self, random: &mut Random, number: i32) -> bool {
        let member = &self.members[random.below(self.members.len() as u64) as usize];
        let tid = member.tid.load(Relaxed);
        tid != 0 && member.phase() != Phase::Finished && signal::send(tid, number)
    }

    pub fn stopping(&self) -> bool {
        self.stop.load(Relaxed)
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    pub(super) fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.iter()
    }

    pub(super) fn all_finished(&self) -> bool {
        self.members().all(|m| m.phase() == Phase::Finished)
    }

    pub(super) fn acquisitions(&self) -> Vec<u64> {
        self.members()
            .map(|m| m.acquisitions.load(Relaxed))
            .collect()
    }

    /// The longest wait so far, whether it has ended or not.
    pub(super) fn longest_wait(&self) -> Duration {
        let ended = self.members().map(|m| m.longest_wait.load(Relaxed)).max();
        let ended = Duration::from_nanos(ended.unwrap_or(0));
        self.longest_current_wait().max(ended)
    }

    pub(super) fn longest_current_wait(&self) -> Duration {
        let waiting = self.members().filter(|m| m.phase() == Phase::Waiting);
        waiting.map(Member::time_in_phase).max().unwrap_or_default()
    }
}

impl Member {
    pub(super) fn phase(&self) -> Phase {
        const PHASES: [Phase; 4] = [
            Phase::Outside,
            Phase::Waiting,
            Phase::Inside,
            Phase::Finished,
        ];
        // Acquire pairs with the release in `enter_phase`: who sees that a thread has finished sees
        // all that the thread has written.
        PHASES[self.phase.load(Acquire) as usize]
    }

    fn enter_phase(&self, phase: Phase) -> Duration {
        let now = self.start.elapsed().as_nanos() as u64;
        let since = self.since.swap(now, Relaxed);
        self.phase.store(phase as u8, Release);
        Duration::from_nanos(now - since)
    }

    fn end_wait(&self, next: Phase) {
        let waited = self.enter_phase(next).as_nanos() as u64;
        let longest = self.longest_wait.load(Relaxed).max(waited);
        self.longest_wait.store(longest, Relaxed);
    }

    fn count(&self) {
        let acquisitions = self.acquisitions.load(Relaxed) + 1;
        self.acquisitions.store(acquisitions, Relaxed);
    }

    /// The result is too short if the phase changes at this moment.
    fn time_in_phase(&self) -> Duration {
        let since = Duration::from_nanos(self.since.load(Relaxed));
        self.start.elapsed().saturating_sub(since)
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "thread {} (tid {}) {} for {:.1?} after {} acquisitions",
            self.index,
            self.tid.load(Relaxed),
            format!("{:?}", self.phase()).to_lowercase(),
            self.time_in_phase(),
            self.acquisitions.load(Relaxed),
        )
    }
}

#[derive(Debug)]
pub struct Worker {
    crew: Arc<Crew>,
    index: usize,
    pub random: Random,
}

impl Worker {
    pub(super) fn new(crew: Arc<Crew>, index: usize, random: Random) -> Self {
        crew.members[index].tid.store(signal::own_tid(), Relaxed);
        Worker {
            crew,
            index,
            random,
        }
    }

    pub fn index(&self) -> usize {
        self.index
    }

    /// The thread's name in the shared state: never 0.
    pub fn name(&self) -> u32 {
        self.index as u32 + 1
    }

    pub fn running(&self) -> bool {
        !self.crew.stopping()
    }

    /// Takes the lock by `acquire`. If that succeeds, runs `section` and releases the lock. Returns
    /// whether the lock was taken.
    pub fn with_lock(
        &mut self,
        lock: &dyn Algorithm,
        acquire: impl FnOnce(&dyn Algorithm) -> bool,
        section: impl FnOnce(&mut Self),
    ) -> bool {
        self.me().enter_phase(Phase::Waiting);
        let taken = acquire(lock);
        let next = if taken { Phase::Inside } else { Phase::Outside };
        self.me().end_wait(next);
        if taken {
            self.me().count();
            section(self);
            // SAFETY: invariant 1.
            unsafe { lock.unlock() };
            self.me().enter_phase(Phase::Outside);
        }
        taken
    }

    /// Does something that counts as one wait and, when it has ended, as one acquisition.
    pub fn operation(&self, work: impl FnOnce()) {
        self.me().enter_phase(Phase::Waiting);
        work();
        self.me().end_wait(Phase::Outside);
        self.me().count();
    }

    pub(super) fn finish(self) {
        self.me().enter_phase(Phase::Finished);
    }

    fn me(&self) -> &Member {
        &self.crew.members[self.index]
    }
}
