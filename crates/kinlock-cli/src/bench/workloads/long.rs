//! About a microsecond under the lock, then about 100 ns of private work.

use super::Workload;
use super::counter::ThinkTime;
use crate::bench::rng::Rng;
use crate::bench::work_loop;

/// The workload `long`.
pub struct Long {
    section: u64,
    think: ThinkTime,
}

impl Long {
    /// Calibrates the section and the think time.
    pub fn new() -> Self {
        Self {
            section: work_loop::iterations(1000.0),
            think: ThinkTime::of_ns(100.0),
        }
    }
}

impl Workload for Long {
    type Shared = u64;
    type Local = Rng;

    fn shared(&self) -> u64 {
        0
    }

    fn local(&self, rng: Rng) -> Rng {
        rng
    }

    #[inline(always)]
    fn think(&self, rng: &mut Rng) {
        self.think.pass(rng);
    }

    #[inline(always)]
    fn section(&self, count: &mut u64, _: &mut Rng) {
        work_loop::spin(self.section);
        *count += 1;
    }
}
