//! `kinlock torture invalidation`: delayed invalidation under stress, each backend in a process of its own.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use kinlock_verify::invalidation::torture::{self, Settings};
use kinlock_verify::invalidation::{self, Specimen};
use kinlock_verify::locks::BUSTED;
use kinlock_verify::report::{Check, Report};
use kinlock_verify::{LEVELS, Preemption, sandbox};
use serde::Serialize;

use super::Document;
use super::child::Task;
use super::locks::{Notes, text};
use crate::bench::threads::ThreadCounts;
use crate::cli::Outcome;

/// Test delayed invalidation under stress.
///
/// Threads begin and end sections as fast as they can, and reuse pages of a real mapping that others give back in batches; the exact oracle is a stamp in each page. Threads are
/// delayed at bad moments and interrupted by signals. Exit status: 0 all checks passed, 1 a check failed, 2 bad input, 3 a domain that is broken on purpose was not caught by the check meant for it.
///
/// `--backends busted` tortures domains that are broken on purpose: nobody waits, a donated generation is lost, sleepers are not woken. Each must be caught, so that the exit status is 1; it is tortured until then, at most ten times as long.
///
/// Example: kinlock torture invalidation --backends packed --threads 4,64 --seconds 60
#[derive(clap::Args)]
pub struct Args {
    /// Backends, separated by commas [default: all of ours; `busted`: all that are broken on purpose]
    #[arg(long, visible_alias = "locks", value_name = "A,B", value_delimiter = ',', value_parser = name)]
    backends: Vec<String>,
    /// Numbers of threads, as a list or an inclusive range
    #[arg(long, value_name = "LIST", default_value = "4,16,64")]
    threads: ThreadCounts,
    /// Seconds for each backend
    #[arg(
        long,
        value_name = "S",
        default_value_t = 3.0,
        allow_negative_numbers = true
    )]
    seconds: f64,
    /// Start of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How often threads are made to yield or sleep at bad moments
    #[arg(long, value_name = "LEVEL", value_parser = LEVELS.map(|(name, _)| name), default_value = "light")]
    preemption: String,
    /// Seconds after which a wait is taken to be endless
    #[arg(
        long,
        value_name = "S",
        default_value_t = 5.0,
        allow_negative_numbers = true
    )]
    hang: f64,
    /// Refuse the system call membarrier, as some sandboxes do: whoever sleeps then looks again by itself
    #[arg(long)]
    without_membarrier: bool,
    /// Torture in this process instead of one for each backend; for debuggers
    #[arg(long)]
    in_process: bool,
    /// Write the report as JSON (- for stdout)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// No progress
    #[arg(long)]
    quiet: bool,
}

/// A day; beyond that somebody has mistaken the unit.
const LONGEST: f64 = 86_400.0;
/// All that decides a run, as it is echoed and passed to child processes.
#[derive(Clone, Debug, Serialize)]
struct Parameters {
    backends: Vec<String>,
    threads: Vec<usize>,
    seconds: f64,
    seed: u64,
    preemption: String,
    hang: f64,
    without_membarrier: bool,
}

/// Runs the verb.
///
/// # Errors
/// If the input is bad or the results cannot be written.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let parameters = parameters(args)?;
    if args.without_membarrier && args.in_process {
        // Before there are threads: later ones inherit it.
        sandbox::refuse_membarrier().map_err(anyhow::Error::msg)?;
    }
    let outputs = super::outputs(args.json.as_deref())?;
    let say = |text: String| outputs.say(&text);
    let echo = format!(
        "kinlock torture invalidation {}\n",
        parameters.arguments().join(" ")
    );
    let notes = Notes::new(args.quiet);
    let mut total = Report::new();
    say(echo.clone())?;
    for specimen in parameters.specimens() {
        let report = if args.in_process {
            torture::run(specimen, &parameters.settings(), |step| notes.show(step))
        } else {
            in_child(specimen, &parameters, args.quiet)?
        };
        notes.clear();
        say(text::checks(&report))?;
        total.merge(report);
    }
    say(echo)?;
    say(text::summary(&total))?;
    let outcome = outcome(&total);
    outputs.write(&Document {
        report: total,
        parameters,
    })?;
    Ok(outcome)
}

