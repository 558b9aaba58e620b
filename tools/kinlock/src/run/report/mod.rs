//! The contention report of `kinlock run --report`: what each lock of the program did.
//!
//! The library fills a table for each process, in a file in memory. Here the tables are
//! [read](read), and their addresses get [names](symbols), after the program has ended or on
//! SIGUSR1.

mod alarm;
mod calls;
mod debug;
mod entry;
mod folded;
mod folder;
mod gate;
mod misuse;
mod now;
mod openmetrics;
mod order;
mod others;
mod outside;
mod page;
mod read;
pub mod recorded;
mod rust;
mod symbols;
mod tables;
mod view;
pub mod window;

use std::ffi::OsString;
use std::path::{Path, PathBuf, absolute};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::bail;
use kinlock_cli::args::named;
use kinlock_cli::names;
use kinlock_cli::outcome::tell;
use kinlock_cli::report::write::{Outputs, descriptor};
use kinlock_cli::report::write_json;
use kinlock_measure::workloads::recorded::RecordedLock;
use serde::Serialize;

use self::alarm::Alarms;
use self::entry::file_and_line;
pub use self::folder::{Folder, for_standby};
use self::folder::{Running, WithoutTable};
use self::gate::Gate;
use self::symbols::Frame;
use self::tables::Options;
use super::variables::Variable;

names! {
    /// What a row of the report stands for.
    View, "view":
    Lock = "lock", "a lock";
    Caller = "caller", "a function that takes locks";
    Thread = "thread", "a thread";
}

#[derive(clap::Args)]
#[group(skip)]
#[command(next_help_heading = "The report")]
pub struct Args {
    /// Say afterwards what each lock did: how often it was taken and found taken, how long threads
    /// waited for it and held it, and from where. On stderr, or in FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true,
        conflicts_with = "print_env")]
    report: Option<Option<PathBuf>>,
    /// Write the whole report as JSON
    #[arg(long, value_name = "FILE", requires = "report")]
    json: Option<PathBuf>,
    /// Write where threads waited, and for how many nanoseconds, as folded stacks: the input of
    /// flame graph tools
    #[arg(long, value_name = "FILE", requires = "report")]
    folded: Option<PathBuf>,
    /// Write the report as one page for browsers that needs no other file: who waits for whom, how
    /// long waits and holds are, all tables
    #[arg(long, value_name = "FILE", requires = "report")]
    html: Option<PathBuf>,
    /// A row of the report is a lock, a caller or a thread
    #[arg(long, value_name = "lock|caller|thread", default_value = "lock",
        value_parser = named::<View>, requires = "report")]
    by: View,
    /// The most rows of the report; the longest waits come first
    #[arg(long, value_name = "N", default_value_t = 10, requires = "report")]
    max: usize,
    /// Also note in which order locks are taken, and say which orders could deadlock. Each
    /// acquisition then costs more
    #[arg(long, requires = "report")]
    order: bool,
    /// Leave out locks that were found taken, and other objects that were waited for, fewer than N
    /// times
    #[arg(long, value_name = "N", default_value_t = 0, requires = "report")]
    min_contended: u64,
    /// End with status 1 if the report exceeds this limit: 'contended > 5 %' of acquisitions,
    /// 'wait > 10 %' of the lives of threads, 'wait > 100 ms' or 'hold > 10 ms' at the longest, or,
    /// with --order, 'circles > 0'; may be given several times
    #[arg(long, value_name = "LIMIT", requires = "report")]
    fail_if: Vec<Gate>,
    #[command(flatten)]
    pub alarms: alarm::Limits,
}

/// A report for programs. Names are a contract.
#[derive(Default, Serialize)]
pub struct Report {
    command: Vec<String>,
    /// How the program ended; null while it runs.
    status: Option<String>,
    #[serde(flatten)]
    without: WithoutTable,
    still_running: Vec<Running>,
    processes: Vec<Process>,
}

