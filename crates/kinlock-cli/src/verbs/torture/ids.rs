//! `kinlock torture ids`: correctness of concurrency IDs under stress.
//!
//! Each specimen is tortured in a child process of its own: handlers and affinities are the process's, and what hangs has to be ended.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{bail, ensure};
use kinlock_ids::{Backend, Policy};
use kinlock_verify::ids::{self, SCENARIOS, Settings, Specimen};
use kinlock_verify::report::Report;
use kinlock_verify::{LEVELS, Preemption};
use serde::Serialize;

use super::Document;
use super::child::Task;
use crate::cli::Outcome;

/// Test that concurrency IDs are correct under stress.
///
/// Restartable sequences and leases under each policy are put through a number of scenarios, with signals and changes of affinity meanwhile, and with delays inside the sequences.
/// Exit status: 0 all checks passed, 1 a check failed, 2 bad input, 3 something broken on purpose was not caught by the check meant for it.
///
/// `--ids busted` tortures what is broken on purpose: an ID that is shared, one that is leaked, one above the bound, a sequence that does not restart. Each must be caught, so that the exit status is 1; it is tortured until then, at most ten times as long.
///
/// Example: kinlock torture ids --backend rseq --seconds 60
#[derive(clap::Args)]
pub struct Args {
    /// What to torture, separated by commas [default: everything that is meant to work and that this machine has; `busted`: all that is broken on purpose]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = known, conflicts_with_all = ["backend", "policy"])]
    ids: Vec<String>,
    /// How IDs are held: auto (all ways that this machine has), rseq, lease
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = ["auto", "rseq", "lease"])]
    backend: String,
    /// Policies of leases, separated by commas [default: all]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    policy: Vec<Policy>,
    /// Number of threads
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1024))]
    threads: usize,
    /// Seconds for each, divided among the scenarios
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
    /// Scenarios, separated by commas [default: all]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = scenario)]
    scenarios: Vec<String>,
    /// Torture in this process instead of one for each; for debuggers
    #[arg(long)]
    in_process: bool,
    /// Write the report as JSON (- for stdout)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Nothing but the report
    #[arg(long)]
    quiet: bool,
}

/// All that decides a run, as it is echoed and passed to child processes.
#[derive(Clone, Debug, Serialize)]
struct Parameters {
    ids: Vec<String>,
    threads: usize,
    seconds: f64,
    seed: u64,
    preemption: String,
    scenarios: Vec<String>,
}

/// Runs the verb.
///
/// # Errors
/// If the input is bad, the backend is not there, or the results cannot be written.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    ensure!(
        args.seconds > 0.0 && args.seconds <= 86_400.0,
        "--seconds {}: it has to be more than 0 and at most 86400",
        args.seconds
    );
    let specimens = specimens(args)?;
    let parameters = Parameters {
        ids: specimens.iter().map(|s| s.name.to_owned()).collect(),
        threads: args.threads,
        seconds: args.seconds,
        seed: args.seed,
        preemption: args.preemption.clone(),
        scenarios: if args.scenarios.is_empty() {
            SCENARIOS.iter().map(|s| s.name.to_owned()).collect()
        } else {
            args.scenarios.clone()
        },
    };
    let outputs = super::outputs(args.json.as_deref())?;
    let say = |text: String| outputs.say(&text);

    let mut total = Report::new();
    say(echo(&parameters))?;
    for specimen in specimens {
        let report = if args.in_process {
            ids::run(specimen, &settings(&parameters), |step| {
                if !args.quiet {
                    eprintln!("{step}");
                }
            })
        } else {
            in_child(specimen, &parameters)?
        };
        for check in &report.checks {
            let verdict = if check.passed { "ok" } else { "FAILED" };
            say(format!(
                "{verdict:<7} {:<44} {}\n",
                check.name, check.detail
            ))?;
        }
        total.merge(report);
    }
    say(echo(&parameters))?;
    let failed = total.checks.iter().filter(|check| !check.passed).count();
    say(format!(
        "Per thread: min {} max {} mean {:.0} operations\nChecks: {}, failed: {failed}\nEnd of test: {}\n",
        total.per_thread.min,
        total.per_thread.max,
        total.per_thread.mean,
        total.checks.len(),
        if total.passed { "SUCCESS" } else { "FAILURE" },
    ))?;
    let outcome = outcome(&total);
    outputs.write(&Document {
        report: total,
        parameters,
    })?;
    Ok(outcome)
}

