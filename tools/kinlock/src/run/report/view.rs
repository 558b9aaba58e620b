//! The report as people read it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use kinlock_cli::report::table::{Table, wrapped};
use kinlock_cli::report::units::{grouped, percent, time};

use super::misuse::{LockOrder, write_misuses, write_order};
use super::symbols::{Frame, is_wrapper, short};
use super::{Caller, Lock, OtherWaits, Process, Report, Stripped, Times, View, Waited};

/// Which rows there are.
pub struct Options {
    pub by: View,
    pub max: usize,
    /// How often a lock must have been found taken.
    pub least: u64,
}

/// Processes at most, and callers of a lock.
const PROCESSES: usize = 4;
const CALLERS: usize = 3;

impl Options {
    pub fn write(&self, report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
        let used: Vec<_> = report.processes.iter().filter(|p| took_any(p)).collect();
        for process in used.iter().take(PROCESSES) {
            self.process(report, process, out)?;
        }
        if let Some(more @ 1..) = used.len().checked_sub(PROCESSES) {
            let more = counted(more as u64, "more process", "more processes");
            writeln!(out, "\nkinlock: {more} waited less; --json has them")?;
        }
        write_rest(report, out)
    }

    fn process(
        &self,
        report: &Report,
        process: &Process,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        writeln!(out, "\n{}\n", wrapped(&summary(report, process), ""))?;
        match self.by {
            View::Lock => {
                self.locks(process, out)?;
                self.waits(process, out)?;
            }
            View::Caller => self.callers(process, out)?,
            View::Thread => self.threads(process, out)?,
        }
        notes(process, out)
    }

    fn locks(&self, process: &Process, out: &mut dyn Write) -> anyhow::Result<()> {
        let mut rows = self.lock_rows(process);
        if rows.is_empty() {
            return self.no_locks(process, out);
        }
        let left = rows.len().saturating_sub(self.max);
        rows.truncate(self.max);
        print(lock_table(&rows, name), out)?;
        if left > 0 {
            writeln!(
                out,
                "{left} more locks; --max {} shows them",
                self.max + left
            )?;
        }
        writeln!(out)?;
        for (lock, n) in rows {
            about(lock, n, process, out)?;
        }
        Ok(())
    }

