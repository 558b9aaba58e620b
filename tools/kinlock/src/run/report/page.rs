//! The report as a page for browsers: the tables that people read on stderr, in full, with pictures
//! of their numbers. Rows and notes come from [`view`](super::view), so additions there appear here
//! as well.

use std::collections::BTreeMap;
use std::io::Write;

use kinlock_cli::report::html::{Page, Picture};
use kinlock_cli::report::plot::flows::Flows;
use kinlock_cli::report::plot::histogram::{self, Histogram};
use kinlock_cli::report::plot::spans::{self, Span};
use kinlock_cli::report::table::Table;
use kinlock_cli::report::units::grouped;

use super::calls::{Lines, place};
use super::tables::{self, Options};
use super::view;
use super::{Lock, Process, Report, Times};

/// Rows that are shown at once, if `--max` does not ask for more. The others are folded.
const ROWS: usize = 25;
/// The most rows of a table: a browser takes seconds for more.
const MOST_ROWS: usize = 2000;
/// The most processes, and the most locks of a process with a section of their own.
const PROCESSES: usize = 16;
const LOCKS: usize = 10;
/// Locks and functions in the picture of who waits for whom. Others are summed up.
const NODES: usize = 8;
/// Threads in the picture of their lives.
const LIVES: usize = 40;

pub fn write(report: &Report, options: &Options, out: &mut dyn Write) -> anyhow::Result<()> {
    // The verb `report` looks at processes that others have started, so it has no command line.
    let measured = report.processes.first();
    let program = match report.command.first() {
        Some(program) => program.rsplit('/').next().unwrap_or(program),
        None => measured.map_or("a process", |process| &process.program),
    };
    let mut page = Page::new(&format!("Locks of {program}"));
    if report.command.is_empty() {
        page.paragraph(
            "Measured for a while in a program that ran already. What was begun before is not in \
             this page.",
        );
    } else {
        page.command(&report.command);
        page.paragraph(&match &report.status {
            Some(status) => format!("The program ended with {status}."),
            None => "The program still runs: this is what it has done until now.".to_owned(),
        });
    }
    let shown = report.processes.iter().filter(|p| view::took_any(p));
    let shown: Vec<_> = shown.take(PROCESSES).collect();
    if shown.len() < report.processes.len() {
        page.paragraph(&format!(
            "{} of {} processes are shown, those that waited longest; --json has all.",
            shown.len(),
            grouped(report.processes.len() as u64)
        ));
    }
    for process in &shown {
        add_process(report, process, options, &mut page)?;
    }
    add_lines(&mut page, |out| view::write_rest(report, out));
    page.write(out)
}

fn add_process(
    report: &Report,
    process: &Process,
    options: &Options,
    page: &mut Page,
) -> anyhow::Result<()> {
    page.heading(2, &format!("{} (process {})", process.program, process.pid));
    let summary = view::summary(report, process);
    let summary = summary.replacen("kinlock: locks", "Locks", 1);
    page.paragraph(&summary.replacen("kinlock: waits", "Waits", 1));
    let locks = options.lock_rows(process);
    let is_waited_for = |lock: &Lock| lock.wait.count > 0 || !lock.waiting.is_empty();
    let waited: Vec<_> = locks.iter().filter(|row| is_waited_for(row.0)).collect();
    if let Some(flows) = flows(waited.iter().map(|row| row.0), process) {
        let about = "At the left the functions that waited, in the middle the locks that they \
                     waited for, as wide as the waits are long. At the right the functions that \
                     held those locks: each has the part of the lock's waits that it has of the \
                     lock's hold times. Waits for a reader-writer lock are divided by whether \
                     readers or a writer held it. Who held a lock in the very moment of a wait is \
                     not recorded.";
        page.picture(&Picture::draw(
            "Who waits for whom",
            about,
            flows.size(),
            |area| flows.draw(area),
        )?);
    }
    let max = options.max.max(ROWS);
    if locks.is_empty() {
        add_lines(page, |out| options.no_locks(process, out));
    } else {
        page.heading(3, "Locks");
        let table = tables::lock_table(&locks, tables::full_name);
        add_table(page, "Locks, the longest wait first", "locks", table, max);
    }
    for &&(lock, number) in waited.iter().take(LOCKS) {
        page.heading(4, &format!("{number} {}", tables::full_name(lock)));
        add_lines(page, |out| view::about(lock, number, process, out));
        add_times(page, &[("Waits", &lock.wait), ("Holds", &lock.hold)])?;
    }
    let waits = options.wait_rows(process);
    if !waits.is_empty() {
        page.heading(3, "Other waits");
        let table = tables::wait_table(&waits, tables::full_name_of);
        let caption = "What else threads waited for, the longest wait first";
        add_table(page, caption, "rows", table, max);
    }
    for &(waited, number) in waits.iter().take(LOCKS) {
        page.heading(4, &format!("{number} {}", tables::full_name_of(waited)));
        add_lines(page, |out| view::about_waited(waited, number, process, out));
        add_times(page, &[("Waits", &waited.wait)])?;
    }
    let callers = options.caller_table(process);
    if !callers.rows.is_empty() {
        page.heading(3, "Callers");
        let caption = "Functions that take locks, the longest wait first";
        add_table(page, caption, "callers", callers, max);
    }
    let threads = tables::thread_table(process);
    if !threads.rows.is_empty() {
        page.heading(3, "Threads");
        if let Some(lives) = lives(process)? {
            page.picture(&lives);
        }
        add_table(
            page,
            "Threads, the longest wait first",
            "threads",
            threads,
            max,
        );
    }
    let mut notes = Lines::default();
    view::notes(process, &mut notes);
    if !notes.0.is_empty() {
        page.heading(3, "Notes");
        page.lines(&notes.0);
    }
    Ok(())
}