/// The name of the locks of a program that records by itself.
const OF_CRATE: &str = "crate kinlock";

#[derive(Serialize)]
pub struct Process {
    pid: u32,
    /// The number of the process that started this one.
    parent: u32,
    program: String,
    /// The name of the locks that it used.
    lock: &'static str,
    /// Whether it ended of its own accord.
    ended: bool,
    runs: bool,
    seconds: f64,
    /// Locality domains of the machine.
    domains: u32,
    /// Threads that took locks or waited.
    #[serde(rename = "threads_seen")]
    thread_count: u32,
    dropped: Dropped,
    /// Whether memory was missing for a part of the table.
    no_memory: bool,
    /// What the threads did that have ended and have no entry of their own.
    ended_threads: EndedThreads,
    /// Files that are gone or changed since they were loaded: their functions have no names.
    changed_files: Vec<String>,
    /// Stripped files: their functions have no names.
    stripped_files: Vec<Stripped>,
    misuses: Vec<misuse::Misuse>,
    /// The order of locks, if it was asked for.
    order: Option<misuse::LockOrder>,
    /// Mutexes, spinlocks, and both sides of reader-writer locks.
    locks: Vec<Lock>,
    /// The other objects that threads waited for.
    waits: Vec<Waited>,
    threads: Vec<Thread>,
}

/// A stripped file.
#[derive(Serialize)]
pub struct Stripped {
    file: String,
    /// The package with its names, if it is known.
    package: Option<String>,
}

impl Stripped {
    /// The C library is not shown: it is on each stack, since threads begin in it.
    fn is_shown(&self) -> bool {
        !self.file.ends_with("/libc.so.6")
    }
}

/// Sums over threads that have ended.
#[derive(Serialize)]
pub struct EndedThreads {
    count: u64,
    #[serde(flatten)]
    did: Did,
    #[serde(skip)]
    life_ns: u64,
}

/// What one thread did, or several together.
#[derive(Serialize)]
pub struct Did {
    locked: u64,
    contended: u64,
    wait_ns: u64,
    wait_max_ns: u64,
    other_waits: OtherWaits,
}

/// How long threads waited for objects that are not locks.
#[derive(Serialize)]
pub struct OtherWaits {
    count: u64,
    /// The sum over all kinds.
    total_ns: u64,
    condvar_ns: u64,
    barrier_ns: u64,
    semaphore_ns: u64,
    join_ns: u64,
}

