//! Domains of delayed invalidation under stress on hardware: threads that are interrupted at bad moments, and by signals.
//!
//! | scenario | what threads do | what is demanded |
//! | --- | --- | --- |
//! | `generations` | begin, end and wait as fast as they can | a section's generation is above those of all sections that had begun before it began (contract) |
//! | `pages` | the [demonstration](crate::pages) | no stamp is lost (exclusion) |
//!
//! In both every thread has to come to an end (completion), and the threads together have to get something done (reach).
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. The signal's handler spins and does nothing else. It is installed before threads are told of, and stays.
//! 2. `tgkill` takes numbers only, and reaches no other process. A thread that has just ended is a harmless error.

use super::{Broken, GENERATION, Kind, NoWait, Ours, Specimen, WAKE};
use crate::injector::{self, Injector, Preemption};
use crate::pages::{Pool, Protection, Worker};
use crate::plan::{is_caught, judge_catch, rounds, step_name};
use crate::random::Random;
use crate::report::{Check, PerThread, Property, Report};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Numbers of threads, one after the other.
    pub threads: Vec<usize>,
    /// For all scenarios together.
    pub duration: Duration,
    /// Start of all random numbers.
    pub seed: u64,
    /// How often threads are interrupted.
    pub preemption: Preemption,
    /// After this time without progress a thread is taken to wait for ever.
    pub hang: Duration,
}

/// Shards of the demonstration's pool: few, so that threads meet.
const SHARDS: usize = 2;
/// One signal in so many pauses of the watchdog goes to each thread.
const TICK: Duration = Duration::from_millis(2);

/// Tortures one domain. `progress` is told each step's name before it starts.
///
/// One that is broken on purpose is given up after the first step in which the check meant for it catches it, or after all steps [`PATIENCE`](crate::plan::PATIENCE) times.
pub fn run(specimen: Specimen, settings: &Settings, mut progress: impl FnMut(&str)) -> Report {
    let mut report = Report::new();
    if let Kind::Sound(backend) = specimen.kind
        && let Err(refused) = Ours::new(backend)
    {
        report.push(Check {
            name: format!("{}/{}", specimen.name, Property::Contract.name()),
            property: Property::Contract,
            passed: true,
            detail: format!("not tortured: {refused}"),
        });
        return report;
    }
    let parts = 2 * settings.threads.len() as u32;
    'all: for round in 0..rounds(specimen.defect) {
        for (i, &threads) in settings.threads.iter().enumerate() {
            for scenario in ["generations", "pages"] {
                let label = format!("{scenario}-{threads}");
                let stage = Stage {
                    name: step_name(specimen.name, &label, round),
                    pages: scenario == "pages",
                    threads,
                    duration: settings.duration / parts,
                    seed: settings
                        .seed
                        .wrapping_add(round * u64::from(parts) + i as u64),
                    preemption: settings.preemption,
                    hang: settings.hang,
                };
                progress(&stage.name);
                let played = match specimen.kind {
                    Kind::Sound(backend) => {
                        play(Ours::new(backend).expect("it was available before"), &stage)
                    }
                    Kind::NoWait => play(NoWait, &stage),
                    Kind::Generation => play(Broken::<GENERATION>::new(threads), &stage),
                    Kind::Wake => play(Broken::<WAKE>::new(threads), &stage),
                };
                // What hangs has left its threads behind.
                let stuck = is_caught(Some(Property::Completion), &played);
                report.merge(played);
                if stuck || is_caught(specimen.defect, &report) {
                    break 'all;
                }
            }
        }
    }
    if let Some(meant) = specimen.defect {
        report.push(judge_catch(specimen.name, meant, &report.checks));
    }
    report
}

struct Stage {
    name: String,
    pages: bool,
    threads: usize,
    duration: Duration,
    seed: u64,
    preemption: Preemption,
    hang: Duration,
}

struct Shared<P: Protection> {
    pool: Pool<P>,
    marks: Vec<P::Mark>,
    /// The newest generation that a section had when it had begun.
    newest: AtomicU64,
    /// Sections whose generation was not above those of all that had begun before.
    late: AtomicU64,
    stop: AtomicBool,
    members: Vec<Member>,
}

#[repr(align(128))]
#[derive(Default)]
struct Member {
    turns: AtomicU64,
    tid: AtomicI32,
    finished: AtomicBool,
}

