//! The report for people, on stderr.

use std::collections::BTreeSet;

use kinlock_cli::report::table::{Table, wrapped};
use kinlock_cli::report::units::{counted, grouped, percent, time};

use super::calls::{Lines, path};
use super::misuse::{LockOrder, write_misuses, write_order};
use super::tables::{Options, is_waited_for, lock_table, name, name_of, thread_table, wait_table};
use super::{Caller, Lock, OF_CRATE, Process, Report, Stripped, View, Waited, waited_share};

/// The most processes, and the most callers of a lock.
const PROCESSES: usize = 4;
const CALLERS: usize = 3;

impl Options {
    /// The whole report.
    pub fn text(&self, report: &Report) -> String {
        let mut out = Lines::default();
        let used: Vec<_> = report.processes.iter().filter(|p| took_any(p)).collect();
        for process in used.iter().take(PROCESSES) {
            self.process(report, process, &mut out);
        }
        if let Some(more @ 1..) = used.len().checked_sub(PROCESSES) {
            let more = counted(more as u64, "more process", "more processes");
            out.add(format!("\nkinlock: {more} waited less; --json has them"));
        }
        write_rest(report, &mut out);
        out.0
    }

    fn process(&self, report: &Report, process: &Process, out: &mut Lines) {
        out.add(format!("\n{}\n", wrapped(&summary(report, process), "")));
        let waiting: usize = process.locks.iter().map(|lock| lock.waiting.len()).sum();
        if !process.ended && waiting > 0 {
            out.add(format!(
                "{} for a lock now: kinlock report {} says for whom, and which wait in a circle\n",
                counted(waiting as u64, "thread waits", "threads wait"),
                process.pid
            ));
        }
        match self.by {
            View::Lock => {
                self.locks(process, out);
                self.waits(process, out);
            }
            View::Caller => self.callers(process, out),
            View::Thread => self.threads(process, out),
        }
        notes(process, out);
        // Nothing may follow the summary.
        out.0.truncate(out.0.trim_end().len());
        out.add("");
    }

    fn locks(&self, process: &Process, out: &mut Lines) {
        let rows = self.lock_rows(process);
        if rows.is_empty() {
            return self.no_locks(process, out);
        }
        self.print(lock_table(&rows, name), 0, " locks", out);
        out.add("");
        for (lock, n) in rows.into_iter().take(self.max) {
            about(lock, n, process, out);
        }
    }

    /// The objects other than locks that threads waited for. They have a table of their own, since
    /// idle threads wait for them, too.
    fn waits(&self, process: &Process, out: &mut Lines) {
        let rows = self.wait_rows(process);
        if rows.is_empty() {
            return;
        }
        if !out.0.ends_with("\n\n") {
            out.add("");
        }
        self.print(wait_table(&rows, name_of), 0, "", out);
        out.add("");
        for (waited, n) in rows.into_iter().take(self.max) {
            about_waited(waited, n, process, out);
        }
    }

    fn callers(&self, process: &Process, out: &mut Lines) {
        let table = self.caller_table(process);
        if !table.rows.is_empty() {
            return self.print(table, 0, " callers", out);
        }
        match self.lock_rows(process).is_empty() {
            true => self.no_locks(process, out),
            false => out.add("no callers: they need glibc 2.35 or later, and room in the table"),
        }
    }

    fn threads(&self, process: &Process, out: &mut Lines) {
        if process.threads.is_empty() && process.ended_threads.count == 0 {
            out.add("no thread found a place in the table");
            return;
        }
        // One more row, for the threads that ended.
        let extra = usize::from(process.ended_threads.count > 0);
        self.print(thread_table(process), extra, " threads", out)
    }

    /// Prints as many rows as were asked for, and `extra` ones, and says how many are left out.
    fn print(&self, mut table: Table, extra: usize, what: &str, out: &mut Lines) {
        let left = table.rows.len().saturating_sub(self.max + extra);
        table.rows.truncate(self.max + extra);
        if !table.rows.is_empty() {
            let text = table.text(1..table.headings.len());
            out.add(table.fitted(text));
        }
        if left > 0 {
            let all = self.max + left;
            out.add(format!("{left} more{what}; --max {all} shows them"));
        }
    }
}

