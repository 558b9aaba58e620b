//! What a suite is, and how one is measured.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use anyhow::bail;
use clap::builder::RangedU64ValueParser;
use kinlock_sim::random::Random;
use serde::Serialize;
use serde_json::{Value, json};

use super::hogs::Hogs;
use super::interrupt;
use super::placement::{self, Pin};
use super::report::{Entry, Report, Shown, Unavailable};
use super::rounds::{Rounds, Slot};
use super::slice::Sample;
use super::team::Team;
use crate::args::{Named, ThreadCounts, keep_first, named, seconds};
use crate::machine::Machine;
use crate::outcome::{Outcome, tell};
use crate::report::{Destinations, progress};

/// A suite: subjects that do the same workloads in different ways.
pub trait Suite: Sized + 'static {
    /// `locks`.
    const NAME: &'static str;
    type Workload: Named;
    /// What is compared.
    type Subject;
    /// What a slice gives besides operations and times.
    type Extra;
    /// What an entry of the report says besides throughput.
    type Detail: Serialize;

    /// The subjects of a cell.
    fn subjects(&self, workload: Self::Workload, threads: usize) -> Vec<Self::Subject>;
    /// The name of a subject.
    fn name(subject: &Self::Subject) -> String;
    /// What the subjects of a workload are compared with.
    fn baseline(&self, workload: Self::Workload) -> &'static str;
    /// The workloads to run, of those that were asked for, if any were.
    fn workloads(&self, asked: &[Self::Workload]) -> anyhow::Result<Vec<Self::Workload>> {
        Ok(match asked {
            [] => Self::Workload::all(),
            asked => asked.to_vec(),
        })
    }
    /// The thread counts without `--threads`.
    fn usual_threads() -> ThreadCounts {
        ThreadCounts::for_cpus(cpus())
    }
    /// The number of threads of a workload that does not leave it to the user.
    fn own_threads(_workload: Self::Workload) -> Option<usize> {
        None
    }
    /// The CPUs that threads are bound to; empty if they are not bound.
    fn cpus(&self, _workload: Self::Workload, threads: usize) -> Vec<usize> {
        placement::assign(Pin::usual(threads, cpus()), threads)
    }
    /// How long a subject takes in a round, roughly, with slices of so many seconds.
    fn turn_seconds(&self, _workload: Self::Workload, seconds: f64) -> f64 {
        1.1 * seconds + 0.005
    }
    /// The shortest usual slice of a cell.
    fn least_seconds(_workload: Self::Workload, _threads: usize) -> f64 {
        0.0
    }
    /// Prepares what the first measurement needs.
    fn prepare(&mut self, _plan: &Plan<Self>) -> anyhow::Result<()> {
        Ok(())
    }
    /// Measures a subject once.
    fn measure(&mut self, due: Due<'_, Self>) -> anyhow::Result<Sample<Self::Extra>>;
    /// What a round says besides throughput: fields of its JSON.
    fn round_detail(_own: &Sample<Self::Extra>, _baseline: &Sample<Self::Extra>) -> Value {
        json!({})
    }
    /// What all rounds of a subject say besides throughput.
    fn detail(
        &self,
        subject: &Self::Subject,
        own: &[&Sample<Self::Extra>],
        baseline: &[&Sample<Self::Extra>],
    ) -> Self::Detail;
    /// How it was measured, besides what all suites say: fields of the report's JSON.
    fn parameters(&self, _plan: &Plan<Self>) -> Value {
        json!({})
    }
    /// Draws conclusions from all results together.
    fn conclude(&self, _plan: &Plan<Self>, _results: &mut [Entry<Self>]) {}
    /// What all results together say: fields of the report's JSON.
    fn summary(_results: &[Entry<Self>]) -> BTreeMap<&'static str, Value> {
        BTreeMap::new()
    }
    /// What to keep in mind besides what all suites warn of.
    fn warnings(&self, _plan: &Plan<Self>, _results: &[Entry<Self>]) -> Vec<String> {
        Vec::new()
    }
    /// What this build or machine lacks.
    fn unavailable() -> Vec<Unavailable> {
        Vec::new()
    }
    /// More about the machine, for the JSON report and the heading.
    fn facts() -> BTreeMap<&'static str, String> {
        BTreeMap::new()
    }
    /// Whether a subject did something wrong.
    fn verdict(&self) -> Outcome {
        Outcome::Done
    }
}

