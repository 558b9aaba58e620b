//! Sections of a few nanoseconds, 32 of them back to back, then a pause. A lock that goes by what
//! it saw last is told two things by turns: that its holder takes it again at once, and that nobody
//! does.

use kinlock_measure::random::Random;

use crate::locks::round::Workload;
use crate::locks::work_loop::ThinkTime;

/// Sections of a burst.
const BURST: u32 = 32;
/// Private work between two bursts, in nanoseconds: some times as long as a burst without waits.
const PAUSE: f64 = 2000.0;

pub struct Bursts {
    pause: ThinkTime,
}

impl Bursts {
    pub fn new() -> Self {
        Self {
            pause: ThinkTime::of_ns(PAUSE),
        }
    }
}

/// What a thread keeps to itself.
pub struct Local {
    rng: Random,
    /// Sections that are left of the burst.
    left: u32,
}

impl Workload for Bursts {
    type Shared = u64;
    type Local = Local;

    fn shared(&self) -> u64 {
        0
    }

    fn local(&self, rng: Random) -> Local {
        Local { rng, left: 0 }
    }

    #[inline(always)]
    fn think(&self, local: &mut Local) {
        if local.left == 0 {
            local.left = BURST;
            self.pause.pass(&mut local.rng);
        }
        local.left -= 1;
    }

    #[inline(always)]
    fn section(&self, count: &mut u64, _: &mut Local) {
        *count += 1;
    }
}