/// The locks that a program may have although it seems to take none.
pub const UNSEEN: &str = "not seen are locks that do not go through pthread: those of Rust's std, \
                          of Go, of libraries on futexes, and those of the crate kinlock without \
                          its feature report";

/// Writes about the processes that have no rows.
pub fn write_rest(report: &Report, out: &mut Lines) {
    if report.processes.is_empty() && report.without.reason.is_none() {
        // Without a command line, a running process was measured for a while.
        if report.command.is_empty() {
            out.add(format!(
                "kinlock: no report: in this time no thread took a lock, and no wait ended; \
                 `kinlock report PID` without --seconds says who waits for whom at this moment; \
                 {UNSEEN}"
            ));
            return;
        }
        out.add(format!(
            "kinlock: no report: the program called no function of pthread locks, and none by \
             which threads wait for others; {UNSEEN}; nor are programs that lose LD_PRELOAD on \
             their way: by env -i, sudo, su -, systemd-run, cron or a container"
        ));
        return;
    }
    let is_idle = |process: &&Process| !took_any(process) && !is_rest(report, process);
    let idle: Vec<_> = report.processes.iter().filter(is_idle).collect();
    match &idle[..] {
        [] => {}
        [one] => out.add(format!(
            "\nkinlock: {} (process {}) took no pthread lock; {UNSEEN}",
            one.program, one.pid
        )),
        more => out.add(format!(
            "\nkinlock: {} processes took no pthread lock; {UNSEEN}",
            grouped(more.len() as u64)
        )),
    }
    for process in report.still_running.iter().take(PROCESSES) {
        out.add(format!(
            "\nkinlock: process {} ({}) still runs: what it does from now on is not in this \
             report",
            process.pid, process.program
        ));
    }
    if let Some(more @ 1..) = report.still_running.len().checked_sub(PROCESSES) {
        let more = counted(more as u64, "more process", "more processes");
        out.add(format!("\nkinlock: {more} still run; --json has them"));
    }
    if let Some(reason) = &report.without.reason {
        let number = match report.without.count {
            0 if !report.processes.is_empty() => "some processes may not be".to_owned(),
            0 => "no process is".to_owned(),
            1 => "1 process is not".to_owned(),
            n => format!("{} processes are not", grouped(n.into())),
        };
        out.add(format!(
            "\nkinlock: {number} in this report: no table could be made: {reason}"
        ));
    }
}

impl Options {
    pub fn no_locks(&self, process: &Process, out: &mut Lines) {
        let most = process.locks.iter().map(Lock::found_taken).max();
        match most {
            // The summary says so already.
            None if process.dropped.locks == 0 => {}
            None => out.add("no lock found a place in the table"),
            Some(most) => out.add(format!(
                "no lock was found taken {} or more (--min-contended {}): the most was {}",
                counted(self.least, "time", "times"),
                self.least,
                counted(most, "time", "times")
            )),
        }
    }
}

/// What a process did, in one sentence.
pub fn summary(report: &Report, process: &Process) -> String {
    let until = match &report.status {
        None => " until now",
        Some(_) => "",
    };
    // Processes with the same name are told apart by their parents.
    let has_parent = report.processes.iter().any(|p| p.pid == process.parent);
    let parent = match has_parent {
        true => format!(", child of {}", process.parent),
        false => String::new(),
    };
    let of = format!(
        "{} (process {}{parent}, {})",
        process.program, process.pid, process.lock
    );
    let waits = other_waits(process);
    if is_rest(report, process) {
        let waits = if waits.is_empty() { "none" } else { &waits };
        return format!("kinlock: waits of {of} for what is no lock{until}: {waits}");
    }
    let sum = |of: fn(&Lock) -> u64| process.locks.iter().map(of).sum::<u64>();
    let (locked, asked_for) = (sum(|lock| lock.locked), sum(Lock::asked_for));
    let contended = sum(|lock| lock.contended);
    let took = match took_locks(process) {
        false if process.lock == OF_CRATE => "took none".to_owned(),
        false => format!("took no pthread lock; {UNSEEN}"),
        true => format!(
            "took {} {} in {}; {} were found taken, and waited {} for ({} of the threads' lives)",
            counted(lock_count(process), "lock", "locks"),
            counted(locked, "time", "times"),
            time(1e9 * process.seconds),
            percent(contended as f64 / asked_for.max(1) as f64),
            time(process.wait_ns() as f64),
            percent(waited_share(std::slice::from_ref(process))),
        ),
    };
    let waits = match waits.is_empty() {
        true => String::new(),
        false => format!(". Threads also waited {waits}"),
    };
    let threads = counted(process.thread_count.into(), "thread", "threads");
    format!("kinlock: locks of {of}{until}: {threads} {took}{waits}")
}

