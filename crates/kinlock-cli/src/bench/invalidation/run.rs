//! Runs the suite: cell by cell, round by round, every contender once per round, in random order.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use kinlock_invalidation::{Domain, Stats};
use kinlock_verify::pages::{Pool, Worker};

use super::contender::{BusyFlag, Contender, LockHeld, ours};
use super::epochs::{Crossbeam, Numbered, Seize};
use super::name::{ContenderName, WorkloadName};
use crate::bench::interleave::{Placed, Rounds, Turn};
use crate::bench::interrupt::{self, State, pause};
use crate::bench::placement::{self, Pin};
use crate::bench::rng::Rng;
use crate::bench::rounds::ops_per_s;
use crate::bench::team::{Job, Team};
use crate::bench::threads::ThreadCounts;
use crate::output::tell;

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The contenders, the baseline among them.
    pub contenders: Vec<ContenderName>,
    /// The one that the others are compared with, where it does the workload.
    pub baseline: ContenderName,
    /// The workloads.
    pub workloads: Vec<WorkloadName>,
    /// The thread counts.
    pub threads: ThreadCounts,
    /// One contender's slice in one round.
    pub seconds: f64,
    /// Rounds per cell.
    pub rounds: usize,
    /// Start of all random numbers.
    pub seed: u64,
}

/// All rounds of one contender in one cell.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Which.
    pub contender: ContenderName,
    /// The workload of the cell.
    pub workload: WorkloadName,
    /// The threads of the cell.
    pub threads: usize,
    /// One sample per round, each with its place in the order of its round, from 0.
    pub samples: Vec<Placed<Sample>>,
}

impl Measured {
    /// The samples alone.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter().map(|(_, sample)| sample)
    }
}

/// One slice.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Operations of each thread.
    pub ops: Vec<u64>,
    /// How long they took.
    pub elapsed: Duration,
    /// Stamps that were looked at.
    pub verified: u64,
    /// Stamps that were lost: if there are any, the contender is wrong.
    pub lost: u64,
    /// What our domain counted.
    pub stats: Option<Stats>,
}

impl Sample {
    /// Operations of all threads per second.
    pub fn ops_per_s(&self) -> f64 {
        ops_per_s(&self.ops, self.elapsed)
    }
}

impl Plan {
    /// The contenders that do a workload.
    pub fn contenders_in(&self, workload: WorkloadName) -> Vec<ContenderName> {
        let all = self.contenders.iter().copied();
        all.filter(|contender| contender.does(workload)).collect()
    }

    /// How many rounds there will be, over all cells.
    pub fn all_rounds(&self) -> usize {
        let workloads = self.workloads.iter();
        let busy = workloads.filter(|&&workload| !self.contenders_in(workload).is_empty());
        busy.count() * self.threads.0.len() * self.rounds
    }

    /// How many slices there will be.
    pub fn slices(&self) -> usize {
        let workloads = self.workloads.iter();
        let contenders: usize = workloads.map(|&w| self.contenders_in(w).len()).sum();
        contenders * self.threads.0.len() * self.rounds
    }

    /// What the whole run is going to take, roughly, in seconds.
    pub fn expected_seconds(&self) -> f64 {
        self.slices() as f64 * (self.seconds * (1.0 + WARM_UP) + 0.01)
    }
}

/// The part of a slice that passes before anything counts.
const WARM_UP: f64 = 0.1;
/// Shards of the demonstration's pool: 16 MiB of slots.
const SHARDS: usize = 64;
/// Operations between two looks at whether time is up, where an operation takes some nanoseconds.
const CHUNK: u64 = 64;

/// What came out of a run.
#[derive(Debug)]
pub struct Found {
    /// The cells that have a complete round.
    pub measured: Vec<Measured>,
    /// Stamps that were lost, by contender, those in incomplete rounds among them: they show that it is wrong just as well.
    pub lost: BTreeMap<&'static str, u64>,
}

/// Runs everything, or as much as there is time for; `progress(what)` is called before each slice.
///
/// # Errors
/// If the threads or the mappings cannot be had.
pub fn run(
    plan: &Plan,
    rounds: &mut Rounds,
    mut progress: impl FnMut(&str),
) -> anyhow::Result<Found> {
    show_sections_on_signal();
    let mut order_rng = Rng::new(plan.seed, u64::MAX);
    let mut measured = Vec::new();
    let mut lost = BTreeMap::new();
    for &workload in &plan.workloads {
        for &threads in &plan.threads.0 {
            if !rounds.go_on() {
                return Ok(Found { measured, lost });
            }
            let pin = Pin::usual(threads, kinlock_verify::allowed_cpus().len());
            let team = Team::start(threads, placement::assign(pin, threads))?;
            let contenders = plan.contenders_in(workload);
            let sample = |Turn { subject, round }| {
                let contender = contenders[subject];
                progress(&format!("{workload}, {threads} threads, {contender}"));
                let seed = plan.seed.wrapping_add(round as u64);
                let sample = slice(contender, workload, &team, plan.seconds, seed)?;
                if sample.lost > 0 {
                    *lost.entry(contender.name()).or_default() += sample.lost;
                }
                Ok(sample)
            };
            let samples = rounds.run(plan.rounds, contenders.len(), &mut order_rng, sample)?;
            let cell = contenders.iter().zip(samples);
            let cell = cell.map(|(&contender, samples)| Measured {
                contender,
                workload,
                threads,
                samples,
            });
            measured.extend(cell.filter(|one| !one.samples.is_empty()));
        }
    }
    Ok(Found { measured, lost })
}

