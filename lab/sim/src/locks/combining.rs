//! Locks whose critical sections may be executed by another thread: that which has the lock.
//!
//! [`With`] is a layer over the library's own mutex. A thread that finds the lock contended
//! publishes its section in a node and queues. The thread at the front takes the mutex in the
//! ordinary way, executes its own section and those queued behind it, up to a bound, releases the
//! mutex, and leaves the front to the next one. Threads that use `lock` and `unlock` compete for
//! the mutex as ever, and pay nothing. [`Flat`] is flat combining (Hendler et al., SPAA 2010) as
//! published, without the removal of records that are out of use.
//!
//! # Invariants
//!
//! 1. Only the thread that took the mutex releases it, as that function demands.
//! 2. A published section is executed before its thread's call of `with` returns, and never after.

use super::mutex::LocalFirst;
use super::{Kind, Lock};
use crate::platform::{Sim, SimU32};
use crate::world::with;
use kinlock_core::platform::{Atomic, NEVER, Ordering::*, Platform};
use kinlock_core::raw::mutex::QueuedMutex;
use std::cell::Cell;

pub(super) const ALL: &[Kind] = &[
    Kind::new(
        "with",
        |threads| {
            place(
                threads,
                Form {
                    sections: 64,
                    ..Form::PLAIN
                },
            )
        },
        "our mutex (mutex-cna) with a queue of sections: its head executes up to 64; waiters spin",
    ),
    Kind::new(
        "with-quantum",
        |threads| place(threads, Form::PLAIN),
        "the same, and its head executes sections for a quantum",
    ),
    Kind::new(
        "with-sleep",
        |threads| {
            place(
                threads,
                Form {
                    sleeps: true,
                    ..Form::PLAIN
                },
            )
        },
        "the same as with-quantum; waiters spin for 20 us, then sleep",
    ),
    Kind::new(
        "with-sleep-tree",
        |threads| {
            let form = Form {
                sleeps: true,
                tree: true,
                ..Form::PLAIN
            };
            place(threads, form)
        },
        "the same; spins that bring nothing get shorter, and sleepers wake two others each",
    ),
    Kind::new(
        "with-local",
        |threads| {
            place(
                threads,
                Form {
                    sections: 64,
                    local: true,
                    ..Form::PLAIN
                },
            )
        },
        "the same as with, one queue of sections for each locality domain",
    ),
    Kind::new(
        "flat-combining",
        |threads| crate::place(Flat::new(threads)),
        "flat combining: the thread that has the lock executes all published sections; others spin",
    ),
];

/// A section where another thread finds it.
type Section = Cell<Option<*const dyn Fn()>>;

/// Publishes a section.
fn publish<'a>(at: &Section, section: &'a (dyn Fn() + 'a)) {
    // SAFETY: only the lifetime changes. Invariant 2.
    let section: &'static (dyn Fn() + 'static) = unsafe { std::mem::transmute(section) };
    at.set(Some(section));
}

/// Executes a published section.
fn execute(at: &Section) {
    let section = at.take().expect("a section is published before its node");
    // SAFETY: invariant 2.
    unsafe { (*section)() }
}

/// What differs between the kinds.
#[derive(Clone, Copy)]
struct Form {
    /// How many sections of others a thread executes. 0: as many as begin within a quantum.
    sections: u32,
    /// Waiters sleep after a while.
    sleeps: bool,
    /// Spins that bring nothing get shorter, and sleepers wake two others each.
    tree: bool,
    /// A queue for each locality domain.
    local: bool,
}

impl Form {
    const PLAIN: Self = Form {
        sections: 0,
        sleeps: false,
        tree: false,
        local: false,
    };
}

/// States of a node.
const WAITING: u32 = 0;
const ASLEEP: u32 = 1;
/// The section has been executed.
const DONE: u32 = 2;
/// The thread is the front of the queue.
const FRONT: u32 = 3;

/// How long a waiter spins before it sleeps, as in the mutex.
const SPIN_NS: u64 = 20_000;

/// The mutex, and beside it the tail of the queue of sections: in the library it would be that of
/// the mutex's queue.
#[repr(C)]
struct With {
    mutex: QueuedMutex<Sim, LocalFirst>,
    /// The last waiter's number + 1; 0: there is none.
    tail: SimU32,
    /// One for each locality domain, instead of `tail`.
    tails: &'static [Tail],
    nodes: &'static [Node],
    form: Form,
}

#[repr(align(128))]
struct Tail(SimU32);

/// What the waiter writes and the executing thread reads, then what the waiter spins on, in
/// different lines.
#[repr(C, align(128))]
struct Node {
    next: SimU32,
    section: Section,
    state: State,
}