impl OtherWaits {
    /// The time for each kind, with the name of what is waited for.
    fn kinds(&self) -> [(u64, &'static str); 4] {
        [
            (self.condvar_ns, "condition variables"),
            (self.barrier_ns, "barriers"),
            (self.semaphore_ns, "semaphores"),
            (self.join_ns, "the ends of threads"),
        ]
    }
}

/// What was lost since the table had no room for it.
#[derive(Serialize)]
pub struct Dropped {
    locks: u64,
    stacks: u64,
    uses: u64,
    threads: u64,
    misuses: u64,
    waits: u64,
}

#[derive(Serialize)]
pub struct Lock {
    name: String,
    address: u64,
    /// The key of its entry, which is also noted for threads that wait for it; 0: none.
    #[serde(skip)]
    key: u64,
    kind: &'static str,
    /// For a reader-writer lock, which has a row for each side: `read` or `write`.
    side: Option<&'static str>,
    /// Whether it was destroyed, or initialised again.
    is_ended: bool,
    /// How many ended locks it stands for, which the same callers took first.
    ended: u64,
    /// How many locks it stands for that had no entry of their own, and which the same callers took
    /// first; 0: it is a single lock.
    others: u64,
    locked: u64,
    nested: u64,
    contended: u64,
    timeouts: u64,
    tries: u64,
    failed_tries: u64,
    changed_owner: u64,
    /// How often its owner changed within a locality domain, and to another domain.
    local: u64,
    remote: u64,
    threads: u32,
    wait: Times,
    /// For a reader-writer lock: waits that found it held for reading, and for writing.
    behind_readers: Behind,
    behind_writers: Behind,
    /// Estimated from `hold_samples` acquisitions: all that waited, and about one in 256 others.
    hold: Times,
    hold_samples: u64,
    /// Its distributions, if they were asked for.
    #[serde(skip)]
    recorded: Option<RecordedLock>,
    /// The thread that holds it; one of them if there are several readers.
    held_by: Option<u32>,
    holders: Vec<u32>,
    waiting: Vec<u32>,
    /// The type of the data that it guards, if the name of a function contains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    /// The line at which it was first taken, if the program records that.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<String>,
    /// The calls by which it was first taken, innermost first.
    first: Vec<Frame>,
    callers: Vec<Caller>,
}

#[derive(Serialize)]
pub struct Behind {
    count: u64,
    wait_ns: u64,
}

/// An object that threads waited for and that is not a lock: a condition variable, a barrier, a
/// semaphore, or the ends of threads.
#[derive(Serialize)]
pub struct Waited {
    name: String,
    address: u64,
    #[serde(skip)]
    key: u64,
    kind: &'static str,
    /// Whether it was destroyed, or initialised again.
    is_ended: bool,
    /// How many ended objects it stands for, for which the same callers waited first.
    ended: u64,
    /// Calls that may wait. For a barrier this includes the last thread's call, and for a semaphore
    /// calls that found it free.
    calls: u64,
    waited: u64,
    timeouts: u64,
    threads: u32,
    wait: Times,
    waiting: Vec<u32>,
    callers: Vec<Caller>,
}

/// A distribution of times, in nanoseconds.
#[derive(Serialize)]
pub struct Times {
    count: u64,
    total_ns: u64,
    avg_ns: u64,
    /// Too long by up to a half.
    p99_ns: u64,
    max_ns: u64,
    /// The number of times in each class: `[from, to, count]` in nanoseconds, `to` not included.
    /// Empty classes are left out. Counts are estimates.
    histogram: Vec<[u64; 3]>,
}

/// What a lock did by way of one call stack.
#[derive(Default, Serialize)]
pub struct Caller {
    contended: u64,
    wait_ns: u64,
    wait_max_ns: u64,
    /// Estimated, like `hold` of the lock.
    held: u64,
    hold_ns: u64,
    /// Estimated, too.
    failed_tries: u64,
    frames: Vec<Frame>,
}

/// The wait, in ns, that a failed try counts as in the order of rows: about the time that a thread
/// needs to do something else and to come back. A program that only tries never waits.
const FAILED_TRY: u64 = 1000;

/// How long threads were kept waiting or sent away, for the order of rows.
fn kept_off(wait_ns: u64, failed_tries: u64) -> u64 {
    wait_ns.saturating_add(failed_tries.saturating_mul(FAILED_TRY))
}

/// The share of their lives that the threads of these processes waited for locks.
fn waited_share(processes: &[Process]) -> f64 {
    let (mut waits, mut lives) = (0, 0.0);
    for process in processes {
        let ended = &process.ended_threads;
        waits += ended.did.wait_ns;
        lives += ended.life_ns as f64 / 1e9;
        for thread in &process.threads {
            waits += thread.did.wait_ns;
            lives += thread.life[1] - thread.life[0];
        }
    }
    match lives > 0.0 {
        true => waits as f64 / 1e9 / lives,
        false => 0.0,
    }
}

impl Caller {
    fn kept_off(&self) -> u64 {
        kept_off(self.wait_ns, self.failed_tries)
    }

