//! Plays schedules of locks.

use super::locks::Specimen;
use super::scenarios::{ALL, Scenario, Shared};
use super::{Outcome, Replay, Subject, Tally, draw};
use kinlock_core::events::Event;

impl Subject for Specimen {
    fn scenarios(&self) -> Vec<&'static str> {
        let fits = |scenario: &&Scenario| {
            scenario.plays == self.plays && (self.in_order || !scenario.ordered)
        };
        let fitting = ALL.iter().filter(fits);
        fitting.map(|scenario| scenario.name).collect()
    }

    fn play(replay: &Replay<Self>, trace: bool) -> Outcome {
        let mut known = ALL.iter();
        let scenario = known
            .find(|scenario| scenario.name == replay.scenario)
            .expect("a replay names a scenario");
        let lock = replay.subject;
        let plan = draw::plan(&lock, scenario, replay.threads, replay.seed);
        plan.knobs.set();
        let outcome = replay.play(
            plan.schedule.clone(),
            trace,
            || Shared::new(&lock, scenario, &plan),
            [Shared::body, Shared::handler],
            |shared, end| (Tally::default(), shared.judge(end)),
        );
        let played = outcome.played.as_ref();
        Outcome {
            tally: Tally(played.map_or_else(Vec::new, |played| played.counted.to_vec())),
            ..outcome
        }
    }

    fn reached(&self, tally: &Tally) -> (bool, String) {
        let numbers: [u64; Event::ALL.len()] = tally.numbers();
        let counts = || {
            self.reach
                .concat()
                .into_iter()
                .map(|e| (e, numbers[e as usize]))
        };
        let list: Vec<String> = counts()
            .map(|(e, count)| format!("{count} {}", e.name()))
            .collect();
        let reached = counts().all(|(_, count)| count != 0);
        (reached, list.join(", "))
    }
}
