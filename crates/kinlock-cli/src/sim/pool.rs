//! Simulations on several threads of this machine: each is independent, so who runs which decides nothing.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;

use kinlock_sim::Run;

use super::flags::Variant;
use super::sample::Sample;

/// A simulation to be run.
#[derive(Clone, Debug)]
pub struct Job {
    /// What to simulate.
    pub run: Run,
    /// What sets it apart from the others of its cell.
    pub variant: Variant,
}

/// A lock lost a thread. One line.
#[derive(Debug)]
pub struct Stuck(pub String);

/// Runs all jobs; what came out, in their order. `done` is called after each.
///
/// # Errors
/// If one does not come to an end; the rest is left out then.
pub fn run(
    jobs: &[Job],
    host_threads: usize,
    done: impl Fn(&Job) + Sync,
) -> Result<Vec<Sample>, Stuck> {
    // The longest first: none of them is left for the end, when there is nothing to run beside it.
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(jobs[index].run.threads));
    let next = AtomicUsize::new(0);
    let results = Mutex::new(vec![None; jobs.len()]);
    let failure = Mutex::new(None);

    let work = || {
        // Relaxed: the counter only deals out numbers; results are published by the mutex.
        while let Some(&index) = order.get(next.fetch_add(1, Relaxed)) {
            let job = &jobs[index];
            match job.run.execute() {
                Ok(outcome) => {
                    let sample = Sample::new(job.variant, &outcome);
                    results.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(sample);
                }
                Err(stuck) => {
                    let what = format!("{}: {stuck}", title(job));
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(Stuck(what));
                    next.store(order.len(), Relaxed);
                }
            }
            done(job);
        }
    };
    thread::scope(|scope| {
        for _ in 1..host_threads.min(jobs.len()) {
            scope.spawn(work);
        }
        work();
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(failure) => Err(failure),
        None => {
            let results = results.into_inner();
            let results = results.unwrap_or_else(PoisonError::into_inner);
            Ok(results.into_iter().flatten().collect())
        }
    }
}

/// What a job is called: `lock2, 8 threads, cna`.
pub fn title(job: &Job) -> String {
    let run = &job.run;
    format!(
        "{}, {} threads, {}",
        run.workload.name, run.threads, run.lock.name
    )
}
