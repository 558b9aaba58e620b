//! Misuse and order of locks: read from the table, and formatted for people.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Acquire;

use kinlock_cli::report::units::{counted, grouped};
use kinlock_report::{
    DESTROYED_AWAITED, DESTROYED_HELD, FOREIGN, HELDS, NOT_HELD, READ_AGAIN, RELOCKED, Table,
};
use serde::Serialize;

use super::calls::{Lines, path};
use super::entry::{self, get, get32, kind, stack, used};
use super::order::{self, Order};
use super::symbols::{Frame, Symbols};

#[derive(Serialize)]
pub struct Misuse {
    /// A name for programs: `foreign`, `not-held`, ...
    what: &'static str,
    #[serde(skip)]
    sentence: &'static str,
    lock: String,
    address: u64,
    kind: &'static str,
    count: u64,
    /// The kernel's number of the thread that made the call, the first time.
    thread: u32,
    /// The number of the thread that held the lock then; 0: nobody, or not known.
    holder: u32,
    /// The calls, innermost first.
    frames: Vec<Frame>,
    /// The calls by which the holder had taken the lock, if they are known.
    taken: Vec<Frame>,
    /// The calls by which the lock was first taken.
    first: Vec<Frame>,
}

#[derive(Serialize)]
pub struct LockOrder {
    /// The number of pairs of locks of which the second was asked for with the first held.
    pairs: usize,
    /// How often there was no room in the table for a pair.
    pub dropped: u64,
    /// Acquisitions by threads that already held more locks than can be tracked for a thread.
    pub untracked: u64,
    /// Whether there were too many circles to look at all of them.
    pub is_cut: bool,
    pub cycles: Vec<Cycle>,
}

/// Locks that threads could wait for in a circle.
#[derive(Serialize)]
pub struct Cycle {
    /// How many such circles the same code has made, with these or other locks.
    count: usize,
    steps: Vec<Step>,
}

/// A step of a circle: a lock is held while the lock of the next step is asked for.
#[derive(Serialize)]
pub struct Step {
    held: String,
    held_kind: &'static str,
    wanted: String,
    wanted_kind: &'static str,
    /// The kernel's number of the thread that did this first.
    thread: u32,
    /// Whether other threads have done it, too.
    several_threads: bool,
    /// The calls by which the first lock was taken, innermost first, if they are known.
    taken: Vec<Frame>,
    /// The calls by which the first lock was taken for the first time.
    first: Vec<Frame>,
    /// The calls by which the second lock was asked for.
    asked: Vec<Frame>,
}

/// The name of a misuse in JSON, and its description in a sentence about a lock.
fn words(misuse: u32) -> Option<[&'static str; 2]> {
    Some(match misuse {
        FOREIGN => ["foreign", "released by a thread that does not hold it"],
        NOT_HELD => ["not-held", "released though nobody holds it"],
        DESTROYED_HELD => ["destroyed-held", "destroyed while a thread holds it"],
        DESTROYED_AWAITED => ["destroyed-awaited", "destroyed while threads wait for it"],
        RELOCKED => ["relocked", "asked for by the thread that holds it"],
        READ_AGAIN => [
            "read-again",
            "taken again for reading, where readers wait behind writers: with a writer in between \
             nobody goes on",
        ],
        _ => return None,
    })
}

/// The names of the locks in the table, by address.
pub type Names = HashMap<u64, String>;

fn name(address: u64, names: &Names, symbols: &mut Symbols) -> String {
    let known = names.get(&address).cloned();
    known.unwrap_or_else(|| entry::name(address, None, symbols))
}

pub fn misuses(table: &Table, names: &Names, symbols: &mut Symbols) -> Vec<Misuse> {
    let mut found: Vec<Misuse> = Vec::new();
    for from in used(&table.misuses, &table.header.misuses) {
        let Some([what, sentence]) = words(from.kind.load(Acquire)) else {
            continue;
        };
        let address = get(&from.address);
        let frames = stack(table, get32(&from.stack), symbols);
        // Two threads may have noted the same misuse at the same time.
        let same = |known: &&mut Misuse| {
            known.what == what && known.address == address && known.frames == frames
        };
        if let Some(known) = found.iter_mut().find(same) {
            known.count = known.count.saturating_add(get(&from.count));
            continue;
        }
        found.push(Misuse {
            what,
            sentence,
            lock: name(address, names, symbols),
            address,
            kind: kind(get32(&from.lock_kind)),
            count: get(&from.count),
            thread: get32(&from.thread),
            holder: get32(&from.holder),
            frames,
            taken: stack(table, get32(&from.taken), symbols),
            first: stack(table, get32(&from.first), symbols),
        });
    }
    found
}

