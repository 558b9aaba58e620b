//! The subjects: one operation each, on our data structures and on those of others.

use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::*};

use crossbeam_queue::SegQueue;
use crossbeam_utils::CachePadded;
use fast_counter::ConcurrentCounter;
use kinlock_cli::names;
use kinlock_ids::{Backend, Counter, Domain, Histogram, Pool, Stack};
use thread_local::ThreadLocal;

use super::objects::{self, Object};
use super::subject::{Kind, MALLOC, Subject, domain};
use crate::harness::suite::cpus;

names! {
    Workload, "workload":
    Counter = "counter", "add 1 to a counter";
    Histogram = "histogram", "count a value in one of 16 ranges and add it to a sum";
    Lease = "lease", "take an ID and give it back; the baseline is a locked addition without \
        contention";
    Stack = "stack", "push a number, then pop one";
    Pool = "pool", "allocate an object of 64 bytes, then free it";
    Cache = "cache", "take up to 64 objects of 64 bytes, keep up to 256, give back up to 64 of the \
        oldest; the baseline is malloc";
    Intermittent = "intermittent", "increment the 16,384 bytes of one's ID; one thread at a time, \
        rarely, each on its own CPU";
}

/// The subject that the others are compared with.
pub fn baseline(workload: Workload) -> &'static str {
    match workload {
        Workload::Counter | Workload::Lease => LOCKED,
        Workload::Histogram => ATOMICS,
        Workload::Stack | Workload::Pool => MUTEX,
        Workload::Cache => MALLOC,
        Workload::Intermittent => INDEXED,
    }
}

const LOCKED: &str = "locked-add";
const ATOMICS: &str = "shared-atomics";
const MUTEX: &str = "mutex-vec";
/// The subject that uses the area of the current CPU, without any ID.
const INDEXED: &str = "cpu-index";

/// Operations between two checks whether the slice is over.
const BATCH: u64 = 64;

/// A subject whose threads each have an object of their own.
fn local<S: Send + Sync + 'static, L: 'static>(
    name: &str,
    shared: impl Fn() -> S + 'static,
    local: impl Fn() -> L + Sync + Copy + 'static,
    operation: impl Fn(&S, &mut L) + Sync + Copy + 'static,
) -> Subject {
    Subject::repeated(name, move || {
        let shared = shared();
        Box::new(move |slice, member| {
            let mut local = local();
            slice.repeat(member, || {
                (0..BATCH).for_each(|_| operation(black_box(&shared), &mut local));
                BATCH
            });
        })
    })
}

/// A subject whose threads share an object.
fn shared<S: Send + Sync + 'static>(
    name: &str,
    shared: impl Fn() -> S + 'static,
    operation: impl Fn(&S) + Sync + Copy + 'static,
) -> Subject {
    local(name, shared, || (), move |shared, ()| operation(shared))
}

/// One of our subjects for each backend.
fn ours<S: Send + Sync + 'static>(
    backends: &[Backend],
    make: impl Fn(&Domain) -> S + Copy + 'static,
    operation: impl Fn(&S) + Sync + Copy + 'static,
) -> impl Iterator<Item = Subject> {
    backends.iter().map(move |&backend| {
        let name = format!("kinlock-{backend}");
        shared(&name, move || make(&domain(backend)), operation)
    })
}

/// The subjects of a workload, the baseline first.
pub fn of(workload: Workload, backends: &[Backend]) -> Vec<Subject> {
    match workload {
        Workload::Counter => counters(backends),
        Workload::Histogram => histograms(backends),
        Workload::Lease => leases(backends),
        Workload::Stack => stacks(backends),
        Workload::Pool => pools(backends),
        Workload::Cache => objects::of(backends),
        Workload::Intermittent => areas(backends),
    }
}

/// A locked addition to a word of the thread's own.
fn locked_addition() -> Subject {
    let word = || CachePadded::new(AtomicU64::new(0));
    local(
        LOCKED,
        || (),
        word,
        |(), own| {
            black_box(&*own).fetch_add(1, Relaxed);
        },
    )
}

fn counters(backends: &[Backend]) -> Vec<Subject> {
    thread_local! {
        static OWN: Cell<u64> = const { Cell::new(0) };
    }
    let word = || CachePadded::new(AtomicU64::new(0));
    let make = |domain: &Domain| Counter::new(domain).expect("memory for a counter");
    let mut all = vec![
        locked_addition(),
        shared("shared-atomic", word, |word| {
            word.fetch_add(1, Relaxed);
        }),
        shared(
            "thread-local",
            || (),
            |()| OWN.with(|own| own.set(black_box(own.get()) + 1)),
        ),
        shared(
            "fast-counter",
            || ConcurrentCounter::new(cpus()),
            |counter| counter.add(1),
        ),
    ];
    all.extend(ours(backends, make, |counter| counter.add(1)));
    if backends.contains(&Backend::Lease) {
        // This one adds under a lease that is held for a batch.
        all.push(Subject::repeated("kinlock-lease-held", move || {
            let counter = make(&domain(Backend::Lease));
            Box::new(move |slice, member| {
                slice.repeat(member, || {
                    let Ok(lease) = counter.domain().enter() else {
                        return 0;
                    };
                    for _ in 0..BATCH {
                        black_box(&counter).add_with(&lease, 1);
                    }
                    BATCH
                });
            })
        }));
    }
    all
}

