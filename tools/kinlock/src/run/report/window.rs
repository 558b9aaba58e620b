//! `kinlock report`: what the locks of a process that stands by do, for a while, or [who holds
//! them](super::now) at this moment.
//!
//! The process was started by `kinlock run --standby`. The page in which the preloaded library
//! keeps its mode is a file, which this command finds among the process's mappings. The command
//! sets a bit in it, waits, reads the table, and clears the bit: nothing is sent to the process,
//! and nothing in it is stopped.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use kinlock_cli::args::named;
use kinlock_cli::outcome::{Outcome, tell};
use kinlock_cli::report::write::{Outputs, descriptor};
use kinlock_cli::report::write_json;
use kinlock_measure::interrupt;
use kinlock_report::{MAGIC, PAGE, REPORTS, SWITCH, Switch};
use rustix::fs::{FlockOperation, flock};

use super::alarm::{self, Alarms};
use super::folder::{Snapshot, TABLES, is_for_standby, is_table, is_unused, remove_unused};
use super::openmetrics::Series;
use super::others::{self, descendants, none_of, paths, runs};
use super::tables::Options;
use super::{Process, Report, View, finish, now, outputs, read};

/// Say who holds the locks of a running process and who waits, or measure what they do
///
/// At once, for a process that `kinlock run` has started: each lock for which threads wait, which
/// thread holds it, since when the others wait, by which calls, and whether they wait for each
/// other in a circle. Which threads read, and who holds a lock of Rust, is known with --standby.
/// The memory of the process is read, so this takes the rights of a debugger.
///
/// With --seconds the process has to stand by: `kinlock run --standby` has started it, or one that
/// started it. It runs at full speed until this command switches measuring on, and as slow as with
/// `run --report` until it switches measuring off again. Waits and holds that began before are not
/// measured: a thread that already waits is seen when it waits again, and a lock that is already
/// held when it is taken again. Ctrl-C ends the measurement early.
///
/// No signal is sent, and nothing is stopped.
///
/// Exit status: 0 done, 2 bad input, such as a process that kinlock did not start.
///
/// Examples:
///   kinlock run --standby --lock pthread -- redis-server --io-threads 4 &
///   kinlock report $(pidof redis-server)               # it hangs: who holds what, who waits?
///   kinlock report $(pidof redis-server) --seconds 10  # which lock is slow?
///   kinlock report $(pidof redis-server) --follow --openmetrics /var/lib/node_exporter/redis.prom
///   kinlock report $(pidof redis-server) --alarm-wait 1s --alarm-hold 100ms 2>>alarms.log
///   kinlock report $(cat /run/nginx.pid) --all         # the process and its descendants
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The number of the process
    #[arg(value_name = "PID")]
    pid: u32,
    /// Measure for SECONDS what the locks do, and report that
    #[arg(long, value_name = "SECONDS", value_parser = seconds, conflicts_with_all = ALARMS)]
    seconds: Option<Duration>,
    /// Measure until Ctrl-C, or until the process has ended, and replace the file of --openmetrics
    /// every five seconds
    #[arg(long, requires = "openmetrics", conflicts_with_all = ["seconds", "json"],
        conflicts_with_all = ALARMS)]
    follow: bool,
    /// Write counters of locks for Prometheus and the like, in the text format of OpenMetrics
    #[arg(long, value_name = "FILE", conflicts_with_all = ALARMS)]
    openmetrics: Option<PathBuf>,
    #[command(flatten)]
    alarms: alarm::Limits,
    /// Also the descendants of the process
    #[arg(long, conflicts_with_all = ALARMS)]
    all: bool,
    /// Write the whole report as JSON; - is stdout
    #[arg(long, value_name = "FILE", conflicts_with_all = ALARMS)]
    json: Option<PathBuf>,
    /// Write where threads waited, and for how many nanoseconds, as folded stacks: the input of
    /// flame graph tools
    #[arg(long, value_name = "FILE", requires = "seconds")]
    folded: Option<PathBuf>,
    /// Write the report as one page for browsers that needs no other file: who waits for whom, how
    /// long waits and holds are, all tables
    #[arg(long, value_name = "FILE", requires = "seconds")]
    html: Option<PathBuf>,
    /// A row of the report is a lock, a caller or a thread
    #[arg(long, value_name = "lock|caller|thread", default_value = "lock",
        value_parser = named::<View>, requires = "seconds")]
    by: View,
    /// The most rows of the report; the longest waits come first
    #[arg(long, value_name = "N", default_value_t = 10, conflicts_with_all = ALARMS)]
    max: usize,
    /// Leave out locks that were found taken, and other objects that were waited for, fewer than N
    /// times
    #[arg(long, value_name = "N", default_value_t = 0, requires = "seconds")]
    min_contended: u64,
}

