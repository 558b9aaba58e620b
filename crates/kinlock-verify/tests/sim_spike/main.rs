//! A coroutine simulator can implement [`kinlock::platform::Platform`]: eight virtual CPUs run locks written for it.
//!
//! It is also a first randomised explorer of the queue's interleavings, with oracles for mutual exclusion and for the
//! progress of every CPU. Each failure names the seed that repeats it.
//!
//! # Invariants
//!
//! 1. A CPU calls `unlock` only after its own call to take the lock reported success.

mod mcs;
mod sim;

use kinlock::config::{LocalLimit, Scan, Tuning};
use kinlock::platform::{Atomic, Ordering::Relaxed, Platform};
use kinlock::raw::{Config, Fault, QueuedSpinLock};
use mcs::Mcs;
use sim::{Sim, SimU32};
use std::cell::{Cell, OnceCell};
use std::ops::Range;
use std::rc::Rc;

const CPUS: usize = 8;
const ACQUISITIONS: u32 = 25;

#[test]
fn mcs() {
    explore("mcs", 0..500, || Mcs::<Sim>::new(CPUS), mcs_section).unwrap();
}

#[test]
fn queued_spinlock_fifo() {
    explore_queued::<Fifo>("fifo", 0..2000).unwrap();
}

#[test]
fn queued_spinlock_cna() {
    explore_queued::<Cna>("cna", 0..2000).unwrap();
}

#[test]
fn queued_spinlock_cna_incremental() {
    explore_queued::<CnaIncremental>("cna, incremental scan", 0..2000).unwrap();
}

#[test]
fn queued_spinlock_without_stealing() {
    explore_queued::<Strict>("cna, no stealing", 0..2000).unwrap();
}

#[test]
fn queued_spinlock_while_knobs_are_turned() {
    explore_queued::<Turned>("knobs turned", 0..2000).unwrap();
}

#[test]
fn no_exclusion_is_found() {
    let failure = explore_queued::<Broken<NO_EXCLUSION>>("no exclusion", 0..2000).unwrap_err();
    assert!(failure.contains("section"), "{failure}");
}

#[test]
fn a_lost_splice_is_found() {
    let failure = explore_queued::<Broken<LOST_SPLICE>>("lost splice", 0..2000).unwrap_err();
    assert!(failure.contains("deadlock"), "{failure}");
}

#[test]
fn a_lost_wakeup_is_found() {
    let failure = explore_queued::<Broken<LOST_WAKEUP>>("lost wake-up", 0..2000).unwrap_err();
    assert!(failure.contains("deadlock"), "{failure}");
}

fn mcs_section(mcs: &Mcs<Sim>, cpu: usize, shared: &Shared) {
    mcs.lock(cpu);
    shared.section(cpu);
    mcs.unlock(cpu);
}

/// Every CPU locks now with, now without a time limit, so that waiters also give up in the middle of the queue.
fn explore_queued<C: Config>(name: &'static str, seeds: Range<u64>) -> Result<(), String> {
    explore(
        name,
        seeds,
        QueuedSpinLock::<Sim, C>::new,
        |lock, cpu, shared| {
            while !match Sim::random() % 4 {
                0 => lock.lock_until(Sim::now() + sim::some_time(1000)),
                1 => lock.try_lock(),
                _ => {
                    lock.lock();
                    true
                }
            } {
                Sim::relax();
            }
            shared.section(cpu);
            // SAFETY: the lock was taken above (invariant 1).
            unsafe { lock.unlock() };
        },
    )
}

macro_rules! config {
    ($name:ident, $reorder:expr, $scan:expr, $stealing:expr) => {
        #[derive(Clone, Copy, Debug)]
        struct $name;
        impl Config for $name {
            fn tuning() -> Tuning {
                let mut tuning = tuning($reorder, $scan);
                tuning.stealing = $stealing;
                tuning
            }
        }
    };
}

config!(Fifo, false, Scan::Full, true);
config!(Cna, true, Scan::Full, true);
config!(CnaIncremental, true, Scan::Incremental, true);
config!(Strict, true, Scan::Full, false);

/// Every wait finds other knobs.
#[derive(Clone, Copy, Debug)]
struct Turned;