/// Whether a process took locks that are in the report, or for which there was no room.
fn took_locks(process: &Process) -> bool {
    process.dropped.locks > 0
        || process
            .locks
            .iter()
            .any(|lock| lock.locked > 0 || lock.contended > 0 || lock.tries > 0)
}

/// Whether this part of a process has no locks, but another part has. What the program records by
/// itself and what the preloaded library records are two parts.
fn is_rest(report: &Report, process: &Process) -> bool {
    let is_other = |other: &Process| other.pid == process.pid && other.lock != process.lock;
    let mut others = report.processes.iter().filter(|other| is_other(other));
    !took_locks(process) && others.any(took_locks)
}

/// Whether there is anything to show about a process.
pub fn took_any(process: &Process) -> bool {
    let is_to_be_told = |order: &LockOrder| !order.cycles.is_empty();
    took_locks(process)
        || !process.misuses.is_empty()
        || process.order.as_ref().is_some_and(is_to_be_told)
        || process.waits.iter().any(is_waited_for)
}

/// The number of locks. A reader-writer lock may have two rows.
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

/// How long threads waited for objects that are not locks.
fn other_waits(process: &Process) -> String {
    let kinds = process.other_waits().into_iter();
    let kinds: Vec<_> = kinds
        .filter(|(nanos, _)| *nanos > 0)
        .map(|(nanos, what)| format!("{} for {what}", time(nanos as f64)))
        .collect();
    kinds.join(", ")
}

/// Writes about a lock what is not in its row.
pub fn about(lock: &Lock, n: usize, process: &Process, out: &mut Lines) {
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
    if lock.failed_tries > 0 {
        let [failed, tries] = [lock.failed_tries, lock.tries].map(grouped);
        line += &format!(", {failed} of {tries} tries failed");
    }
    for (count, what) in [
        // Only if all tries succeeded.
        (lock.tries * u64::from(lock.failed_tries == 0), "tries"),
        (lock.timeouts, "waits that timed out"),
        (lock.nested, "nested"),
    ] {
        if count > 0 {
            line += &format!(", {} {what}", grouped(count));
        }
    }
    if let Some(data) = &lock.data {
        line += &format!(", guards {data}");
    }
    let place = lock.place.as_ref();
    let place = place.map_or(String::new(), |place| format!(" at {place}"));
    line += &format!("; first taken{place} by {}", path(&lock.first));
    out.wrap(0, &line);
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
        out.add(format!("    waited {}", behind.join(", ")));
    }
    write_waits(&lock.callers, lock.wait.total_ns, out);
    write_tries(lock, out);
    let longest = lock.callers.iter().max_by_key(|caller| caller.hold_ns);
    if let Some(caller) = longest.filter(|caller| lock.found_taken() > 0 && caller.hold_ns > 0) {
        let share = percent(caller.hold_ns as f64 / lock.hold.total_ns.max(1) as f64);
        out.wrap(1, &format!("held {share}: {}", path(&caller.frames)));
    }
    if process.ended {
        return;
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
        out.wrap(1, &now.join("; "));
    }
}

fn numbers(of: &[u32]) -> String {
    let numbers: Vec<_> = of.iter().map(u32::to_string).collect();
    numbers.join(", ")
}

/// Writes the callers that waited longest.
fn write_waits(callers: &[Caller], total_ns: u64, out: &mut Lines) {
    let waits = callers.iter().filter(|caller| caller.wait_ns > 0);
    for caller in waits.take(CALLERS) {
        let share = percent(caller.wait_ns as f64 / total_ns.max(1) as f64);
        out.wrap(1, &format!("waits {share}: {}", path(&caller.frames)));
    }
}