    /// The locks that are shown, with the numbers of their rows.
    pub fn lock_rows<'a>(&self, process: &'a Process) -> Vec<(&'a Lock, usize)> {
        let all = process
            .locks
            .iter()
            .filter(|lock| lock.contended >= self.least);
        let mut all: Vec<&Lock> = all.collect();
        all.sort_by_key(|lock| std::cmp::Reverse((lock.wait.total_ns, lock.locked)));
        all.into_iter().zip(1..).collect()
    }

    /// What threads waited for that is no lock. Idle threads wait there, too: so these waits have a
    /// table of their own.
    fn waits(&self, process: &Process, out: &mut dyn Write) -> anyhow::Result<()> {
        let mut rows = self.wait_rows(process);
        if rows.is_empty() {
            return Ok(());
        }
        let left = rows.len().saturating_sub(self.max);
        rows.truncate(self.max);
        writeln!(out)?;
        print(wait_table(&rows, name_of), out)?;
        if left > 0 {
            writeln!(out, "{left} more; --max {} shows them", self.max + left)?;
        }
        writeln!(out)?;
        for (waited, n) in rows {
            about_waited(waited, n, process, out)?;
        }
        Ok(())
    }

    /// What threads waited for that is no lock, with the numbers of the rows.
    pub fn wait_rows<'a>(&self, process: &'a Process) -> Vec<(&'a Waited, usize)> {
        let is_row = |waited: &&Waited| is_waited_for(waited) && waited.waited >= self.least;
        let mut all: Vec<&Waited> = process.waits.iter().filter(is_row).collect();
        all.sort_by_key(|waited| std::cmp::Reverse((waited.wait.total_ns, waited.calls)));
        all.into_iter().zip(1..).collect()
    }

    fn callers(&self, process: &Process, out: &mut dyn Write) -> anyhow::Result<()> {
        let mut table = self.caller_table(process);
        if table.rows.is_empty() {
            return match process
                .locks
                .iter()
                .any(|lock| lock.contended >= self.least)
            {
                true => Ok(writeln!(
                    out,
                    "no callers: they need glibc 2.35 or later, and room in the table"
                )?),
                false => self.no_locks(process, out),
            };
        }
        let left = table.rows.len().saturating_sub(self.max);
        table.rows.truncate(self.max);
        print(table, out)?;
        if left > 0 {
            writeln!(
                out,
                "{left} more callers; --max {} shows them",
                self.max + left
            )?;
        }
        Ok(())
    }

    /// A row for each function that takes locks.
    pub fn caller_table(&self, process: &Process) -> Table {
        let mut by_place: BTreeMap<String, (Caller, Vec<&str>)> = BTreeMap::new();
        for lock in process
            .locks
            .iter()
            .filter(|lock| lock.contended >= self.least)
        {
            for caller in &lock.callers {
                let key = place(&caller.frames);
                match by_place.get_mut(&key) {
                    Some((sum, _)) => sum.add(caller),
                    None => drop(by_place.insert(key.clone(), (caller.clone(), Vec::new()))),
                }
                let locks = by_place.get_mut(&key).map(|(_, locks)| locks);
                // Both sides of a reader-writer lock have its name.
                if let Some(locks) = locks.filter(|locks| !locks.contains(&&*lock.name)) {
                    locks.push(&lock.name);
                }
            }
        }
        let mut rows: Vec<_> = by_place.into_iter().collect();
        rows.sort_by_key(|(_, (sum, _))| std::cmp::Reverse((sum.wait_ns, sum.hold_ns)));
        let cells = rows.into_iter().map(|(place, (sum, locks))| {
            let nanos = [sum.wait_ns, sum.wait_max_ns, sum.hold_ns].map(|n| time(n as f64));
            let [wait, max, hold] = nanos;
            let (count, held) = (grouped(sum.contended), grouped(sum.held));
            vec![place, locks.len().to_string(), count, wait, max, held, hold]
        });
        of_cells(&HEADINGS_OF_CALLERS, cells)
    }

    fn threads(&self, process: &Process, out: &mut dyn Write) -> anyhow::Result<()> {
        if process.threads.is_empty() && process.ended_threads.count == 0 {
            writeln!(out, "no thread found a place in the table")?;
            return Ok(());
        }
        let mut table = thread_table(process);
        // The row of those that ended comes on top.
        let most = self.max + usize::from(process.ended_threads.count > 0);
        let left = table.rows.len().saturating_sub(most);
        table.rows.truncate(most);
        print(table, out)?;
        if left > 0 {
            writeln!(
                out,
                "{left} more threads; --max {} shows them",
                self.max + left
            )?;
        }
        Ok(())
    }
}

/// What is said of processes that have no rows.
pub fn write_rest(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    if report.processes.is_empty() && report.without_table_reason.is_none() {
        writeln!(
            out,
            "kinlock: no report: the program called no function of pthread locks, and none by \
             which threads wait for others"
        )?;
        return Ok(());
    }
    let idle: Vec<_> = report.processes.iter().filter(|p| !took_any(p)).collect();
    match &idle[..] {
        [] => {}
        [one] => writeln!(
            out,
            "\nkinlock: {} (process {}) took no lock",
            one.program, one.pid
        )?,
        more => writeln!(
            out,
            "\nkinlock: {} processes took no lock",
            grouped(more.len() as u64)
        )?,
    }
    for process in report.still_running.iter().take(PROCESSES) {
        writeln!(
            out,
            "\nkinlock: process {} ({}) still runs: what it does from now on is not in this \
             report",
            process.pid, process.program
        )?;
    }
    if let Some(more @ 1..) = report.still_running.len().checked_sub(PROCESSES) {
        let more = counted(more as u64, "more process", "more processes");
        writeln!(out, "\nkinlock: {more} still run; --json has them")?;
    }
    if let Some(reason) = &report.without_table_reason {
        let number = match report.without_table {
            0 => "no process is".to_owned(),
            1 => "1 process is not".to_owned(),
            n => format!("{} processes are not", grouped(n.into())),
        };
        writeln!(
            out,
            "\nkinlock: {number} in this report: no table could be made: {reason}"
        )?;
    }
    Ok(())
}

