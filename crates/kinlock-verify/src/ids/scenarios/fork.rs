//! Children, forked while other threads hold IDs and are about to take or give back some, and disturbed by signals from their first moment on.
//!
//! # Invariants
//!
//! 1. The child of a fork ends by `_exit`.
//! 2. Until a child has been waited for, its number names no other process. The status is written to a live local.

use super::super::source;
use super::super::storm::{Storm, disturb};
use super::{Context, Findings};
use crate::random::Random;
use crate::report::Property;
use kinlock_ids::{Backend, Counter, Domain, Lease};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

const CHILD_THREADS: u64 = 2;
const CHILD_ADDS: u64 = 1_000;
/// A child that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// Between two signals to a child.
const PAUSE: Duration = Duration::from_micros(20);

const FINE: i32 = 0;
const SHARED: i32 = 10;
const LOST: i32 = 11;
const UNAVAILABLE: i32 = 12;

pub(super) fn run(context: &Context) -> Findings {
    let domain = source::domain(&context.specimen);
    let counter = Counter::new(&domain).expect("memory for a counter");
    let still = Arc::new(Counter::new(&domain).expect("memory for a counter"));
    still.add(7);
    let added = AtomicU64::new(0);
    // The children's handlers, and the threads'.
    let handlers = (domain.clone(), Arc::clone(&still));
    let storm = Storm::new(
        Box::new(move || {
            let (domain, still) = &handlers;
            still.add(0);
            drop(domain.enter());
        }),
        true,
    );
    let mut children = 0u64;
    let mut failure = None;
    let operations: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..context.threads)
            .map(|me| {
                let (domain, counter, storm, added) = (&domain, &counter, &storm, &added);
                let mut random = Random::new(context.seed, me as u64);
                scope.spawn(move || {
                    storm.expose(|| {
                        let mut operations = 0;
                        while storm.rages() {
                            let lease = domain.enter().ok();
                            counter.add(1);
                            operations += 1;
                            if random.one_in(16) {
                                std::thread::sleep(Duration::from_micros(50));
                            }
                            drop(lease);
                        }
                        added.fetch_add(operations, Relaxed);
                        operations
                    })
                })
            })
            .collect();
        storm.rage(context.time, context.seed, || {
            let mine = domain.enter().ok();
            if failure.is_none() {
                failure = fork_one(&domain, &still, mine.as_ref(), context.threads).err();
                children += 1;
            }
        });
        let done = threads
            .into_iter()
            .map(|thread| thread.join().expect("no thread panics"));
        done.collect()
    });
    let mut findings = Findings {
        operations,
        ..Findings::default()
    };
    let holds = failure.is_none();
    let detail =
        failure.unwrap_or_else(|| format!("{children} children had their own IDs and sums"));
    findings.judge(Property::Contract, holds, detail);
    let (sum, expected) = (counter.sum(), added.load(Relaxed));
    findings.judge(
        Property::Exclusion,
        sum == expected && still.sum() == 7,
        format!(
            "{sum} of {expected} additions counted in the parent, {} of 7",
            still.sum()
        ),
    );
    findings.judge(
        Property::Reach,
        children > 0,
        format!("{children} children"),
    );
    findings
}

fn fork_one(
    domain: &Domain,
    still: &Counter,
    mine: Option<&Lease>,
    threads: usize,
) -> Result<(), String> {
    // SAFETY: invariant 1. The child allocates and starts threads, which Linux's C libraries allow.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = in_child(domain, still, mine, threads);
        // SAFETY: invariant 1.
        unsafe { libc::_exit(code) }
    }
    if child < 0 {
        return Err("no child could be forked".to_owned());
    }
    let give_up = Instant::now() + PATIENCE;
    let mut status = 0;
    // SAFETY: invariant 2.
    while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
        if Instant::now() >= give_up {
            // SAFETY: invariant 2.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, &mut status, 0);
            }
            return Err(format!("a child was still busy after {PATIENCE:?}"));
        }
        disturb(child);
        std::thread::sleep(PAUSE);
    }
    match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
        (true, FINE) => Ok(()),
        (true, SHARED) => Err("a child was given an ID that it held".to_owned()),
        (true, LOST) => Err("a child's sum is wrong".to_owned()),
        (true, UNAVAILABLE) => {
            Err("IDs of the parent's threads are not free in a child".to_owned())
        }
        _ => Err(format!("a child ended with wait status {status:#x}")),
    }
}

fn in_child(domain: &Domain, still: &Counter, mine: Option<&Lease>, threads: usize) -> i32 {
    if domain.backend() == Backend::Lease {
        let all: Vec<_> = std::iter::from_fn(|| domain.enter().ok()).collect();
        let held = mine.map(|lease| lease.id());
        if all.iter().any(|lease| Some(lease.id()) == held) {
            return SHARED;
        }
        // Each thread may just have been about to take or give back one.
        if all.len() + 1 + threads < domain.max_ids() as usize {
            return UNAVAILABLE;
        }
    }
    std::thread::scope(|scope| {
        for _ in 0..CHILD_THREADS {
            scope.spawn(|| (0..CHILD_ADDS).for_each(|_| still.add(1)));
        }
    });
    if still.sum() == 7 + CHILD_THREADS * CHILD_ADDS {
        FINE
    } else {
        LOST
    }
}