/// The flags for alarms. They are for a single process, and exclude all other output.
const ALARMS: [&str; 2] = ["alarm_wait", "alarm_hold"];

const LONGEST: f64 = 86_400.0;

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number <= LONGEST => Ok(Duration::from_secs_f64(number)),
        Ok(_) => Err(format!("it has to be above 0, and {LONGEST} at most")),
        Err(_) => Err("it has to be a number".to_owned()),
    }
}

pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    if args.alarms.are_any() {
        return watch(args);
    }
    match (args.seconds, args.follow) {
        (Some(seconds), _) => measure(args, seconds),
        (None, true) => follow(args),
        (None, false) if args.openmetrics.is_some() => {
            bail!("--openmetrics needs --follow or --seconds")
        }
        (None, false) => at_once(args),
    }
}

fn at_once(args: &Args) -> anyhow::Result<Outcome> {
    let mut outputs = Outputs::private();
    outputs.add(args.json.as_deref(), |report, out| write_json(report, out))?;
    let max = args.max;
    outputs.for_people(move |report, out| Ok(out.write_all(now::text(report, max).as_bytes())?));
    outputs.write(&now::report(args.pid, args.all)?)?;
    Ok(Outcome::Done)
}

/// Prints alarms until Ctrl-C or the end of the process.
fn watch(args: &Args) -> anyhow::Result<Outcome> {
    now::report(args.pid, false)?;
    interrupt::listen();
    let mut watch = Alarms::new(args.pid, args.alarms);
    while runs(args.pid) && interrupt::noted().is_none() {
        watch.look();
        std::thread::sleep(watch.period());
    }
    Ok(Outcome::Done)
}

/// Measures what locks do, and writes the counters again and again.
fn follow(args: &Args) -> anyhow::Result<Outcome> {
    const PERIOD: Duration = Duration::from_secs(5);
    let file = args.openmetrics.as_deref().unwrap_or(Path::new("-"));
    // Refused, among others because opening a pipe would wait for its reader.
    let is_other = fs::metadata(file).is_ok_and(|found| !found.is_file());
    if descriptor(file).is_some() || is_other {
        bail!("--follow replaces a file: {} is none", file.display());
    }
    let mut outputs = Outputs::private();
    outputs.add_for_all(Some(file), |text: &Vec<u8>, out| Ok(out.write_all(text)?))?;
    let mut series = Series::default();
    let mut has_failed = false;
    let mut targets = begin(args)?;
    let last = loop {
        let is_due = wait(PERIOD, &targets);
        targets.iter_mut().for_each(Target::read);
        let goes_on = is_due && targets.iter().any(|target| target.is_mapped);
        if !goes_on {
            let all = targets.iter_mut();
            all.for_each(|target| target.switch.end_window());
        }
        if is_due && !goes_on && runs(args.pid) {
            tell(&format!(
                "kinlock: process {} runs another program now, which is not followed",
                args.pid
            ));
        }
        let mut text = Vec::new();
        series.write(&report_of(&targets), &mut text)?;
        let written = outputs.write(&text);
        if !goes_on {
            break written;
        }
        // Goes on after an error, since the next write may succeed: a full disk may be cleared.
        if let (Err(error), false) = (&written, has_failed) {
            tell(&format!("kinlock: {error:#}"));
        }
        has_failed = written.is_err();
    };
    targets.into_iter().for_each(Target::close);
    last?;
    Ok(Outcome::Done)
}

fn begin(args: &Args) -> anyhow::Result<Vec<Target>> {
    let mut targets = targets(args)?;
    interrupt::listen();
    targets.retain_mut(|target| match target.switch.begin_window() {
        Ok(()) => true,
        Err(error) => {
            tell(&format!(
                "kinlock: process {} is left out: {error}",
                target.pids[0]
            ));
            false
        }
    });
    Ok(targets)
}

/// What the processes did up to their last reading.
fn report_of(targets: &[Target]) -> Report {
    let mut report = Report::default();
    for target in targets {
        // A process with two switches has two tables, and each of its targets has both.
        for process in target.processes() {
            let is_it = |known: &Process| known.pid == process.pid && known.lock == process.lock;
            if !report.processes.iter().any(is_it) {
                report.processes.push(process);
            }
        }
        if let Some(error) = target.switch.error() {
            report.without.count += 1;
            report.without.reason = Some(error.to_string());
        }
    }
    report
}