/// A row for each lock, under this name.
pub fn lock_table(rows: &[(&Lock, usize)], name: fn(&Lock) -> String) -> Table {
    let cells = rows.iter().map(|&(lock, n)| {
        let counts = [lock.locked, lock.contended, lock.changed_owner].map(grouped);
        let first = [format!("{n} {}", name(lock))];
        let times = [&lock.wait, &lock.hold].into_iter().flat_map(of_times);
        first.into_iter().chain(counts).chain(times).collect()
    });
    of_cells(&HEADINGS_OF_LOCKS, cells)
}

/// A row for each of these, under this name.
pub fn wait_table(rows: &[(&Waited, usize)], name: fn(&Waited) -> String) -> Table {
    let cells = rows.iter().map(|&(waited, n)| {
        let counts = [waited.calls, waited.waited, waited.timeouts].map(grouped);
        let first = [
            format!("{n} {}", name(waited)),
            waited.kind.replace("condition variable", "condvar"),
        ];
        let times = of_times(&waited.wait);
        first.into_iter().chain(counts).chain(times).collect()
    });
    of_cells(&HEADINGS_OF_WAITS, cells)
}

/// A row for each thread, and one for those that ended. There is a column for each kind of other
/// waits that there are.
pub fn thread_table(process: &Process) -> Table {
    let mut rows: Vec<_> = process.threads.iter().collect();
    rows.sort_by_key(|thread| std::cmp::Reverse((thread.wait_ns, thread.locked)));
    let ended = &process.ended_threads;
    let sums = process.other_waits().kinds();
    let kinds: Vec<usize> = (0..sums.len()).filter(|&at| sums[at].0 > 0).collect();
    let by_kind = |waits: &OtherWaits| {
        let all = waits.kinds();
        let nanos: Vec<_> = kinds.iter().map(|&at| time(all[at].0 as f64)).collect();
        nanos
    };
    let others = (ended.count > 0).then(|| {
        let average = ended.wait_ns.checked_div(ended.contended).unwrap_or(0);
        let mut row = vec![
            format!("({} that ended)", grouped(ended.count)),
            grouped(ended.locked),
            grouped(ended.contended),
            time(ended.wait_ns as f64),
            time(average as f64),
            time(ended.wait_max_ns as f64),
        ];
        row.extend(by_kind(&ended.other_waits));
        row.push(String::new());
        row
    });
    let cells = rows.into_iter().map(|thread| {
        let average = thread.wait_ns.checked_div(thread.contended).unwrap_or(0);
        let mut row = vec![
            format!("{} {}", thread.id, thread.name),
            grouped(thread.locked),
            grouped(thread.contended),
            time(thread.wait_ns as f64),
            time(average as f64),
            time(thread.wait_max_ns as f64),
        ];
        row.extend(by_kind(&thread.other_waits));
        row.push(waits_for(process, thread.waits_key));
        row
    });
    let cells = others.into_iter().chain(cells);
    let short = ["condvars", "barriers", "semaphores", "joins"];
    let mut headings = HEADINGS_OF_THREADS.to_vec();
    let names: Vec<_> = kinds
        .iter()
        .zip(["other waits\n", "\n", "\n", "\n"])
        .map(|(&at, above)| format!("{above}{}", short[at]))
        .collect();
    headings.extend(names.iter().map(String::as_str));
    headings.push("waits for");
    of_cells(&headings, cells)
}

