//! Counters, stacks and pools, disturbed inside their operations.

use super::super::source::{self, Broken};
use super::super::storm::{self, Storm};
use super::{Context, Findings};
use crate::injector::Injector;
use crate::random::Random;
use crate::report::Property;
use kinlock_ids::sequence::{Fault, Probe, Sound};
use kinlock_ids::{Backend, Counter, Domain, Pool, Stack};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

/// Tokens that wander through the stack. Each is in it once, or in one thread's hands.
const TOKENS: usize = 256;
/// Places in the pool: now and then too few.
const PLACES: usize = 128;
/// Threads alive at a time in the scenario `churn`, besides those that start them.
const CHILDREN: usize = 3;

/// Sequences that linger before their commit for about as long as a signal takes to come.
#[derive(Clone, Copy, Debug)]
struct Slow;

// SAFETY: no fault.
unsafe impl Probe for Slow {
    const DELAY: u32 = 2_000;
}

/// The same, and the kernel is not told.
#[derive(Clone, Copy, Debug)]
struct Unrestarted;

// SAFETY: `step` uses nothing but the counters then.
unsafe impl Probe for Unrestarted {
    const DELAY: u32 = 2_000;
    const FAULT: Option<Fault> = Some(Fault::NoRestart);
}

pub(super) fn run(context: &Context) -> Findings {
    match context.specimen.defect.map(|(broken, _)| broken) {
        Some(Broken::NoRestart) => torture::<Unrestarted>(context, Life::Long),
        _ => torture::<Slow>(context, Life::Long),
    }
}

/// Threads come and go.
pub(super) fn churn(context: &Context) -> Findings {
    torture::<Sound>(context, Life::Short)
}

/// All threads on one CPU, whose number is not 0 if there is another.
pub(super) fn sparse(context: &Context) -> Findings {
    torture::<Slow>(context, Life::OnOneCpu)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Long,
    Short,
    OnOneCpu,
}

/// What threads share.
struct Stage<P: Probe> {
    domain: Domain,
    /// One that only threads add to, one that handlers do, too.
    counters: [Counter<P>; 2],
    added: AtomicU64,
    added_by_all: AtomicU64,
    stack: Stack<usize, P>,
    tokens: Vec<AtomicBool>,
    doubles: AtomicU64,
    pool: Pool<Tagged, P>,
    mistaken: AtomicU64,
    inserted: AtomicU64,
    full: AtomicU64,
    greatest: AtomicU32,
    threads: AtomicU64,
    forgotten: AtomicU64,
}

/// An object that knows its owner.
struct Tagged {
    owner: AtomicU64,
    again: AtomicU64,
    rest: [u64; 6],
}

fn torture<P: Probe>(context: &Context, life: Life) -> Findings {
    let domain = source::domain(&context.specimen);
    let cpus = crate::allowed_cpus();
    if life == Life::OnOneCpu {
        // The calling thread first: the others inherit it.
        storm::confine(0, &cpus[cpus.len() - 1..]);
        domain.refresh();
    }
    let stage = Arc::new(Stage::<P>::new(&domain));
    let in_handler = Arc::clone(&stage);
    let action = move || {
        in_handler.counters[1].add(1);
        in_handler.added_by_all.fetch_add(1, Relaxed);
    };
    let storm = Storm::new(Box::new(action), life != Life::OnOneCpu);
    let operations: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..context.threads)
            .map(|me| {
                let (stage, storm) = (&stage, &storm);
                let mut random = Random::new(context.seed, me as u64);
                scope.spawn(move || {
                    let mut injector = Injector::new(context.preemption, random.branch());
                    let mut operations = 0;
                    while storm.rages() {
                        if life == Life::Short {
                            operations += stage.children(storm, context, random.next());
                        } else {
                            operations += storm.expose(|| {
                                (0..64)
                                    .map(|_| stage.step(me as u64, &mut random, &mut injector))
                                    .sum::<u64>()
                            });
                        }
                    }
                    operations
                })
            })
            .collect();
        storm.rage(context.time, context.seed, || ());
        let done = threads
            .into_iter()
            .map(|thread| thread.join().expect("no thread panics"));
        done.collect()
    });
    if life == Life::OnOneCpu {
        storm::confine(0, &cpus);
    }
    let usable = if life == Life::OnOneCpu {
        1
    } else {
        cpus.len()
    };
    stage.judge(&storm, context, life, usable, operations)
}

impl<P: Probe> Stage<P> {
    fn new(domain: &Domain) -> Self {
        let counter = || Counter::probed(domain).expect("memory for a counter");
        let stack = Stack::probed(domain).expect("memory for a stack");
        (0..TOKENS).for_each(|token| stack.push(token));
        Stage {
            counters: [counter(), counter()],
            added: AtomicU64::new(0),
            added_by_all: AtomicU64::new(0),
            stack,
            tokens: (0..TOKENS).map(|_| AtomicBool::new(false)).collect(),
            doubles: AtomicU64::new(0),
            pool: Pool::probed(domain, PLACES).expect("memory for a pool"),
            mistaken: AtomicU64::new(0),
            inserted: AtomicU64::new(0),
            full: AtomicU64::new(0),
            greatest: AtomicU32::new(0),
            threads: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
            domain: domain.clone(),
        }
    }

