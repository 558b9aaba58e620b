//! The rounds of a cell: every subject runs once per round, in random order. Every second round
//! reverses the order of the round before it, so that a steady drift favours no subject of a pair.
//!
//! Only complete rounds count: a ratio needs both of its throughputs from the same round.

use serde::Serialize;

use crate::interrupt::{self, Signal, State};
use crate::random::Random;

/// The rounds of a run, over all its cells.
pub struct Rounds {
    asked: usize,
    done: usize,
    state: fn() -> State,
    noted: fn() -> Option<Signal>,
}

/// A measurement's place in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The subject, by number.
    pub subject: usize,
    /// The round of the cell, from 0.
    pub round: usize,
}

/// A sample, and its place in the order of its round, from 0.
pub type Placed<S> = (usize, S);

impl Rounds {
    /// A run that is asked for `asked` rounds over all cells, and has not done any.
    pub fn of(asked: usize) -> Self {
        Self {
            asked,
            done: 0,
            state: interrupt::state,
            noted: interrupt::noted,
        }
    }

    /// Whether another cell is to be begun.
    pub fn go_on(&self) -> bool {
        (self.state)() == State::Going
    }

    /// Runs the rounds of a cell, and returns the samples of each of its subjects, in the order of
    /// rounds. After a signal they are fewer than asked for, or none.
    pub fn run<S>(
        &mut self,
        rounds: usize,
        subjects: usize,
        order_rng: &mut Random,
        sample: impl FnMut(Slot) -> anyhow::Result<S>,
    ) -> anyhow::Result<Vec<Vec<Placed<S>>>> {
        self.run_until(rounds, subjects, order_rng, sample, |_| false)
    }

    /// The same, but ends early when `is_enough` returns true for the samples after a round. The
    /// remaining rounds then count as not asked for.
    pub fn run_until<S>(
        &mut self,
        most: usize,
        subjects: usize,
        order_rng: &mut Random,
        mut sample: impl FnMut(Slot) -> anyhow::Result<S>,
        mut is_enough: impl FnMut(&[Vec<Placed<S>>]) -> bool,
    ) -> anyhow::Result<Vec<Vec<Placed<S>>>> {
        let mut samples: Vec<_> = (0..subjects).map(|_| Vec::new()).collect();
        let mut order: Vec<usize> = (0..subjects).collect();
        let rounds = if subjects == 0 { 0 } else { most };
        for round in 0..rounds {
            if !self.go_on() {
                break;
            }
            match round % 2 {
                0 => order_rng.shuffle(&mut order),
                _ => order.reverse(),
            }
            let mut under_way = Vec::with_capacity(subjects);
            for &subject in &order {
                let sample = sample(Slot { subject, round })?;
                // The last measurement may have been cut short, so it does not count either.
                if (self.state)() == State::Over {
                    return Ok(samples);
                }
                under_way.push(sample);
            }
            for (place, (&subject, sample)) in order.iter().zip(under_way).enumerate() {
                samples[subject].push((place, sample));
            }
            self.done += 1;
            if is_enough(&samples) {
                self.asked -= rounds - (round + 1);
                break;
            }
        }
        Ok(samples)
    }

    pub fn extent(&self) -> Extent {
        Extent {
            rounds_asked: self.asked,
            rounds_done: self.done,
            // A signal after the last round has ended nothing early.
            interrupted_by: (self.noted)().filter(|_| self.done < self.asked),
        }
    }
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Extent {
    /// Rounds that were asked for, over all cells.
    pub rounds_asked: usize,
    /// Rounds that are complete: the report rests on them.
    pub rounds_done: usize,
    /// The signal that ended the run early.
    pub interrupted_by: Option<Signal>,
}

impl Extent {
    /// `interrupted by SIGINT after 3 of 10 rounds`, if it was.
    pub fn interruption(&self) -> Option<String> {
        let (done, asked) = (self.rounds_done, self.rounds_asked);
        let signal = self.interrupted_by?.name();
        Some(format!(
            "interrupted by {signal} after {done} of {asked} rounds"
        ))
    }

    /// A warning for a run that was interrupted.
    pub fn warning(&self) -> Option<String> {
        let what = self.interruption()?;
        Some(format!(
            "{what}: what comes later in the order of the run has fewer rounds, or is missing"
        ))
    }