/// A sound domain that failed is worse news than a broken one that got away.
fn outcome(report: &Report) -> Outcome {
    let sound = invalidation::ALL.iter().filter(|one| one.defect.is_none());
    let names: Vec<String> = sound.map(|one| format!("{}/", one.name)).collect();
    let of_sound = |check: &&Check| names.iter().any(|name| check.name.starts_with(name));
    let mut of_sound = report.checks.iter().filter(of_sound);
    match report {
        _ if of_sound.any(|check| !check.passed) => Outcome::CheckFailed,
        _ if report.escaped() => Outcome::Escaped,
        Report { passed: true, .. } => Outcome::Done,
        _ => Outcome::CheckFailed,
    }
}

fn parameters(args: &Args) -> anyhow::Result<Parameters> {
    for (flag, seconds) in [("--seconds", args.seconds), ("--hang", args.hang)] {
        ensure!(
            seconds > 0.0 && seconds <= LONGEST,
            "{flag} {seconds}: it has to be more than 0 and at most {LONGEST}"
        );
    }
    let mut backends: Vec<String> = Vec::new();
    let asked = args
        .backends
        .iter()
        .flat_map(|name| invalidation::by_name(name));
    for one in asked {
        if !backends.iter().any(|known| known == one.name) {
            backends.push(one.name.to_owned());
        }
    }
    if backends.is_empty() {
        let sound = invalidation::ALL.iter().filter(|one| one.defect.is_none());
        backends = sound.map(|one| one.name.to_owned()).collect();
    }
    Ok(Parameters {
        backends,
        threads: args.threads.0.clone(),
        seconds: args.seconds,
        seed: args.seed,
        preemption: args.preemption.clone(),
        hang: args.hang,
        without_membarrier: args.without_membarrier,
    })
}

impl Parameters {
    fn specimens(&self) -> impl Iterator<Item = Specimen> {
        self.backends
            .iter()
            .flat_map(|name| invalidation::by_name(name))
    }

    fn settings(&self) -> Settings {
        let level = LEVELS.iter().find(|(name, _)| *name == self.preemption);
        Settings {
            threads: self.threads.clone(),
            duration: Duration::from_secs_f64(self.seconds),
            seed: self.seed,
            preemption: level.map_or(Preemption::Light, |(_, level)| *level),
            hang: Duration::from_secs_f64(self.hang),
        }
    }

    /// The same as arguments of the command.
    fn arguments(&self) -> Vec<String> {
        let threads: Vec<_> = self.threads.iter().map(usize::to_string).collect();
        let flags = [
            ("--backends", self.backends.join(",")),
            ("--threads", threads.join(",")),
            ("--seconds", self.seconds.to_string()),
            ("--seed", self.seed.to_string()),
            ("--preemption", self.preemption.clone()),
            ("--hang", self.hang.to_string()),
        ];
        let refuse = self
            .without_membarrier
            .then(|| "--without-membarrier".to_owned());
        let flags = flags.into_iter();
        flags
            .flat_map(|(flag, value)| [flag.to_owned(), value])
            .chain(refuse)
            .collect()
    }
}

fn in_child(specimen: Specimen, parameters: &Parameters, quiet: bool) -> anyhow::Result<Report> {
    let own = Parameters {
        backends: vec![specimen.name.to_owned()],
        ..parameters.clone()
    };
    let task = Task {
        primitive: "invalidation",
        specimen: specimen.name.to_owned(),
        broken: specimen.defect.is_some(),
        arguments: own.arguments(),
        seconds: own.seconds,
        hang: own.hang,
        topology: None,
        quiet,
    };
    task.run()
}

fn name(text: &str) -> Result<String, String> {
    if !invalidation::by_name(text).is_empty() {
        return Ok(text.to_owned());
    }
    let known = invalidation::ALL.iter().map(|one| one.name).chain([BUSTED]);
    Err(format!(
        "no such backend; known: {}",
        known.collect::<Vec<_>>().join(", ")
    ))
}
