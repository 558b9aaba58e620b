//! Who holds and who waits at this moment, in a process that may hang.
//!
//! Waits are read twice, and the holders of locks in between. A wait that is found both times
//! lasted from before the holders were read until after that, and a thread that waits releases
//! nothing. So the waits and holders of a circle existed at the same moment.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::iter::successors;

use kinlock_cli::report::table::wrapped;
use kinlock_cli::report::text;
use kinlock_cli::report::units::{counted, time};
use kinlock_core::platform::Platform;
use kinlock_linux::Native;
use kinlock_report::now::{IS_HELD, LIMITED, PASSES, SENDABLE, UPGRADABLE};
use kinlock_report::{JOIN, READING, RWLOCK};
use serde::Serialize;

use super::calls::{Lines, path};
use super::entry;
use super::folder::{Snapshot, is_of_report};
use super::others::{self, descendants, none_of, of_process, paths};
use super::outside::{Fact, Known, Outside};
use super::read;
use super::rust;
use super::symbols::{Frame, Symbols};
use super::view::UNSEEN;

/// The report for programs. Names are a contract, and mean the same as in the measured report.
#[derive(Serialize)]
pub struct Now {
    processes: Vec<Process>,
}

#[derive(Serialize)]
struct Process {
    pid: u32,
    parent: u32,
    program: String,
    /// Circles of threads that wait for each other, each for the next one, and the last for the
    /// first.
    deadlocks: Vec<Vec<u32>>,
    /// Locks for which threads wait.
    locks: Vec<Lock>,
    /// The other objects that threads wait for: condition variables, and the ends of threads.
    waits: Vec<Lock>,
    /// Threads that wait, and threads that hold something that others wait for.
    threads: Vec<Thread>,
    /// Waits and holds for which there was no room, since the process began.
    dropped: u64,
}

#[derive(Serialize)]
pub struct Lock {
    pub name: String,
    address: u64,
    kind: &'static str,
    pub held_by: Option<u32>,
    holders: Vec<u32>,
    pub waiting: Vec<u32>,
}

#[derive(Serialize)]
pub struct Thread {
    pub id: u32,
    pub name: String,
    /// The address of the object that the thread waits for, or 0.
    pub waits_for: u64,
    pub waits_for_ns: u64,
    /// For a reader-writer lock, `read` or `write`.
    side: Option<&'static str>,
    /// Whether the wait has a time limit.
    limited: bool,
    pub ended: bool,
    /// Whether the thread belongs to another process, with which the lock that it holds is shared.
    pub elsewhere: bool,
    pub stack: Vec<Frame>,
}

/// How to start a program so that its locks can be looked at.
const HOW: &str = "start the program with `kinlock run --standby --lock pthread -- PROGRAM`, or \
                   without both options on our locks";

/// Reports on a process, perhaps with its descendants.
pub fn report(pid: u32, with_descendants: bool) -> anyhow::Result<Now> {
    let mut processes = Vec::from_iter(process(pid)?);
    if with_descendants {
        // Descendants that have ended or may not be looked at are left out.
        let all = descendants(pid).into_iter();
        processes.extend(all.filter_map(|pid| process(pid).ok().flatten()));
    }
    if processes.is_empty() {
        let is_one = |pid| process(pid).is_ok_and(|found| found.is_some());
        let says = ["has no locks of kinlock", "has", "has locks of kinlock"];
        return Err(none_of(pid, with_descendants, is_one, says, HOW));
    }
    Ok(Now { processes })
}

/// `None` if kinlock's library is not loaded in the process.
fn process(pid: u32) -> anyhow::Result<Option<Process>> {
    let Some(outside) = Outside::look(pid)? else {
        return Ok(None);
    };
    let found = Found::of(&outside, pid);
    let mut symbols = outside.symbols();
    let (locks, waits) = found.report(&outside, &mut symbols);
    let name = of_process(pid, "comm").unwrap_or_default();
    Ok(Some(Process {
        pid,
        parent: others::parent(pid).unwrap_or(0),
        program: text::name(name.trim_ascii_end()),
        deadlocks: found.circles(),
        threads: found.threads(&outside, &mut symbols),
        locks,
        waits,
        dropped: found.dropped,
    }))
}