fn measure(args: &Args, seconds: Duration) -> anyhow::Result<Outcome> {
    let options = Options {
        by: args.by,
        max: args.max,
        least: args.min_contended,
    };
    let mut outputs = outputs([&args.json, &args.folded, &args.html], options)?;
    outputs.for_people(move |report, out| Ok(out.write_all(options.text(report).as_bytes())?));
    outputs.add_for_all(args.openmetrics.as_deref(), |report, out| {
        Series::default().write(report, out)
    })?;
    let mut targets = begin(args)?;
    wait(seconds, &targets);
    // Tables are read before measuring ends, since later releases would not be seen. Names are
    // looked up after it, since that takes time.
    for target in &mut targets {
        target.read();
        target.switch.end_window();
    }
    // If a signal has ended the measurement early, the report still comes. If not, a signal may end
    // the command, since an output may hold it up.
    if interrupt::noted().is_none() {
        interrupt::listen_no_more();
    }
    let mut report = report_of(&targets);
    finish(&mut report.processes);
    targets.into_iter().for_each(Target::close);
    outputs.write(&report)?;
    Ok(Outcome::Done)
}

/// Processes that share a switch: a program and children that it has forked.
struct Target {
    switch: OpenSwitch,
    pids: Vec<u32>,
    path: PathBuf,
    /// Whether one of them still runs the program that has the switch.
    is_mapped: bool,
    /// The contents of their tables, and the tables' paths.
    snapshot: Snapshot,
    tables: Vec<PathBuf>,
}

/// How to make a program stand by.
const HOW: &str = "start the program with `kinlock run --standby --lock pthread -- PROGRAM`, or \
                   without --lock pthread on our locks";

/// The processes to be measured.
fn targets(args: &Args) -> anyhow::Result<Vec<Target>> {
    let mut targets: Vec<Target> = Vec::new();
    let mut switches = vec![(args.pid, switches_of(args.pid)?)];
    if args.all {
        // Descendants that do not stand by, or have ended, are not measured.
        let of = |pid| (pid, switches_of(pid).unwrap_or_default());
        switches.extend(descendants(args.pid).into_iter().map(of));
    }
    let pairs = |(pid, paths): (u32, Vec<PathBuf>)| paths.into_iter().map(move |path| (pid, path));
    for (pid, path) in switches.into_iter().flat_map(pairs) {
        if let Some(known) = targets.iter_mut().find(|target| target.path == path) {
            known.pids.push(pid);
            continue;
        }
        let switch = match OpenSwitch::open(&path) {
            Ok(switch) => switch,
            Err(error) if pid == args.pid => return Err(error),
            Err(error) => {
                let cause = error.downcast_ref().map(io::Error::kind);
                if cause != Some(ErrorKind::NotFound) {
                    tell(&format!("kinlock: process {pid} is left out: {error:#}"));
                }
                continue;
            }
        };
        targets.push(Target {
            switch,
            pids: vec![pid],
            path,
            is_mapped: true,
            snapshot: Snapshot::default(),
            tables: Vec::new(),
        });
    }
    if targets.is_empty() {
        let is_one = |pid| switches_of(pid).is_ok_and(|found| !found.is_empty());
        let says = ["does not stand by", "does", "stands by"];
        return Err(none_of(args.pid, args.all, is_one, says, HOW));
    }
    Ok(targets)
}

/// The files that a process has mapped as its switches: the preloaded library's, and the one of a
/// program that records by itself. An error if there is no such process, or it is another user's.
fn switches_of(pid: u32) -> anyhow::Result<Vec<PathBuf>> {
    let mapped = mapped(pid)?;
    let is_switch = |path: &PathBuf| {
        let name = path.file_name().map(OsStr::as_bytes);
        let rest = name.and_then(|name| name.strip_prefix(TABLES.as_bytes()));
        rest.is_some_and(|rest| rest.starts_with(SWITCH.as_bytes()))
    };
    Ok(mapped.into_iter().filter(is_switch).collect())
}

/// The files for standing by that a process has mapped.
fn mapped(pid: u32) -> anyhow::Result<Vec<PathBuf>> {
    Ok(paths(pid)?
        .into_iter()
        .filter(|path| is_for_standby(path))
        .collect())
}

/// Waits for this time, or until a signal comes or all processes have ended. Returns whether the
/// time has passed.
fn wait(duration: Duration, targets: &[Target]) -> bool {
    const LOOK: Duration = Duration::from_millis(50);
    let begin = Instant::now();
    while let Some(left) = duration.checked_sub(begin.elapsed()) {
        let mut pids = targets.iter().flat_map(|target| &target.pids);
        let any_runs = pids.any(|&pid| runs(pid));
        if !any_runs || interrupt::noted().is_some() {
            return false;
        }
        std::thread::sleep(left.min(LOOK));
    }
    true
}