impl Config for Turned {
    fn tuning() -> Tuning {
        let random = Sim::random();
        let scan = [Scan::Full, Scan::Incremental][random as usize & 1];
        let mut tuning = tuning(random & 6 != 0, scan);
        tuning.shuffle_reduction = random & 24 == 0;
        tuning.stealing = random & 64 == 0;
        if random & 32 == 0 {
            tuning.limit = LocalLimit::time(1).unwrap();
        }
        tuning
    }
}

#[derive(Clone, Copy, Debug)]
struct Broken<const FAULT: u8>;

const NO_EXCLUSION: u8 = 0;
const LOST_SPLICE: u8 = 1;
const LOST_WAKEUP: u8 = 2;

impl<const FAULT: u8> Config for Broken<FAULT> {
    const FAULT: Fault = [Fault::NoExclusion, Fault::LostSplice, Fault::LostWakeup][FAULT as usize];

    fn tuning() -> Tuning {
        tuning(true, Scan::Full)
    }
}

/// A limit of a few local hand-offs, so that every run flushes.
fn tuning(reorder: bool, scan: Scan) -> Tuning {
    let mut tuning = Tuning::DEFAULT;
    tuning.reorder = reorder;
    tuning.scan = scan;
    tuning.limit = LocalLimit::count(3).unwrap();
    tuning
}

/// What the lock protects, and how far each CPU has come.
struct Shared {
    holder: SimU32,
    counter: SimU32,
    entries: [Cell<u32>; CPUS],
    violation: OnceCell<String>,
}

impl Shared {
    fn new() -> Self {
        let (holder, counter) = (Atomic::new(0), Atomic::new(0));
        Shared {
            holder,
            counter,
            entries: Default::default(),
            violation: OnceCell::new(),
        }
    }

    /// Checks that nobody else is inside, while other CPUs get their chances to be.
    fn section(&self, cpu: usize) {
        let me = cpu as u32 + 1;
        self.check(self.holder.swap(me, Relaxed) == 0, || {
            format!("cpu {cpu} entered an occupied section")
        });
        let count = self.counter.load(Relaxed);
        self.counter.store(count + 1, Relaxed);
        self.check(self.holder.swap(0, Relaxed) == me, || {
            format!("cpu {cpu} was joined in its section")
        });
        self.check(count == self.entries.iter().map(Cell::get).sum(), || {
            "an increment was lost".into()
        });
        self.entries[cpu].set(self.entries(cpu) + 1);
    }

    fn entries(&self, cpu: usize) -> u32 {
        self.entries[cpu].get()
    }

    /// The first violation counts; the others follow from it.
    fn check(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            let _ = self.violation.set(what());
        }
    }
}

/// Runs `ACQUISITIONS` rounds of `acquire` on every CPU, once per seed. `Err` is the first failure.
fn explore<L: 'static>(
    name: &'static str,
    seeds: Range<u64>,
    new: impl Fn() -> L,
    acquire: impl Fn(&L, usize, &Shared) + Copy + 'static,
) -> Result<(), String> {
    let (mut accesses, mut switches, mut parks) = (0, 0, 0);
    let schedules = seeds.end - seeds.start;
    for seed in seeds {
        let _note = NoteOnPanic(name, seed);
        let state = Rc::new((new(), Shared::new()));
        let shared = Rc::clone(&state);
        let end = sim::run(seed, CPUS, move |cpu| {
            for _ in 0..ACQUISITIONS {
                acquire(&shared.0, cpu, &shared.1);
            }
        });
        let failed = |what: &str| format!("{name}, seed {seed}: {what}");
        if let Some(violation) = state.1.violation.get() {
            return Err(failed(violation));
        }
        let report = end.map_err(|stuck| failed(&stuck))?;
        for cpu in 0..CPUS {
            assert_eq!(
                state.1.entries(cpu),
                ACQUISITIONS,
                "cpu {cpu} did not get its share"
            );
        }
        accesses += report.steps;
        switches += report.switches;
        parks += report.parks;
    }
    println!(
        "{name}: {schedules} schedules, {accesses} accesses, {switches} switches, {parks} parks"
    );
    Ok(())
}

/// Names the seed of a run that panics.
struct NoteOnPanic(&'static str, u64);

impl Drop for NoteOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}, seed {}", self.0, self.1);
        }
    }
}