impl Options {
    /// Why there is no row.
    pub fn no_locks(&self, process: &Process, out: &mut dyn Write) -> anyhow::Result<()> {
        let most = process.locks.iter().map(|lock| lock.contended).max();
        match most {
            None if process.dropped.locks == 0 => {
                writeln!(out, "no lock was taken")?;
            }
            None => writeln!(out, "no lock found a place in the table")?,
            Some(most) => writeln!(
                out,
                "no lock was found taken {} or more (--min-contended {}): the most was {}",
                counted(self.least, "time", "times"),
                self.least,
                counted(most, "time", "times")
            )?,
        }
        Ok(())
    }
}

const HEADINGS_OF_LOCKS: [&str; 12] = [
    "lock",
    "locked",
    "contended",
    "changed\nowner",
    "wait\ntotal",
    "\navg",
    "\np99",
    "\nmax",
    "hold\ntotal",
    "\navg",
    "\np99",
    "\nmax",
];
const HEADINGS_OF_CALLERS: [&str; 7] = [
    "caller",
    "locks",
    "contended",
    "wait\ntotal",
    "\nmax",
    "held",
    "hold\ntotal",
];
/// Columns for other waits, and for what the thread waits for, follow.
const HEADINGS_OF_THREADS: [&str; 6] = [
    "thread",
    "locked",
    "contended",
    "wait\ntotal",
    "\navg",
    "\nmax",
];
const HEADINGS_OF_WAITS: [&str; 9] = [
    "no lock, but waited for",
    "kind",
    "calls",
    "waited",
    "timed\nout",
    "wait\ntotal",
    "\navg",
    "\np99",
    "\nmax",
];

/// What a process did, in one sentence.
pub fn summary(report: &Report, process: &Process) -> String {
    let until = match &report.status {
        None => " until now",
        Some(_) => "",
    };
    // Processes that have the same name are told apart by who started them.
    let has_parent = report.processes.iter().any(|p| p.pid == process.parent);
    let parent = match has_parent {
        true => format!(", child of {}", process.parent),
        false => String::new(),
    };
    let sum = |of: fn(&Lock) -> u64| process.locks.iter().map(of).sum::<u64>();
    let (locked, timeouts) = (sum(|lock| lock.locked), sum(|lock| lock.timeouts));
    let contended = sum(|lock| lock.contended);
    let took = match locked + timeouts + contended {
        0 => format!("took no lock in {}", time(1e9 * process.seconds)),
        _ => format!(
            "took {} {} in {}; {} were found taken, and waited {} for",
            counted(lock_count(process), "lock", "locks"),
            counted(locked, "time", "times"),
            time(1e9 * process.seconds),
            percent(contended as f64 / (locked + timeouts).max(1) as f64),
            time(process.wait_ns() as f64),
        ),
    };
    format!(
        "kinlock: locks of {} (process {}{parent}, {}){until}: {} {took}{}",
        process.program,
        process.pid,
        process.lock,
        counted(process.thread_count.into(), "thread", "threads"),
        other_waits(&process.other_waits()),
    )
}

/// Whether there is anything to show of a process.
pub fn took_any(process: &Process) -> bool {
    let dropped = process.dropped.locks > 0;
    let is_to_be_told = |order: &LockOrder| order.has_cycles();
    dropped
        || !process.misuses.is_empty()
        || process.order.as_ref().is_some_and(is_to_be_told)
        || process
            .locks
            .iter()
            .any(|lock| lock.locked > 0 || lock.contended > 0 || lock.tries > 0)
        || process.waits.iter().any(is_waited_for)
}

/// Whether any thread has waited for it, or waits.
fn is_waited_for(waited: &Waited) -> bool {
    waited.waited > 0 || !waited.waiting.is_empty()
}

