//! What is measured: one operation each, of ours and of others'.

use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};

use crossbeam_utils::CachePadded;
use kinlock_ids::{Backend, Counter, Domain, Policy, Pool, Stack};
use thread_local::ThreadLocal;

/// What threads do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workload {
    /// Add 1 to a counter.
    Counter,
    /// Take an ID and give it back.
    Lease,
    /// Push a value and pop one.
    Stack,
    /// Allocate an object and free it.
    Pool,
    /// Burst over the data of an ID, rarely, one thread at a time.
    Intermittent,
}

impl Workload {
    /// All of them.
    pub const ALL: [Workload; 5] = [
        Workload::Counter,
        Workload::Lease,
        Workload::Stack,
        Workload::Pool,
        Workload::Intermittent,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Counter => "counter",
            Workload::Lease => "lease",
            Workload::Stack => "stack",
            Workload::Pool => "pool",
            Workload::Intermittent => "intermittent",
        }
    }

    /// What an operation is, in one line.
    pub fn summary(self) -> &'static str {
        match self {
            Workload::Counter => "add 1 to a counter",
            Workload::Lease => {
                "take an ID and give it back; the baseline is a locked addition that nobody contends"
            }
            Workload::Stack => "push a number, then pop one",
            Workload::Pool => "allocate an object of 64 bytes, then free it",
            Workload::Intermittent => {
                "increment the 16,384 bytes of one's ID; one thread at a time, rarely, each on its own CPU"
            }
        }
    }

    /// What the others are compared with.
    pub fn baseline(self) -> &'static str {
        match self {
            Workload::Counter | Workload::Lease => LOCKED,
            Workload::Stack | Workload::Pool => MUTEX,
            Workload::Intermittent => INDEXED,
        }
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Workload::ALL
            .into_iter()
            .find(|workload| workload.name() == text);
        found.ok_or_else(|| {
            let known = Workload::ALL.map(Workload::name);
            format!("no such workload; known: {}", known.join(", "))
        })
    }
}

const LOCKED: &str = "locked-add";
const MUTEX: &str = "mutex-vec";
/// The area of one's CPU, without any ID.
pub const INDEXED: &str = "cpu-index";

/// Something to be measured.
pub struct Subject {
    /// Its name in tables.
    pub name: String,
    /// Its policy, if it has one.
    pub policy: Option<Policy>,
    /// The domain, for the workload `intermittent`; none: by CPU number.
    pub domain: Option<Domain>,
    /// Makes a fresh one.
    pub make: Box<dyn Fn() -> Arc<dyn Run>>,
}

/// Does an operation again and again.
pub trait Run: Send + Sync {
    /// Until told to stop; keeps the number of operations in `done`.
    fn until(&self, stop: &AtomicBool, done: &AtomicU64);
}

/// An operation `F` on a shared `S`, by threads that each have an `L`.
struct Operation<S, N, F> {
    shared: S,
    local: N,
    operation: F,
}

/// Operations between two looks at the flag.
const BATCH: u64 = 64;

impl<S, L, N, F> Run for Operation<S, N, F>
where
    S: Send + Sync,
    N: Fn(&S) -> L + Send + Sync,
    F: Fn(&S, &mut L) + Send + Sync,
{
    fn until(&self, stop: &AtomicBool, done: &AtomicU64) {
        let mut local = (self.local)(&self.shared);
        let mut count = 0;
        while !stop.load(Relaxed) {
            for _ in 0..BATCH {
                (self.operation)(black_box(&self.shared), &mut local);
            }
            count += BATCH;
            done.store(count, Relaxed);
        }
    }
}

fn subject<S, L>(
    name: impl Into<String>,
    policy: Option<Policy>,
    shared: impl Fn() -> S + 'static,
    local: impl Fn(&S) -> L + Send + Sync + Copy + 'static,
    operation: impl Fn(&S, &mut L) + Send + Sync + Copy + 'static,
) -> Subject
where
    S: Send + Sync + 'static,
    L: 'static,
{
    Subject {
        name: name.into(),
        policy,
        domain: None,
        make: Box::new(move || {
            Arc::new(Operation {
                shared: shared(),
                local,
                operation,
            })
        }),
    }
}

