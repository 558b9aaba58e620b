//! A schedule in one word, so that it can be played again.

use super::violation::Failure;
use super::{Outcome, Subject, Tally};
use kinlock_sim::{Schedule, Spot, Stuck};
use std::fmt;
use std::str::FromStr;

/// Names a schedule: `subject:scenario:threads:seed:disruptions`. An example of a `subject` is the
/// name of a lock.
///
/// `disruptions` says which disruptions happen: `*` for all that the seed picks, `-` for none, or a
/// list of `thread.access`.
#[derive(Clone, Debug)]
pub struct Replay<S> {
    /// What is explored.
    pub subject: S,
    /// The scenario.
    pub scenario: &'static str,
    /// The number of threads; `None`: the seed decides.
    pub threads: Option<usize>,
    /// The seed.
    pub seed: u64,
    /// The only disruptions; `None`: all that the seed picks.
    pub only: Option<Vec<Spot>>,
}

/// Judges a schedule by its shared state and by how it ended.
type Judge<T> = fn(&T, &Result<(), Stuck>) -> (Tally, Option<Failure>);

impl<S> Replay<S> {
    /// Plays `schedule` with the disruptions that this replay names; `trace` records its events.
    /// `new` makes what the threads share, `body` is what a thread does, and `handler` is what an
    /// interrupt does.
    pub(super) fn play<T: 'static>(
        &self,
        mut schedule: Schedule,
        trace: bool,
        new: impl FnOnce() -> T,
        [body, handler]: [fn(&T, usize); 2],
        judge: Judge<T>,
    ) -> Outcome {
        schedule.disturbance.only = self.only.clone();
        schedule.trace = trace;
        let (played, (tally, failure)) = schedule.play(new, body, handler, judge);
        Outcome {
            clock_mhz: schedule.machine.costs.clock_mhz,
            played: Some(played),
            tally,
            failure,
        }
    }
}

impl<S: Subject> fmt::Display for Replay<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:", self.subject.name(), self.scenario)?;
        match self.threads {
            Some(n) => write!(f, "{n}")?,
            None => f.write_str("*")?,
        }
        write!(f, ":{}:", self.seed)?;
        match self.only.as_deref() {
            None => f.write_str("*"),
            Some([]) => f.write_str("-"),
            Some(spots) => {
                let words = spots.iter().map(|s| format!("{}.{}", s.thread, s.access));
                f.write_str(&words.collect::<Vec<_>>().join(","))
            }
        }
    }
}

impl<S: Subject> FromStr for Replay<S> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let &[name, scenario, threads, seed, only] = parts.as_slice() else {
            return Err(format!(
                "it has to be {}:SCENARIO:THREADS:SEED:DISRUPTIONS",
                S::KIND.to_uppercase()
            ));
        };
        let known = S::all().iter().find(|known| known.name() == name);
        let subject = *known.ok_or_else(|| format!("no such {}: {name}", S::KIND))?;
        let scenarios = subject.scenarios();
        let known = scenarios.iter().find(|known| **known == scenario);
        let scenario = known.copied().ok_or_else(|| {
            let known = scenarios.join(", ");
            format!("{name} has no scenario {scenario}; it has: {known}")
        })?;
        let threads = match threads {
            "*" => None,
            n => Some(super::threads(n)?),
        };
        let seed = seed.parse().map_err(|_| format!("not a seed: {seed}"))?;
        let only = match only {
            "*" => None,
            "-" => Some(Vec::new()),
            list => Some(list.split(',').map(spot).collect::<Result<_, _>>()?),
        };
        Ok(Replay {
            subject,
            scenario,
            threads,
            seed,
            only,
        })
    }
}

fn spot(text: &str) -> Result<Spot, String> {
    let wrong = || format!("not a disruption, THREAD.ACCESS: {text}");
    let (thread, access) = text.split_once('.').ok_or_else(wrong)?;
    Ok(Spot {
        thread: thread.parse().map_err(|_| wrong())?,
        access: access.parse().map_err(|_| wrong())?,
    })
}
