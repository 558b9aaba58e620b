//! `kinlock-lab explore`: random schedules on the simulated machine.

mod args;

use anyhow::anyhow;
use kinlock_cli::outcome::Outcome;
use kinlock_cli::report::write::Outputs;
use kinlock_measure::progress;
use kinlock_verify::explore::{self, Explored, Failure, Replay, Subject};
use serde_json::{Map, Value, json};

use self::args::{Common, Ids, Invalidation, Locks};
use crate::checks::{self, chosen};

/// The longest trace that is worth reading. Of a longer one, the end is shown.
const TRACE: usize = 60;

/// Look for schedules in which our primitives fail
///
/// They run on a simulated machine whose threads are preempted, interrupted and woken at the worst
/// moments. Every schedule is drawn from a seed, so that one that fails can be played again, with a
/// trace.
///
/// Without the name of a primitive: locks (with mutexes and condition variables), with the options
/// below.
///
/// Example: kinlock-lab explore --locks cna,mutex --schedules 100000
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_long_help = checks::HELP)]
// The flattened options have a group of the same name.
#[group(skip)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    locks: Locks,
}

#[derive(clap::Subcommand)]
enum What {
    Locks(Locks),
    Ids(Ids),
    Invalidation(Invalidation),
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let of_locks = |args: &Locks| {
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
    let json = common.json.as_deref();
    let Some(word) = &common.replay else {
        return explore_all(primitive, flag, subjects, common, checks::outputs(json)?);
    };
    let replay = word.parse::<Replay<S>>();
    let replay = replay.map_err(|why| anyhow!("--replay {word}: {why}"))?;
    play_again(primitive, &replay, checks::outputs(json)?)
}

fn explore_all<S: Subject>(
    primitive: &'static str,
    flag: &'static str,
    subjects: &[S],
    common: &Common,
    outputs: Outputs<Value>,
) -> anyhow::Result<Outcome> {
    let settings = common.settings();
    let parameters = checks::named(flag, subjects)
        .add("schedules", settings.schedules)
        .add("seed", settings.seed)
        .add("threads", settings.threads)
        .add("host-threads", settings.host_threads);
    let verb = format!("explore {primitive}");
    let mut run = checks::Run::start(&outputs, &verb, &parameters)?;
    let mut found = Map::new();
    let (mut schedules, mut accesses) = (0, 0);
    for subject in subjects {
        let bar = progress::bar(common.quiet, settings.schedules as usize, || ());
        bar.set_message(subject.name());
        let explored = explore::explore(subject, &settings, |n| bar.set_position(n));
        bar.finish_and_clear();
        let trace = failing_trace(&explored);
        schedules += explored.schedules;
        accesses += explored.accesses;
        if let Some(failure) = &explored.failure {
            found.insert(subject.name().to_owned(), catch(failure));
        }
        run.add(subject, explored.report, &trace)?;
    }
    let mut of_run = serde_json::to_value(&parameters)?;
    of_run["primitive"] = primitive.into();
    let document = json!({
        "passed": run.total.passed,
        "checks": run.total.checks,
        "schedules": schedules,
        "accesses": accesses,
        "found": found,
        "parameters": of_run,
    });
    let outcome = run.end(&format!("Schedules: {schedules}, accesses: {accesses}"))?;
    outputs.write(&document)?;
    Ok(outcome)
}

/// How many schedules it took to find the failure, and words for `--replay`.
fn catch<S: Subject>(failure: &Failure<S>) -> Value {
    json!({
        "schedules": failure.number,
        "property": failure.property.name(),
        "drawn": failure.drawn.to_string(),
        "shrunk": failure.shrunk.to_string(),
    })
}

fn play_again<S: Subject>(
    primitive: &str,
    replay: &Replay<S>,
    outputs: Outputs<Value>,
) -> anyhow::Result<Outcome> {
    let echo = format!("kinlock-lab explore {primitive} --replay {replay}\n");
    outputs.say(&echo)?;
    let lines = explore::trace(replay);
    outputs.say(&tail(&lines))?;
    let result = explore::replay(replay);
    let passed = result.is_ok();
    outputs.say(&echo)?;
    outputs.say(&checks::end(passed))?;
    let failure = result.as_ref().err();
    outputs.write(&json!({
        "passed": passed,
        "property": failure.map(|(property, _)| property.name()),
        "detail": failure.map(|(_, detail)| detail),
        "trace": lines,
        "replay": replay.to_string(),
    }))?;
    Ok(match passed {
        true => Outcome::Done,
        false => Outcome::CheckFailed,
    })
}

/// How a schedule of one subject failed.
fn failing_trace<S: Subject>(explored: &Explored<S>) -> String {
    let failure = explored.failure.as_ref();
    failure.map_or_else(String::new, |it| tail(&explore::trace(&it.shrunk)))
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
