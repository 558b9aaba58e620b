//! `kinlock record`: hold and think times of a program's locks, to a file for `kinlock-lab sim`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use kinlock_cli::args::named;
use kinlock_cli::machine::Machine;
use kinlock_cli::outcome::{Outcome, tell};
use kinlock_cli::report::text::json;
use kinlock_cli::report::units::time;
use kinlock_cli::report::write::{Outputs, descriptor};
use kinlock_measure::workloads::recorded::Recording;

use crate::run::program::Program;
use crate::run::report::{Folder, recorded};
use crate::run::supervise::Duties;
use crate::run::variables::{self, Knobs, Lock};
use crate::run::{cannot_run, library, supervise};

/// Record how an unmodified program uses its locks, for `kinlock-lab sim`
///
/// The program runs as under `kinlock run`. For each lock the file has the distributions of hold
/// times and of think times: from a thread's unlock to its next lock of the same lock. It also says
/// which thread held the lock after which, and how often. Only about one acquisition in 256 is
/// timed, and each one that waited. Record with no more threads than CPUs: a thread that is
/// preempted holds its lock for long.
///
/// Nothing is written to the program's stdout. Of several processes, the one that took locks most
/// often is recorded.
///
/// Exit status: the program's; 2 bad input, 126 the program cannot be run, 127 it was not found.
///
/// Examples:
///   kinlock record -o recorded.json -- program --threads 2
///   kinlock-lab sim --workload recorded.json --machine epyc-9654-2s --threads 2,16,64
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Where the recording goes, as JSON of at most 10 MB
    #[arg(short, long, value_name = "FILE", default_value = "recorded.json")]
    output: PathBuf,
    /// The lock to use: kinlock-mutex; kinlock-spin; or pthread: the C library's own
    #[arg(long, value_name = "NAME", default_value = "kinlock-mutex", value_parser = named::<Lock>)]
    lock: Lock,
    /// The program and its arguments
    #[arg(value_name = "PROG", trailing_var_arg = true, required = true)]
    command: Vec<OsString>,
    #[command(flatten)]
    knobs: Knobs,
}

const LARGEST: usize = 10_000_000;

pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let [name, words @ ..] = &args.command[..] else {
        bail!("there is no program");
    };
    let program = Program::find(name, words)?;
    program.check(args.knobs.force, true)?;
    let outputs = outputs(&args.output)?;
    let folder = Folder::new()?;
    let mut variables = args.knobs.variables();
    variables.extend(variables::of_lock(args.lock, &library::find()?));
    variables.push(("KINLOCK_REPORT", folder.prefix().into()));
    variables.push(("KINLOCK_RECORD", "1".into()));
    let about = about(&args.command);
    let duties = Duties {
        on_start: None,
        on_request: None,
        notes: false,
        keeps: descriptor(&args.output).into_iter().collect(),
    };
    let status = supervise::run(&mut program.image(&variables)?, duties);
    let status = status.map_err(|error| cannot_run(&program, &error))?;
    supervise::may_be_ended(folder.path().to_owned());
    match recorded::recording(&folder, &about) {
        Ok(Some(recording)) if !recording.locks.is_empty() => {
            if let Err(error) = write(recording, outputs, &args.output) {
                tell(&format!("kinlock: {error:#}"));
            }
        }
        Ok(_) => {
            tell("kinlock: nothing recorded: no thread took a pthread mutex or spinlock twice")
        }
        Err(error) => tell(&format!("kinlock: {error:#}")),
    }
    // No destructor runs when this process ends as the program did.
    drop(folder);
    Ok(supervise::end_like(status))
}

/// Opens the file, so that an error is known before the program runs. Its content stays until there
/// is a recording.
fn outputs(path: &Path) -> anyhow::Result<Outputs<String>> {
    if path == Path::new("-") {
        bail!("--output -: stdout is the program's; name a file");
    }
    let mut outputs = Outputs::private();
    outputs.add(Some(path), |text: &String, out| {
        Ok(writeln!(out, "{}", json(text))?)
    })?;
    Ok(outputs)
}

/// The fields of a recording that do not come from the table.
fn about(command: &[OsString]) -> Recording {
    let machine = Machine::current();
    let words = command.iter().map(|word| word.display().to_string());
    Recording {
        kind: "recorded".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: words.collect(),
        cpu: machine.cpu,
        cpus: machine.usable_cpus,
        clock_ns: machine.timer_cost_ns,
        ..Recording::default()
    }
}

/// Writes as many locks as the file has room for, and says what was recorded.
fn write(mut recording: Recording, outputs: Outputs<String>, path: &Path) -> anyhow::Result<()> {
    let mut text = serde_json::to_string(&recording)?;
    while text.len() >= LARGEST {
        let last = recording.locks.pop().context("a lock is too large")?;
        recording.left_out += 1;
        recording.left_out_locked += last.locked;
        text = serde_json::to_string(&recording)?;
    }
    outputs.write(&text)?;
    let lock = &recording.locks[0];
    let locks = match recording.locks.len() {
        1 => "one lock".to_owned(),
        n => format!("{n} locks"),
    };
    tell(&format!(
        "kinlock: recorded {locks} in {}; most waited for: {}, held for {}, then left for {} on \
         average",
        path.display(),
        lock.name,
        time(lock.hold.mean()),
        time(lock.think.mean()),
    ));
    Ok(())
}