#[repr(C, align(64))]
struct State {
    word: SimU32,
    /// The sleepers that this one wakes once it is awake, their numbers + 1, in 16 bits each; 0:
    /// none.
    wakes: SimU32,
    /// How often the thread's spins are halved; its own.
    halvings: Cell<u32>,
}

/// How many sleepers one call of a combiner wakes: the first, which wakes the second, and so on.
const RELAY: usize = 8;
/// The same if each wakes two others.
const TREE: usize = 32;

/// Sleepers whose wait is over and who do not know it yet, with the states to come.
type Sleepers = Vec<(u32, u32)>;

fn place(threads: usize, form: Form) -> &'static dyn Lock {
    let node = |_| Node {
        next: SimU32::new(0),
        section: Cell::new(None),
        state: State {
            word: SimU32::new(WAITING),
            wakes: SimU32::new(0),
            halvings: Cell::new(0),
        },
    };
    crate::place(With {
        mutex: QueuedMutex::default(),
        tail: SimU32::new(0),
        tails: crate::place_slice(64, |_| Tail(SimU32::new(0))),
        nodes: crate::place_slice(threads, node),
        form,
    })
}

impl Lock for With {
    fn lock(&self, _: usize) {
        self.mutex.lock();
    }

    fn unlock(&self, _: usize) {
        // SAFETY: invariant 1.
        unsafe { self.mutex.unlock() }
    }

    fn with(&self, me: usize, section: &dyn Fn()) {
        let tail = match self.form.local {
            true => &self.tails[usize::from(Sim::domain()) % self.tails.len()].0,
            false => &self.tail,
        };
        // It is written next, whatever it is.
        Sim::prefetch_for_writing(tail);
        if tail.load(Relaxed) == 0 && self.mutex.lock_at_once() {
            section();
            return self.unlock(me);
        }
        let node = &self.nodes[me];
        node.state.word.store(WAITING, Relaxed);
        node.next.store(0, Relaxed);
        publish(&node.section, section);
        let before = tail.swap(me as u32 + 1, AcqRel);
        if before != 0 {
            self.node(before).next.store(me as u32 + 1, Release);
            if self.wait(node) == DONE {
                return;
            }
        }
        self.mutex.lock();
        self.combine(me, tail);
    }
}

impl With {
    fn node(&self, number: u32) -> &Node {
        &self.nodes[number as usize - 1]
    }

    /// Waits until the section is executed, or the front is reached.
    fn wait(&self, node: &Node) -> u32 {
        let state = &node.state.word;
        let done = |state| state >= DONE;
        if !self.form.sleeps {
            return Sim::wait(state, Acquire, done);
        }
        let halvings = match with(|w| w.random()) % 64 {
            0 => 0,
            _ => node.state.halvings.get(),
        };
        let spun = Sim::wait_for(state, Acquire, SPIN_NS >> halvings, done);
        if self.form.tree {
            let failed = (node.state.halvings.get() + 1).min(6);
            let halvings = if spun.is_ok() { 0 } else { failed };
            node.state.halvings.set(halvings);
        }
        let asleep = || state.compare_exchange(WAITING, ASLEEP, Acquire, Acquire);
        let mut seen = match spun {
            Ok(seen) => return seen,
            Err(_) => match asleep() {
                Ok(_) => ASLEEP,
                Err(seen) => seen,
            },
        };
        while seen == ASLEEP {
            Sim::park((&raw const *state).cast(), ASLEEP, NEVER, || {
                state.load(Relaxed)
            });
            seen = state.load(Acquire);
        }
        self.wake(node.state.wakes.swap(0, Acquire));
        seen
    }

    fn wake(&self, numbers: u32) {
        for number in [numbers & 0xffff, numbers >> 16] {
            if number != 0 {
                let state = &self.node(number).state.word;
                Sim::unpark((&raw const *state).cast(), 1);
            }
        }
    }

    /// Ends a wait, of a sleeper later, together with others.
    fn tell(&self, number: u32, state: u32, sleepers: &mut Sleepers) {
        let word = &self.node(number).state.word;
        if !self.form.sleeps {
            return word.store(state, Release);
        }
        if word
            .compare_exchange(WAITING, state, Release, Relaxed)
            .is_err()
        {
            sleepers.push((number, state));
        }
        if sleepers.len() == if self.form.tree { TREE } else { RELAY } {
            self.wake_all(sleepers);
        }
    }

    fn wake_all(&self, sleepers: &mut Sleepers) {
        // From the last on: whom a sleeper wakes is told before it.
        for place in (0..sleepers.len()).rev() {
            let at = |place: usize| sleepers.get(place).map_or(0, |&(number, _)| number);
            let wakes = match self.form.tree {
                true => at(2 * place + 1) | at(2 * place + 2) << 16,
                false => at(place + 1),
            };
            let (number, state) = sleepers[place];
            let node = self.node(number);
            node.state.wakes.store(wakes, Relaxed);
            node.state.word.store(state, Release);
        }
        self.wake(sleepers.first().map_or(0, |&(number, _)| number));
        sleepers.clear();
    }