fn slice(
    contender: ContenderName,
    workload: WorkloadName,
    team: &Team,
    seconds: f64,
    seed: u64,
) -> anyhow::Result<Sample> {
    match contender {
        ContenderName::Ours(backend) => measure(ours(backend), workload, team, seconds, seed),
        ContenderName::LockHeld => measure(LockHeld::default(), workload, team, seconds, seed),
        ContenderName::BusyFlag => measure(BusyFlag, workload, team, seconds, seed),
        ContenderName::Crossbeam => {
            measure(Numbered::<Crossbeam>::new(), workload, team, seconds, seed)
        }
        ContenderName::Seize => measure(Numbered::<Seize>::new(), workload, team, seconds, seed),
        #[cfg(have_ck_epoch)]
        ContenderName::CkEpoch => measure(
            Numbered::<super::epochs::CkEpoch>::new(),
            workload,
            team,
            seconds,
            seed,
        ),
        #[cfg(have_urcu)]
        ContenderName::Urcu => measure(
            Numbered::<super::epochs::Urcu>::new(),
            workload,
            team,
            seconds,
            seed,
        ),
        #[allow(unreachable_patterns)]
        absent => anyhow::bail!("{absent} is not in this build"),
    }
}

/// What the members of the team and the one who times them share.
struct Shared<C: Contender> {
    pool: Pool<C>,
    flags: Flags,
    ops: Vec<Count>,
}

/// Whether operations count, and whether to stop.
#[derive(Default)]
#[repr(align(128))]
struct Flags {
    counting: AtomicBool,
    stop: AtomicBool,
}

#[derive(Default)]
#[repr(align(128))]
struct Count {
    ops: AtomicU64,
    verified: AtomicU64,
}

fn measure<C: Contender>(
    contender: C,
    workload: WorkloadName,
    team: &Team,
    seconds: f64,
    seed: u64,
) -> anyhow::Result<Sample> {
    let shared = Arc::new(Shared {
        pool: Pool::new(contender, SHARDS)?,
        flags: Flags::default(),
        ops: (0..team.size()).map(|_| Count::default()).collect(),
    });
    let job: Job = {
        let shared = Arc::clone(&shared);
        Arc::new(move |me| work(&shared, workload, me, seed))
    };
    team.begin(&job);
    sleep_watchfully(seconds * WARM_UP, shared.pool.protection.domain());
    shared.flags.counting.store(true, Relaxed);
    let start = Instant::now();
    sleep_watchfully(seconds, shared.pool.protection.domain());
    shared.flags.counting.store(false, Relaxed);
    let elapsed = start.elapsed();
    shared.flags.stop.store(true, Relaxed);
    team.wait();
    drop(job);
    let read = |count: fn(&Count) -> &AtomicU64| -> Vec<u64> {
        let counts = shared.ops.iter();
        counts.map(|of| count(of).load(Relaxed)).collect()
    };
    Ok(Sample {
        ops: read(|count| &count.ops),
        elapsed,
        verified: read(|count| &count.verified).iter().sum(),
        lost: shared.pool.lost(),
        stats: shared.pool.protection.domain().map(Domain::stats),
    })
}

fn work<C: Contender>(shared: &Shared<C>, workload: WorkloadName, me: usize, seed: u64) {
    let protection = &shared.pool.protection;
    let mark = C::Mark::default();
    let mut worker = Worker::new(seed, me, None);
    let mut ops = 0;
    while !shared.flags.stop.load(Relaxed) {
        let done = match workload {
            WorkloadName::Section => {
                (0..CHUNK).for_each(|_| protection.empty());
                CHUNK
            }
            WorkloadName::Passed => {
                for _ in 0..CHUNK {
                    black_box(protection.passed(black_box(&mark)));
                }
                CHUNK
            }
            WorkloadName::Pages => {
                shared.pool.turn(&mut worker);
                1
            }
        };
        if shared.flags.counting.load(Relaxed) {
            ops += done;
        }
    }
    shared.ops[me].ops.store(ops, Relaxed);
    shared.ops[me].verified.store(worker.verified, Relaxed);
}

/// Somebody wants to see what is open.
static WANTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_signal(_: libc::c_int) {
    WANTED.store(true, Relaxed);
}

/// SIGUSR1 to the process shows the open sections of the slice under way, on stderr.
fn show_sections_on_signal() {
    // SAFETY: the handler writes an atomic and does nothing else; `action` is a live local.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = note_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
    }
}

/// Sleeps; if it is asked to meanwhile, shows what is open.
fn sleep_watchfully(seconds: f64, domain: Option<&Domain>) {
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || interrupt::state() == State::Over {
            return;
        }
        pause(left.min(Duration::from_millis(50)));
        if WANTED.swap(false, Relaxed) {
            show(domain);
        }
    }
}

fn show(domain: Option<&Domain>) {
    let Some(domain) = domain else {
        tell("kinlock: what is being measured has no sections of ours");
        return;
    };
    let open = domain.dump();
    let (count, stats) = (open.len(), domain.stats());
    tell(&format!("kinlock: {count} open sections; {stats:?}"));
    for section in open {
        tell(&format!("  {section}"));
    }
}
