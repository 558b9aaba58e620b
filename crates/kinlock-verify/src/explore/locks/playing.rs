//! Schedules of locks.

use super::super::scenarios::{self, Scenario, Shared};
use super::super::{Outcome, Replay, Subject, Tally, draw};
use super::Specimen;
use crate::report::Property;
use kinlock_core::events::Event;

/// The events of locks.
#[derive(Clone, Debug)]
pub struct Counted([u64; Event::ALL.len()]);

impl Default for Counted {
    fn default() -> Self {
        Counted([0; Event::ALL.len()])
    }
}

impl Tally for Counted {
    fn merge(&mut self, other: &Self) {
        for (sum, n) in self.0.iter_mut().zip(other.0) {
            *sum += n;
        }
    }
}

impl Subject for Specimen {
    type Tally = Counted;

    fn scenarios(&self) -> Vec<&'static str> {
        let fits = |scenario: &&Scenario| {
            scenario.meets == self.meets && (self.in_order || !scenario.ordered)
        };
        let fitting = scenarios::ALL.iter().filter(fits);
        fitting.map(|scenario| scenario.name).collect()
    }

    fn play(replay: &Replay<Self>, trace: bool) -> Outcome<Counted> {
        let mut known = scenarios::ALL.iter();
        let scenario = known
            .find(|scenario| scenario.name == replay.scenario)
            .expect("a replay names a scenario");
        let lock = replay.subject;
        let mut plan = draw::plan(&lock, scenario, replay.threads, replay.seed);
        replay.apply(&mut plan.schedule, trace);
        plan.knobs.set();
        let (played, failure) = plan.schedule.play(
            || Shared::new(&lock, scenario, &plan),
            Shared::body,
            Shared::handler,
            Shared::judge,
        );
        Outcome {
            clock_mhz: plan.schedule.machine.costs.clock_mhz,
            tally: Counted(played.counted),
            played: Some(played),
            failure,
        }
    }

    fn judge(&self, tally: &Counted) -> Vec<(Property, bool, String)> {
        let counts = || self.reach.iter().map(|&e| (e, tally.0[e as usize]));
        let list: Vec<String> = counts()
            .map(|(e, count)| format!("{count} {}", e.name()))
            .collect();
        let reached = counts().all(|(_, count)| count != 0);
        vec![(Property::Reach, reached, list.join(", "))]
    }
}