pub struct Due<'a, S: Suite> {
    pub subject: &'a S::Subject,
    pub workload: S::Workload,
    pub team: &'a Team,
    pub seconds: f64,
    /// Start of its random numbers: the same for all subjects of a round.
    pub seed: u64,
}

#[derive(Clone, Debug)]
pub struct Plan<S: Suite> {
    pub workloads: Vec<S::Workload>,
    pub threads: Vec<usize>,
    /// Length of the shortest timed slice.
    pub seconds: f64,
    /// Whether all slices are as long as that.
    pub same_seconds: bool,
    pub rounds: usize,
    pub seed: u64,
    /// Other busy processes meanwhile.
    pub hogs: usize,
    suite: PhantomData<S>,
}

#[derive(clap::Args)]
pub struct Common<S: Shown> {
    /// Workloads to run, separated by commas [default: all]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = named::<S::Workload>)]
    pub workload: Vec<S::Workload>,
    /// Numbers of threads, 1 to 4096: a list with inclusive ranges, as 1,2,8 or 1..16, or `sweep`
    /// for 1,2,4,16,64,256; some workloads have their own [default: 1, 2, the number of CPUs, four
    /// times as many; for invalidation 1,2,16,64]
    #[arg(long, value_name = "LIST")]
    threads: Option<ThreadCounts>,
    /// Length of a timed slice, of which each round has one per subject, in seconds [default: at
    /// most 0.5, less if the run would take more than about a minute]
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
    /// Rounds per cell
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=10_000),
    )]
    rounds: usize,
    /// Start of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    destinations: Destinations<Report<S>>,
    /// So many other busy processes run meanwhile, at most 1024
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        value_parser = RangedU64ValueParser::<usize>::new().range(..=1024),
    )]
    hogs: usize,
    /// Show a table per workload and number of threads, too, with waits, fairness and CPU time
    #[arg(long)]
    details: bool,
    /// No progress bar and no notes
    #[arg(long)]
    quiet: bool,
}

/// What a whole run takes unless the length of a slice is given, in seconds.
const BUDGET: f64 = 60.0;

/// CPUs that this process may use.
pub fn cpus() -> usize {
    kinlock_verify::allowed_cpus().len().max(1)
}

impl<S: Suite> Plan<S> {
    /// The cells, workload by workload, with the number of subjects of each.
    pub fn cells(&self, suite: &S) -> Vec<(S::Workload, usize, usize)> {
        let threads = |workload| match S::own_threads(workload) {
            Some(threads) => vec![threads],
            None => self.threads.clone(),
        };
        let cells = self.workloads.iter().flat_map(|&workload| {
            let counts = threads(workload).into_iter();
            counts.map(move |threads| (workload, threads))
        });
        let cells = cells.map(|(w, threads)| (w, threads, suite.subjects(w, threads).len()));
        cells.filter(|&(.., subjects)| subjects > 0).collect()
    }

    /// Length of the timed slices of a cell, if the shortest of all are so long.
    fn seconds_in(&self, workload: S::Workload, threads: usize, shortest: f64) -> f64 {
        match self.same_seconds {
            true => shortest,
            false => shortest.max(S::least_seconds(workload, threads)),
        }
    }

    /// The length of slices in words.
    pub fn slice(&self) -> String {
        let least = if self.same_seconds { "" } else { "at least " };
        format!("{least}{:.3} s", self.seconds)
    }

    /// What the whole run takes, roughly, with slices of at least so many seconds.
    fn expected_seconds(&self, suite: &S, seconds: f64) -> f64 {
        let cells = self.cells(suite).into_iter();
        let each = cells.map(|(w, threads, n)| {
            let seconds = self.seconds_in(w, threads, seconds);
            n as f64 * suite.turn_seconds(w, seconds)
        });
        self.rounds as f64 * each.sum::<f64>()
    }

    /// The length of a slice that makes the whole run fit into [`BUDGET`].
    fn usual_seconds(&self, suite: &S) -> f64 {
        let fixed = self.expected_seconds(suite, 0.0);
        let per_second = self.expected_seconds(suite, 1.0) - fixed;
        ((BUDGET - fixed) / per_second.max(1.0)).clamp(0.01, 0.5)
    }
}