/// The waits and holders, from the facts. Threads have the numbers of this command's PID namespace.
#[derive(Default)]
pub struct Found {
    /// The wait of each thread. If a signal handler waits during a wait, the handler's.
    pub waits: BTreeMap<u32, Fact>,
    /// The objects that threads wait for, by address.
    locks: BTreeMap<u64, Awaited>,
    dropped: u64,
}

struct Awaited {
    /// The name of its kind, for people.
    kind: &'static str,
    is_shared: bool,
    /// Whether the thread that took the lock may have passed it to another thread.
    is_sendable: bool,
    holders: BTreeMap<u32, Hold>,
}

/// How a thread holds a lock. The comments say whom that excludes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Hold {
    /// Writers.
    Read,
    /// Writers, and threads that want to be the upgradable reader.
    Upgradable,
    /// All threads.
    Alone,
}

impl Awaited {
    fn add(&mut self, holder: u32, hold: Hold) {
        let known = self.holders.entry(holder).or_insert(hold);
        *known = hold.max(*known);
    }
}

fn address(wait: &Fact) -> u64 {
    wait.what & !READING
}

impl Found {
    /// The present waits and holders in a process.
    pub fn of(outside: &Outside, pid: u32) -> Self {
        Self::by(outside, pid, || outside.known())
    }

    /// The same with the facts that each call of `look` returns.
    fn by(outside: &Outside, pid: u32, mut look: impl FnMut() -> Vec<Known>) -> Self {
        let first = look();
        let mut found = Found {
            dropped: first.iter().map(|known| known.dropped).sum(),
            ..Found::default()
        };
        for known in &first {
            found.add_waits(known, outside);
        }
        for known in look() {
            found.add_holds(&known, outside);
        }
        found.add_recorded(pid, outside);
        let again = look();
        let again: HashSet<&Fact> = again.iter().flat_map(|known| &known.facts).collect();
        // Numbers of threads are reused. So this may be the wait of an earlier thread, which left
        // the wait by a jump.
        found
            .waits
            .retain(|&thread, fact| again.contains(fact) && fact.since >= outside.began(thread));
        found
    }

    /// The address of the object that a thread waits for; 0: it does not wait.
    pub fn awaited(&self, thread: u32) -> u64 {
        self.waits.get(&thread).map_or(0, address)
    }

    /// Whether a thread waits for a lock.
    pub fn is_for_lock(&self, thread: u32) -> bool {
        let lock = self.locks.get(&self.awaited(thread));
        lock.is_some_and(|lock| is_lock(lock.kind))
    }

    fn add_waits(&mut self, known: &Known, outside: &Outside) {
        for wait in known.facts.iter().filter(|fact| fact.what & IS_HELD == 0) {
            let last = self
                .waits
                .entry(outside.number(wait.thread))
                .or_insert(*wait);
            if last.since < wait.since {
                *last = *wait;
            }
            self.locks
                .entry(address(wait))
                .or_insert_with(|| look_at(wait, known, outside));
        }
    }

    fn add_holds(&mut self, known: &Known, outside: &Outside) {
        for fact in known.facts.iter().filter(|fact| fact.what & IS_HELD != 0) {
            let hold = match (fact.what & READING != 0, fact.kind & UPGRADABLE != 0) {
                (true, false) => Hold::Read,
                (true, true) => Hold::Upgradable,
                (false, _) => Hold::Alone,
            };
            if let Some(lock) = self.locks.get_mut(&(address(fact) & !IS_HELD)) {
                lock.add(outside.number(fact.thread), hold);
            }
        }
    }

    /// Adds the holders in the tables of a process that is reported on.
    fn add_recorded(&mut self, pid: u32, outside: &Outside) {
        let mut tables = Snapshot::default();
        let files = paths(pid).unwrap_or_default();
        for table in files.iter().filter(|path| is_of_report(path)) {
            tables.add(table);
        }
        tables.for_each(|table, _| {
            for (key, thread) in read::holders(table) {
                let hold = match key & READING {
                    0 => Hold::Alone,
                    _ => Hold::Read,
                };
                let holder = outside.number(thread);
                let lock = self.locks.get_mut(&(key & !READING));
                if let Some(lock) = lock.filter(|lock| holder != 0 && !lock.is_sendable) {
                    lock.add(holder, hold);
                }
            }
        });
    }

