//! `kinlock explore`: random schedules on the simulated machine.

mod settings;

use std::collections::BTreeMap;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kinlock_verify::explore::{self, Explored, Replay, locks};
use kinlock_verify::report::Report;
use serde::Serialize;

use crate::cli::Outcome;
use crate::output::files::Outputs;
use crate::output::write_json;
pub use settings::Args;
use settings::Parameters;

/// The longest trace that is worth reading; of longer ones the end is shown.
const TRACE: usize = 60;

/// Runs the verb.
///
/// # Errors
/// If the input is bad or the results cannot be written.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let mut outputs = Outputs::new();
    // One of two kinds of report, as JSON.
    outputs.add(args.json.as_deref(), |json: &String, out| {
        Ok(out.write_all(json.as_bytes())?)
    })?;
    match &args.replay {
        Some(replay) => play_again(replay, outputs),
        None => explore_all(&args.parameters(), args.quiet, outputs),
    }
}

fn explore_all(
    parameters: &Parameters,
    quiet: bool,
    outputs: Outputs<String>,
) -> anyhow::Result<Outcome> {
    let mut total = Report::new();
    let mut found = BTreeMap::new();
    let (mut schedules, mut accesses) = (0, 0);
    outputs.say(&parameters.text())?;
    for lock in parameters.specimens() {
        let bar = progress_bar(lock.name, parameters.schedules, quiet);
        let explored = explore::explore(&lock, &parameters.settings(), |n| bar.set_position(n));
        bar.finish_and_clear();
        outputs.say(&text(&explored))?;
        schedules += explored.schedules;
        accesses += explored.accesses;
        if let Some(failure) = &explored.failure {
            found.insert(
                lock.name,
                Found {
                    schedules: failure.number,
                    property: failure.property.name(),
                    drawn: failure.drawn.to_string(),
                    shrunk: failure.shrunk.to_string(),
                },
            );
        }
        total.merge(explored.report);
    }
    outputs.say(&parameters.text())?;
    let failed = total.checks.iter().filter(|check| !check.passed).count();
    outputs.say(&format!(
        "Schedules: {schedules}, accesses: {accesses}\nChecks: {}, failed: {failed}\nEnd of test: {}\n",
        total.checks.len(),
        verdict(total.passed)
    ))?;
    outputs.write(&json(&Document {
        passed: total.passed,
        checks: &total.checks,
        schedules,
        accesses,
        found,
        parameters,
    })?)?;
    Ok(outcome(&total))
}

fn play_again(replay: &Replay, outputs: Outputs<String>) -> anyhow::Result<Outcome> {
    let echo = format!("kinlock explore locks --replay {replay}\n");
    outputs.say(&echo)?;
    let lines = explore::trace(replay);
    outputs.say(&tail(&lines))?;
    let result = explore::replay(replay);
    outputs.say(&echo)?;
    outputs.say(&format!("End of test: {}\n", verdict(result.is_ok())))?;
    let failure = result.as_ref().err();
    outputs.write(&json(&Replayed {
        passed: result.is_ok(),
        property: failure.map(|(property, _)| property.name()),
        detail: failure.map(|(_, detail)| detail.as_str()),
        trace: &lines,
        replay: replay.to_string(),
    })?)?;
    Ok(if result.is_ok() {
        Outcome::Done
    } else {
        Outcome::CheckFailed
    })
}

/// The checks of a lock and, if it failed, how.
fn text(explored: &Explored) -> String {
    let mut text = String::new();
    for check in &explored.report.checks {
        let verdict = if check.passed { "ok" } else { "FAILED" };
        text += &format!("{verdict:<7} {:<36} {}\n", check.name, check.detail);
    }
    if let Some(failure) = &explored.failure {
        text += &tail(&explore::trace(&failure.shrunk));
    }
    text
}

fn tail(lines: &[String]) -> String {
    let left_out = lines.len().saturating_sub(TRACE);
    let mut text = String::new();
    if left_out > 0 {
        text += &format!("        ... {left_out} earlier events\n");
    }
    for line in &lines[left_out..] {
        text += &format!("        {line}\n");
    }
    text
}

fn verdict(passed: bool) -> &'static str {
    if passed { "SUCCESS" } else { "FAILURE" }
}

/// A sound lock that failed is worse news than a broken one that got away.
fn outcome(report: &Report) -> Outcome {
    let sound_failed = locks::ALL
        .iter()
        .filter(|lock| lock.defect.is_none())
        .any(|lock| {
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

fn progress_bar(lock: &str, schedules: u64, quiet: bool) -> ProgressBar {
    let target = if quiet {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    };
    let bar = ProgressBar::with_draw_target(Some(schedules), target);
    bar.set_style(
        ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len} {eta}")
            .expect("the template is valid"),
    );
    bar.set_message(lock.to_owned());
    bar
}

/// What programs read.
#[derive(Serialize)]
struct Document<'a> {
    passed: bool,
    checks: &'a [kinlock_verify::report::Check],
    schedules: u64,
    accesses: u64,
    /// By lock.
    found: BTreeMap<&'static str, Found>,
    parameters: &'a Parameters,
}

#[derive(Serialize)]
struct Found {
    /// How many it took.
    schedules: u64,
    property: &'static str,
    drawn: String,
    shrunk: String,
}

#[derive(Serialize)]
struct Replayed<'a> {
    passed: bool,
    property: Option<&'static str>,
    detail: Option<&'a str>,
    trace: &'a [String],
    replay: String,
}

fn json(report: &impl Serialize) -> anyhow::Result<String> {
    let mut json = Vec::new();
    write_json(report, &mut json)?;
    Ok(String::from_utf8(json)?)
}
