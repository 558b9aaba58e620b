//! The rows of the report, with their headings: for the terminal and for the page.

use std::collections::BTreeMap;

use kinlock_cli::report::table::Table;
use kinlock_cli::report::units::{grouped, time};

use super::calls::place;
use super::{Caller, Did, Lock, Process, Times, View, Waited};

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
/// The first headings. Columns for other waits, and for what the thread waits for, follow.
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

/// The length to which names in the table are cut.
const NAME: usize = 24;

/// Which rows are shown.
#[derive(Clone, Copy)]
pub struct Options {
    pub by: View,
    pub max: usize,
    /// How often a lock must have been found taken to be shown.
    pub least: u64,
}

impl Options {
    /// The locks that are shown, with the numbers of their rows.
    pub fn lock_rows<'a>(&self, process: &'a Process) -> Vec<(&'a Lock, usize)> {
        let all = process
            .locks
            .iter()
            .filter(|lock| lock.found_taken() >= self.least);
        let mut all: Vec<&Lock> = all.collect();
        all.sort_by_key(|lock| std::cmp::Reverse((lock.kept_off(), lock.locked)));
        all.into_iter().zip(1..).collect()
    }

    /// The objects other than locks that threads waited for, with the numbers of their rows.
    pub fn wait_rows<'a>(&self, process: &'a Process) -> Vec<(&'a Waited, usize)> {
        let is_row = |waited: &&Waited| is_waited_for(waited) && waited.waited >= self.least;
        let mut all: Vec<&Waited> = process.waits.iter().filter(is_row).collect();
        all.sort_by_key(|waited| std::cmp::Reverse((waited.wait.total_ns, waited.calls)));
        all.into_iter().zip(1..).collect()
    }

    /// A row for each function that takes locks.
    pub fn caller_table(&self, process: &Process) -> Table {
        let mut by_place: BTreeMap<String, (Caller, Vec<&str>)> = BTreeMap::new();
        for lock in process
            .locks
            .iter()
            .filter(|lock| lock.found_taken() >= self.least)
        {
            for caller in &lock.callers {
                let (sum, locks) = by_place.entry(place(&caller.frames)).or_default();
                sum.add(caller);
                // Both sides of a reader-writer lock have its name.
                if !locks.contains(&&*lock.name) {
                    locks.push(&lock.name);
                }
            }
        }
        let mut rows: Vec<_> = by_place.into_iter().collect();
        rows.sort_by_key(|(_, (sum, _))| std::cmp::Reverse((sum.kept_off(), sum.hold_ns)));
        let has_tries = rows.iter().any(|(_, (sum, _))| sum.failed_tries > 0);
        let cells = rows.into_iter().map(|(place, (sum, locks))| {
            let nanos = [sum.wait_ns, sum.wait_max_ns, sum.hold_ns].map(|n| time(n as f64));
            let [wait, max, hold] = nanos;
            let (count, held) = (grouped(sum.contended), grouped(sum.held));
            let mut row = vec![place, locks.len().to_string(), count, wait, max, held, hold];
            row.extend(has_tries.then(|| grouped(sum.failed_tries)));
            row
        });
        let mut headings = HEADINGS_OF_CALLERS.to_vec();
        headings.extend(has_tries.then_some("failed\ntries"));
        of_cells(&headings, cells)
    }
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

/// A row for each object that is not a lock, under this name.
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

/// A row for each thread, and one for those that ended. Each kind of other waits that occurred has
/// a column.
pub fn thread_table(process: &Process) -> Table {
    let mut rows: Vec<_> = process.threads.iter().collect();
    rows.sort_by_key(|thread| std::cmp::Reverse((thread.did.wait_ns, thread.did.locked)));
    let ended = &process.ended_threads;
    let sums = process.other_waits();
    let kinds: Vec<usize> = (0..sums.len()).filter(|&at| sums[at].0 > 0).collect();
    // Makes the row of a thread, or of all threads that ended.
    let row = |name: String, did: &Did, now: String| {
        let average = did.wait_ns.checked_div(did.contended).unwrap_or(0);
        let nanos = [did.wait_ns, average, did.wait_max_ns];
        let waits = did.other_waits.kinds();
        let nanos = nanos.into_iter().chain(kinds.iter().map(|&at| waits[at].0));
        let mut row = vec![name, grouped(did.locked), grouped(did.contended)];
        row.extend(nanos.map(|nanos| time(nanos as f64)));
        row.push(now);
        row
    };
    let others = (ended.count > 0).then(|| {
        let name = format!("({} that ended)", grouped(ended.count));
        row(name, &ended.did, String::new())
    });
    let cells = rows.into_iter().map(|thread| {
        let name = format!("{} {}", thread.id, thread.name);
        row(name, &thread.did, waits_for(process, thread.waits_key))
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

/// Whether any thread has waited for the object, or waits.
pub fn is_waited_for(waited: &Waited) -> bool {
    waited.waited > 0 || !waited.waiting.is_empty()
}

/// The name of the object with this key in its entry.
fn waits_for(process: &Process, key: u64) -> String {
    if key == 0 {
        return String::new();
    }
    let lock = process.locks.iter().find(|lock| lock.key == key);
    let waited = || process.waits.iter().find(|waited| waited.key == key);
    let name = lock.map(name).or_else(|| waited().map(name_of));
    name.unwrap_or_default()
}

pub fn name(lock: &Lock) -> String {
    let side = side(lock);
    cut(&both_sides(lock), NAME - side.len()) + side
}

/// The full name of a lock.
pub fn full_name(lock: &Lock) -> String {
    both_sides(lock) + side(lock)
}

/// The name that both sides of a reader-writer lock share.
fn both_sides(lock: &Lock) -> String {
    match lock.others {
        0 => with_ended(&lock.name, lock.ended),
        n => format!("({} others)", grouped(n)),
    }
}

fn with_ended(name: &str, ended: u64) -> String {
    match ended {
        0 => name.to_owned(),
        1 => format!("{name} (ended)"),
        n => format!("({n} that ended)"),
    }
}

/// The words for this side of a reader-writer lock.
fn side(lock: &Lock) -> &'static str {
    match lock.side {
        Some("read") => " to read",
        Some(_) => " to write",
        None => "",
    }
}

pub fn name_of(waited: &Waited) -> String {
    cut(&full_name_of(waited), NAME)
}

/// The full name of an object that is not a lock.
pub fn full_name_of(waited: &Waited) -> String {
    with_ended(&waited.name, waited.ended)
}

fn cut(text: &str, length: usize) -> String {
    match text.chars().count() > length {
        true => text.chars().take(length - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

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