    /// The holders of the object that a thread waits for.
    pub fn holders(&self, thread: u32) -> impl Iterator<Item = u32> {
        let lock = self.locks.get(&self.awaited(thread));
        lock.into_iter()
            .flat_map(|lock| lock.holders.keys().copied())
    }

    /// The threads that a waiting thread needs to act before it can go on. A reader does not wait
    /// for other readers, but for the next writer in line, unless it may pass that writer.
    fn needed(&self, thread: u32) -> Vec<u32> {
        let Some(wait) = self.waits.get(&thread) else {
            return Vec::new();
        };
        let (reads, is_upgradable) = (wait.what & READING != 0, wait.kind & UPGRADABLE != 0);
        let excludes = |holder: u32, hold: Hold| match (reads, is_upgradable) {
            (false, false) => true,
            (false, true) => holder != thread,
            (true, true) => hold >= Hold::Upgradable,
            (true, false) => hold == Hold::Alone,
        };
        let holders = self.locks.get(&address(wait)).into_iter();
        let holders = holders.flat_map(|lock| &lock.holders);
        let holders = holders.filter(|&(&holder, &hold)| excludes(holder, hold));
        let mut needed: Vec<u32> = holders.map(|(&holder, _)| holder).collect();
        if reads && wait.kind & PASSES == 0 {
            let next = self.next_writer(address(wait));
            needed.extend(next.filter(|&next| next != thread));
        }
        needed
    }

    /// The waiter of a reader-writer lock that goes before all waiting readers. Upgradable readers
    /// queue with the writers, and one that upgrades goes first.
    fn next_writer(&self, lock: u64) -> Option<u32> {
        let is_reader = |wait: &Fact| wait.what & READING != 0;
        let is_upgradable = |wait: &Fact| wait.kind & UPGRADABLE != 0;
        let all = self.waits.iter().filter(|(_, wait)| address(wait) == lock);
        let queued = all.filter(|(_, wait)| !is_reader(wait) || is_upgradable(wait));
        let next =
            queued.min_by_key(|(_, wait)| (is_reader(wait) || !is_upgradable(wait), wait.since));
        next.map(|(&thread, _)| thread)
    }

    /// Circles of threads that wait for each other, each circle once. A thread whose wait has a
    /// time limit is in no circle, since it gives up.
    fn circles(&self) -> Vec<Vec<u32>> {
        let mut circles: Vec<Vec<u32>> = Vec::new();
        for &thread in self.waits.keys() {
            let is_known = circles.iter().any(|circle| circle.contains(&thread));
            circles.extend((!is_known).then(|| self.circle(thread)).flatten());
        }
        circles
    }

    /// The shortest circle that a thread is in.
    fn circle(&self, thread: u32) -> Option<Vec<u32>> {
        let mut before: HashMap<u32, u32> = HashMap::new();
        let mut open = VecDeque::from([thread]);
        while let Some(at) = open.pop_front() {
            if self
                .waits
                .get(&at)
                .is_none_or(|wait| wait.kind & LIMITED != 0)
            {
                continue;
            }
            for next in self.needed(at) {
                if next == thread {
                    let back = |at: &u32| before.get(at).copied();
                    let mut circle: Vec<_> = successors(Some(at), back).collect();
                    circle.reverse();
                    return Some(circle);
                }
                if let Entry::Vacant(new) = before.entry(next) {
                    new.insert(at);
                    open.push_back(next);
                }
            }
        }
        None
    }