/// `None` if the order of locks was not asked for.
pub fn order(table: &Table, names: &Names, symbols: &mut Symbols) -> Option<LockOrder> {
    let header = &table.header;
    if get32(&header.is_ordered) == 0 {
        return None;
    }
    let all = used(&table.orders, &header.orders_used).iter();
    let all: Vec<_> = all.filter(|order| get(&order.key) >> 32 != 0).collect();
    let orders: Vec<_> = all
        .iter()
        .map(|order| Order {
            from: (get(&order.key) >> 32) as u32,
            to: get(&order.key) as u32,
            makers: makers(order),
            code: [get32(&order.from_first), get32(&order.to_stack)],
        })
        .collect();
    let found = order::circles(&orders);
    let cycles = found.circles.into_iter().map(|(circle, count)| Cycle {
        count,
        steps: circle
            .into_iter()
            .map(|at| {
                let order = all[at];
                Step {
                    held: name(get(&order.from_address), names, symbols),
                    held_kind: kind(get32(&order.from_kind)),
                    wanted: name(get(&order.to_address), names, symbols),
                    wanted_kind: kind(get32(&order.to_kind)),
                    thread: get32(&order.id),
                    several_threads: get32(&order.makers[1].thread) != 0,
                    taken: stack(table, get32(&order.from_stack), symbols),
                    first: stack(table, get32(&order.from_first), symbols),
                    asked: stack(table, get32(&order.to_stack), symbols),
                }
            })
            .collect(),
    });
    Some(LockOrder {
        pairs: orders.len(),
        dropped: get(&header.dropped_orders),
        untracked: get(&header.dropped_held),
        is_cut: found.is_cut,
        cycles: cycles.collect(),
    })
}

fn makers(order: &kinlock_report::Order) -> Vec<order::Maker> {
    let all = order
        .makers
        .iter()
        .filter(|maker| get32(&maker.thread) != 0);
    all.map(|maker| order::Maker {
        thread: get32(&maker.thread),
        modes: get32(&maker.modes),
        gates: maker
            .gates
            .iter()
            .map(get32)
            .filter(|&gate| gate != 0)
            .collect(),
    })
    .collect()
}

// ---- for people -----------------------------------------

/// The most misuses and circles that are shown.
const MOST: usize = 10;

pub fn write_misuses(all: &[Misuse], out: &mut Lines) {
    for misuse in all.iter().take(MOST) {
        let times = match misuse.count {
            1 => String::new(),
            n => format!(" ({} times)", grouped(n)),
        };
        let line = format!(
            "misuse of {} ({}): {}{times}",
            misuse.lock, misuse.kind, misuse.sentence
        );
        out.wrap(0, &line);
        let line = format!("by thread {}: {}", misuse.thread, path(&misuse.frames));
        out.wrap(1, &line);
        if misuse.holder != 0 || !misuse.taken.is_empty() {
            let how = match (&misuse.taken[..], &misuse.first[..]) {
                ([], []) => String::new(),
                ([], first) => format!("; first taken by {}", path(first)),
                (taken, _) => format!(", which took it by {}", path(taken)),
            };
            out.wrap(1, &format!("held by thread {}{how}", misuse.holder));
        } else if !misuse.first.is_empty() {
            out.wrap(1, &format!("first taken by {}", path(&misuse.first)));
        }
    }
    more(all.len(), "misuses", out)
}

pub fn write_order(order: &LockOrder, out: &mut Lines) {
    if order.cycles.is_empty() {
        let pairs = counted(order.pairs as u64, "pair", "pairs");
        out.add(format!(
            "lock order: {pairs} of locks, and no circle that could deadlock"
        ));
    }
    for cycle in order.cycles.iter().take(MOST) {
        let locks: Vec<_> = cycle.steps.iter().map(|step| step.held.as_str()).collect();
        let as_often = match cycle.count {
            1 => String::new(),
            n => format!(
                "; the same code has made {} such circles",
                grouped(n as u64)
            ),
        };
        let line = format!(
            "lock order: a deadlock could happen between {}{as_often}",
            locks.join(", ")
        );
        out.wrap(0, &line);
        for step in &cycle.steps {
            let others = if step.several_threads {
                " and others"
            } else {
                ""
            };
            let line = format!(
                "thread {}{others} held {} ({}) and asked for {} ({})",
                step.thread, step.held, step.held_kind, step.wanted, step.wanted_kind
            );
            out.wrap(1, &line);
            let held = match (&step.taken[..], &step.first[..]) {
                ([], first) => format!("held: first taken by {}", path(first)),
                (taken, _) => format!("held: taken by {}", path(taken)),
            };
            out.wrap(2, &held);
            out.wrap(2, &format!("asked for by {}", path(&step.asked)));
        }
    }
    more(order.cycles.len(), "circles", out);
    if order.is_cut {
        out.add("lock order: there are more circles than were looked at");
    }
    if order.dropped > 0 {
        out.add(format!(
            "the table is full: {} lock orders were seen that found no place",
            grouped(order.dropped)
        ));
    }
    if order.untracked > 0 {
        out.add(format!(
            "lock order: {} acquisitions were left out: their threads held {HELDS} locks already",
            grouped(order.untracked)
        ));
    }
}

fn more(count: usize, what: &str, out: &mut Lines) {
    if let Some(more @ 1..) = count.checked_sub(MOST) {
        out.add(format!("{more} more {what}; --json has them"));
    }
}
