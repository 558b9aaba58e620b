//! Children that are forked while other threads hold IDs, or are taking or giving back some.
//! Signals disturb each child from its first moment on.

use super::super::source;
use super::super::storm::{Storm, disturb};
use super::Context;
use crate::child::{self, FINE};
use crate::report::{Findings, Property};
use kinlock_ids::{Backend, Counter, Domain, Lease};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Duration;

const CHILD_THREADS: u64 = 2;
const CHILD_ADDS: u64 = 1_000;
/// The sum of the counter that children use, as it stays in the parent.
const STILL: u64 = 7;
/// A child that takes longer than this counts as hanging.
const PATIENCE: Duration = Duration::from_secs(300);
/// The pause between two signals to a child.
const PAUSE: Duration = Duration::from_micros(20);

/// Exit statuses of children.
const SHARED: i32 = 10;
const LOST: i32 = 11;
const UNAVAILABLE: i32 = 12;

pub(super) fn run(context: &Context) -> Findings {
    let domain = source::domain(&context.specimen);
    let counter = Counter::new(&domain).expect("memory for a counter");
    let still = Arc::new(Counter::new(&domain).expect("memory for a counter"));
    still.add(STILL);
    let added = AtomicU64::new(0);
    // What the handlers use, in the children and in this process.
    let handlers = (domain.clone(), Arc::clone(&still));
    let action = move || {
        let (domain, still) = &handlers;
        still.add(0);
        drop(domain.enter());
    };
    let storm = Storm::new(Box::new(action), true);
    let mut children = 0u64;
    let mut failure = None;
    let meanwhile = || {
        let mine = domain.enter().ok();
        if failure.is_none() {
            failure = fork_one(&domain, &still, mine.as_ref(), context.orders.threads).err();
            children += 1;
        }
    };
    let findings = storm.over(&context.orders, meanwhile, |_, mut random| {
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
    });
    let contract = match failure {
        None => Ok(format!("{children} children had their own IDs and sums")),
        Some(what) => Err(what),
    };
    let (sum, expected, still) = (counter.sum(), added.load(Relaxed), still.sum());
    let exclusion = format!(
        "{sum} of {expected} additions counted in the parent, {still} of {STILL} in the children's"
    );
    findings
        .with(Property::Contract, contract)
        .judge(
            Property::Exclusion,
            sum == expected && still == STILL,
            exclusion,
        )
        .judge(
            Property::Reach,
            children > 0,
            format!("{children} children"),
        )
}

fn fork_one(
    domain: &Domain,
    still: &Counter,
    mine: Option<&Lease>,
    threads: usize,
) -> Result<(), String> {
    let child = child::fork(|| in_child(domain, still, mine, threads));
    let child = child.ok_or("no child could be forked")?;
    let result = child.wait(PATIENCE, |child| {
        disturb(child);
        std::thread::sleep(PAUSE);
    });
    match result {
        Ok(FINE) => Ok(()),
        Ok(SHARED) => Err("a child was given an ID that it held".to_owned()),
        Ok(LOST) => Err("a child's sum is wrong".to_owned()),
        Ok(UNAVAILABLE) => Err("IDs of the parent's threads are not free in a child".to_owned()),
        Ok(code) => Err(format!("a child ended with status {code}")),
        Err(what) => Err(format!("a child {what}")),
    }
}

fn in_child(domain: &Domain, still: &Counter, mine: Option<&Lease>, threads: usize) -> i32 {
    if domain.backend() == Backend::Lease {
        let all: Vec<_> = std::iter::from_fn(|| domain.enter().ok()).collect();
        let held = mine.map(|lease| lease.id());
        if all.iter().any(|lease| Some(lease.id()) == held) {
            return SHARED;
        }
        // Each thread of the parent may have been taking or giving back an ID when it was forked.
        if all.len() + 1 + threads < domain.max_ids() as usize {
            return UNAVAILABLE;
        }
    }
    std::thread::scope(|scope| {
        for _ in 0..CHILD_THREADS {
            scope.spawn(|| (0..CHILD_ADDS).for_each(|_| still.add(1)));
        }
    });
    if still.sum() == STILL + CHILD_THREADS * CHILD_ADDS {
        FINE
    } else {
        LOST
    }
}
