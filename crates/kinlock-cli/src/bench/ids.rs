//! Measuring concurrency IDs: what is built on them against locked additions, thread-locals and crates that do the same in other ways.
//!
//! All [subjects](subjects) of a cell (a workload with a number of threads) run once in each round, in random order, on the same threads. Throughput is compared with that of the workload's baseline in the same round, so that
//! drift of the machine cancels.

mod intermittent;
mod plot;
pub mod report;
pub mod subjects;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use kinlock_ids::{Backend, Policy};

use super::interleave::{Placed, Rounds, Turn};
use super::interrupt::pause;
use super::placement::{self, Pin};
use super::rng::Rng;
use super::rounds::ops_per_s;
use super::runner::process_cpu_time;
use super::team::{Job, Team};
use subjects::{Subject, Workload};

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The workloads.
    pub workloads: Vec<Workload>,
    /// How IDs are held, in the order of tables.
    pub backends: Vec<Backend>,
    /// The policies of leases.
    pub policies: Vec<Policy>,
    /// The numbers of threads.
    pub threads: Vec<usize>,
    /// The timed slice of a subject in a round.
    pub seconds: f64,
    /// Rounds per cell.
    pub rounds: usize,
    /// Between two bursts of the workload `intermittent`, in seconds.
    pub delay: f64,
    /// Start of all random numbers.
    pub seed: u64,
}

/// One round of one subject.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Operations of each thread.
    pub ops: Vec<u64>,
    /// How long the slice was; for `intermittent`, the time inside bursts.
    pub elapsed: Duration,
    /// CPU time of the process in it.
    pub cpu: Duration,
}

impl Sample {
    /// Operations of all threads, taken to be at least one.
    pub fn total(&self) -> f64 {
        self.ops.iter().sum::<u64>().max(1) as f64
    }

    /// Operations of all threads per second.
    pub fn ops_per_s(&self) -> f64 {
        ops_per_s(&self.ops, self.elapsed)
    }
}

/// All rounds of one subject in one cell.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The subject's name.
    pub name: String,
    /// The policy, if it has one.
    pub policy: Option<Policy>,
    /// Of what.
    pub workload: Workload,
    /// The threads of the cell.
    pub threads: usize,
    /// In the order of rounds, each with its place in the order of its round, from 0.
    pub samples: Vec<Placed<Sample>>,
}

impl Plan {
    /// How many rounds there will be, over all cells.
    pub fn all_rounds(&self) -> usize {
        let workloads = self.workloads.iter();
        let cells = workloads.map(|&workload| self.threads_of(workload).len());
        cells.sum::<usize>() * self.rounds
    }

    /// How many slices there will be.
    pub fn slices(&self) -> usize {
        let subjects = self.workloads.iter().map(|&workload| {
            let subjects = subjects::of(workload, &self.backends, &self.policies).len();
            subjects * self.threads_of(workload).len()
        });
        subjects.sum::<usize>() * self.rounds
    }

    /// The thread counts of a workload: `intermittent` has one thread per CPU.
    pub fn threads_of(&self, workload: Workload) -> Vec<usize> {
        match workload {
            Workload::Intermittent => vec![kinlock_verify::allowed_cpus().len().max(2)],
            _ => self.threads.clone(),
        }
    }

    /// How long a slice of a workload takes, in seconds.
    pub fn seconds_of(&self, workload: Workload) -> f64 {
        match workload {
            Workload::Intermittent => intermittent::BURSTS as f64 * self.delay,
            _ => self.seconds * 1.1,
        }
    }

    /// What the whole run is going to take, roughly, in seconds.
    pub fn expected_seconds(&self) -> f64 {
        let of = |&workload: &Workload| {
            let one = Plan {
                workloads: vec![workload],
                ..self.clone()
            };
            one.slices() as f64 * (self.seconds_of(workload) + 0.005)
        };
        self.workloads.iter().map(of).sum()
    }
}

/// Runs everything, or as much as there is time for; `progress(what)` is called before each slice. Cells without a complete round are left out.
///
/// # Errors
/// If threads cannot be started.
pub fn run(
    plan: &Plan,
    rounds: &mut Rounds,
    mut progress: impl FnMut(&str),
) -> anyhow::Result<Vec<Measured>> {
    let mut order_rng = Rng::new(plan.seed, u64::MAX);
    let mut results = Vec::new();
    for &workload in &plan.workloads {
        for threads in plan.threads_of(workload) {
            if !rounds.go_on() {
                return Ok(results);
            }
            let cpus = kinlock_verify::allowed_cpus();
            let pin = match workload {
                // Each thread has a CPU, however many there are.
                Workload::Intermittent => Pin::Spread,
                _ => Pin::usual(threads, cpus.len()),
            };
            let team = Team::start(threads, placement::assign(pin, threads))?;
            let subjects = subjects::of(workload, &plan.backends, &plan.policies);
            let sample = |Turn { subject, round }| {
                let subject = &subjects[subject];
                progress(&format!(
                    "{}, {threads} threads, {}",
                    workload.name(),
                    subject.name
                ));
                Ok(match workload {
                    Workload::Intermittent => {
                        let seed = plan.seed.wrapping_add(round as u64);
                        intermittent::slice(subject, &team, plan.delay, seed)
                    }
                    _ => slice(subject, &team, plan.seconds),
                })
            };
            let samples = rounds.run(plan.rounds, subjects.len(), &mut order_rng, sample)?;
            let cell = subjects
                .iter()
                .zip(samples)
                .map(|(subject, samples)| Measured {
                    name: subject.name.clone(),
                    policy: subject.policy,
                    workload,
                    threads,
                    samples,
                });
            results.extend(cell.filter(|measured| !measured.samples.is_empty()));
        }
    }
    Ok(results)
}

/// All threads do the subject's operation until the time is up.
fn slice(subject: &Subject, team: &Team, seconds: f64) -> Sample {
    struct Arena {
        stop: AtomicBool,
        start: Barrier,
        ops: Vec<CachePadded<AtomicU64>>,
    }
    let arena = Arc::new(Arena {
        stop: AtomicBool::new(false),
        start: Barrier::new(team.size() + 1),
        ops: (0..team.size()).map(|_| CachePadded::default()).collect(),
    });
    let work = (subject.make)();
    let members = Arc::clone(&arena);
    let job: Job = Arc::new(move |index| {
        members.start.wait();
        // Only this thread writes the counter.
        work.until(&members.stop, &members.ops[index]);
    });
    let read = || -> Vec<u64> { arena.ops.iter().map(|ops| ops.load(Relaxed)).collect() };
    team.begin(&job);
    drop(job);
    arena.start.wait();
    pause(Duration::from_secs_f64(seconds / 10.0));
    let (begin, cpu, before) = (Instant::now(), process_cpu_time(), read());
    pause(Duration::from_secs_f64(seconds));
    let (elapsed, cpu, after) = (begin.elapsed(), process_cpu_time() - cpu, read());
    arena.stop.store(true, Relaxed);
    team.wait();
    Sample {
        ops: after
            .iter()
            .zip(&before)
            .map(|(after, before)| after - before)
            .collect(),
        elapsed,
        cpu,
    }
}