    fn add(&mut self, other: &Self) {
        self.contended += other.contended;
        self.wait_ns += other.wait_ns;
        self.wait_max_ns = self.wait_max_ns.max(other.wait_max_ns);
        self.held += other.held;
        self.hold_ns += other.hold_ns;
        self.failed_tries += other.failed_tries;
    }
}

#[derive(Serialize)]
pub struct Thread {
    #[serde(skip)]
    number: u32,
    /// The kernel's number of the thread.
    id: u32,
    name: String,
    #[serde(flatten)]
    did: Did,
    /// The address of the object that it waits for, or 0.
    waits_for: u64,
    /// How long this wait has lasted so far.
    waits_for_ns: u64,
    /// The key of the entry of that object.
    #[serde(skip)]
    waits_key: u64,
    /// Its first lock or wait, and its end, in seconds since the process began.
    #[serde(skip)]
    life: [f64; 2],
}

impl Lock {
    fn kept_off(&self) -> u64 {
        kept_off(self.wait.total_ns, self.failed_tries)
    }

    /// How often calls that may wait asked for the lock.
    fn asked_for(&self) -> u64 {
        self.locked + self.timeouts + self.waiting.len() as u64
    }

    /// How often threads found the lock taken, and waited or gave up at once.
    fn found_taken(&self) -> u64 {
        self.contended + self.failed_tries
    }

    /// The line with which its name begins, which it shares with all locks first taken there.
    fn line(&self) -> Option<&str> {
        let line = file_and_line(self.place.as_deref()?);
        self.name.starts_with(line).then_some(line)
    }

    /// How many locks this row stands for.
    fn count(&self) -> u64 {
        self.ended.max(self.others).max(1)
    }
}

impl Process {
    fn kept_off(&self) -> u64 {
        self.locks.iter().map(Lock::kept_off).sum()
    }

    fn wait_ns(&self) -> u64 {
        self.locks.iter().map(|lock| lock.wait.total_ns).sum()
    }

    /// How long its threads waited for objects that are not locks, by kind.
    fn other_waits(&self) -> [(u64, &'static str); 4] {
        let mut sums = self.ended_threads.did.other_waits.kinds();
        for thread in &self.threads {
            for (sum, (nanos, _)) in sums.iter_mut().zip(thread.did.other_waits.kinds()) {
                sum.0 += nanos;
            }
        }
        sums
    }
}

pub struct Session<'a> {
    args: &'a Args,
    options: Options,
    command: &'a [OsString],
    pub folder: Folder,
    /// `None`: the report goes to stderr, where other lines may follow it.
    pub text: Option<PathBuf>,
    /// Open from the beginning to the end: closing a named pipe would be the end of the file to its
    /// reader.
    outputs: Outputs<Report>,
    /// Whether the report of the whole run exceeds a limit.
    pub has_failed: AtomicBool,
}

impl<'a> Session<'a> {
    /// Checks the report's destinations before the program runs. `None` if no report is wanted.
    pub fn begin(args: &'a Args, command: &'a [OsString]) -> anyhow::Result<Option<Self>> {
        let Some(text) = &args.report else {
            if args.alarms.are_any() {
                bail!("alarms need --report");
            }
            return Ok(None);
        };
        let flags = [
            ("--report", text),
            ("--json", &args.json),
            ("--folded", &args.folded),
            ("--html", &args.html),
        ];
        for (flag, path) in flags {
            if path.as_deref() == Some(Path::new("-")) {
                bail!("{flag} -: stdout is the program's; name a file");
            }
        }
        if args.fail_if.iter().any(Gate::needs_order) && !args.order {
            bail!("--fail-if 'circles > ...' needs --order");
        }
        let text = text.as_deref().map(absolute).transpose()?;
        let options = Options {
            by: args.by,
            max: args.max,
            least: args.min_contended,
        };
        let mut outputs = outputs([&args.json, &args.folded, &args.html], options)?;
        outputs.add(text.as_deref(), move |report, out| {
            Ok(out.write_all(options.text(report).as_bytes())?)
        })?;
        Ok(Some(Session {
            args,
            options,
            command,
            outputs,
            folder: Folder::new()?,
            text,
            has_failed: AtomicBool::new(false),
        }))
    }

