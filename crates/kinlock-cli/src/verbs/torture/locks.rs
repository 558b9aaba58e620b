//! `kinlock torture locks`: correctness under stress.
//!
//! Each lock is tortured in a child process of its own: threads that wait for ever cannot be ended otherwise, and the
//! locks read their environment, pretended locality domains among it, once per process.

mod child;
mod settings;
pub(super) mod text;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kinlock_verify::locks::{self, Specimen};
use kinlock_verify::report::Report;
use kinlock_verify::{plan, sandbox};

use super::Document;
use crate::bench::threads::ThreadCounts;
use crate::cli::Outcome;
pub use settings::Args;

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
    let outputs = super::outputs(args.json.as_deref())?;
    let say = |text: String| outputs.say(&text);

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
    let outcome = outcome(&total);
    outputs.write(&Document {
        report: total,
        parameters,
    })?;
    Ok(outcome)
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
