//! How a suite is measured, and the options that say so.

use anyhow::{bail, ensure};
use clap::builder::RangedU64ValueParser;
use kinlock_cli::args::{Named, ThreadCounts, keep_first, named, seconds};
use kinlock_cli::machine::Machine;
use kinlock_cli::outcome::{Outcome, tell};
use kinlock_cli::report::Destinations;
use kinlock_measure::background::Hogs;
use kinlock_measure::interrupt;
use kinlock_measure::progress;
use kinlock_measure::random::Random;
use kinlock_measure::rounds::{Rounds, Slot};

use super::background::Background;
use super::placement;
use super::plot::Pictured;
use super::quota::Group;
use super::results::Report;
use super::suite::{Due, Entry, Plan};
use super::team::Team;

#[derive(clap::Args)]
pub struct Common<S: Pictured> {
    /// Workloads to run, separated by commas [default: all]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = named::<S::Workload>)]
    pub workload: Vec<S::Workload>,
    /// Numbers of threads, 1 to 4096: a list with inclusive ranges, such as 1,2,8 or 1..16, or
    /// `sweep` for 1,2,4,16,64,256; some workloads have their own [default: 1, 2, the number of
    /// CPUs, four times as many; for invalidation 1,2,16,64; for grid-core 2,16,64; for grid-wide
    /// 2,4,16]
    #[arg(long, value_name = "LIST")]
    threads: Option<ThreadCounts>,
    /// Length of a timed slice in seconds; each round has one slice per subject [default: at most
    /// 0.5, less if the run would take more than about 35 s]
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
    /// Run N CPU-bound processes as background load, at most 1024
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        value_parser = RangedU64ValueParser::<usize>::new().range(..=1024),
    )]
    hogs: usize,
    /// Limit the run to PERCENT of the CPU time that it could use, 1 to 100, by a control group as
    /// containers have. The processes of --hogs stay outside. Slices are at least 0.5 s, without
    /// --seconds
    #[arg(
        long,
        value_name = "PERCENT",
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=100),
    )]
    quota: Option<usize>,
    /// Show a table per workload and number of threads, too, with waits, fairness and CPU time
    #[arg(long)]
    details: bool,
    /// No progress bar and no notes
    #[arg(long)]
    quiet: bool,
}

impl<S: Pictured> Common<S> {
    fn plan(&self, suite: &S) -> anyhow::Result<Plan<S>> {
        let mut workloads = suite.workloads(&self.workload)?;
        keep_first(&mut workloads, |workload| *workload);
        let background = suite.background();
        let is_busy = background == Some(Background::Busy);
        ensure!(
            !is_busy || self.hogs == 0,
            "--background busy is the same as --hogs 1: give one of them"
        );
        let mut plan = Plan {
            workloads,
            threads: self.threads.clone().unwrap_or_else(S::usual_threads).0,
            same_threads: self.threads.is_some(),
            seconds: 0.0,
            same_seconds: self.seconds.is_some(),
            rounds: self.rounds,
            seed: self.seed,
            hogs: self.hogs + usize::from(is_busy),
            background,
            quota_percent: self.quota,
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
        let mut limited = plan.quota_percent.map(Group::make).transpose()?;
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
        // After an interruption, an error may be its consequence.
        if rounds.go_on() {
            prepared?;
        }
        let hogs = Hogs::start(plan.hogs)?;
        // Entered after busy processes were started, which stay outside.
        limited.iter_mut().try_for_each(Group::enter)?;
        let mut order_rng = Random::stream(plan.seed, u64::MAX);
        let mut results = Vec::new();
        for (workload, threads, _) in cells {
            if !rounds.go_on() {
                break;
            }
            let team = Team::new(threads, placement::assign(threads), plan.background)?;
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
        // Ended before the report measures anything.
        let disturbed = hogs.end();
        drop(limited);
        let (extent, verdict) = (rounds.extent(), suite.verdict());
        let written = match extent.rounds_done {
            0 => Ok(()),
            _ => {
                let details = self.details;
                let report =
                    Report::new(&suite, plan, machine, results, extent, disturbed, details);
                outputs.write(&report)
            }
        };
        // Said even if the report could not be written.
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
fn outcome(
    verdict: Outcome,
    interrupted_by: Option<kinlock_measure::interrupt::Signal>,
) -> Outcome {
    match interrupted_by {
        Some(signal) if verdict == Outcome::Done => Outcome::Interrupted(signal),
        _ => verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kinlock_measure::interrupt::Signal;

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