/// Writes the callers whose tries failed most often.
fn write_tries(lock: &Lock, out: &mut Lines) {
    let mut callers: Vec<_> = lock
        .callers
        .iter()
        .filter(|caller| caller.failed_tries > 0)
        .collect();
    callers.sort_by_key(|caller| std::cmp::Reverse(caller.failed_tries));
    for caller in callers.into_iter().take(CALLERS) {
        let share = percent(caller.failed_tries as f64 / lock.failed_tries.max(1) as f64);
        let line = format!("failed tries {share}: {}", path(&caller.frames));
        out.wrap(1, &line);
    }
}

/// Writes about an object that is not a lock what is not in its row.
pub fn about_waited(waited: &Waited, n: usize, process: &Process, out: &mut Lines) {
    let threads = counted(waited.threads.into(), "thread", "threads");
    out.add(format!(
        "{n} {}: {}, {threads}",
        name_of(waited),
        waited.kind
    ));
    write_waits(&waited.callers, waited.wait.total_ns, out);
    if !process.ended && !waited.waiting.is_empty() {
        out.wrap(1, &format!("waiting: {}", numbers(&waited.waiting)));
    }
}

pub fn notes(process: &Process, out: &mut Lines) {
    let (samples, locked) = process.locks.iter().fold((0, 0), |(s, l), lock| {
        (s + lock.hold_samples, l + lock.locked)
    });
    if samples < locked {
        out.add(format!(
            "hold: estimated from {} of {} acquisitions: all that waited, about 1 of 256 others",
            grouped(samples),
            grouped(locked)
        ));
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
        out.add(format!(
            "the table is full: {} {what} were dropped",
            grouped(count)
        ));
    }
    if process.no_memory {
        out.add("there was no memory for a part of the table: /dev/shm is full");
    }
    let others: u64 = process.locks.iter().map(|lock| lock.others).sum();
    if others > 0 {
        out.add(format!(
            "the table is nearly full: {} that nobody waited for share rows, one for each call \
             stack",
            counted(others, "lock", "locks")
        ));
    }
    for file in &process.changed_files {
        out.add(format!(
            "no names from {file}: it cannot be read, or is not what was loaded"
        ));
    }
    write_misuses(&process.misuses, out);
    if let Some(order) = &process.order {
        write_order(order, out);
    }
    stripped(process, out)
}

/// Writes how to get names for stripped files.
fn stripped(process: &Process, out: &mut Lines) {
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
        out.wrap(0, &line);
    }
    if !others.is_empty() {
        let line = format!(
            "stripped, so without names: {}; install the debug symbols of their packages, or fetch \
             them by debuginfod-find debuginfo FILE, or build with -g and without strip",
            files(&others)
        );
        out.wrap(0, &line);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::super::folder::{Seen, zeros};
    use super::super::read;
    use super::*;

    /// A program may take locks of the crate, and wait for threads by pthread functions.
    #[test]
    fn no_part_of_a_process_denies_locks_that_another_part_has() {
        let table = zeros();
        let header = &table.header;
        header.ended_threads.other_ns[3].store(5_000_000, Relaxed);
        let pthread = || read::process(&table, Seen::default());
        let mut report = Report {
            processes: vec![pthread()],
            ..Report::default()
        };
        let told = |report: &Report| {
            let mut rest = Lines::default();
            write_rest(report, &mut rest);
            [summary(report, &report.processes[0]), rest.0]
        };
        for text in told(&report) {
            assert!(
                text.contains("took no pthread lock; not seen are "),
                "{text}"
            );
        }
        let waited = "5.00 ms for the ends of threads";
        let alone = told(&report);
        assert!(
            alone[0].ends_with(&format!(". Threads also waited {waited}")),
            "{alone:?}"
        );

        header.locks.store(3, Relaxed);
        // First without dropped locks, then with one.
        for (dropped, is_rest) in [(0, false), (1, true)] {
            header.dropped_locks.store(dropped, Relaxed);
            report.processes.truncate(1);
            report
                .processes
                .push(read::process(&table, Seen::default()));
            let [text, rest] = told(&report);
            assert_eq!(text.contains("took no"), !is_rest, "{text}");
            assert_eq!(rest.is_empty(), is_rest, "{rest}");
            assert!(text.ends_with(waited), "{text}");
        }
        report.processes[1].pid += 1;
        assert_eq!(told(&report), alone);
    }
}
