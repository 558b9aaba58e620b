//! Simulations on several threads of this machine. They are independent: results do not depend on
//! which thread runs which.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;

use kinlock_cli::outcome::tell;
use kinlock_measure::progress;
use kinlock_sim::{Machine, Run};

use super::draws;
use super::sample::Sample;
use super::sampling::Variant;

/// A simulation to be run.
#[derive(Clone, Debug)]
pub struct Job {
    pub run: Run,
    /// What distinguishes it from the others of its cell.
    pub variant: Variant,
}

impl Job {
    /// `run` with each of the variants, on `machine`.
    pub fn variants(
        run: &Run,
        machine: &Machine,
        variants: &[Variant],
    ) -> impl Iterator<Item = Job> {
        variants.iter().map(move |&variant| Job {
            run: Run {
                machine: machine.clone().with_remote_latency(variant.remote_factor),
                seed: variant.seed,
                factors: match variant.draw {
                    None => Vec::new(),
                    Some(draw) => draws::factors(machine, &run.workload, draw),
                },
                ..run.clone()
            },
            variant,
        })
    }

    /// Its name: `lock2, 8 threads, cna`.
    fn title(&self) -> String {
        let run = &self.run;
        let (workload, lock) = (run.workload.name, run.lock.name);
        format!("{workload}, {} threads, {lock}", run.threads)
    }
}

/// Runs all jobs with a progress bar, and returns their samples in order. `None`, and a line on
/// stderr, if a lock lost a thread.
pub fn run(jobs: &[Job], host_threads: usize, quiet: bool) -> Option<Vec<Sample>> {
    let bar = progress::bar(quiet, jobs.len(), || ());
    // The longest jobs come first: a long one that is left for the end would run alone.
    let mut order: Vec<(usize, &Job)> = jobs.iter().enumerate().collect();
    order.sort_by_key(|(_, job)| std::cmp::Reverse(job.run.threads));
    let next = AtomicUsize::new(0);
    let results = Mutex::new(vec![None; jobs.len()]);
    let failure = Mutex::new(None);

    let work = || {
        // Relaxed: the counter only deals out numbers; results are published by the mutex.
        while let Some(&(place, job)) = order.get(next.fetch_add(1, Relaxed)) {
            match job.run.execute() {
                Ok(outcome) => {
                    let variant = job.variant;
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    results[place] = Some(Sample { variant, outcome });
                }
                Err(stuck) => {
                    let what = format!("kinlock-lab: {}: {stuck}", job.title());
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
                    next.store(order.len(), Relaxed);
                }
            }
            bar.set_message(job.title());
            bar.inc(1);
        }
    };
    thread::scope(|scope| {
        for _ in 1..host_threads.min(jobs.len()) {
            scope.spawn(work);
        }
        work();
    });
    bar.finish_and_clear();
    let failure = failure.into_inner();
    if let Some(what) = failure.unwrap_or_else(PoisonError::into_inner) {
        tell(&what);
        return None;
    }
    let results = results.into_inner();
    let results = results.unwrap_or_else(PoisonError::into_inner);
    Some(results.into_iter().flatten().collect())
}