    /// Locks, and the other objects that threads wait for, with the longest waits first.
    pub fn report(&self, outside: &Outside, symbols: &mut Symbols) -> (Vec<Lock>, Vec<Lock>) {
        let mut waiting: BTreeMap<u64, Vec<(u64, u32)>> = BTreeMap::new();
        for (&thread, wait) in &self.waits {
            let all = waiting.entry(address(wait)).or_default();
            all.push((wait.since, thread));
        }
        let mut waiting: Vec<_> = waiting.into_iter().collect();
        for (_, all) in &mut waiting {
            all.sort_unstable();
        }
        waiting.sort_by_key(|(_, all)| all[0]);
        let locks = waiting.into_iter().map(|(address, all)| {
            let lock = &self.locks[&address];
            let holders: Vec<u32> = lock.holders.keys().copied().collect();
            let name = match (lock.kind, holders.first()) {
                ("join", Some(&thread)) => {
                    format!("the end of {}", called(thread, &outside.name(thread)))
                }
                ("join", None) => "the end of a thread".to_owned(),
                _ => entry::name(address, None, symbols),
            };
            Lock {
                name,
                address,
                kind: lock.kind,
                held_by: holders.first().copied(),
                holders,
                waiting: all.into_iter().map(|(_, thread)| thread).collect(),
            }
        });
        locks.partition(Lock::is_lock)
    }

    /// Whether a thread belongs to another process, with which this one shares a lock.
    fn is_elsewhere(&self, thread: u32, outside: &Outside) -> bool {
        let mut shared = self.locks.values().filter(|lock| lock.is_shared);
        let holds_any = shared.any(|lock| lock.holders.contains_key(&thread));
        holds_any && outside.is_elsewhere(thread)
    }

    /// Threads that wait, and threads that hold what others wait for.
    pub fn threads(&self, outside: &Outside, symbols: &mut Symbols) -> Vec<Thread> {
        let holders = self.waits.keys().flat_map(|&thread| self.holders(thread));
        let all: BTreeSet<u32> = holders.chain(self.waits.keys().copied()).collect();
        let now = Native::now();
        let threads = all.into_iter().map(|id| {
            let wait = self.waits.get(&id);
            let registers = match wait {
                Some(wait) => Some(wait.registers),
                None => outside.registers(id),
            };
            let stack = registers.map_or(Vec::new(), |from| outside.stack(from));
            let stack = stack.into_iter();
            let mut stack: Vec<_> = stack
                .flat_map(|back| symbols.calls(back).to_vec())
                .collect();
            rust::without_own(&mut stack);
            Thread {
                id,
                name: outside.name(id),
                waits_for: wait.map_or(0, address),
                waits_for_ns: wait.map_or(0, |wait| now.saturating_sub(wait.since)),
                side: wait.filter(|wait| wait.kind & RWLOCK != 0).map(|wait| {
                    match wait.what & READING {
                        0 => "write",
                        _ => "read",
                    }
                }),
                limited: wait.is_some_and(|wait| wait.kind & LIMITED != 0),
                ended: !outside.has(id) && !self.is_elsewhere(id, outside),
                elsewhere: self.is_elsewhere(id, outside),
                stack,
            }
        });
        threads.collect()
    }
}

/// The object that a thread waits for, and its holder as far as the object itself shows it.
fn look_at(wait: &Fact, known: &Known, outside: &Outside) -> Awaited {
    // Offsets in the C library's objects: the number of the thread that holds a mutex, the mutex's
    // kind, the number of the thread that writes, and whether processes share a reader-writer lock.
    const OWNER: u64 = 8;
    const KIND: u64 = 16;
    const WRITER: u64 = 24;
    const SHARED: u64 = 28;
    /// Set in the kind of a mutex that processes share.
    const IS_SHARED: u32 = 0x80;
    let mut kind = wait.kind & !(LIMITED | UPGRADABLE | PASSES | SENDABLE);
    let place = match kind {
        0 => Some(OWNER),
        RWLOCK => Some(WRITER),
        JOIN => Some(known.number_at).filter(|&at| at != 0),
        _ => None,
    };
    let place = place.filter(|_| known.are_posix);
    let half = |at: u64| outside.half(address(wait).wrapping_add(at));
    let holder = place.and_then(half);
    let mut is_shared = false;
    if kind == 0 && known.are_posix {
        kind = half(KIND).unwrap_or(0);
        is_shared = kind & IS_SHARED != 0;
    } else if kind == RWLOCK && known.are_posix {
        is_shared = half(SHARED).is_some_and(|shared| shared != 0);
    }
    let holder = holder.filter(|&holder| holder != 0);
    // A thread that has ended has no number here.
    let here = |holder| match outside.number(holder) {
        0 => holder,
        number => number,
    };
    Awaited {
        kind: entry::kind(kind),
        is_shared,
        is_sendable: wait.kind & SENDABLE != 0,
        holders: holder
            .map(|holder| (here(holder), Hold::Alone))
            .into_iter()
            .collect(),
    }
}