/// What is measured under a workload, the baseline first.
pub fn of(workload: Workload, backends: &[Backend], policies: &[Policy]) -> Vec<Subject> {
    let domains: Vec<_> = backends
        .iter()
        .flat_map(|&backend| match backend {
            Backend::Restartable => vec![(backend.name().to_owned(), None)],
            Backend::Lease => {
                let named = policies
                    .iter()
                    .map(|&policy| (format!("lease-{}", policy.name()), Some(policy)));
                named.collect()
            }
        })
        .collect();
    match workload {
        Workload::Counter => counters(&domains),
        Workload::Lease => leases(&domains),
        Workload::Stack => stacks(&domains),
        Workload::Pool => pools(&domains),
        Workload::Intermittent => areas(&domains),
    }
}

/// A name, and the policy of leases; none: restartable.
type Named = (String, Option<Policy>);

fn domain(policy: Option<Policy>) -> Domain {
    let builder = Domain::builder();
    let built = match policy {
        None => builder.backend(Backend::Restartable).build(),
        Some(policy) => builder.policy(policy).build(),
    };
    built.expect("the backend was found to be available, and there is address space")
}

/// A locked addition to a word of the thread's own.
fn locked_addition() -> Subject {
    subject(
        LOCKED,
        None,
        || (),
        |_| CachePadded::new(AtomicU64::new(0)),
        |_, own| {
            black_box(&*own).fetch_add(1, Relaxed);
        },
    )
}

fn counters(domains: &[Named]) -> Vec<Subject> {
    thread_local! {
        static OWN: Cell<u64> = const { Cell::new(0) };
    }
    let mut all = vec![
        locked_addition(),
        subject(
            "shared-atomic",
            None,
            || CachePadded::new(AtomicU64::new(0)),
            |_| (),
            |word, _| {
                word.fetch_add(1, Relaxed);
            },
        ),
        subject(
            "thread-local",
            None,
            || (),
            |_| (),
            |_, _| {
                OWN.with(|own| own.set(black_box(own.get()) + 1));
            },
        ),
        subject(
            "fast-counter",
            None,
            || fast_counter::ConcurrentCounter::new(kinlock_verify::allowed_cpus().len()),
            |_| (),
            |counter, _| counter.add(1),
        ),
    ];
    for (name, policy) in domains {
        let policy = *policy;
        let make = move || Counter::new(&domain(policy)).expect("memory for a counter");
        all.push(subject(
            format!("kinlock-{name}"),
            policy,
            make,
            |_| (),
            |counter, _| counter.add(1),
        ));
    }
    if let Some((_, policy)) = domains.iter().find(|(_, policy)| policy.is_some()) {
        let policy = *policy;
        all.push(Subject {
            name: "kinlock-lease-held".to_owned(),
            policy,
            domain: None,
            make: Box::new(move || {
                Arc::new(Held(
                    Counter::new(&domain(policy)).expect("memory for a counter"),
                ))
            }),
        });
    }
    all
}

/// Adds under a lease that is held for a batch.
struct Held(Counter);

impl Run for Held {
    fn until(&self, stop: &AtomicBool, done: &AtomicU64) {
        let mut count = 0;
        while !stop.load(Relaxed) {
            let Ok(lease) = self.0.domain().enter() else {
                continue;
            };
            for _ in 0..BATCH {
                black_box(&self.0).add_with(&lease, 1);
            }
            count += BATCH;
            done.store(count, Relaxed);
        }
    }
}

fn leases(domains: &[Named]) -> Vec<Subject> {
    let mut all = vec![locked_addition()];
    for (name, policy) in domains.iter().filter(|(_, policy)| policy.is_some()) {
        let policy = *policy;
        all.push(subject(
            format!("kinlock-{name}"),
            policy,
            move || domain(policy),
            |_| (),
            |domain, _| {
                if let Ok(lease) = domain.enter() {
                    black_box(lease.id());
                }
            },
        ));
    }
    all
}