/// The ends of a histogram's ranges.
const BOUNDS: [u64; 15] = {
    let mut bounds = [0; 15];
    let mut i = 0;
    while i < bounds.len() {
        bounds[i] = 1 << i;
        i += 1;
    }
    bounds
};

fn histograms(backends: &[Backend]) -> Vec<Subject> {
    let words = || -> [AtomicU64; BOUNDS.len() + 2] { Default::default() };
    let make = |domain: &Domain| Histogram::new(domain, &BOUNDS).expect("memory for a histogram");
    let mut all = vec![shared(ATOMICS, words, |words| {
        let value = black_box(700);
        words[BOUNDS.partition_point(|&bound| bound < value)].fetch_add(1, Relaxed);
        words[BOUNDS.len() + 1].fetch_add(value, Relaxed);
    })];
    all.extend(ours(backends, make, |histogram| {
        histogram.record(black_box(700))
    }));
    all
}

fn leases(backends: &[Backend]) -> Vec<Subject> {
    let mut all = vec![locked_addition()];
    if !backends.contains(&Backend::Lease) {
        return all;
    }
    all.extend(ours(&[Backend::Lease], Domain::clone, |domain| {
        if let Ok(lease) = domain.enter() {
            black_box(lease.id());
        }
    }));
    all
}

fn stacks(backends: &[Backend]) -> Vec<Subject> {
    let vec = || vec![0u64; 64];
    let queue = || {
        let queue = SegQueue::new();
        (0..64u64).for_each(|value| queue.push(value));
        queue
    };
    let mut all = vec![
        shared(
            MUTEX,
            move || Mutex::new(vec()),
            |stack| {
                let lock = || stack.lock().expect("no member panics");
                lock().push(1);
                black_box(lock().pop());
            },
        ),
        shared("seg-queue", queue, |queue| {
            queue.push(1);
            black_box(queue.pop());
        }),
        local(
            "thread-local",
            || (),
            vec,
            |(), own| {
                black_box(&mut *own).push(1);
                black_box(own.pop());
            },
        ),
    ];
    let make = |domain: &Domain| Stack::<u64>::new(domain).expect("memory for a stack");
    all.extend(ours(backends, make, |stack| {
        stack.push(1);
        black_box(stack.pop());
    }));
    all
}

const OBJECTS: usize = 4096;

fn pools(backends: &[Backend]) -> Vec<Subject> {
    let boxes = || Mutex::new(vec![Box::new([0u64; 8]); OBJECTS]);
    let make = |domain: &Domain| Pool::<Object>::new(domain, OBJECTS).expect("memory for a pool");
    let mut all = vec![
        shared(MUTEX, boxes, |pool| {
            let lock = || pool.lock().expect("no member panics");
            let object = lock().pop();
            if let Some(object) = object {
                lock().push(black_box(object));
            }
        }),
        shared(MALLOC, || (), |()| drop(black_box(Box::new([0u64; 8])))),
        shared(
            "object-pool",
            || object_pool::Pool::new(OBJECTS, || [0u64; 8]),
            |pool| drop(black_box(pool.try_pull())),
        ),
        shared(
            "thread_local",
            ThreadLocal::<RefCell<Vec<Box<Object>>>>::new,
            |pool| {
                let own = pool.get_or_default();
                let object = own.borrow_mut().pop().unwrap_or_default();
                own.borrow_mut().push(black_box(object));
            },
        ),
    ];
    all.extend(ours(backends, make, |pool| {
        drop(black_box(pool.insert([0; 8])))
    }));
    if backends.contains(&Backend::Restartable) {
        all.push(shared(
            "kinlock-rseq-growing",
            || objects::growing(&domain(Backend::Restartable)),
            |pool| drop(black_box(pool.insert([0; 8]))),
        ));
    }
    all
}

fn areas(backends: &[Backend]) -> Vec<Subject> {
    let area = |name: String, domain| Subject {
        name,
        kind: Kind::Areas(domain),
    };
    let ours = backends
        .iter()
        .map(|&backend| area(format!("kinlock-{backend}"), Some(domain(backend))));
    std::iter::once(area(INDEXED.to_owned(), None))
        .chain(ours)
        .collect()
}