impl<S: Shown> Common<S> {
    fn plan(&self, suite: &S) -> anyhow::Result<Plan<S>> {
        let mut workloads = suite.workloads(&self.workload)?;
        keep_first(&mut workloads, |workload| *workload);
        let mut plan = Plan {
            workloads,
            threads: self.threads.clone().unwrap_or_else(S::usual_threads).0,
            seconds: 0.0,
            same_seconds: self.seconds.is_some(),
            rounds: self.rounds,
            seed: self.seed,
            hogs: self.hogs,
            suite: PhantomData,
        };
        if plan.cells(suite).is_empty() {
            bail!("none of the subjects that were named does what --workload names");
        }
        plan.seconds = self.seconds.unwrap_or_else(|| plan.usual_seconds(suite));
        let cells = plan.cells(suite).into_iter();
        let lengths: Vec<_> = cells
            .map(|(w, n, _)| plan.seconds_in(w, n, plan.seconds))
            .collect();
        plan.seconds = lengths.iter().copied().fold(f64::INFINITY, f64::min);
        plan.same_seconds = lengths.iter().all(|&length| length == plan.seconds);
        Ok(plan)
    }

    /// Measures everything, or as much as there is time for, and writes the report.
    pub fn run(&self, mut suite: S) -> anyhow::Result<Outcome> {
        let plan = self.plan(&suite)?;
        let outputs = self.destinations.open()?;
        interrupt::listen();
        let machine = Machine::current();
        let cells = plan.cells(&suite);
        let slices = plan.rounds * cells.iter().map(|cell| cell.2).sum::<usize>();
        let bar = progress::bar(self.quiet, slices, || {
            let about = plan.expected_seconds(&suite, plan.seconds).ceil();
            eprintln!("{slices} slices of {}: about {about:.0} s", plan.slice());
        });
        let mut rounds = Rounds::of(cells.len() * plan.rounds);
        let prepared = suite.prepare(&plan);
        // The error may come from the interruption.
        if rounds.go_on() {
            prepared?;
        }
        let hogs = Hogs::start(plan.hogs)?;
        let mut order_rng = Random::stream(plan.seed, u64::MAX);
        let mut results = Vec::new();
        for (workload, threads, _) in cells {
            if !rounds.go_on() {
                break;
            }
            let team = Team::start(threads, suite.cpus(workload, threads))?;
            let subjects = suite.subjects(workload, threads);
            let measure = |Slot { subject, round }| {
                let (subject, seed) = (&subjects[subject], plan.seed.wrapping_add(round as u64));
                let (name, what) = (S::name(subject), workload.name());
                bar.set_message(format!("{what}, {threads} threads, {name}"));
                bar.inc(1);
                suite.measure(Due {
                    subject,
                    workload,
                    team: &team,
                    seconds: plan.seconds_in(workload, threads, plan.seconds),
                    seed,
                })
            };
            let samples = rounds.run(plan.rounds, subjects.len(), &mut order_rng, measure)?;
            let cell: Vec<_> = subjects.iter().zip(samples).collect();
            results.extend(Entry::of_cell(&suite, workload, threads, &cell));
        }
        bar.finish_and_clear();
        // Before anything that the report measures.
        let disturbed = hogs.end();
        let (extent, verdict) = (rounds.extent(), suite.verdict());
        let written = match extent.rounds_done {
            0 => Ok(()),
            _ => {
                let details = self.details;
                let report =
                    Report::new(&suite, &plan, machine, results, extent, disturbed, details);
                outputs.write(&report)
            }
        };
        // Also where that failed.
        if let Some(what) = extent.interruption() {
            let nothing = extent.rounds_done == 0;
            let rest = if nothing { ": nothing to report" } else { "" };
            tell(&format!("kinlock: {what}{rest}"));
        }
        written?;
        Ok(outcome(verdict, extent.interrupted_by))
    }
}

/// A subject's error takes precedence over an interruption, which the report states anyway.
fn outcome(verdict: Outcome, interrupted_by: Option<crate::outcome::Signal>) -> Outcome {
    match interrupted_by {
        Some(signal) if verdict == Outcome::Done => Outcome::Interrupted(signal),
        _ => verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Signal;

    #[test]
    fn a_wrong_subject_is_worse_than_an_interruption() {
        use Outcome::{CheckFailed, Done, Interrupted};
        let signal = Signal::Terminate;
        assert_eq!(outcome(Done, None), Done);
        assert_eq!(outcome(CheckFailed, None), CheckFailed);
        assert_eq!(outcome(Done, Some(signal)), Interrupted(signal));
        assert_eq!(outcome(CheckFailed, Some(signal)), CheckFailed);
    }
}