fn stacks(domains: &[Named]) -> Vec<Subject> {
    let mut all = vec![
        subject(
            MUTEX,
            None,
            || Mutex::new(vec![0u64; 64]),
            |_| (),
            |stack, _| {
                let lock = || stack.lock().expect("nobody panics");
                lock().push(1);
                black_box(lock().pop());
            },
        ),
        subject(
            "seg-queue",
            None,
            || {
                let queue = crossbeam_queue::SegQueue::new();
                (0..64).for_each(|i| queue.push(i));
                queue
            },
            |_| (),
            |queue, _| {
                queue.push(1u64);
                black_box(queue.pop());
            },
        ),
        subject(
            "thread-local",
            None,
            || (),
            |_| vec![0u64; 64],
            |_, own| {
                black_box(&mut *own).push(1);
                black_box(own.pop());
            },
        ),
    ];
    for (name, policy) in domains {
        let policy = *policy;
        let make = move || Stack::new(&domain(policy)).expect("memory for a stack");
        all.push(subject(
            format!("kinlock-{name}"),
            policy,
            make,
            |_| (),
            |stack: &Stack<u64>, _| {
                stack.push(1);
                black_box(stack.pop());
            },
        ));
    }
    all
}

/// 64 bytes.
type Object = [u64; 8];
/// How many objects pools have.
const OBJECTS: usize = 4096;

fn pools(domains: &[Named]) -> Vec<Subject> {
    let boxes = || {
        (0..OBJECTS)
            .map(|_| Box::new([0u64; 8]))
            .collect::<Vec<_>>()
    };
    let mut all = vec![
        subject(
            MUTEX,
            None,
            move || Mutex::new(boxes()),
            |_| (),
            |pool: &Mutex<Vec<Box<Object>>>, _| {
                let lock = || pool.lock().expect("nobody panics");
                let object = lock().pop();
                if let Some(object) = object {
                    lock().push(black_box(object));
                }
            },
        ),
        subject(
            "malloc",
            None,
            || (),
            |_| (),
            |_, _| drop(black_box(Box::new([0u64; 8]))),
        ),
        subject(
            "object-pool",
            None,
            || object_pool::Pool::new(OBJECTS, || [0u64; 8]),
            |_| (),
            |pool: &object_pool::Pool<Object>, _| drop(black_box(pool.try_pull())),
        ),
        subject(
            "thread_local",
            None,
            ThreadLocal::<RefCell<Vec<Box<Object>>>>::new,
            |_| (),
            |pool, _| {
                let own = pool.get_or_default();
                let object = own.borrow_mut().pop().unwrap_or_default();
                own.borrow_mut().push(black_box(object));
            },
        ),
    ];
    for (name, policy) in domains {
        let policy = *policy;
        let make = move || Pool::new(&domain(policy), OBJECTS).expect("memory for a pool");
        all.push(subject(
            format!("kinlock-{name}"),
            policy,
            make,
            |_| (),
            |pool: &Pool<Object>, _| {
                drop(black_box(pool.insert([0; 8])));
            },
        ));
    }
    all
}

fn areas(domains: &[Named]) -> Vec<Subject> {
    let area = |name: String, policy, domain| Subject {
        name,
        policy,
        domain,
        make: Box::new(|| Arc::new(Nothing)),
    };
    let mut all = vec![area(INDEXED.to_owned(), None, None)];
    let ours = domains
        .iter()
        .map(|(name, policy)| area(format!("kinlock-{name}"), *policy, Some(domain(*policy))));
    all.extend(ours);
    all
}

/// Subjects of `intermittent` do nothing else.
struct Nothing;

impl Run for Nothing {
    fn until(&self, _: &AtomicBool, _: &AtomicU64) {}
}
