//! Time limits on one of three clocks.

use crate::monitors::Limit;
use kinlock_measure::random::Random;
use std::time::{Duration, Instant, SystemTime};

/// How long a thread waits.
#[derive(Clone, Copy)]
pub(super) enum Patience {
    Endless,
    /// Up to this moment, on one of the clocks.
    Limited(Clock, Instant, SystemTime),
}

#[derive(Clone, Copy)]
pub(super) enum Clock {
    Span,
    Moment,
    TimeOfDay,
}

impl Patience {
    /// Up to `span` from now, on a clock drawn by lot.
    pub fn limited(random: &mut Random, span: Duration) -> Self {
        let clock = [Clock::Span, Clock::Moment, Clock::TimeOfDay][random.below(3) as usize];
        Patience::Limited(clock, Instant::now() + span, SystemTime::now() + span)
    }

    pub fn limit(self) -> Limit {
        match self {
            Patience::Endless => Limit::Never,
            Patience::Limited(Clock::Span, moment, _) => {
                Limit::For(moment.saturating_duration_since(Instant::now()))
            }
            Patience::Limited(Clock::Moment, moment, _) => Limit::Until(moment),
            Patience::Limited(Clock::TimeOfDay, _, moment) => Limit::System(moment),
        }
    }

    /// Whether the time is not up. The time of day may be set back, which the other clock tells.
    pub fn lasts(self) -> bool {
        match self {
            Patience::Endless => true,
            Patience::Limited(Clock::TimeOfDay, moment, time) => {
                Instant::now() < moment && SystemTime::now() < time
            }
            Patience::Limited(_, moment, _) => Instant::now() < moment,
        }
    }
}