    /// Executes the own section and those that queue behind it. The calling thread is the front,
    /// and holds the mutex, which it releases.
    fn combine(&self, me: usize, tail: &SimU32) {
        let began = Sim::now();
        let quantum = with(|w| w.tuning.quantum.nanos());
        let mut current = me as u32 + 1;
        let mut executed = 0;
        let mut sleepers = Sleepers::new();
        loop {
            let node = self.node(current);
            let mut next = node.next.load(Acquire);
            if next != 0 {
                // The next node comes while this section goes on.
                self.node(next).next.load_ahead(Relaxed);
            }
            execute(&node.section);
            if next == 0 {
                next = node.next.load(Acquire);
            }
            if next == 0 {
                let left = tail.compare_exchange(current, 0, AcqRel, Relaxed);
                if left.is_ok() {
                    self.unlock(me);
                    if current != me as u32 + 1 {
                        self.tell(current, DONE, &mut sleepers);
                    }
                    return self.wake_all(&mut sleepers);
                }
                next = Sim::wait(&node.next, Acquire, |next| next != 0);
            }
            if current != me as u32 + 1 {
                self.tell(current, DONE, &mut sleepers);
            }
            executed += 1;
            let ends = match self.form.sections {
                0 => Sim::now() - began >= quantum,
                limit => executed > limit,
            };
            if ends {
                self.unlock(me);
                self.tell(next, FRONT, &mut sleepers);
                return self.wake_all(&mut sleepers);
            }
            current = next;
        }
    }
}

/// How often the holder looks through all records.
const PASSES: usize = 8;
/// How often a waiter looks whether the lock is free, in nanoseconds.
const LOOK_NS: u64 = 500;

struct Flat {
    held: SimU32,
    records: &'static [Record],
}

#[repr(align(128))]
struct Record {
    pending: SimU32,
    section: Section,
}

impl Flat {
    fn new(threads: usize) -> Self {
        let record = |_| Record {
            pending: SimU32::new(0),
            section: Cell::new(None),
        };
        Flat {
            held: SimU32::new(0),
            records: crate::place_slice(threads, record),
        }
    }

    fn take(&self) -> bool {
        self.held.load(Relaxed) == 0 && self.held.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }

    /// Executes all that is published, several times. Whether there was any.
    fn pass(&self) -> bool {
        let mut any = false;
        for record in self.records {
            if record.pending.load(Acquire) != 0 {
                execute(&record.section);
                record.pending.store(0, Release);
                any = true;
            }
        }
        any
    }
}

impl Lock for Flat {
    fn lock(&self, _: usize) {
        while !self.take() {
            Sim::wait(&self.held, Relaxed, |held| held == 0);
        }
    }

    fn unlock(&self, _: usize) {
        self.held.store(0, Release);
    }

    fn with(&self, me: usize, section: &dyn Fn()) {
        let record = &self.records[me];
        publish(&record.section, section);
        record.pending.store(1, Release);
        loop {
            if self.take() {
                let _ = (0..PASSES).all(|_| self.pass());
                return self.unlock(me);
            }
            if Sim::wait_for(&record.pending, Acquire, LOOK_NS, |pending| pending == 0).is_ok() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::SimU64;
    use crate::{Disturbance, Schedule, machine};

    const THREADS: usize = 6;
    const TURNS: u64 = 4;

    /// Threads count under the lock, by a load and a store that others may come between, and some
    /// of them by `lock` and `unlock`.
    #[test]
    fn sections_exclude_each_other_and_each_is_executed_once() {
        for kind in ALL {
            for seed in 0..200 {
                let machine = machine::load("haswell-ex-4s").unwrap();
                let disturbance = Disturbance::preemptions(seed, 5, 20_000);
                let place = || ((kind.place)(THREADS), crate::place(SimU64::new(0)));
                let (played, count) = Schedule::new(machine, THREADS, disturbance).play(
                    place,
                    |(lock, count), me| {
                        let section = || {
                            let before = count.load(Relaxed);
                            count.store(before + 1, Relaxed);
                        };
                        for turn in 0..TURNS {
                            if (turn + me as u64) % 3 == 0 {
                                lock.lock(me);
                                section();
                                lock.unlock(me);
                            } else {
                                lock.with(me, &section);
                            }
                        }
                    },
                    |_, _| {},
                    |(_, count), _| count.load(Relaxed),
                );
                let name = kind.name;
                assert!(played.end.is_ok(), "{name} {seed}: {:?}", played.end);
                assert_eq!(count, THREADS as u64 * TURNS, "{name} {seed}");
            }
        }
    }
}