fn play<P: Protection>(protection: P, stage: &Stage) -> Report {
    install_handler();
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
        let (seed, preemption) = (stage.seed, stage.preemption);
        std::thread::Builder::new()
            .stack_size(256 * 1024)
            .spawn(move || {
                let member = &shared.members[me];
                member.tid.store(own_tid(), Relaxed);
                let mut worker = Worker::interrupted(seed, me, preemption);
                let mut random = Random::new(seed, me as u64);
                let mut injector = Injector::new(preemption, random.branch());
                while !shared.stop.load(Relaxed) {
                    if pages {
                        shared.pool.turn(&mut worker);
                    } else {
                        shared.section(&mut random, &mut injector);
                    }
                    member.turns.fetch_add(1, Relaxed);
                }
                member.tid.store(0, Relaxed);
                member.finished.store(true, Release);
            })
            .expect("a thread can be started");
    }
    let (completed, signals) = watch(&shared, stage);
    judge(&shared, stage, completed, signals)
}

impl<P: Protection> Shared<P> {
    fn section(&self, random: &mut Random, injector: &mut Injector) {
        let before = self.newest.load(SeqCst);
        let section = self.pool.protection.begin();
        let mark = &self.marks[random.below(self.marks.len() as u64) as usize];
        if let Some(generation) = self.pool.protection.generation(&section) {
            self.late.fetch_add((generation <= before) as u64, Relaxed);
            self.newest.fetch_max(generation, SeqCst);
        }
        self.pool.protection.mark(&section, mark);
        injector.point();
        self.pool.protection.end(section, std::iter::once(mark));
        if random.one_in(4) {
            self.pool.protection.wait(mark);
        }
    }
}

/// Until all threads have ended, or one makes no progress. Sends signals meanwhile, and says how many.
fn watch<P: Protection>(shared: &Shared<P>, stage: &Stage) -> (bool, u64) {
    let start = Instant::now();
    let mut random = Random::new(stage.seed, u64::MAX);
    let mut signals = 0;
    let mut last: Vec<(u64, Instant)> = vec![(0, start); stage.threads];
    loop {
        std::thread::sleep(TICK);
        let now = Instant::now();
        if now - start >= stage.duration {
            shared.stop.store(true, Relaxed);
        }
        let mut all_finished = true;
        for (member, last) in shared.members.iter().zip(&mut last) {
            if member.finished.load(Acquire) {
                continue;
            }
            all_finished = false;
            let turns = member.turns.load(Relaxed);
            if turns != last.0 {
                *last = (turns, now);
            } else if now - last.1 >= stage.hang {
                return (false, signals);
            }
            let tid = member.tid.load(Relaxed);
            if tid != 0 && random.one_in(4) {
                signals += interrupt(tid);
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
) -> Report {
    let mut report = Report::new();
    let turns: Vec<u64> = shared
        .members
        .iter()
        .map(|member| member.turns.load(Relaxed))
        .collect();
    let total: u64 = turns.iter().sum();
    report.per_thread = PerThread::of(&turns);
    let mut push = |property: Property, passed, detail| {
        report.push(Check {
            name: format!("{}/{}", stage.name, property.name()),
            property,
            passed,
            detail,
        });
    };
    let what = if stage.pages { "batches" } else { "sections" };
    let detail = format!("{total} {what}, {signals} signals");
    let hung = format!(
        "a thread made no progress for {:?} after {detail}",
        stage.hang
    );
    push(
        Property::Completion,
        completed,
        if completed { detail } else { hung },
    );
    if stage.pages {
        let lost = shared.pool.lost();
        push(
            Property::Exclusion,
            lost == 0,
            format!("{lost} stamps lost"),
        );
    } else {
        let late = shared.late.load(Relaxed);
        let detail = format!("{late} generations not above all before");
        push(Property::Contract, late == 0, detail);
    }
    let idle = turns.iter().filter(|&&turns| turns == 0).count();
    // Of very many threads not all get a CPU in a short time.
    let reached = total > 0 && idle <= turns.len() / 2;
    push(
        Property::Reach,
        reached,
        format!("{idle} threads did nothing"),
    );
    report
}

/// Something that takes a while, at any moment.
extern "C" fn linger(_: libc::c_int) {
    injector::spin(2_000);
}

fn install_handler() {
    // SAFETY: invariant 1; `action` is a live local.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = linger as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal(), &action, std::ptr::null_mut());
    }
}

fn signal() -> libc::c_int {
    libc::SIGRTMIN() + 6
}

fn own_tid() -> i32 {
    // SAFETY: takes nothing and returns a number.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

fn interrupt(tid: i32) -> u64 {
    // SAFETY: invariant 2.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, signal()) };
    (result == 0) as u64
}