/// How many locks there are. A reader-writer lock may have two rows.
fn lock_count(process: &Process) -> u64 {
    let writing: BTreeSet<u64> = process
        .locks
        .iter()
        .filter(|lock| lock.side == Some("write") && !lock.is_ended)
        .map(|lock| lock.address)
        .collect();
    let is_second = |lock: &&Lock| {
        lock.side == Some("read") && !lock.is_ended && writing.contains(&lock.address)
    };
    let first = process.locks.iter().filter(|lock| !is_second(lock));
    first.map(Lock::count).sum()
}

/// How long threads waited for what is no lock.
fn other_waits(waits: &OtherWaits) -> String {
    let kinds = waits.kinds().into_iter().filter(|kind| kind.0 > 0);
    let kinds: Vec<_> = kinds
        .map(|(nanos, what)| format!("{} for {what}", time(nanos as f64)))
        .collect();
    match kinds.is_empty() {
        true => String::new(),
        false => format!(". Threads also waited {}", kinds.join(", ")),
    }
}

/// The name of what threads with this key wait for.
fn waits_for(process: &Process, key: u64) -> String {
    if key == 0 {
        return String::new();
    }
    let lock = process.locks.iter().find(|lock| lock.key == key);
    let waited = || process.waits.iter().find(|waited| waited.key == key);
    let name = lock.map(name).or_else(|| waited().map(name_of));
    name.unwrap_or_default()
}

/// The name of what is no lock.
fn name_of(waited: &Waited) -> String {
    cut(&full_name_of(waited), NAME)
}

/// The name where there is room for it.
pub fn full_name_of(waited: &Waited) -> String {
    match waited.ended {
        0 => waited.name.clone(),
        1 => format!("{} (ended)", waited.name),
        n => format!("({n} that ended)"),
    }
}

pub fn counted(count: u64, one: &str, more: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        n => format!("{} {more}", grouped(n)),
    }
}

/// Four cells.
fn of_times(times: &Times) -> [String; 4] {
    let all = [times.total_ns, times.avg_ns, times.p99_ns, times.max_ns];
    all.map(|nanos| match times.count {
        0 => "-".to_owned(),
        _ => time(nanos as f64).replace(' ', ""),
    })
}

fn of_cells(headings: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Table {
    Table {
        headings: headings.iter().map(|&heading| heading.to_owned()).collect(),
        rows: rows.collect(),
    }
}

/// A table, unless it has no rows.
fn print(table: Table, out: &mut dyn Write) -> anyhow::Result<()> {
    if table.rows.is_empty() {
        return Ok(());
    }
    let text = table.text(1..table.headings.len());
    writeln!(out, "{}", table.fitted(text))?;
    Ok(())
}

/// The longest name in the table.
const NAME: usize = 24;

fn name(lock: &Lock) -> String {
    let side = side(lock);
    cut(&both_sides(lock), NAME - side.len()) + side
}

/// The name where there is room for it.
pub fn full_name(lock: &Lock) -> String {
    both_sides(lock) + side(lock)
}

/// The name that both sides of a reader-writer lock have.
fn both_sides(lock: &Lock) -> String {
    match lock.ended {
        0 if lock.others > 0 => format!("({} others)", grouped(lock.others)),
        0 => lock.name.clone(),
        1 => format!("{} (ended)", lock.name),
        n => format!("({n} that ended)"),
    }
}

/// What was done to this side of a reader-writer lock.
fn side(lock: &Lock) -> &'static str {
    match lock.side {
        Some("read") => " to read",
        Some(_) => " to write",
        None => "",
    }
}

