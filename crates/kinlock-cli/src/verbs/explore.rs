//! `kinlock explore`: random schedules on the simulated machine.

mod ids;
mod invalidation;
mod locks;
mod settings;

use std::collections::BTreeMap;

use anyhow::anyhow;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kinlock_verify::explore::{self, Explored, Replay, Subject};
use kinlock_verify::report::Report;
use serde::Serialize;

use crate::cli::Outcome;
use crate::output::files::Outputs;
use crate::output::write_json;
use settings::{Common, Parameters, chosen};

/// The longest trace that is worth reading; of longer ones the end is shown.
const TRACE: usize = 60;

/// Look for schedules in which our primitives fail.
///
/// They run on a simulated machine whose threads are preempted, interrupted and woken at the worst moments. Every schedule is drawn from a seed, so that what fails can be played again, with a trace.
///
/// Without the name of a primitive: locks (with mutexes and condition variables), with the options below.
///
/// Example: kinlock explore --locks cna,mutex --schedules 100000
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
// The flattened options bring a group of the same name.
#[group(skip)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    locks: locks::Args,
}

/// What can be explored.
#[derive(clap::Subcommand)]
enum What {
    Locks(locks::Args),
    Ids(ids::Args),
    Invalidation(invalidation::Args),
}

/// Runs the verb.
///
/// # Errors
/// If the input is bad or the results cannot be written.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let of_locks = |args: &locks::Args| {
        let chosen = chosen::<explore::locks::Specimen>(&args.locks);
        explore_or_replay("locks", "locks", &chosen, &args.common)
    };
    match &args.what {
        None => of_locks(&args.locks),
        Some(What::Locks(args)) => of_locks(args),
        Some(What::Ids(args)) => {
            let chosen = chosen::<explore::ids::Specimen>(&args.policies);
            explore_or_replay("ids", "policies", &chosen, &args.common)
        }
        Some(What::Invalidation(args)) => {
            let chosen = chosen::<explore::invalidation::Specimen>(&args.backends);
            explore_or_replay("invalidation", "backends", &chosen, &args.common)
        }
    }
}

fn explore_or_replay<S: Subject>(
    primitive: &'static str,
    flag: &'static str,
    subjects: &[S],
    common: &Common,
) -> anyhow::Result<Outcome> {
    let word = common.replay.as_ref();
    let replay = word.map(|word| {
        let replay = word.parse::<Replay<S>>();
        replay.map_err(|why| anyhow!("--replay {word}: {why}"))
    });
    let replay = replay.transpose()?;
    let mut outputs = Outputs::new();
    // One of two kinds of report, as JSON.
    outputs.add(common.json.as_deref(), |json: &String, out| {
        Ok(out.write_all(json.as_bytes())?)
    })?;
    match replay {
        Some(replay) => play_again(primitive, &replay, outputs),
        None => {
            let parameters = common.parameters(primitive, flag, subjects);
            explore_all(subjects, &parameters, common.quiet, outputs)
        }
    }
}

fn explore_all<S: Subject>(
    subjects: &[S],
    parameters: &Parameters,
    quiet: bool,
    outputs: Outputs<String>,
) -> anyhow::Result<Outcome> {
    let mut total = Report::new();
    let mut sound_failed = false;
    let mut found = BTreeMap::new();
    let (mut schedules, mut accesses) = (0, 0);
    outputs.say(&parameters.text())?;
    for subject in subjects {
        let bar = progress_bar(subject.name(), parameters.schedules, quiet);
        let explored = explore::explore(subject, &parameters.settings(), |n| bar.set_position(n));
        bar.finish_and_clear();
        outputs.say(&text(&explored))?;
        schedules += explored.schedules;
        accesses += explored.accesses;
        if let Some(failure) = &explored.failure {
            let schedule = failure.schedule.as_ref();
            found.insert(
                subject.name(),
                Found {
                    schedules: failure.number,
                    property: failure.property.name(),
                    drawn: schedule.map(|schedule| schedule.drawn.to_string()),
                    shrunk: schedule.map(|schedule| schedule.shrunk.to_string()),
                },
            );
        }
        sound_failed |= subject.defect().is_none() && !explored.report.passed;
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
    // A sound one that failed is worse news than a broken one that got away.
    Ok(match total {
        _ if sound_failed => Outcome::CheckFailed,
        _ if total.escaped() => Outcome::Escaped,
        Report { passed: true, .. } => Outcome::Done,
        _ => Outcome::CheckFailed,
    })
}

fn play_again<S: Subject>(
    primitive: &str,
    replay: &Replay<S>,
    outputs: Outputs<String>,
) -> anyhow::Result<Outcome> {
    let echo = format!("kinlock explore {primitive} --replay {replay}\n");
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

/// The checks of one of them and, if it failed, how.
fn text<S: Subject>(explored: &Explored<S>) -> String {
    let mut text = String::new();
    for check in &explored.report.checks {
        let verdict = if check.passed { "ok" } else { "FAILED" };
        text += &format!("{verdict:<7} {:<36} {}\n", check.name, check.detail);
    }
    if let Some(schedule) = explored.failure.as_ref().and_then(|f| f.schedule.as_ref()) {
        text += &tail(&explore::trace(&schedule.shrunk));
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

fn progress_bar(name: &str, schedules: u64, quiet: bool) -> ProgressBar {
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
    bar.set_message(name.to_owned());
    bar
}

/// What programs read.
#[derive(Serialize)]
struct Document<'a> {
    passed: bool,
    checks: &'a [kinlock_verify::report::Check],
    schedules: u64,
    accesses: u64,
    /// By name: of a lock, for example.
    found: BTreeMap<&'static str, Found>,
    parameters: &'a Parameters,
}

#[derive(Serialize)]
struct Found {
    /// How many it took.
    schedules: u64,
    property: &'static str,
    /// Words for `--replay`; none if no schedule fails by itself, but so many do together.
    drawn: Option<String>,
    shrunk: Option<String>,
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