    /// The alarms on the program, if they are wanted.
    pub fn watch(&self, pid: u32) -> Option<Alarms> {
        let alarms = self.args.alarms;
        alarms.are_any().then(|| Alarms::new(pid, alarms))
    }

    /// Open files that the outputs name by their numbers.
    pub fn descriptors(&self) -> Vec<i32> {
        let args = self.args;
        let paths = [&self.text, &args.json, &args.folded, &args.html];
        let named = paths.into_iter().flatten();
        named.filter_map(|path| descriptor(path)).collect()
    }

    pub fn variables(&self) -> Vec<Variable> {
        let mut variables = vec![("KINLOCK_REPORT", self.folder.prefix().into())];
        if self.args.order {
            variables.push(("KINLOCK_ORDER", "1".into()));
        }
        variables
    }

    /// Reports what has happened so far, or until the program ended.
    pub fn report(&self, status: Option<ExitStatus>) -> anyhow::Result<()> {
        let report = self.made(status);
        if let (Ok(report), None) = (&report, &self.text) {
            tell(self.options.text(report).trim_end());
        }
        if status.is_some() {
            self.judge(report.as_ref().ok());
        }
        self.outputs.write(&report?)
    }

    fn made(&self, status: Option<ExitStatus>) -> anyhow::Result<Report> {
        if status.is_some() {
            self.folder.is_over();
        }
        let processes = processes(&self.folder)?;
        let words = self.command.iter().map(|word| word.display().to_string());
        // Looked up before the processes without a table: one that ends now is counted there.
        let still_running = match status {
            Some(_) => self.folder.running(),
            None => Vec::new(),
        };
        Ok(Report {
            command: words.collect(),
            status: status.map(|status| status.to_string()),
            without: self.folder.without_table(),
            still_running,
            processes,
        })
    }

    /// Prints which limits the report exceeds.
    fn judge(&self, report: Option<&Report>) {
        let gates = self.args.fail_if.iter();
        for line in gates.filter_map(|gate| gate.exceeded(report)) {
            self.has_failed.store(true, Relaxed);
            tell(&format!("kinlock: {line}"));
        }
    }
}

/// The files of `--json`, `--folded` and `--html`.
fn outputs(files: [&Option<PathBuf>; 3], options: Options) -> anyhow::Result<Outputs<Report>> {
    let [json, folded, html] = files.map(Option::as_deref);
    let mut outputs = Outputs::private();
    outputs.add(json, |report, out| write_json(report, out))?;
    outputs.add(folded, folded::write)?;
    outputs.add(html, move |report, out| page::write(report, &options, out))?;
    Ok(outputs)
}

/// The processes of the tables in a folder.
fn processes(folder: &Folder) -> anyhow::Result<Vec<Process>> {
    let mut processes = Vec::new();
    folder.for_each(|table, seen| processes.push(read::process(table, seen)))?;
    finish(&mut processes);
    Ok(processes)
}

/// Sorts processes, with those first whose threads were kept off longest. Looks up which packages
/// have the names for stripped files.
fn finish(processes: &mut [Process]) {
    processes.sort_by_key(|process| (std::cmp::Reverse(process.kept_off()), process.pid));
    let all = processes.iter().flat_map(|process| &process.stripped_files);
    let shown = all.filter(|stripped| stripped.is_shown());
    let mut files: Vec<_> = shown.map(|stripped| stripped.file.clone()).collect();
    files.sort_unstable();
    files.dedup();
    if files.is_empty() {
        return;
    }
    let packages = debug::packages(Path::new(debug::LISTS), &files);
    for stripped in processes
        .iter_mut()
        .flat_map(|process| &mut process.stripped_files)
    {
        let at = files.binary_search(&stripped.file);
        stripped.package = at.ok().and_then(|at| packages[at].clone());
    }
}
