//! Reading the table that a process left, or is filling.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. The mapping has the size of a table, and its file has, too. All values are valid for its
//!    fields, which are atomics.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::*};

use kinlock_report::{BUCKETS, ENDED, FREED, MAGIC, SPIN, Table, end_of};

use super::symbols::{Frame, Module, Symbols};
use super::{Caller, Dropped, Lock, Process, Thread, Times, recorded};

/// A table in memory.
struct Mapped(*const Table);

impl Mapped {
    fn open(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        let size = size_of::<Table>();
        if file.metadata().ok()?.len() < size as u64 {
            return None;
        }
        let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: a new mapping of a file that lives until it is unmapped.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size,
                protection,
                flags,
                file.as_raw_fd(),
                0,
            )
        };
        (at != libc::MAP_FAILED).then(|| Mapped(at.cast_const().cast()))
    }

    fn table(&self) -> &Table {
        // SAFETY: invariant 1.
        unsafe { &*self.0 }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it is ours, and nothing points to it any more.
        unsafe { libc::munmap(self.0.cast_mut().cast(), size_of::<Table>()) };
    }
}

fn get(number: &AtomicU64) -> u64 {
    number.load(Relaxed)
}

fn get32(number: &AtomicU32) -> u32 {
    number.load(Relaxed)
}

fn bytes(from: &[AtomicU8]) -> Vec<u8> {
    from.iter().map(|byte| byte.load(Relaxed)).collect()
}

fn text(from: &[AtomicU8]) -> String {
    let bytes = bytes(from);
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

/// What a process did; `None` if the file is none of a process that took a lock. `now` is the end
/// of one that does not say its own.
pub fn process(path: &Path, now: u64) -> Option<Process> {
    let mapped = Mapped::open(path)?;
    let table = mapped.table();
    let header = &table.header;
    if header.magic.load(Acquire) != MAGIC {
        return None;
    }
    let mut symbols = Symbols::new(modules(table));
    let tallies = Tallies::of(table);
    let end = match get(&header.end) {
        0 => now,
        end => end,
    };
    let threads = threads(table, &tallies, end);
    let locks = table.locks.iter().enumerate();
    let locks = locks.filter(|(_, lock)| !matches!(get(&lock.address), 0 | FREED));
    let mut locks: Vec<_> = locks
        .map(|(index, _)| lock(table, index, &tallies, &mut symbols, &threads))
        .collect();
    for lock in &mut locks {
        lock.waiting = threads
            .iter()
            .filter(|t| t.waits_for == lock.address && !lock.is_ended)
            .map(|t| t.id)
            .collect();
    }
    Some(Process {
        pid: get32(&header.process),
        program: text(&header.program),
        lock: ["kinlock-mutex", "kinlock-spin", "pthread"]
            .get(get32(&header.locks) as usize)
            .copied()
            .unwrap_or("unknown"),
        ended: get(&header.end) != 0,
        seconds: end.saturating_sub(get(&header.begin)) as f64 / 1e9,
        domains: get32(&header.domains),
        thread_count: get32(&header.threads),
        changed_files: symbols.changed_files(),
        dropped: Dropped {
            locks: get(&header.dropped_locks),
            stacks: get(&header.dropped_stacks),
            uses: get(&header.dropped_uses),
            threads: get(&header.dropped_threads),
        },
        locks,
        threads,
    })
}

fn modules(table: &Table) -> Vec<Module> {
    let all = table.modules.iter().filter(|m| m.end.load(Acquire) != 0);
    all.map(|module| {
        let part = |from: &[AtomicU8], length: &AtomicU32| {
            let length = (get32(length) as usize).min(from.len());
            bytes(&from[..length])
        };
        let path = OsString::from_vec(part(&module.path, &module.path_length));
        Module::new(
            (get(&module.start), get(&module.end)),
            get(&module.bias),
            path.into(),
            part(&module.build_id, &module.build_id_length),
        )
    })
    .collect()
}

/// What the tallies say of a lock.
#[derive(Clone, Default)]
struct Sum {
    locked: u64,
    changed: u64,
    remote: u64,
    contended: u64,
    wait_ns: u64,
    /// The token of the thread that holds it.
    holder: Option<u32>,
}

/// What all tallies say.
struct Tallies {
    locks: Vec<Sum>,
    /// By token, how often that thread took a lock.
    locked: HashMap<u32, u64>,
}

impl Tallies {
    fn of(table: &Table) -> Self {
        let mut locks = vec![Sum::default(); table.locks.len()];
        let mut locked = HashMap::new();
        for owner in table.owners.iter().filter(|o| get32(&o.token) != 0) {
            let token = get32(&owner.token);
            for (tally, waits) in owner.tallies.iter().zip(&owner.waits) {
                let Some(at) = table.lock_of(tally) else {
                    continue;
                };
                let sum = &mut locks[at];
                sum.locked += get(&tally.locked);
                sum.changed += get(&tally.changed);
                sum.remote += get(&tally.remote);
                sum.contended += get(&waits.count);
                sum.wait_ns += get(&waits.nanos);
                if get(&tally.since) != 0 {
                    sum.holder = Some(token);
                }
                *locked.entry(token).or_default() += get(&tally.locked);
            }
        }
        Tallies { locks, locked }
    }
}

fn threads(table: &Table, tallies: &Tallies, end: u64) -> Vec<Thread> {
    let all = table.threads.iter().filter(|t| get32(&t.token) != 0);
    all.map(|thread| Thread {
        number: get32(&thread.token),
        id: get32(&thread.id),
        name: text(&thread.name),
        locked: get(&thread.locked)
            + tallies
                .locked
                .get(&get32(&thread.token))
                .copied()
                .unwrap_or(0),
        contended: get(&thread.contended),
        wait_ns: get(&thread.wait_ns),
        wait_max_ns: get(&thread.wait_max),
        waits_for: get(&thread.waits_for),
        life: [
            get(&thread.begin),
            match get(&thread.end) {
                0 => end,
                end => end,
            },
        ]
        .map(|time| time.saturating_sub(get(&table.header.begin)) as f64 / 1e9),
    })
    .collect()
}

fn lock(
    table: &Table,
    index: usize,
    tallies: &Tallies,
    symbols: &mut Symbols,
    threads: &[Thread],
) -> Lock {
    let (from, sum) = (&table.locks[index], &tallies.locks[index]);
    let changed = get(&from.changed) + sum.changed;
    let remote = get(&from.remote) + sum.remote;
    let contended = get(&from.contended) + sum.contended;
    let address = get(&from.address) & !ENDED;
    let is_ended = get(&from.address) & ENDED != 0;
    let by_token = |token: u32| {
        let thread = threads.iter().find(|thread| thread.number == token);
        thread.map_or(0, |thread| thread.id)
    };
    let holder = sum.holder.filter(|_| !is_ended);
    let (waits, holds) = (counts(&from.waits), counts(&from.holds));
    Lock {
        name: symbols
            .variable(address)
            .unwrap_or_else(|| format!("{address:#x}")),
        address,
        kind: kind(get32(&from.kind)),
        is_ended,
        ended: get(&from.ended),
        locked: get(&from.locked) + sum.locked,
        nested: get(&from.nested),
        contended,
        timeouts: get(&from.timeouts),
        tries: get(&from.tries),
        failed_tries: get(&from.failed),
        changed_owner: changed,
        local: changed.saturating_sub(remote),
        remote,
        threads: from.threads.iter().map(|word| get(word).count_ones()).sum(),
        wait: times(
            get(&from.wait_ns) + sum.wait_ns,
            contended,
            get(&from.wait_max),
            &waits,
        ),
        hold: times(
            get(&from.hold_ns),
            get(&from.held),
            get(&from.hold_max),
            &holds,
        ),
        hold_samples: get(&from.samples),
        recorded: recorded::distributions(table, from),
        held_by: holder.map(by_token),
        waiting: Vec::new(),
        first: stack(table, get32(&from.first), symbols),
        callers: callers(table, index as u32 + 1, symbols),
    }
}

fn counts(from: &[AtomicU32]) -> Vec<u64> {
    from.iter().map(|n| n.load(Relaxed).into()).collect()
}

fn times(total: u64, count: u64, max: u64, classes: &[u64]) -> Times {
    Times {
        count,
        total_ns: total,
        avg_ns: total.checked_div(count).unwrap_or(0),
        p99_ns: percentile(classes, 0.99).min(max),
        max_ns: max,
    }
}

/// The end of the class in which that part of the times ends.
fn percentile(classes: &[u64], part: f64) -> u64 {
    let all: u64 = classes.iter().sum();
    let mut left = (part * all as f64).ceil() as u64;
    for (class, &count) in classes.iter().enumerate() {
        if count >= left {
            return if all == 0 { 0 } else { end_of(class) };
        }
        left -= count;
    }
    end_of(BUCKETS - 1)
}

/// What the C library's kinds mean.
fn kind(kind: u32) -> &'static str {
    match kind {
        kind if kind & SPIN != 0 => "spin",
        kind if kind & 0x10 != 0 => "robust",
        kind if kind & 0x20 != 0 => "inheriting",
        kind if kind & 0x40 != 0 => "protected",
        kind if kind & 0x80 != 0 => "shared",
        kind => ["mutex", "recursive", "checking", "adaptive"][kind as usize & 3],
    }
}