fn specimens(args: &Args) -> anyhow::Result<Vec<Specimen>> {
    let named: Vec<_> = args
        .ids
        .iter()
        .flat_map(|name| ids::by_name(name))
        .collect();
    let mut chosen: Vec<Specimen> = Vec::new();
    if named.is_empty() {
        if args.backend == "rseq" && !args.policy.is_empty() {
            bail!("--policy is for leases: with --backend rseq the kernel decides");
        }
        let sound = ids::ALL.iter().filter(|specimen| !specimen.is_broken());
        chosen.extend(sound.filter(|specimen| match specimen.backend {
            Backend::Restartable => args.backend != "lease" && args.policy.is_empty(),
            Backend::Lease => {
                let policy = args.policy.is_empty() || args.policy.contains(&specimen.policy);
                args.backend != "rseq" && policy
            }
        }));
    } else {
        for specimen in named {
            if !chosen.iter().any(|known| known.name == specimen.name) {
                chosen.push(specimen);
            }
        }
    }
    let unavailable = Backend::Restartable.available().err();
    if let Some(why) = unavailable {
        if args.backend == "rseq" || args.ids.iter().any(|name| name == "rseq") {
            bail!("{why}");
        }
        let before = chosen.len();
        chosen.retain(|specimen| specimen.backend != Backend::Restartable);
        if chosen.len() < before {
            eprintln!("kinlock: left out: {why}");
        }
    }
    Ok(chosen)
}

fn settings(parameters: &Parameters) -> Settings {
    let level = LEVELS
        .iter()
        .find(|(name, _)| *name == parameters.preemption);
    Settings {
        time: Duration::from_secs_f64(parameters.seconds),
        threads: parameters.threads,
        preemption: level.map_or(Preemption::Light, |(_, level)| *level),
        seed: parameters.seed,
        scenarios: parameters.scenarios.clone(),
    }
}

fn arguments(parameters: &Parameters) -> Vec<String> {
    let flags = [
        ("--ids", parameters.ids.join(",")),
        ("--threads", parameters.threads.to_string()),
        ("--seconds", parameters.seconds.to_string()),
        ("--seed", parameters.seed.to_string()),
        ("--preemption", parameters.preemption.clone()),
        ("--scenarios", parameters.scenarios.join(",")),
    ];
    flags
        .into_iter()
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect()
}

/// The parameters, as a command that repeats the run.
fn echo(parameters: &Parameters) -> String {
    format!("kinlock torture ids {}\n", arguments(parameters).join(" "))
}

/// One specimen in a process of its own. One that crashes or does not end has failed.
fn in_child(specimen: Specimen, parameters: &Parameters) -> anyhow::Result<Report> {
    let own = Parameters {
        ids: vec![specimen.name.to_owned()],
        ..parameters.clone()
    };
    let task = Task {
        primitive: "ids",
        specimen: specimen.name.to_owned(),
        broken: specimen.is_broken(),
        arguments: arguments(&own),
        seconds: own.seconds,
        hang: 0.0,
        topology: None,
        quiet: true,
    };
    task.run()
}

/// A sound specimen that failed is worse news than a broken one that got away.
fn outcome(report: &Report) -> Outcome {
    let sound_failed = ids::ALL
        .iter()
        .filter(|specimen| !specimen.is_broken())
        .any(|specimen| {
            let own = format!("{}/", specimen.name);
            report
                .checks
                .iter()
                .any(|check| !check.passed && check.name.starts_with(&own))
        });
    match report {
        _ if sound_failed => Outcome::CheckFailed,
        _ if report.escaped() => Outcome::Escaped,
        Report { passed: true, .. } => Outcome::Done,
        _ => Outcome::CheckFailed,
    }
}

fn known(text: &str) -> Result<String, String> {
    let names: Vec<_> = ids::ALL
        .iter()
        .map(|specimen| specimen.name)
        .chain([ids::BUSTED])
        .collect();
    one_of("IDs", text, &names)
}

fn scenario(text: &str) -> Result<String, String> {
    let names: Vec<_> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
    one_of("scenario", text, &names)
}

fn one_of(kind: &str, text: &str, known: &[&str]) -> Result<String, String> {
    if known.contains(&text) {
        Ok(text.to_owned())
    } else {
        Err(format!("no such {kind}; known: {}", known.join(", ")))
    }
}
