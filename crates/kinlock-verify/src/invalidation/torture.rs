//! Domains of delayed invalidation under stress on hardware: threads that are interrupted at bad
//! moments, and by signals.
//!
//! | scenario | what threads do | what is demanded |
//! | --- | --- | --- |
//! | `generations` | begin, end and wait as fast as they can | generations increase (contract) |
//! | `pages` | the [demonstration](crate::pages) | no stamp is lost (exclusion) |
//!
//! Generations increase if that of a section is above those of all sections that had begun before.
//! In both no operation may take long (progress), every thread has to come to an end (completion),
//! and the threads together have to get something done (reach).
//!
//! # Invariants
//!
//! 1. The signal's handler is async-signal-safe: it spins and does nothing else. It stays
//!    installed.

use super::{Broken, Kind, NoWait, Ours, Specimen};
use crate::crew::{self, Orders, Worker};
use crate::injector::{self, Injector, Preemption};
use crate::pages::{self, Pool, Protection};
use crate::report::{Check, Findings, Property, Report};
use crate::signal;
use crate::steps::{self, Share, Step};
use kinlock_invalidation::raw::Fault;
use kinlock_sim::random::Random;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Duration;

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Numbers of threads, one after the other.
    pub threads: Vec<usize>,
    /// For all scenarios together.
    pub duration: Duration,
    /// Decides everything random.
    pub seed: u64,
    /// How often threads are interrupted.
    pub preemption: Preemption,
    /// After this time an operation counts as endless.
    pub hang: Duration,
}

/// Shards of the demonstration's pool: few, so that threads meet.
const SHARDS: usize = 2;

/// Tortures one domain. `progress` is told each step's name before it starts.
///
/// One that is broken on purpose is done after the first step in which the check meant for it
/// catches it, or after all steps [`PATIENCE`](crate::plan::PATIENCE) times.
pub fn run(specimen: Specimen, settings: &Settings, progress: impl FnMut(&str)) -> Report {
    if let Kind::Sound(backend) = specimen.kind
        && let Err(refused) = Ours::new(backend)
    {
        let mut report = Report::new();
        report.push(Check {
            name: format!("{}/{}", specimen.name, Property::Contract.name()),
            property: Property::Contract,
            passed: true,
            detail: format!("not tortured: {refused}"),
        });
        return report;
    }
    let step = |threads: usize, pages: bool| Step {
        label: format!("{}-{threads}", if pages { "pages" } else { "generations" }),
        weight: 1,
        what: (threads, pages),
    };
    let threads = settings.threads.iter();
    let steps: Vec<_> = threads
        .flat_map(|&threads| [step(threads, false), step(threads, true)])
        .collect();
    let whole = Share {
        time: settings.duration,
        seed: settings.seed,
    };
    steps::run(
        &specimen,
        whole,
        &steps,
        progress,
        |&(threads, pages), share| {
            let stage = Stage {
                pages,
                preemption: settings.preemption,
                orders: Orders {
                    threads,
                    duration: share.time,
                    hang: settings.hang,
                    longest_wait: settings.hang,
                    pinned: false,
                    seed: share.seed,
                },
            };
            const GENERATION: u8 = Fault::GenerationReadBeforeMark as u8;
            const WAKE: u8 = Fault::WakeLost as u8;
            match specimen.kind {
                Kind::Sound(backend) => {
                    play(Ours::new(backend).expect("it was available before"), &stage)
                }
                Kind::NoWait => play(NoWait, &stage),
                Kind::Generation => play(Broken::<GENERATION>::new(threads), &stage),
                Kind::Wake => play(Broken::<WAKE>::new(threads), &stage),
            }
        },
    )
}

struct Stage {
    pages: bool,
    preemption: Preemption,
    orders: Orders,
}

struct Shared<P: Protection> {
    pool: Pool<P>,
    marks: Vec<P::Mark>,
    /// The newest generation of a section that has begun.
    newest: AtomicU64,
    /// Sections whose generation was not above those of all that had begun before.
    late: AtomicU64,
}

fn play<P: Protection>(protection: P, stage: &Stage) -> Findings {
    // SAFETY: invariant 1.
    unsafe { signal::install(number(), linger, libc::SA_RESTART, []) };
    let shared = Arc::new(Shared {
        pool: Pool::new(protection, SHARDS).expect("address space is left"),
        marks: (0..8).map(|_| P::Mark::default()).collect(),
        newest: AtomicU64::new(0),
        late: AtomicU64::new(0),
    });
    let (of_crew, seed) = (Arc::clone(&shared), stage.orders.seed);
    let (preemption, pages) = (stage.preemption, stage.pages);
    let body = move |worker: &mut Worker| {
        let mut at_pages = pages::Worker::interrupted(seed, worker.index(), preemption);
        let mut random = worker.random.branch();
        let mut injector = Injector::new(preemption, random.branch());
        while worker.running() {
            worker.operation(|| match pages {
                true => of_crew.pool.turn(&mut at_pages),
                false => of_crew.section(&mut random, &mut injector),
            });
        }
    };
    let mut random = Random::stream(seed, u64::MAX);
    let mut signals = 0;
    let outcome = crew::run(&stage.orders, body, |crew| {
        for thread in 0..stage.orders.threads {
            if let Some(tid) = crew.tid(thread).filter(|_| random.one_in(2)) {
                signals += u64::from(signal::send(tid, number()));
            }
        }
        true
    });
    judge(outcome.own_findings(), &shared, pages, signals)
}

impl<P: Protection> Shared<P> {
    fn section(&self, random: &mut Random, injector: &mut Injector) {
        let protection = &self.pool.protection;
        let before = self.newest.load(SeqCst);
        let section = protection.begin();
        let mark = &self.marks[random.below(self.marks.len() as u64) as usize];
        if let Some(generation) = protection.generation(&section) {
            self.late.fetch_add((generation <= before) as u64, Relaxed);
            self.newest.fetch_max(generation, SeqCst);
        }
        protection.mark(&section, mark);
        injector.point();
        protection.end(section, std::iter::once(mark));
        if random.one_in(4) {
            protection.wait(mark);
        }
    }
}

fn judge<P: Protection>(
    findings: Findings,
    shared: &Shared<P>,
    pages: bool,
    signals: u64,
) -> Findings {
    let operations = &findings.operations;
    let total: u64 = operations.iter().sum();
    let idle = operations.iter().filter(|&&n| n == 0).count();
    // Of very many threads not all get a CPU in a short time.
    let reached = total > 0 && idle <= operations.len() / 2;
    let (lost, late) = (shared.pool.lost(), shared.late.load(Relaxed));
    let (what, property, holds, detail) = if pages {
        let detail = format!("{lost} stamps lost");
        ("batches", Property::Exclusion, lost == 0, detail)
    } else {
        let detail = format!("{late} generations not above all before");
        ("sections", Property::Contract, late == 0, detail)
    };
    let reach = format!("{total} {what}, {signals} signals, {idle} threads did nothing");
    findings
        .judge(property, holds, detail)
        .judge(Property::Reach, reached, reach)
}

/// Takes a while, at any moment.
extern "C" fn linger(_: libc::c_int) {
    injector::spin(2_000);
}

fn number() -> i32 {
    signal::real_time(6)
}