/// Adds a table in which rows beyond `max` are folded.
fn add_table(page: &mut Page, caption: &str, what: &str, mut table: Table, max: usize) {
    let columns = 1..table.headings.len();
    let all = table.rows.len();
    table.rows.truncate(MOST_ROWS);
    let rest = table.rows.split_off(max.min(table.rows.len()));
    page.table(caption, &table, columns.clone());
    if rest.is_empty() {
        return;
    }
    let number = rest.len();
    let more = Table {
        headings: table.headings,
        rows: rest,
    };
    let summary = format!("{} more {what}", grouped(number as u64));
    page.folded(&summary, |page| page.table(&summary, &more, columns));
    if all > MOST_ROWS {
        let left = grouped((all - MOST_ROWS) as u64);
        page.paragraph(&format!("{left} further {what} are only in --json."));
    }
}

/// Adds lines that are also written to the terminal.
fn add_lines(page: &mut Page, write: impl FnOnce(&mut Lines)) {
    let mut lines = Lines::default();
    write(&mut lines);
    page.lines(&lines.0);
}

/// Adds a picture of these times, unless there are none.
fn add_times(page: &mut Page, times: &[(&str, &Times)]) -> anyhow::Result<()> {
    let known = times.iter().filter(|times| !times.1.histogram.is_empty());
    let known: Vec<_> = known.collect();
    let histograms = known.iter().map(|(what, times)| Histogram {
        heading: format!("{what}: {}", grouped(times.count)),
        classes: &times.histogram,
    });
    let histograms: Vec<_> = histograms.collect();
    if histograms.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = known.iter().map(|times| times.0).collect();
    let title = names.join(" and ").replace("and H", "and h");
    let about = "How often a time was of which length, over a logarithmic axis with two bars for \
                 each doubling. Estimated from the times that were measured.";
    page.picture(&Picture::draw(
        title,
        about,
        histogram::size(histograms.len()),
        |area| histogram::draw(area, &histograms),
    )?);
    Ok(())
}

/// The names with the largest sums, and one more name for the rest.
fn most<'a>(all: impl Iterator<Item = (&'a String, f64)>, others: &str) -> Vec<String> {
    let mut sums: BTreeMap<&String, f64> = BTreeMap::new();
    for (name, much) in all {
        *sums.entry(name).or_default() += much;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|a, b| b.1.total_cmp(&a.1));
    let left = sums.len().saturating_sub(NODES);
    let first = sums.into_iter().take(NODES);
    let mut names: Vec<_> = first.map(|(name, _)| name.clone()).collect();
    names.extend((left > 0).then(|| format!("{left} other {others}")));
    names
}

