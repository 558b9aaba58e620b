//! `kinlock torture locks`: correctness under stress.
//!
//! Each lock is tortured in a child process of its own: threads that wait for ever cannot be ended otherwise, and the
//! locks read their environment, pretended locality domains among it, once per process.

mod child;
mod settings;
pub(super) mod text;

use std::fs::File;
use std::io::{Write, stdout};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kinlock_verify::locks::{self, Specimen};
use kinlock_verify::plan;
use kinlock_verify::report::Report;
use kinlock_verify::sandbox;
use serde::Serialize;

use crate::bench::threads::ThreadCounts;
use crate::cli::Outcome;
pub use settings::Args;
use settings::Parameters;

/// Runs the verb.
///
/// # Errors
/// If the input is bad or the results cannot be written.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let parameters = args.parameters()?;
    if args.without_membarrier && args.in_process {
        // Before there are threads: later ones inherit it.
        sandbox::refuse_membarrier().map_err(anyhow::Error::msg)?;
    }
    // Opened first: what cannot be written must not cost minutes to find out.
    let mut json = args.json.as_deref().map(Destination::open).transpose()?;
    let mut people = match json {
        Some(Destination::Stdout) => None,
        _ => Some(stdout()),
    };
    let mut say = |text: String| match &mut people {
        Some(out) => out
            .write_all(text.as_bytes())
            .context("cannot write to stdout"),
        None => Ok(()),
    };

    let notes = Notes::new(args.quiet);
    let mut total = Report::new();
    say(text::parameters(&parameters))?;
    for lock in parameters.specimens() {
        let report = if args.in_process {
            plan::run(lock, &parameters.plan(), |step| notes.show(step))
        } else {
            child::torture(lock, &parameters, args.quiet)?
        };
        notes.clear();
        say(text::checks(&report))?;
        total.merge(report);
    }
    say(text::parameters(&parameters))?;
    say(text::summary(&total))?;
    if let Some(json) = &mut json {
        json.write(&Document {
            report: &total,
            parameters: &parameters,
        })?;
    }
    Ok(outcome(&total))
}

/// What programs read.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    report: &'a Report,
    parameters: &'a Parameters,
}

/// A sound lock that failed is worse news than a broken one that got away.
fn outcome(report: &Report) -> Outcome {
    let is_sound = |lock: &&Specimen| lock.defect.is_none();
    let sound_failed = locks::ALL.iter().filter(is_sound).any(|lock| {
        let own = format!("{}/", lock.name);
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

/// Where the JSON goes.
pub(super) enum Destination {
    Stdout,
    File(File, String),
}

impl Destination {
    pub(super) fn open(name: &str) -> anyhow::Result<Self> {
        if name == "-" {
            return Ok(Destination::Stdout);
        }
        let file = File::create(name).with_context(|| format!("cannot write {name}"))?;
        Ok(Destination::File(file, name.to_owned()))
    }

    pub(super) fn write(&mut self, document: &impl Serialize) -> anyhow::Result<()> {
        let mut text = serde_json::to_string_pretty(document)?;
        text.push('\n');
        match self {
            Destination::Stdout => stdout()
                .write_all(text.as_bytes())
                .context("cannot write to stdout"),
            Destination::File(file, name) => file
                .write_all(text.as_bytes())
                .with_context(|| format!("cannot write {name}")),
        }
    }
}

/// What is going on, for people who watch.
pub(super) struct Notes(ProgressBar);

impl Notes {
    pub(super) fn new(quiet: bool) -> Self {
        let target = if quiet {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(
            ProgressStyle::with_template("{spinner} {msg} {elapsed}")
                .expect("the template is valid"),
        );
        Notes(bar)
    }

    pub(super) fn show(&self, step: &str) {
        self.0.set_message(step.to_owned());
        self.0.tick();
    }

    pub(super) fn clear(&self) {
        self.0.finish_and_clear();
    }
}
