//! The report as people read it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use kinlock_cli::report::table::{Table, wrapped};
use kinlock_cli::report::units::{grouped, percent, time};

use super::misuse::{LockOrder, write_misuses, write_order};
use super::symbols::{Frame, is_wrapper, short};
use super::{Caller, Lock, Process, Report, Stripped, Times, View};

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
        if report.processes.is_empty() && report.without_table_reason.is_none() {
            writeln!(
                out,
                "kinlock: no report: the program called no function of pthread mutexes, condition \
                 variables or spinlocks"
            )?;
            return Ok(());
        }
        let (used, idle): (Vec<_>, Vec<_>) = report.processes.iter().partition(|p| took_any(p));
        for process in used.iter().take(PROCESSES) {
            self.process(report, process, out)?;
        }
        if let Some(more @ 1..) = used.len().checked_sub(PROCESSES) {
            let more = counted(more as u64, "more process", "more processes");
            writeln!(out, "\nkinlock: {more} waited less; --json has them")?;
        }
        match &idle[..] {
            [] => {}
            [one] => writeln!(
                out,
                "\nkinlock: {} (process {}) took no mutex or spinlock{}",
                one.program,
                one.pid,
                rwlocks(one)
            )?,
            more => writeln!(
                out,
                "\nkinlock: {} processes took no mutex or spinlock",
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

    fn process(
        &self,
        report: &Report,
        process: &Process,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
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
        let sentence = format!(
            "kinlock: locks of {} (process {}{parent}, {}){until}: {} took {} {} in {}; {} were \
             found taken, and waited {} for{}",
            process.program,
            process.pid,
            process.lock,
            counted(process.thread_count.into(), "thread", "threads"),
            counted(process.locks.iter().map(Lock::count).sum(), "lock", "locks"),
            counted(locked, "time", "times"),
            time(1e9 * process.seconds),
            percent(contended as f64 / (locked + timeouts).max(1) as f64),
            time(process.wait_ns() as f64),
            rwlocks(process),
        );
        writeln!(out, "\n{}\n", wrapped(&sentence, ""))?;
        match self.by {
            View::Lock => self.locks(process, out)?,
            View::Caller => self.callers(process, out)?,
            View::Thread => self.threads(process, out)?,
        }
        notes(process, out)
    }

    fn locks(&self, process: &Process, out: &mut dyn Write) -> anyhow::Result<()> {
        let all = process
            .locks
            .iter()
            .filter(|lock| lock.contended >= self.least);
        let mut all: Vec<&Lock> = all.collect();
        if all.is_empty() {
            return self.no_locks(process, out);
        }
        all.sort_by_key(|lock| std::cmp::Reverse((lock.wait.total_ns, lock.locked)));
        let left = all.len().saturating_sub(self.max);
        all.truncate(self.max);
        let rows: Vec<_> = all.into_iter().zip(1..).collect();
        let cells = rows.iter().map(|&(lock, n)| {
            let counts = [lock.locked, lock.contended, lock.changed_owner].map(grouped);
            let first = [format!("{n} {}", name(lock))];
            let times = [&lock.wait, &lock.hold].into_iter().flat_map(of_times);
            first.into_iter().chain(counts).chain(times).collect()
        });
        print(&HEADINGS_OF_LOCKS, cells.collect(), out)?;
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

    fn callers(&self, process: &Process, out: &mut dyn Write) -> anyhow::Result<()> {
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
                if let Some(locks) = locks.filter(|locks| !locks.contains(&&*lock.name)) {
                    locks.push(&lock.name);
                }
            }
        }
        if by_place.is_empty() {
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
        let mut rows: Vec<_> = by_place.into_iter().collect();
        rows.sort_by_key(|(_, (sum, _))| std::cmp::Reverse((sum.wait_ns, sum.hold_ns)));
        let left = rows.len().saturating_sub(self.max);
        rows.truncate(self.max);
        let cells = rows.into_iter().map(|(place, (sum, locks))| {
            let nanos = [sum.wait_ns, sum.wait_max_ns, sum.hold_ns].map(|n| time(n as f64));
            let [wait, max, hold] = nanos;
            let (count, held) = (grouped(sum.contended), grouped(sum.held));
            vec![place, locks.len().to_string(), count, wait, max, held, hold]
        });
        print(&HEADINGS_OF_CALLERS, cells.collect(), out)?;
        if left > 0 {
            writeln!(
                out,
                "{left} more callers; --max {} shows them",
                self.max + left
            )?;
        }
        Ok(())
    }

    fn threads(&self, process: &Process, out: &mut dyn Write) -> anyhow::Result<()> {
        let mut rows: Vec<_> = process.threads.iter().collect();
        rows.sort_by_key(|thread| std::cmp::Reverse((thread.wait_ns, thread.locked)));
        let left = rows.len().saturating_sub(self.max);
        rows.truncate(self.max);
        let ended = &process.ended_threads;
        if process.threads.is_empty() && ended.count == 0 {
            writeln!(out, "no thread found a place in the table")?;
            return Ok(());
        }
        let others = (ended.count > 0).then(|| {
            let average = ended.wait_ns.checked_div(ended.contended).unwrap_or(0);
            vec![
                format!("({} that ended)", grouped(ended.count)),
                grouped(ended.locked),
                grouped(ended.contended),
                time(ended.wait_ns as f64),
                time(average as f64),
                time(ended.wait_max_ns as f64),
                String::new(),
            ]
        });
        let cells = rows.into_iter().map(|thread| {
            let average = thread.wait_ns.checked_div(thread.contended).unwrap_or(0);
            // Rows that locks share have no address.
            let waits_for = |lock: &&Lock| {
                lock.address != 0 && lock.address == thread.waits_for && !lock.is_ended
            };
            vec![
                format!("{} {}", thread.id, thread.name),
                grouped(thread.locked),
                grouped(thread.contended),
                time(thread.wait_ns as f64),
                time(average as f64),
                time(thread.wait_max_ns as f64),
                process
                    .locks
                    .iter()
                    .find(waits_for)
                    .map_or_else(String::new, name),
            ]
        });
        let cells = others.into_iter().chain(cells);
        print(&HEADINGS_OF_THREADS, cells.collect(), out)?;
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

impl Options {
    /// Why there is no row.
    fn no_locks(&self, process: &Process, out: &mut dyn Write) -> anyhow::Result<()> {
        let most = process.locks.iter().map(|lock| lock.contended).max();
        match most {
            None if process.dropped.locks == 0 => {
                writeln!(out, "no mutex or spinlock was taken")?;
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
const HEADINGS_OF_THREADS: [&str; 7] = [
    "thread",
    "locked",
    "contended",
    "wait\ntotal",
    "\navg",
    "\nmax",
    "waits for",
];

/// Whether there is anything to show of a process.
fn took_any(process: &Process) -> bool {
    let dropped = process.dropped.locks > 0;
    let is_to_be_told = |order: &LockOrder| order.has_cycles();
    dropped
        || !process.misuses.is_empty()
        || process.order.as_ref().is_some_and(is_to_be_told)
        || process
            .locks
            .iter()
            .any(|lock| lock.locked > 0 || lock.contended > 0 || lock.tries > 0)
}

/// What is not shown, but was taken.
fn rwlocks(process: &Process) -> String {
    match process.rwlocked {
        0 => String::new(),
        n => format!(
            "; and {}, not shown",
            counted(n, "rwlock acquisition", "rwlock acquisitions")
        ),
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

/// A table, unless it has no rows.
fn print(headings: &[&str], rows: Vec<Vec<String>>, out: &mut dyn Write) -> anyhow::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let headings = headings.iter().map(|&heading| heading.to_owned()).collect();
    let table = Table { headings, rows };
    let text = table.text(1..table.headings.len());
    writeln!(out, "{}", table.fitted(text))?;
    Ok(())
}

/// The longest name in the table.
const NAME: usize = 24;

fn name(lock: &Lock) -> String {
    let name = match lock.ended {
        0 if lock.others > 0 => format!("({} others)", grouped(lock.others)),
        0 => lock.name.clone(),
        1 => format!("{} (ended)", lock.name),
        n => format!("({n} that ended)"),
    };
    cut(&name, NAME)
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
fn about(lock: &Lock, n: usize, process: &Process, out: &mut dyn Write) -> anyhow::Result<()> {
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
    let waits = lock.callers.iter().filter(|caller| caller.wait_ns > 0);
    for caller in waits.take(CALLERS) {
        let share = percent(caller.wait_ns as f64 / lock.wait.total_ns.max(1) as f64);
        let line = format!("waits {share}: {}", path(&caller.frames));
        writeln!(out, "    {}", wrapped(&line, "        "))?;
    }
    let longest = lock.callers.iter().max_by_key(|caller| caller.hold_ns);
    if let Some(caller) = longest.filter(|caller| lock.contended > 0 && caller.hold_ns > 0) {
        let share = percent(caller.hold_ns as f64 / lock.hold.total_ns.max(1) as f64);
        let line = format!("held {share}: {}", path(&caller.frames));
        writeln!(out, "    {}", wrapped(&line, "        "))?;
    }
    if let Some(holder) = lock.held_by.filter(|_| !process.ended) {
        let waiting: Vec<_> = lock.waiting.iter().map(u32::to_string).collect();
        let waiting = match waiting.is_empty() {
            true => String::new(),
            false => format!("; waiting: {}", waiting.join(", ")),
        };
        writeln!(out, "    held by thread {holder}{waiting}")?;
    }
    Ok(())
}

fn notes(process: &Process, out: &mut dyn Write) -> anyhow::Result<()> {
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