/// The rows of the table behind which threads waited for a lock, with their shares of its waits:
/// the lock itself, or the sides of a reader-writer lock that were held.
fn behind<'a>(lock: &'a Lock, process: &'a Process) -> Vec<(&'a Lock, f64)> {
    if lock.side.is_none() {
        return vec![(lock, 1.0)];
    }
    let (readers, writers) = (lock.behind_readers.wait_ns, lock.behind_writers.wait_ns);
    let sides = process.locks.iter().filter(|other| {
        other.side.is_some() && [other.address, other.ended] == [lock.address, lock.ended]
    });
    let parts = sides.map(|side| {
        let own = if side.side == Some("read") {
            readers
        } else {
            writers
        };
        (side, own as f64 / (readers + writers).max(1) as f64)
    });
    parts.filter(|part| part.1 > 0.0).collect()
}

/// Who waited for which locks, and who held them. `None` if callers are not known.
fn flows<'a>(locks: impl Iterator<Item = &'a Lock>, process: &'a Process) -> Option<Flows> {
    // Flows from a function to a lock, and from a lock to a function.
    let (mut waits, mut holds) = (Vec::new(), Vec::new());
    for lock in locks {
        // Locks with the same name, such as those that followed each other at one place, are one.
        let name = tables::full_name(lock);
        for caller in lock.callers.iter().filter(|caller| caller.wait_ns > 0) {
            waits.push((place(&caller.frames), name.clone(), caller.wait_ns as f64));
        }
        for (side, part) in behind(lock, process) {
            let held: u64 = side.callers.iter().map(|caller| caller.hold_ns).sum();
            for caller in side.callers.iter().filter(|caller| caller.hold_ns > 0) {
                let part = part * caller.hold_ns as f64 / held as f64;
                let much = part * lock.wait.total_ns as f64;
                holds.push((place(&caller.frames), name.clone(), much));
            }
        }
    }
    holds.retain(|flow| flow.2 > 0.0);
    if waits.is_empty() {
        return None;
    }
    let waiters = most(waits.iter().map(|flow| (&flow.0, flow.2)), "functions");
    let locks = most(waits.iter().map(|flow| (&flow.1, flow.2)), "locks");
    let holders = most(holds.iter().map(|flow| (&flow.0, flow.2)), "functions");
    let number = |names: &[String], name: &String| {
        let found = names.iter().take(NODES).position(|known| known == name);
        found.unwrap_or(NODES)
    };
    let summed = |flows: Vec<(usize, usize, f64)>| {
        let mut sums: BTreeMap<(usize, usize), f64> = BTreeMap::new();
        for (from, to, much) in flows {
            *sums.entry((from, to)).or_default() += much;
        }
        let sums = sums.into_iter();
        sums.map(|((from, to), much)| (from, to, much)).collect()
    };
    let first = waits
        .iter()
        .map(|(place, lock, much)| (number(&waiters, place), number(&locks, lock), *much));
    let second = holds
        .iter()
        .map(|(place, lock, much)| (number(&locks, lock), number(&holders, place), *much));
    Some(Flows {
        headings: ["waited", "for", "held by"].map(str::to_owned),
        first: summed(first.collect()),
        second: summed(second.collect()),
        names: [waiters, locks, holders],
    })
}

/// When threads lived, and which share of that time they waited. `None` if there is nothing to
/// compare.
fn lives(process: &Process) -> anyhow::Result<Option<Picture>> {
    let mut threads: Vec<_> = process
        .threads
        .iter()
        .filter(|t| t.life[1] > t.life[0])
        .collect();
    if threads.len() < 2 {
        return Ok(None);
    }
    threads.sort_by_key(|thread| std::cmp::Reverse((thread.did.wait_ns, thread.did.locked)));
    let all = threads.len();
    threads.truncate(LIVES);
    threads.sort_by(|a, b| a.life[0].total_cmp(&b.life[0]).then(a.id.cmp(&b.id)));
    let spans = threads.iter().map(|thread| Span {
        name: format!("{} {}", thread.id, thread.name),
        range: thread.life,
        share: thread.did.wait_ns as f64 / (1e9 * (thread.life[1] - thread.life[0])),
    });
    let spans: Vec<_> = spans.collect();
    let end = threads
        .iter()
        .map(|thread| thread.life[1])
        .fold(process.seconds, f64::max);
    let which = match all > LIVES {
        true => format!("The {LIVES} of {all} threads that waited longest. "),
        false => String::new(),
    };
    let about = format!(
        "{which}A bar is a thread, from its first lock or wait to its end. Its colour is the \
         stronger the larger the part of that time was in which it waited for locks, which stands \
         behind it."
    );
    let drawn = Picture::draw(
        "Threads over time",
        about,
        spans::size(spans.len()),
        |area| spans::draw(area, &spans, end),
    );
    drawn.map(Some)
}