fn cut(text: &str, length: usize) -> String {
    match text.chars().count() > length {
        true => text.chars().take(length - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// The innermost calls that do more than taking a lock: all from the first such on.
fn beyond_wrappers(frames: &[Frame]) -> &[Frame] {
    let first = frames.iter().position(|frame| !is_wrapper(&frame.function));
    &frames[first.unwrap_or(0)..]
}

/// A function, with the line.
fn one(frame: &Frame) -> String {
    let name = short(&frame.function);
    match (&frame.file, frame.line) {
        (Some(file), Some(line)) => {
            let file = file.rsplit('/').next().unwrap_or(file);
            format!("{name} ({file}:{line})")
        }
        _ => name,
    }
}

pub fn place(frames: &[Frame]) -> String {
    let frame = beyond_wrappers(frames).first();
    frame.map_or_else(|| "unknown".to_owned(), one)
}

/// Some calls, innermost first.
pub fn path(frames: &[Frame]) -> String {
    let frames = beyond_wrappers(frames).iter();
    let frames = frames.take_while(|frame| !begins_thread(frame)).take(4);
    let calls: Vec<_> = frames.map(one).collect();
    match calls.is_empty() {
        true => "unknown".to_owned(),
        false => calls.join(" < "),
    }
}

/// Whether it is one of the outermost calls, with which threads begin: they tell nothing. The C
/// library's may have names or not.
fn begins_thread(frame: &Frame) -> bool {
    let begins = ["libc.so.6+", "__libc_start_", "__clone", "clone3"];
    let name = frame.function.as_str();
    name == "start_thread" || begins.iter().any(|begin| name.starts_with(begin))
}

/// What else there is to say of a lock.
pub fn about(lock: &Lock, n: usize, process: &Process, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut line = format!("{n} {}: {}", name(lock), lock.kind);
    if lock.threads > 1 {
        line += &format!(", {} threads", lock.threads);
    }
    if process.domains > 1 {
        line += &format!(
            ", hand-offs {} local, {} remote",
            grouped(lock.local),
            grouped(lock.remote)
        );
    }
    for (count, what) in [
        (lock.tries, "tries"),
        (lock.timeouts, "waits that timed out"),
        (lock.nested, "nested"),
    ] {
        if count > 0 {
            line += &format!(", {} {what}", grouped(count));
        }
    }
    line += &format!("; first taken by {}", path(&lock.first));
    writeln!(out, "{}", wrapped(&line, "    "))?;
    let behind = [
        (&lock.behind_writers, "a writer"),
        (&lock.behind_readers, "readers"),
    ];
    let behind = behind.into_iter().filter(|(behind, _)| behind.count > 0);
    let behind: Vec<_> = behind
        .map(|(behind, whom)| {
            let times = counted(behind.count, "time", "times");
            format!("{} behind {whom} ({times})", time(behind.wait_ns as f64))
        })
        .collect();
    if !behind.is_empty() {
        writeln!(out, "    waited {}", behind.join(", "))?;
    }
    write_waits(&lock.callers, lock.wait.total_ns, out)?;
    let longest = lock.callers.iter().max_by_key(|caller| caller.hold_ns);
    if let Some(caller) = longest.filter(|caller| lock.contended > 0 && caller.hold_ns > 0) {
        let share = percent(caller.hold_ns as f64 / lock.hold.total_ns.max(1) as f64);
        let line = format!("held {share}: {}", path(&caller.frames));
        writeln!(out, "    {}", wrapped(&line, "        "))?;
    }
    if process.ended {
        return Ok(());
    }
    let holders = match &lock.holders[..] {
        [] => None,
        [holder] => Some(format!("held by thread {holder}")),
        several => Some(format!("held by threads {}", numbers(several))),
    };
    let waiting =
        (!lock.waiting.is_empty()).then(|| format!("waiting: {}", numbers(&lock.waiting)));
    let now: Vec<_> = holders.into_iter().chain(waiting).collect();
    if !now.is_empty() {
        writeln!(out, "    {}", wrapped(&now.join("; "), "        "))?;
    }
    Ok(())
}

fn numbers(of: &[u32]) -> String {
    let numbers: Vec<_> = of.iter().map(u32::to_string).collect();
    numbers.join(", ")
}

/// The callers that waited longest.
fn write_waits(callers: &[Caller], total_ns: u64, out: &mut dyn Write) -> anyhow::Result<()> {
    let waits = callers.iter().filter(|caller| caller.wait_ns > 0);
    for caller in waits.take(CALLERS) {
        let share = percent(caller.wait_ns as f64 / total_ns.max(1) as f64);
        let line = format!("waits {share}: {}", path(&caller.frames));
        writeln!(out, "    {}", wrapped(&line, "        "))?;
    }
    Ok(())
}

/// What else there is to say of what is no lock.
pub fn about_waited(
    waited: &Waited,
    n: usize,
    process: &Process,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let threads = counted(waited.threads.into(), "thread", "threads");
    writeln!(out, "{n} {}: {}, {threads}", name_of(waited), waited.kind)?;
    write_waits(&waited.callers, waited.wait.total_ns, out)?;
    if !process.ended && !waited.waiting.is_empty() {
        let line = format!("waiting: {}", numbers(&waited.waiting));
        writeln!(out, "    {}", wrapped(&line, "        "))?;
    }
    Ok(())
}

pub fn notes(process: &Process, out: &mut dyn Write) -> anyhow::Result<()> {
    let (samples, locked) = process.locks.iter().fold((0, 0), |(s, l), lock| {
        (s + lock.hold_samples, l + lock.locked)
    });
    if samples < locked {
        writeln!(
            out,
            "hold: estimated from {} of {} acquisitions: all that waited, about 1 of 256 others",
            grouped(samples),
            grouped(locked)
        )?;
    }
    let full = [
        (process.dropped.locks, "acquisitions of further locks"),
        (process.dropped.threads, "acquisitions by further threads"),
        (process.dropped.stacks, "call stacks"),
        (
            process.dropped.uses,
            "combinations of a lock and a call stack",
        ),
        (process.dropped.misuses, "misuses"),
        (process.dropped.waits, "waits for what is no lock"),
    ];
    for (count, what) in full.into_iter().filter(|(count, _)| *count > 0) {
        writeln!(
            out,
            "the table is full: {} {what} were dropped",
            grouped(count)
        )?;
    }
    if process.no_memory {
        writeln!(
            out,
            "there was no memory for a part of the table: /dev/shm is full"
        )?;
    }
    let others: u64 = process.locks.iter().map(|lock| lock.others).sum();
    if others > 0 {
        writeln!(
            out,
            "the table is nearly full: {} that nobody waited for share rows, one for each call \
             stack",
            counted(others, "lock", "locks")
        )?;
    }
    for file in &process.changed_files {
        writeln!(
            out,
            "no names from {file}: it cannot be read, or is not what was loaded"
        )?;
    }
    write_misuses(&process.misuses, out)?;
    if let Some(order) = &process.order {
        write_order(order, out)?;
    }
    stripped(process, out)
}

/// How to get names for stripped files.
fn stripped(process: &Process, out: &mut dyn Write) -> anyhow::Result<()> {
    let shown = process.stripped_files.iter().filter(|file| file.is_shown());
    let (packed, others): (Vec<_>, Vec<_>) = shown.partition(|s| s.package.is_some());
    let files = |of: &[&Stripped]| {
        let files = of.iter().map(|stripped| stripped.file.as_str());
        files.collect::<Vec<_>>().join(", ")
    };
    if !packed.is_empty() {
        let packages: BTreeSet<_> = packed.iter().filter_map(|s| s.package.as_deref()).collect();
        let line = format!(
            "stripped, so without names: {}; with Debian's archive of debug symbols among the \
             sources: apt install {}",
            files(&packed),
            packages.into_iter().collect::<Vec<_>>().join(" ")
        );
        writeln!(out, "{}", wrapped(&line, "    "))?;
    }
    if !others.is_empty() {
        let line = format!(
            "stripped, so without names: {}; install the debug symbols of their packages, or fetch \
             them by debuginfod-find debuginfo FILE, or build with -g and without strip",
            files(&others)
        );
        writeln!(out, "{}", wrapped(&line, "    "))?;
    }
    Ok(())
}