// ---- as text --------------------------------------------

/// The most processes, and the most threads that wait for one object.
const PROCESSES: usize = 8;
const WAITING: usize = 4;

pub fn text(report: &Now, max: usize) -> String {
    let mut out = Lines::default();
    for process in report.processes.iter().take(PROCESSES) {
        process.write(max, &mut out);
    }
    if let Some(more @ 1..) = report.processes.len().checked_sub(PROCESSES) {
        let more = counted(more as u64, "more process", "more processes");
        out.add(format!("\nkinlock: {more}; --json has them"));
    }
    if report
        .processes
        .iter()
        .all(|process| process.locks.is_empty())
    {
        out.add(format!("\n{}", wrapped(UNSEEN, "    ")));
    }
    out.0
}

pub fn called(id: u32, name: &str) -> String {
    format!("thread {id} ({name})")
}

/// Whether objects of this kind are locks.
fn is_lock(kind: &str) -> bool {
    !matches!(kind, "join" | "condition variable")
}

impl Lock {
    fn is_lock(&self) -> bool {
        is_lock(self.kind)
    }
}

impl Thread {
    /// The side of a reader-writer lock that the thread waits for, in words.
    fn side(&self) -> String {
        let side = self.side.map(|side| format!(" to {side}"));
        side.unwrap_or_default()
    }
}

impl Process {
    fn write(&self, max: usize, out: &mut Lines) {
        let waiting = |rows: &[Lock]| rows.iter().map(|row| row.waiting.len() as u64).sum();
        let who = match waiting(&self.locks) {
            0 => "no thread waits for a lock".to_owned(),
            1 => "1 thread waits for a lock".to_owned(),
            n => format!(
                "{n} threads wait for {}",
                counted(self.locks.len() as u64, "lock", "locks")
            ),
        };
        let others = match waiting(&self.waits) {
            0 => String::new(),
            n => format!(
                "; {} for what is no lock",
                counted(n, "thread waits", "threads wait")
            ),
        };
        let (program, pid) = (&self.program, self.pid);
        let line = format!("kinlock: {program} (process {pid}) now: {who}{others}");
        out.add(format!("\n{}", wrapped(&line, "")));
        for circle in &self.deadlocks {
            self.write_circle(circle, out);
        }
        for rows in [&self.locks, &self.waits] {
            for row in rows.iter().take(max) {
                self.write_row(row, out);
            }
            if let Some(more @ 1..) = rows.len().checked_sub(max) {
                out.add(format!("\n{more} more; --max {} shows them", rows.len()));
            }
        }
        // The holders of other locks are read from the locks themselves.
        let is_noted = |lock: &Lock| lock.holders.is_empty() && lock.kind != "spin";
        if self.locks.iter().any(is_noted) {
            let note = "who reads, and who holds a lock of Rust, is known of programs under \
                        `kinlock run --standby` or `--report`";
            out.add(format!("\n{}", wrapped(note, "    ")));
        }
        if self.dropped > 0 {
            let times = counted(self.dropped, "time", "times");
            out.add(format!(
                "\nthere was no room for what threads wait for or hold {times}"
            ));
        }
    }

    /// A thread that is in the report.
    fn thread(&self, id: u32) -> Option<&Thread> {
        self.threads.iter().find(|thread| thread.id == id)
    }

    fn called(&self, id: u32) -> String {
        match self.thread(id) {
            Some(thread) if thread.ended => format!("thread {id}, which has ended"),
            Some(thread) if thread.elsewhere => format!("thread {id} of another process"),
            Some(thread) => called(id, &thread.name),
            None => format!("thread {id}"),
        }
    }

    /// The row of the object that a thread waits for.
    fn row(&self, id: u32) -> Option<&Lock> {
        let mut rows = self.locks.iter().chain(&self.waits);
        rows.find(|row| row.waiting.contains(&id))
    }