    /// How many rounds a cell has, in words, if `asked` rounds were asked for.
    pub fn rounds_per_cell(&self, asked: usize) -> String {
        match self.rounds_done < self.rounds_asked {
            true => format!("up to {asked} rounds"),
            false => format!("{asked} rounds"),
        }
    }
}

/// ` (1 of 5 rounds)`, for the title of a cell with fewer rounds than asked for.
pub fn if_fewer(done: usize, asked: usize) -> String {
    match done < asked {
        true => format!(" ({done} of {asked} rounds)"),
        false => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static STATE: Cell<State> = const { Cell::new(State::Going) };
    }

    /// Runs three subjects for four rounds. Each entry of `states` is a measurement, counted from
    /// 1, and the state that begins with it. Returns the samples, and how many rounds are done.
    fn run(states: &[(usize, State)]) -> (Vec<Vec<Placed<usize>>>, usize) {
        let mut rounds = Rounds {
            state: || STATE.get(),
            ..Rounds::of(4)
        };
        STATE.set(State::Going);
        let mut count = 0;
        let sample = |slot: Slot| {
            count += 1;
            let state = states.iter().find(|(at, _)| *at == count);
            state.iter().for_each(|(_, state)| STATE.set(*state));
            Ok(slot.round)
        };
        let samples = rounds.run(4, 3, &mut Random::stream(1, 2), sample).unwrap();
        (samples, rounds.done)
    }

    fn rounds_of(samples: &[Vec<Placed<usize>>]) -> Vec<Vec<usize>> {
        let of = |subject: &Vec<Placed<usize>>| subject.iter().map(|&(_, round)| round).collect();
        samples.iter().map(of).collect()
    }

    #[test]
    fn everything_has_a_place_of_its_own_in_each_round() {
        let (samples, done) = run(&[]);
        assert_eq!(done, 4);
        assert_eq!(rounds_of(&samples), vec![vec![0, 1, 2, 3]; 3]);
        for round in 0..4 {
            let mut places: Vec<_> = samples.iter().map(|of| of[round].0).collect();
            places.sort_unstable();
            assert_eq!(places, [0, 1, 2]);
            // The second of a pair of rounds has the reverse order.
            let other = round ^ 1;
            assert!(samples.iter().all(|of| of[round].0 + of[other].0 == 2));
        }
    }

    #[test]
    fn the_round_under_way_is_the_last() {
        for measurement in [4, 5, 6] {
            let (samples, done) = run(&[(measurement, State::Asked)]);
            assert_eq!(done, 2);
            assert_eq!(rounds_of(&samples), vec![vec![0, 1]; 3]);
        }
    }

    #[test]
    fn a_round_that_takes_too_long_does_not_count() {
        for (asked, over) in [(4, 5), (5, 6), (4, 6)] {
            let (samples, done) = run(&[(asked, State::Asked), (over, State::Over)]);
            assert_eq!(done, 1);
            assert_eq!(rounds_of(&samples), vec![vec![0]; 3]);
        }
        let (samples, done) = run(&[(2, State::Over)]);
        assert_eq!((done, rounds_of(&samples)), (0, vec![vec![]; 3]));
    }

    #[test]
    fn rounds_that_are_not_needed_were_not_asked_for() {
        let mut rounds = Rounds {
            state: || State::Going,
            noted: || None,
            ..Rounds::of(10)
        };
        let mut order = Random::stream(1, 2);
        let sample = |slot: Slot| Ok(slot.round);
        let enough = |samples: &[Vec<Placed<usize>>]| samples[0].len() == 3;
        let samples = rounds.run_until(6, 2, &mut order, sample, enough).unwrap();
        assert_eq!(rounds_of(&samples), vec![vec![0, 1, 2]; 2]);
        // Another cell has four rounds more.
        let Extent {
            rounds_asked,
            rounds_done,
            ..
        } = rounds.extent();
        assert_eq!((rounds_asked, rounds_done), (7, 3));
    }

    #[test]
    fn a_run_that_is_complete_was_not_interrupted() {
        for (done, interrupted_by) in [(3, Some(Signal::Interrupt)), (4, None)] {
            let rounds = Rounds {
                done,
                noted: || Some(Signal::Interrupt),
                ..Rounds::of(4)
            };
            assert_eq!(rounds.extent().interrupted_by, interrupted_by);
        }
    }

    #[test]
    fn an_interruption_is_told() {
        let mut extent = Rounds::of(10).extent();
        assert_eq!(extent.warning(), None);
        extent.rounds_done = 10;
        assert_eq!(extent.rounds_per_cell(5), "5 rounds");
        assert_eq!(if_fewer(5, 5), "");
        assert_eq!(if_fewer(1, 5), " (1 of 5 rounds)");
        extent.rounds_done = 3;
        extent.interrupted_by = Some(Signal::Terminate);
        let told = "interrupted by SIGTERM after 3 of 10 rounds";
        assert_eq!(extent.interruption().unwrap(), told);
        assert_eq!(extent.rounds_per_cell(5), "up to 5 rounds");
        assert!(extent.warning().unwrap().starts_with(told));
        let json = serde_json::to_value(extent).unwrap();
        assert_eq!(json["interrupted_by"], "SIGTERM");
        assert_eq!(
            (&json["rounds_done"], &json["rounds_asked"]),
            (&3.into(), &10.into())
        );
    }
}
