//! `kinlock run`: an unmodified program on our locks.
//!
//! The command finds and checks the [program](program) and the [library](library), sets the
//! [variables] that the library reads, and becomes the program: exit status, signals, stdin and
//! stdout are the program's own. For a [report](report) it [stays](stay) behind.

mod image;
pub mod library;
pub mod outer;
pub mod platforms;
pub mod program;
pub mod report;
pub mod supervise;
pub mod variables;
mod witness;

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf, absolute};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;

use anyhow::{Context, bail};
use kinlock_cli::args::{Named, named};
use kinlock_cli::outcome::{Failure, Outcome, tell};
use kinlock_cli::report::write::descriptor;

use self::program::{CANNOT_RUN, Program};
use self::report::Session;
use self::supervise::Duties;
use self::variables::{Knobs, Lock, RwLocks, Variable, quoted};

/// Run an unmodified program on our locks
///
/// A library is preloaded that serves the calls by which the program takes and leaves pthread
/// mutexes, reader-writer locks, spinlocks and condition variables; C11 threads and C++ use these,
/// too. The command then becomes the program. Nothing is written to the program's stdout.
///
/// Programs that a preloaded library does not reach are refused: static ones, unless they may start
/// others, set-uid ones, those of another architecture or C library; and those under a sanitizer or
/// a checker of threads, which has to see the C library's locks. --force runs them all the same. If
/// no call was intercepted, a line on stderr says so at the end.
///
/// With --report the command stays behind, passes signals on, and says at the end what each lock
/// did; SIGUSR1 to the command shows that at once. The program runs slower under a report: mostly
/// by a tenth or less, by a quarter if it does nothing but lock.
///
/// Exit status: the program's; 1 if that is 0 and a limit of --fail-if is exceeded; 2 bad input,
/// 126 the program cannot be run, 127 it was not found.
///
/// Examples:
///   kinlock run -- xz -T4 --keep file
///   kinlock run --report -- program            # where do threads wait, and for which locks?
///   kinlock run --report --lock pthread -- program     # the same of the C library's own locks
///   kinlock run --report --html report.html -- program    # ... as a page, with pictures
///   kinlock run --report --fail-if 'contended > 5 %' --fail-if 'hold > 10 ms' -- program   # in CI
///   kinlock run --report --alarm-wait 1s --alarm-hold 100ms -- program # a line at that moment
///   kinlock run --report --folded waits.txt -- program # then: flamegraph.pl waits.txt > waits.svg
///   kinlock run --standby --lock pthread -- redis-server     # then: kinlock report PID
///   kinlock run --lock pthread --counts counts.json -- redis-server --io-threads 4
///   (eval "$(kinlock run --print-env)"; exec redis-server --io-threads 4)
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The lock to use: kinlock-mutex; kinlock-spin, for short critical sections, no more threads
    /// than CPUs, and no memory that is freed while it is unlocked; or pthread: the C library's
    /// own, for which nothing is preloaded except to count or to report
    #[arg(long, value_name = "NAME", default_value = "kinlock-mutex", value_parser = named::<Lock>)]
    lock: Lock,
    /// The reader-writer locks to use: ours, or glibc: the C library's own [default: ours, but
    /// glibc with --lock pthread]
    #[arg(long, value_name = "ours|glibc", value_parser = named::<RwLocks>)]
    rwlock: Option<RwLocks>,
    /// Write how often locks were taken and found taken, as JSON: a line per process
    #[arg(long, value_name = "FILE")]
    counts: Option<PathBuf>,
    /// Let `kinlock report PID` say what locks do while the program runs. Until that command is
    /// used, the program runs as without a report
    #[arg(long, conflicts_with_all = ["report", "print_env"])]
    standby: bool,
    /// Print the variables for a shell, and run nothing
    #[arg(long)]
    print_env: bool,
    /// The program and its arguments
    #[arg(
        value_name = "PROG",
        trailing_var_arg = true,
        required_unless_present = "print_env"
    )]
    command: Vec<OsString>,
    #[command(flatten)]
    knobs: Knobs,
    #[command(flatten)]
    report: report::Args,
}

pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let session = Session::begin(&args.report, &args.command)?;
    let is_watched = args.counts.is_some() || session.is_some() || args.standby;
    let is_ours = args.lock != Lock::Pthread || args.rwlock == Some(RwLocks::Ours);
    let is_swapped = is_ours || is_watched;
    let program = args.command.split_first();
    let program = program.map(|(name, args)| Program::find(name, args));
    let program = program.transpose()?;
    if let Some(program) = program.as_ref().filter(|_| is_swapped) {
        let is_reported = session.is_some() || args.standby;
        program.check(args.knobs.force, is_reported)?;
    }
    let mut variables = args.knobs.variables();
    let mut counts = None;
    if is_swapped {
        variables.extend(variables::of_lock(args.lock, &library::find()?));
        variables.extend(
            args.rwlock
                .map(|kind| ("KINLOCK_RWLOCK", kind.name().into())),
        );
        counts = args
            .counts
            .as_deref()
            .map(Counts::begin)
            .transpose()?
            .flatten();
        let path = counts.as_ref().map(|counts| counts.path.clone());
        variables.extend(path.map(|path| ("KINLOCK_COUNTS", path.into())));
    }
    if args.standby {
        variables.push(("KINLOCK_REPORT", report::for_standby()?.into()));
        variables.push(("KINLOCK_STANDBY", "1".into()));
    }
    if args.print_env {
        let is_set = |name| variables.iter().any(|(set, _)| set == name);
        let changes = outer::changes().iter().filter(|(name, _)| !is_set(name));
        let changes = changes.map(|(name, value)| match value {
            Some(value) => quoted(name, value),
            None => format!("unset {name}\n").into_bytes(),
        });
        let lines = variables.iter().map(|(name, value)| quoted(name, value));
        let lines: Vec<_> = changes.chain(lines).collect();
        std::io::stdout().write_all(&lines.concat())?;
        return Ok(Outcome::Done);
    }
    let program = program.context("there is no program")?;
    if let Some(session) = session {
        variables.extend(session.variables());
        return reported(&session, &program, &variables, counts);
    }
    if is_swapped {
        // Only the process that this one becomes warns: many of its children use no locks.
        variables.push(("KINLOCK_WARN", std::process::id().to_string().into()));
    }
    let image = program.image(&variables)?;
    let error = image.exec();
    if let Some(counts) = counts {
        counts.give_back();
    }
    Err(cannot_run(&program, &error).into())
}

/// Runs the program and reports what its locks did, in whatever way the program ends.
fn reported(
    session: &Session,
    program: &Program,
    variables: &[Variable],
    counts: Option<Counts>,
) -> anyhow::Result<Outcome> {
    let mut image = program.image(variables)?;
    let report = |status| {
        if let Err(error) = session.report(status) {
            tell(&format!("kinlock: {error:#}"));
        }
    };
    let is_over = &AtomicBool::new(false);
    let status = std::thread::scope(|scope| {
        // A separate thread makes the reports, one after the other: if nobody reads an output,
        // signals are still passed to the program.
        let (sender, requests) = channel::<Option<ExitStatus>>();
        let mut requests = Some(requests);
        let ask = |status| {
            // There is no thread if none could be started.
            if sender.send(status).is_err() {
                report(status);
            }
        };
        let mut watcher = None;
        // Called when all signals are blocked, so that no thread of this scope gets them.
        let mut begin = |pid| {
            let maker = |name: &str| std::thread::Builder::new().name(name.to_owned());
            let asked = requests.take().into_iter().flatten();
            let _ = maker("report").spawn_scoped(scope, move || asked.for_each(report));
            watcher = session.watch(pid).and_then(|mut alarms| {
                let look = move || {
                    while !is_over.load(Relaxed) {
                        alarms.look();
                        std::thread::park_timeout(alarms.period());
                    }
                };
                maker("alarms").spawn_scoped(scope, look).ok()
            });
        };
        let duties = Duties {
            on_start: Some(&mut begin),
            on_request: Some(&mut || ask(None)),
            notes: session.text.is_none(),
            keeps: session.descriptors(),
        };
        let status = supervise::run(&mut image, duties);
        is_over.store(true, Relaxed);
        if let Some(watcher) = watcher {
            watcher.thread().unpark();
        }
        let status = status?;
        supervise::may_be_ended(session.folder.path().to_owned());
        ask(Some(status));
        Ok(status)
    });
    // Removed here, since no destructor runs when this process ends as the program did.
    let _ = fs::remove_dir_all(session.folder.path());
    let status = status.map_err(|error| {
        if let Some(counts) = counts {
            counts.give_back();
        }
        cannot_run(program, &error)
    })?;
    match status.success() && session.has_failed.load(Relaxed) {
        true => Ok(Outcome::CheckFailed),
        false => Ok(supervise::end_like(status)),
    }
}

pub fn cannot_run(program: &Program, error: &io::Error) -> Failure {
    Failure {
        status: CANNOT_RUN,
        what: format!("{}: cannot be run: {error}", program.name()),
    }
}

/// The file for counts. It is empty at first, and each process of the program adds a line.
struct Counts {
    /// Absolute, because the program may change its folder.
    path: PathBuf,
    /// Its old content, which is restored if the program cannot be executed.
    before: Option<Vec<u8>>,
}

impl Counts {
    /// `None` if there can be no counts: without `/proc` a path to a descriptor does not exist.
    fn begin(path: &Path) -> anyhow::Result<Option<Self>> {
        if path == Path::new("-") {
            bail!("--counts -: stdout is the program's; name a file");
        }
        if descriptor(path).is_some() && !Path::new("/proc/self/fd").exists() {
            let path = path.display();
            tell(&format!(
                "kinlock: no counts: without /proc there is no {path}"
            ));
            return Ok(None);
        }
        let cannot = || format!("cannot write {}", path.display());
        let is_file = fs::metadata(path).is_ok_and(|data| data.is_file());
        let before = is_file.then(|| fs::read(path).unwrap_or_default());
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true);
        file.open(path).with_context(cannot)?;
        let path = absolute(path).with_context(cannot)?;
        Ok(Some(Counts { path, before }))
    }

    /// Restores the file.
    fn give_back(self) {
        // An error here is ignored, since there is already another one to report.
        let _ = match self.before {
            Some(text) => fs::write(&self.path, text),
            None if self.path.is_file() => fs::remove_file(&self.path),
            None => Ok(()),
        };
    }
}