    /// The name of that object, with the side of a reader-writer lock.
    fn awaited(&self, id: u32) -> Option<String> {
        let (thread, row) = (self.thread(id)?, self.row(id)?);
        Some(format!("{}{}", row.name, thread.side()))
    }

    fn write_circle(&self, circle: &[u32], out: &mut Lines) {
        out.add(format!(
            "\ndeadlock: {}",
            counted(circle.len() as u64, "thread", "threads")
        ));
        for (&id, &next) in circle.iter().zip(circle.iter().cycle().skip(1)) {
            let awaited = self.awaited(id).unwrap_or_default();
            let is_held = self.row(id).is_some_and(|row| row.holders.contains(&next));
            let holder = match (next == id, awaited.starts_with("the end of ")) {
                (true, _) => ", which it holds itself".to_owned(),
                (false, true) => String::new(),
                (false, false) if is_held => format!(", held by {}", self.called(next)),
                (false, false) => format!(", behind {}", self.called(next)),
            };
            let line = format!("{} waits for {awaited}{holder}", self.called(id));
            out.wrap(1, &line);
        }
    }

    /// A lock, its holders and its waiters.
    fn write_row(&self, row: &Lock, out: &mut Lines) {
        let is_lock = row.is_lock();
        let holders = match &row.holders[..] {
            _ if !is_lock => String::new(),
            [] => "; who holds it is not known".to_owned(),
            [holder] => format!(", held by {}", self.called(*holder)),
            [holder, others @ ..] => {
                let others = counted(others.len() as u64, "other thread", "other threads");
                format!(", held by {} and {others}", self.called(*holder))
            }
        };
        let line = match row.kind {
            "join" => row.name.clone(),
            kind => format!("{}: {kind}{holders}", row.name),
        };
        out.add("");
        out.wrap(0, &line);
        for &holder in row.holders.iter().filter(|_| is_lock).take(WAITING) {
            let does = match (self.awaited(holder), self.thread(holder)) {
                (Some(awaited), _) => format!("waits for {awaited}"),
                (None, Some(thread)) if thread.ended || thread.elsewhere => continue,
                (None, Some(thread)) if !thread.stack.is_empty() => {
                    format!("is in {}", path(&thread.stack))
                }
                _ => "runs".to_owned(),
            };
            out.wrap(1, &format!("thread {holder} {does}"));
        }
        for &id in row.waiting.iter().take(WAITING) {
            let Some(thread) = self.thread(id) else {
                continue;
            };
            let limit = match thread.limited {
                true => ", with a time limit",
                false => "",
            };
            let line = format!(
                "waits {}{}{limit}: {}: {}",
                time(thread.waits_for_ns as f64),
                thread.side(),
                self.called(id),
                path(&thread.stack)
            );
            out.wrap(1, &line);
        }
        if let Some(more @ 1..) = row.waiting.len().checked_sub(WAITING) {
            let more = counted(more as u64, "more thread waits", "more threads wait");
            out.add(format!("    {more}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use kinlock_report::unwind::Registers;

    use super::*;

    const LOCK: u64 = 0x1000;
    const OTHER: u64 = 0x2000;
    const TO_READ: u64 = LOCK | READING;

    fn fact(thread: u32, what: u64, kind: u32, since: u64) -> Fact {
        let registers = Registers {
            pc: 0,
            stack: 0,
            frame: 0,
        };
        Fact {
            what,
            kind: kind
                | if what & !READING & !IS_HELD == LOCK {
                    RWLOCK
                } else {
                    0
                },
            thread,
            since,
            registers,
        }
    }

    fn known(facts: Vec<Fact>) -> Vec<Known> {
        vec![Known {
            are_posix: false,
            number_at: 0,
            dropped: 0,
            facts,
        }]
    }

    /// The circles of threads that wait, the longest wait first, and that hold locks.
    fn circles(waits: &[(u32, u64, u32)], holds: &[(u32, u64, Hold)]) -> Vec<Vec<u32>> {
        let mut found = Found::default();
        for (since, &(thread, what, kind)) in (0..).zip(waits) {
            found.waits.insert(thread, fact(thread, what, kind, since));
        }
        for &(holder, lock, hold) in holds {
            let lock = found.locks.entry(lock).or_insert_with(|| Awaited {
                kind: "",
                is_shared: false,
                is_sendable: false,
                holders: BTreeMap::new(),
            });
            lock.add(holder, hold);
        }
        found.circles()
    }

    #[test]
    fn a_reader_waits_for_no_reader() {
        let holds = [
            (1, LOCK, Hold::Read),
            (2, OTHER, Hold::Alone),
            (3, LOCK, Hold::Upgradable),
        ];
        let mut waits = vec![(1, OTHER, 0), (2, TO_READ, UPGRADABLE)];
        assert!(circles(&waits, &holds).is_empty());
        waits.push((3, OTHER, 0));
        assert_eq!(circles(&waits, &holds), [[2, 3]]);
        waits[1] = (2, TO_READ, 0);
        assert!(circles(&waits, &holds).is_empty());
        waits[1] = (2, LOCK, 0);
        assert_eq!(circles(&waits, &holds), [[1, 2], [3, 2]]);
    }

    #[test]
    fn a_reader_waits_for_the_next_writer() {
        let holds = [(1, LOCK, Hold::Read), (2, OTHER, Hold::Alone)];
        let all = |next, reader| {
            let waits = [
                (1, OTHER, 0),
                (3, LOCK, next),
                (4, LOCK, 0),
                (2, TO_READ, reader),
            ];
            circles(&waits, &holds)
        };
        assert_eq!(all(0, 0), [[1, 2, 3]]);
        assert_eq!(all(0, UPGRADABLE), [[1, 2, 3]]);
        // The writer gives up, and the reader enters; or the reader may pass the writer.
        assert!(all(LIMITED, 0).is_empty());
        assert!(all(0, PASSES).is_empty());
        // A writer that has the lock lets nobody pass.
        let waits = [(1, OTHER, 0), (2, TO_READ, PASSES)];
        let holds = [(1, LOCK, Hold::Alone), (2, OTHER, Hold::Alone)];
        assert_eq!(circles(&waits, &holds), [[1, 2]]);
    }

    #[test]
    fn who_upgrades_goes_first_and_does_not_wait_for_itself() {
        let mut holds = vec![(1, LOCK, Hold::Upgradable)];
        let waits = [
            (4, LOCK, 0),
            (2, TO_READ, 0),
            (1, LOCK, UPGRADABLE),
            (3, OTHER, 0),
        ];
        assert!(circles(&waits, &holds).is_empty());
        holds.extend([(3, LOCK, Hold::Read), (2, OTHER, Hold::Alone)]);
        assert_eq!(circles(&waits, &holds), [[1, 3, 2]]);
        assert_eq!(circles(&[(1, LOCK, 0)], &[(1, LOCK, Hold::Read)]), [[1]]);
    }

    #[test]
    fn a_hold_that_ends_before_the_wait_of_its_thread_is_none() {
        let outside = Outside::of_threads(0, &[1, 2]);
        let waits = [fact(1, LOCK, 0, 5), fact(2, OTHER, 0, 5)];
        let held = [LOCK | READING, OTHER].map(|what| what | IS_HELD);
        let holds = [fact(2, held[0], 0, 0), fact(1, held[1], 0, 0)];
        let circles = |looks: [&[Fact]; 3]| {
            let next = Cell::new(0);
            let look = || known([&waits, looks[next.replace(next.get() + 1)]].concat());
            Found::by(&outside, 0, look).circles()
        };
        assert_eq!(circles([&holds; 3]), [[1, 2]]);
        assert!(circles([&holds, &holds[1..], &holds[1..]]).is_empty());
    }

    #[test]
    fn a_wait_that_began_before_its_thread_is_none() {
        let own = std::process::id();
        let outside = Outside::of_threads(own, &[own]);
        let waits = |since: u64| {
            let look = || known(vec![fact(own, LOCK, 0, since)]);
            Found::by(&outside, 0, look).waits.len()
        };
        let began = outside.began(own);
        assert!((1..=Native::now()).contains(&began), "{began}");
        assert_eq!((waits(began / 2), waits(Native::now())), (0, 1));
    }
}
