//! About a microsecond under the lock, then about 100 ns of private work, or nothing at all.

use kinlock_measure::random::Random;

use crate::locks::round::Workload;
use crate::locks::work_loop::{self, ThinkTime};

pub struct Long {
    section: u64,
    think: Option<ThinkTime>,
}

impl Long {
    /// Calibrates the section and the think time: `long`.
    pub fn new() -> Self {
        Self {
            section: work_loop::iterations(1000.0),
            think: Some(ThinkTime::of_ns(100.0)),
        }
    }

    /// The same section and no think time, so that the lock is nearly always held: `saturated`.
    pub fn saturated() -> Self {
        Self {
            think: None,
            ..Self::new()
        }
    }
}

impl Workload for Long {
    type Shared = u64;
    type Local = Random;

    fn shared(&self) -> u64 {
        0
    }

    fn local(&self, rng: Random) -> Random {
        rng
    }

    #[inline(always)]
    fn think(&self, rng: &mut Random) {
        if let Some(think) = &self.think {
            think.pass(rng);
        }
    }

    #[inline(always)]
    fn section(&self, count: &mut u64, rng: &mut Random) {
        work_loop::spin(self.section, rng);
        *count += 1;
    }
}