/// The calls of a stack, innermost first.
fn stack(table: &Table, number: u32, symbols: &mut Symbols) -> Vec<Frame> {
    let stack = (number as usize)
        .checked_sub(1)
        .and_then(|at| table.stacks.get(at));
    let frames = stack.map_or(&[][..], |stack| &stack.frames);
    let frames = frames.iter().map(get).take_while(|&back| back != 0);
    frames
        .flat_map(|back| symbols.calls(back).to_vec())
        .collect()
}

/// The uses of a lock, the longest wait first.
fn callers(table: &Table, lock: u32, symbols: &mut Symbols) -> Vec<Caller> {
    let uses = table.uses.iter().filter(|found| {
        let key = get(&found.key);
        key != FREED && (key >> 32) as u32 == lock
    });
    let mut callers: Vec<Caller> = Vec::new();
    for found in uses {
        let frames = stack(table, get(&found.key) as u32, symbols);
        let new = Caller {
            contended: get(&found.contended),
            wait_ns: get(&found.wait_ns),
            wait_max_ns: get(&found.wait_max),
            held: get(&found.held),
            hold_ns: get(&found.hold_ns),
            frames,
        };
        match callers.iter_mut().find(|known| known.frames == new.frames) {
            Some(known) => known.add(&new),
            None => callers.push(new),
        }
    }
    callers.sort_by_key(|caller| std::cmp::Reverse((caller.wait_ns, caller.hold_ns)));
    callers
}
