//! Time limits on one of two clocks.

use crate::test_lock::Limit;
use kinlock_core::platform::{NEVER, Platform};
use kinlock_linux::Native;
use kinlock_measure::random::Random;
use std::time::{Duration, SystemTime};

/// Up to when a thread waits.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    deadline: u64,
    limit: Limit,
}

impl Patience {
    pub const ENDLESS: Self = Patience {
        deadline: NEVER,
        limit: Limit::Until(NEVER),
    };

    /// Up to `nanos` from now, on a clock drawn by lot.
    pub fn limited(random: &mut Random, nanos: u64) -> Self {
        let deadline = Native::now() + nanos;
        let limit = match random.below(3) {
            0 => Limit::System(SystemTime::now() + Duration::from_nanos(nanos)),
            _ => Limit::Until(deadline),
        };
        Patience { deadline, limit }
    }

    pub fn limit(self) -> Limit {
        self.limit
    }

    /// Whether the time is not up. The time of day may be set back, which the other clock tells.
    pub fn lasts(self) -> bool {
        let by_day = match self.limit {
            Limit::Until(_) => true,
            Limit::System(moment) => SystemTime::now() < moment,
        };
        by_day && Native::now() < self.deadline
    }
}
