//! Rounds of two threads: one calls, the other takes part.
//!
//! ```text
//!   call(round, limit) -> next() -> begun -> ... -> end(round) -> await_end(round)
//! ```

use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

/// There is no further round.
const OVER: u64 = u64::MAX;
/// The number of looks after which a thread sleeps between looks.
const PATIENT_LOOKS: u32 = 2_000;

/// A thread that takes part in rounds that another thread calls.
pub(super) struct Partner {
    epoch: Instant,
    /// The round that it is to begin, or [`OVER`].
    called: AtomicU64,
    /// The time limit of that round in nanoseconds; 0 = none.
    limit: AtomicU64,
    /// The round that it has begun, and when.
    begun: AtomicU64,
    begun_at: AtomicU64,
    /// The round that it has ended.
    ended: AtomicU64,
}

impl Partner {
    pub fn new(epoch: Instant) -> Self {
        Partner {
            epoch,
            called: AtomicU64::new(0),
            limit: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            begun_at: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        }
    }

    // ---- the caller ----------------------------------------------------------------------------

    /// Calls the partner to a round, and returns when it has begun it.
    pub fn call(&self, round: u64, limit: u64) {
        self.limit.store(limit, Relaxed);
        self.called.store(round, Release);
        await_later(&self.begun, round - 1);
    }

    /// Spins until `after` nanoseconds have passed since the partner began its round, or until
    /// `stop`.
    pub fn spin_until(&self, after: u64, stop: impl Fn() -> bool) {
        let moment = self.begun_at.load(Relaxed) + after;
        while self.now() < moment && !stop() {
            std::hint::spin_loop();
        }
    }

    pub fn await_end(&self, round: u64) {
        await_later(&self.ended, round - 1);
    }

    /// There is no further round.
    pub fn dismiss(&self) {
        self.called.store(OVER, Release);
    }

    pub fn rounds(&self) -> u64 {
        self.ended.load(Relaxed)
    }

    // ---- the partner ---------------------------------------------------------------------------

    /// Waits for a round after `round`, and begins it. Its number and its time limit.
    pub fn next(&self, round: u64) -> Option<(u64, u64)> {
        let round = await_later(&self.called, round);
        if round == OVER {
            return None;
        }
        let limit = self.limit.load(Relaxed);
        self.begun_at.store(self.now(), Relaxed);
        self.begun.store(round, Release);
        Some((round, limit))
    }

    pub fn end(&self, round: u64) {
        self.ended.store(round, Release);
    }

    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }
}

/// Waits until `word` is more than `round`, without any lock.
fn await_later(word: &AtomicU64, round: u64) -> u64 {
    let mut looks = 0;
    loop {
        let seen = word.load(Acquire);
        if seen > round {
            return seen;
        }
        looks += 1;
        if looks > PATIENT_LOOKS {
            std::thread::sleep(Duration::from_micros(50));
        } else if looks % 256 == 0 {
            std::thread::yield_now();
        }
        std::hint::spin_loop();
    }
}
