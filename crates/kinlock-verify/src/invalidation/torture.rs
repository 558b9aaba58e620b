//! Domains of delayed invalidation under stress on hardware: threads that are interrupted at bad
//! moments, and by signals.
//!
//! | scenario | what threads do | what is demanded |
//! | --- | --- | --- |
//! | `generations` | begin, end and wait as fast as they can | a section's generation is above those of all sections that had begun before (contract) |
//! | `pages` | the [demonstration](crate::pages) | no stamp is lost (exclusion) |
//!
//! In both every thread has to come to an end (completion), and the threads together have to get
//! something done (reach).
//!
//! # Invariants
//!
//! 1. The signal's handler is async-signal-safe: it spins and does nothing else. It stays installed.

use super::{Broken, Kind, NoWait, Ours, Specimen};
use crate::injector::{self, Injector, Preemption};
use crate::pages::{Pool, Protection, Worker};
use crate::random::Random;
use crate::report::{Check, Findings, Property, Report};
use crate::signal;
use crate::steps::{self, Share, Step};
use kinlock_invalidation::raw::Fault;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

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
    /// After this time without progress a thread counts as waiting for ever.
    pub hang: Duration,
}

/// Shards of the demonstration's pool: few, so that threads meet.
const SHARDS: usize = 2;
/// The watchdog's period. One look in four sends a signal to a thread.
const TICK: Duration = Duration::from_millis(2);

/// Tortures one domain. `progress` is told each step's name before it starts.
///
/// One that is broken on purpose is done after the first step in which the check meant for it catches
/// it, or after all steps [`PATIENCE`](crate::plan::PATIENCE) times.
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
                threads,
                share,
                preemption: settings.preemption,
                hang: settings.hang,
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
    threads: usize,
    share: Share,
    preemption: Preemption,
    hang: Duration,
}

struct Shared<P: Protection> {
    pool: Pool<P>,
    marks: Vec<P::Mark>,
    /// The newest generation of a section that has begun.
    newest: AtomicU64,
    /// Sections whose generation was not above those of all that had begun before.
    late: AtomicU64,
    stop: AtomicBool,
    members: Vec<Member>,
}

#[repr(align(128))]
#[derive(Default)]
struct Member {
    rounds: AtomicU64,
    tid: AtomicI32,
    finished: AtomicBool,
}

fn play<P: Protection>(protection: P, stage: &Stage) -> Findings {
    // SAFETY: invariant 1.
    unsafe { signal::install(number(), linger, libc::SA_RESTART, []) };
    let pool = Pool::new(protection, SHARDS).expect("address space is left");
    let shared = Arc::new(Shared {
        pool,
        marks: (0..8).map(|_| P::Mark::default()).collect(),
        newest: AtomicU64::new(0),
        late: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        members: (0..stage.threads).map(|_| Member::default()).collect(),
    });
    for me in 0..stage.threads {
        let (shared, pages) = (Arc::clone(&shared), stage.pages);
        let (seed, preemption) = (stage.share.seed, stage.preemption);
        let thread = std::thread::Builder::new().stack_size(256 * 1024);
        let work = move || shared.work(me, seed, preemption, pages);
        thread.spawn(work).expect("a thread can be started");
    }
    let (completed, signals) = watch(&shared, stage);
    judge(&shared, stage, completed, signals)
}

impl<P: Protection> Shared<P> {
    fn work(&self, me: usize, seed: u64, preemption: Preemption, pages: bool) {
        let member = &self.members[me];
        member.tid.store(signal::own_tid(), Relaxed);
        let mut worker = Worker::interrupted(seed, me, preemption);
        let mut random = Random::new(seed, me as u64);
        let mut injector = Injector::new(preemption, random.branch());
        while !self.stop.load(Relaxed) {
            if pages {
                self.pool.turn(&mut worker);
            } else {
                self.section(&mut random, &mut injector);
            }
            member.rounds.fetch_add(1, Relaxed);
        }
        member.tid.store(0, Relaxed);
        member.finished.store(true, Release);
    }

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

/// Returns when all threads have ended (`true`) or one makes no progress. Sends signals meanwhile, and
/// returns how many.
fn watch<P: Protection>(shared: &Shared<P>, stage: &Stage) -> (bool, u64) {
    let start = Instant::now();
    let mut random = Random::new(stage.share.seed, u64::MAX);
    let mut signals = 0;
    let mut last: Vec<(u64, Instant)> = vec![(0, start); stage.threads];
    loop {
        std::thread::sleep(TICK);
        let now = Instant::now();
        if now - start >= stage.share.time {
            shared.stop.store(true, Relaxed);
        }
        let mut all_finished = true;
        for (member, last) in shared.members.iter().zip(&mut last) {
            if member.finished.load(Acquire) {
                continue;
            }
            all_finished = false;
            let rounds = member.rounds.load(Relaxed);
            if rounds != last.0 {
                *last = (rounds, now);
            } else if now - last.1 >= stage.hang {
                return (false, signals);
            }
            let tid = member.tid.load(Relaxed);
            if tid != 0 && random.one_in(4) {
                signals += u64::from(signal::send(tid, number()));
            }
        }
        if all_finished {
            return (true, signals);
        }
    }
}

fn judge<P: Protection>(
    shared: &Shared<P>,
    stage: &Stage,
    completed: bool,
    signals: u64,
) -> Findings {
    let rounds = |member: &Member| member.rounds.load(Relaxed);
    let operations: Vec<u64> = shared.members.iter().map(rounds).collect();
    let total: u64 = operations.iter().sum();
    let idle = operations.iter().filter(|&&n| n == 0).count();
    // Of very many threads not all get a CPU in a short time.
    let reached = total > 0 && idle <= operations.len() / 2;
    let what = if stage.pages { "batches" } else { "sections" };
    let done = format!("{total} {what}, {signals} signals");
    let completion = match completed {
        true => Ok(done),
        false => Err(format!(
            "a thread made no progress for {:?} after {done}",
            stage.hang
        )),
    };
    let findings = Findings {
        operations,
        left_threads: !completed,
        ..Findings::default()
    };
    let findings = findings.with(Property::Completion, completion);
    let findings = if stage.pages {
        let lost = shared.pool.lost();
        findings.judge(
            Property::Exclusion,
            lost == 0,
            format!("{lost} stamps lost"),
        )
    } else {
        let late = shared.late.load(Relaxed);
        let detail = format!("{late} generations not above all before");
        findings.judge(Property::Contract, late == 0, detail)
    };
    findings.judge(
        Property::Reach,
        reached,
        format!("{idle} threads did nothing"),
    )
}

/// Takes a while, at any moment.
extern "C" fn linger(_: libc::c_int) {
    injector::spin(2_000);
}

fn number() -> i32 {
    signal::real_time(6)
}