impl Target {
    fn read(&mut self) {
        self.snapshot = Snapshot::default();
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let files = fs::read_dir(folder).into_iter().flatten().flatten();
        let tables = files.filter(|file| is_table(&file.file_name()));
        let tables: Vec<_> = tables.map(|file| file.path()).collect();
        // Numbers of processes differ between namespaces and are reused. So tables are found among
        // the mappings: a process that runs has its table mapped.
        let mapped_by = |pid: &u32| mapped(*pid).unwrap_or_default();
        let mapped: Vec<PathBuf> = self.pids.iter().flat_map(mapped_by).collect();
        self.is_mapped = mapped.contains(&self.path);
        self.tables = tables_of(tables, &mapped, &self.pids);
        for path in &self.tables {
            self.snapshot.add(path);
        }
    }

    fn processes(&self) -> Vec<Process> {
        let mut found = Vec::new();
        self.snapshot.for_each(|table, seen| {
            if table.header.window.load(Relaxed) == self.switch.window {
                found.push(read::process(table, seen));
            }
        });
        found
    }

    /// Removes the files of processes that ended during the measurement. The processes could not do
    /// that, since this command used the files.
    fn close(self) {
        let Target {
            switch,
            path,
            tables,
            ..
        } = self;
        drop(switch);
        for path in tables.iter().chain([&path]) {
            remove_unused(path);
        }
    }
}

/// The tables in a folder that some processes have mapped, and those of programs that these
/// processes ran before they ended or executed another one.
fn tables_of(all: Vec<PathBuf>, mapped: &[PathBuf], pids: &[u32]) -> Vec<PathBuf> {
    let is_of_ended = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let number = name
            .split('.')
            .nth(1)
            .and_then(|number| number.parse().ok());
        number.is_some_and(|number: u32| {
            let has_ended = || !Path::new(&format!("/proc/{number}/maps")).exists();
            pids.contains(&number) && (is_unused(path) || has_ended())
        })
    };
    let is_one = |path: &PathBuf| mapped.contains(path) || is_of_ended(path);
    all.into_iter().filter(is_one).collect()
}

/// The switch of some processes, which no other command uses.
///
/// The file is read and written, not mapped: its owner may shorten it, and then reading a mapping
/// would end this command by a signal.
struct OpenSwitch {
    file: File,
    window: u32,
    is_on: bool,
}

impl OpenSwitch {
    fn open(path: &Path) -> anyhow::Result<Self> {
        let cannot = || format!("cannot switch measuring on: {}", path.display());
        let file = others::open(path, OpenOptions::new().read(true).write(true), false);
        let file = file.with_context(cannot)?;
        if file.metadata().with_context(cannot)?.len() != PAGE as u64 {
            bail!("{}: it is no switch", cannot());
        }
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!("another `kinlock report` measures this process");
        }
        let mut magic = [0; 8];
        let at = offset_of!(Switch, magic) as u64;
        file.read_exact_at(&mut magic, at).with_context(cannot)?;
        if u64::from_ne_bytes(magic) != MAGIC {
            bail!("the process runs with the library of another version of kinlock");
        }
        Ok(OpenSwitch {
            file,
            window: 0,
            is_on: false,
        })
    }

    fn word(&self, at: usize) -> io::Result<u32> {
        let mut word = [0; 4];
        self.file.read_exact_at(&mut word, at as u64)?;
        Ok(u32::from_ne_bytes(word))
    }

    /// Writes a word. Processes may see it when only some bytes are new. That is harmless: of a
    /// mode only one byte changes, and a window's number is only compared with earlier ones, whose
    /// last byte differs.
    fn set(&self, at: usize, word: u32) -> io::Result<()> {
        self.file.write_all_at(&word.to_ne_bytes(), at as u64)
    }

    fn change_modes(&self, change: fn(u32) -> u32) -> io::Result<()> {
        // A process with such a file does not change its mode itself.
        for at in [offset_of!(Switch, mode), offset_of!(Switch, rwlock_mode)] {
            self.set(at, change(self.word(at)?))?;
        }
        Ok(())
    }

    fn begin_window(&mut self) -> io::Result<()> {
        self.is_on = true;
        self.set(offset_of!(Switch, errno), 0)?;
        // Set before the mode's bits: a new number makes the process clear its data of an earlier
        // window. 0 stands for no window.
        let at = offset_of!(Switch, window);
        self.window = self.word(at)?.checked_add(1).unwrap_or(1);
        self.set(at, self.window)?;
        self.change_modes(|mode| mode | REPORTS)
    }

    fn end_window(&mut self) {
        if std::mem::take(&mut self.is_on) {
            // If this fails, the process no longer uses the file.
            let _ = self.change_modes(|mode| mode & !REPORTS);
        }
    }

    /// The error for which a process had no table.
    fn error(&self) -> Option<io::Error> {
        let error = self.word(offset_of!(Switch, errno)).ok()?;
        (error != 0).then(|| io::Error::from_raw_os_error(error as i32))
    }
}

impl Drop for OpenSwitch {
    fn drop(&mut self) {
        self.end_window();
    }
}