    /// One operation on each structure. Returns how many.
    fn step(&self, me: u64, random: &mut Random, injector: &mut Injector) -> u64 {
        let n = random.below(1 << 40);
        self.counters[0].add(n);
        self.added.fetch_add(n, Relaxed);
        self.counters[1].add(1);
        self.added_by_all.fetch_add(1, Relaxed);
        if let Some(id) = self.domain.momentary_id() {
            self.greatest.fetch_max(id, Relaxed);
        }

        if P::FAULT.is_some() {
            return 2;
        }
        let token = self.stack.pop();
        if let Some(token) = token {
            self.handle_token(token, || injector.point());
        }

        let tagged = Tagged {
            owner: AtomicU64::new(me),
            again: AtomicU64::new(me),
            rest: [me; 6],
        };
        match self.pool.insert(tagged) {
            Ok(object) => {
                injector.point();
                let intact = object.owner.load(Relaxed) == me
                    && object.again.load(Relaxed) == me
                    && object.rest == [me; 6];
                self.mistaken.fetch_add(u64::from(!intact), Relaxed);
                self.inserted.fetch_add(1, Relaxed);
            }
            Err(_) => drop(self.full.fetch_add(1, Relaxed)),
        }
        4
    }

    fn handle_token(&self, token: usize, meanwhile: impl FnOnce()) {
        if self.tokens[token].swap(true, Relaxed) {
            self.doubles.fetch_add(1, Relaxed);
        }
        meanwhile();
        self.tokens[token].store(false, Relaxed);
        self.stack.push(token);
    }

    /// A few threads with short lives.
    fn children(&self, storm: &Storm, context: &Context, seed: u64) -> u64 {
        std::thread::scope(|scope| {
            let children: Vec<_> = (0..CHILDREN)
                .map(|child| {
                    let mut random = Random::new(seed, child as u64);
                    scope.spawn(move || {
                        self.threads.fetch_add(1, Relaxed);
                        let mut injector = Injector::new(context.preemption, random.branch());
                        if child == 0 && random.one_in(2) {
                            if let Ok(lease) = self.domain.enter() {
                                std::mem::forget(lease);
                                self.forgotten.fetch_add(1, Relaxed);
                            }
                        }
                        storm.expose(|| {
                            let me = seed & 0xffff_ffff | child as u64;
                            (0..8)
                                .map(|_| self.step(me, &mut random, &mut injector))
                                .sum::<u64>()
                        })
                    })
                })
                .collect();
            let done = children
                .into_iter()
                .map(|child| child.join().expect("no child panics"));
            done.sum()
        })
    }

    fn judge(
        &self,
        storm: &Storm,
        context: &Context,
        life: Life,
        cpus: usize,
        operations: Vec<u64>,
    ) -> Findings {
        let mut findings = Findings {
            operations,
            ..Findings::default()
        };
        let sums = [self.counters[0].sum(), self.counters[1].sum()];
        let expected = [self.added.load(Relaxed), self.added_by_all.load(Relaxed)];
        let mut left = 0;
        while let Some(token) = self.stack.pop() {
            left += 1;
            if self.tokens[token].swap(true, Relaxed) || left > TOKENS {
                self.doubles.fetch_add(1, Relaxed);
                break;
            }
        }
        let objects: Vec<_> = (0..PLACES)
            .map_while(|_| {
                let object = Tagged {
                    owner: AtomicU64::new(0),
                    again: AtomicU64::new(0),
                    rest: [0; 6],
                };
                self.pool.insert(object).ok()
            })
            .collect();
        let (doubles, mistaken) = (self.doubles.load(Relaxed), self.mistaken.load(Relaxed));
        findings.judge(
            Property::Exclusion,
            sums == expected && doubles == 0 && mistaken == 0,
            format!(
                "sums off by {} and {}; {doubles} tokens had twice; {mistaken} of {} objects changed by others",
                expected[0].wrapping_sub(sums[0]) as i64,
                expected[1].wrapping_sub(sums[1]) as i64,
                self.inserted.load(Relaxed),
            ),
        );
        let members_left = || self.domain.members().unwrap_or(0);
        let gave_up = std::time::Instant::now() + std::time::Duration::from_secs(5);
        // Threads are joined before their last destructors have run.
        while members_left() > 1 && std::time::Instant::now() < gave_up {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let all: Vec<_> = std::iter::from_fn(|| self.domain.enter().ok()).collect();
        let ids = all.len() as u32;
        let ids_expected = match self.domain.backend() {
            Backend::Lease => self.domain.max_ids() - source::Source::reserved(&self.domain),
            Backend::Restartable => 0,
        };
        findings.judge(
            Property::Completion,
            left == TOKENS && objects.len() == PLACES && ids >= ids_expected && members_left() <= 1,
            format!(
                "{left} of {TOKENS} tokens, {} of {PLACES} places, {ids} IDs of at least {ids_expected} and {} members left",
                objects.len(),
                members_left(),
            ),
        );
        if self.domain.backend() == Backend::Restartable {
            // Besides the crew: the main thread, and whatever else the process runs.
            let (greatest, bound) = (self.greatest.load(Relaxed), cpus.min(context.threads + 1));
            // The kernel counts the CPUs that the process was allowed at some time: all, if it was not confined before.
            let bound = if life == Life::OnOneCpu {
                crate::allowed_cpus().len()
            } else {
                bound
            };
            findings.judge(
                Property::Contract,
                (greatest as usize) < bound,
                format!("IDs up to {greatest}, bound {bound}"),
            );
        }
        let handled = storm.handled();
        findings.judge(
            Property::Reach,
            handled > 0 && (life != Life::Short || self.threads.load(Relaxed) > 0),
            format!(
                "{handled} signals handled, {} lists stolen, pool full {} times, {} threads came and went, {} leases forgotten",
                self.stack.steals() + self.pool.steals(),
                self.full.load(Relaxed),
                self.threads.load(Relaxed),
                self.forgotten.load(Relaxed),
            ),
        );
        findings
    }
}
