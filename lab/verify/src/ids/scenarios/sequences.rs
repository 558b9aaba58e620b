//! Counters, stacks and pools, disturbed inside their operations.

use super::super::source::{self, Broken};
use super::super::storm::Storm;
use super::Context;
use crate::injector::Injector;
use crate::report::{Findings, Property};
use kinlock_ids::lab::{Counter, Pool, Probe, Sound, Stack};
use kinlock_ids::{Backend, Domain};
use kinlock_measure::cpus::{allowed_cpus, confine};
use kinlock_measure::random::Random;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

/// Tokens that circulate through the stack. Each is in the stack once, or one thread has it.
const TOKENS: usize = 256;
/// Places in the pool: so few that it is full now and then.
const PLACES: usize = 128;
/// Threads alive at a time in the scenario `churn`, besides the threads that start them.
const CHILDREN: usize = 3;

/// Sequences that pause before their commit for about as long as a signal takes to come.
#[derive(Clone, Copy, Debug)]
struct Slow;

// SAFETY: it restarts.
unsafe impl Probe for Slow {
    const DELAY: u16 = 2_000;
}

/// As [`Slow`], without the kernel's help.
#[derive(Clone, Copy, Debug)]
struct Unrestarted;

// SAFETY: used with counters; `step` leaves out the other structures.
unsafe impl Probe for Unrestarted {
    const DELAY: u16 = 2_000;
    const RESTARTS: bool = false;
}

pub(super) fn run(context: &Context) -> Findings {
    match context.specimen.broken {
        Some(Broken::NoRestart) => torture::<Unrestarted>(context, Life::Long),
        _ => torture::<Slow>(context, Life::Long),
    }
}

/// Short-lived threads.
pub(super) fn churn(context: &Context) -> Findings {
    torture::<Sound>(context, Life::Short)
}

/// All threads on one CPU, with a number other than 0 if there are several CPUs.
pub(super) fn sparse(context: &Context) -> Findings {
    torture::<Slow>(context, Life::OnOneCpu)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Long,
    Short,
    OnOneCpu,
}

/// The structures that threads share, and what went wrong.
struct Stage<P: Probe> {
    domain: Domain,
    /// Threads add to both counters, handlers only to the second.
    counters: [Counter<P>; 2],
    stack: Stack<usize, P>,
    tokens: Vec<AtomicBool>,
    pool: Pool<Tagged, P>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    added: AtomicU64,
    added_by_all: AtomicU64,
    doubles: AtomicU64,
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

impl Tagged {
    fn new(owner: u64) -> Self {
        Tagged {
            owner: AtomicU64::new(owner),
            again: AtomicU64::new(owner),
            rest: [owner; 6],
        }
    }
}

fn torture<P: Probe>(context: &Context, life: Life) -> Findings {
    let domain = source::domain(&context.specimen);
    let cpus = allowed_cpus();
    if life == Life::OnOneCpu {
        // The calling thread before the others start: they inherit its affinity.
        confine(0, &cpus[cpus.len() - 1..]);
        domain.refresh();
    }
    let stage = Arc::new(Stage::<P>::new(&domain));
    let in_handler = Arc::clone(&stage);
    let action = move || {
        in_handler.counters[1].add(1);
        in_handler.counts.added_by_all.fetch_add(1, Relaxed);
    };
    let storm = Storm::new(Box::new(action), life != Life::OnOneCpu);
    let findings = storm.over(
        &context.orders,
        || (),
        |me, mut random| {
            let mut injector = Injector::new(context.preemption, random.branch());
            let mut operations = 0;
            while storm.rages() {
                operations += match life {
                    Life::Short => stage.children(&storm, context, random.next()),
                    _ => storm.expose(|| stage.steps(64, me as u64, &mut random, &mut injector)),
                };
            }
            operations
        },
    );
    if life == Life::OnOneCpu {
        confine(0, &cpus);
    }
    stage.judge(&storm, context, life, findings)
}

impl<P: Probe> Stage<P> {
    fn new(domain: &Domain) -> Self {
        let counter = || Counter::new(domain).expect("memory for a counter");
        let stack = Stack::new(domain).expect("memory for a stack");
        (0..TOKENS).for_each(|token| stack.push(token));
        Stage {
            counters: [counter(), counter()],
            stack,
            tokens: (0..TOKENS).map(|_| AtomicBool::new(false)).collect(),
            pool: Pool::new(domain, PLACES).expect("memory for a pool"),
            counts: Counts::default(),
            domain: domain.clone(),
        }
    }

    /// Takes `n` steps. Returns the number of operations.
    fn steps(&self, n: usize, me: u64, random: &mut Random, injector: &mut Injector) -> u64 {
        (0..n).map(|_| self.step(me, random, injector)).sum()
    }

    /// One operation on each structure. Returns the number of operations.
    fn step(&self, me: u64, random: &mut Random, injector: &mut Injector) -> u64 {
        let n = random.below(1 << 40);
        self.counters[0].add(n);
        self.counts.added.fetch_add(n, Relaxed);
        self.counters[1].add(1);
        self.counts.added_by_all.fetch_add(1, Relaxed);
        if let Some(id) = self.domain.momentary_id() {
            self.counts.greatest.fetch_max(id, Relaxed);
        }

        if !P::RESTARTS {
            return 2;
        }
        let token = self.stack.pop();
        if let Some(token) = token {
            self.handle_token(token, || injector.point());
        }

        match self.pool.insert(Tagged::new(me)) {
            Ok(object) => {
                injector.point();
                let intact = object.owner.load(Relaxed) == me
                    && object.again.load(Relaxed) == me
                    && object.rest == [me; 6];
                self.counts.mistaken.fetch_add(u64::from(!intact), Relaxed);
                self.counts.inserted.fetch_add(1, Relaxed);
            }
            Err(_) => drop(self.counts.full.fetch_add(1, Relaxed)),
        }
        4
    }

    fn handle_token(&self, token: usize, meanwhile: impl FnOnce()) {
        if self.tokens[token].swap(true, Relaxed) {
            self.counts.doubles.fetch_add(1, Relaxed);
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
                    let mut random = Random::stream(seed, child as u64);
                    scope.spawn(move || {
                        self.counts.threads.fetch_add(1, Relaxed);
                        let mut injector = Injector::new(context.preemption, random.branch());
                        if child == 0 && random.one_in(2) {
                            if let Ok(lease) = self.domain.enter() {
                                std::mem::forget(lease);
                                self.counts.forgotten.fetch_add(1, Relaxed);
                            }
                        }
                        storm.expose(|| {
                            let me = seed & 0xffff_ffff | child as u64;
                            self.steps(8, me, &mut random, &mut injector)
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

    fn judge(&self, storm: &Storm, context: &Context, life: Life, findings: Findings) -> Findings {
        let (handled, threads) = (storm.handled(), self.counts.threads.load(Relaxed));
        let reach = format!(
            "{handled} signals handled, {} lists stolen, pool full {} times, \
             {threads} threads came and went, {} leases forgotten",
            self.stack.steals() + self.pool.steals(),
            self.counts.full.load(Relaxed),
            self.counts.forgotten.load(Relaxed),
        );
        let reached = handled > 0 && (life != Life::Short || threads > 0);
        let findings = self.judge_content(findings);
        self.judge_bound(findings, context, life)
            .judge(Property::Reach, reached, reach)
    }

    /// Takes everything out of the structures. Each element must be there exactly once.
    fn judge_content(&self, findings: Findings) -> Findings {
        let sums = [self.counters[0].sum(), self.counters[1].sum()];
        let expected = [
            self.counts.added.load(Relaxed),
            self.counts.added_by_all.load(Relaxed),
        ];
        let off = [0, 1].map(|i| expected[i].wrapping_sub(sums[i]) as i64);
        let mut left = 0;
        while let Some(token) = self.stack.pop() {
            left += 1;
            if self.tokens[token].swap(true, Relaxed) || left > TOKENS {
                self.counts.doubles.fetch_add(1, Relaxed);
                break;
            }
        }
        let insert = |_| self.pool.insert(Tagged::new(0)).ok();
        let objects: Vec<_> = (0..PLACES).map_while(insert).collect();
        let (doubles, mistaken) = (
            self.counts.doubles.load(Relaxed),
            self.counts.mistaken.load(Relaxed),
        );
        let exclusion = format!(
            "sums off by {} and {}; {doubles} tokens had twice; {mistaken} of {} objects changed \
             by others",
            off[0],
            off[1],
            self.counts.inserted.load(Relaxed),
        );
        let members_left = || self.domain.members().unwrap_or(0);
        let give_up = Instant::now() + Duration::from_secs(300);
        // A thread may be joined before its last destructors have run.
        while members_left() > 1 && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(1));
        }
        let all: Vec<_> = std::iter::from_fn(|| self.domain.enter().ok()).collect();
        let (ids, places, members) = (all.len() as u32, objects.len(), members_left());
        let ids_expected = match self.domain.backend() {
            Backend::Lease => self.domain.max_ids(),
            Backend::Restartable => 0,
        };
        let completion = format!(
            "{left} of {TOKENS} tokens, {places} of {PLACES} places, \
             {ids} IDs of at least {ids_expected} and {members} members left"
        );
        let intact = off == [0, 0] && doubles == 0 && mistaken == 0;
        let complete = left == TOKENS && places == PLACES && ids >= ids_expected && members <= 1;
        findings
            .judge(Property::Exclusion, intact, exclusion)
            .judge(Property::Completion, complete, completion)
    }

    fn judge_bound(&self, findings: Findings, context: &Context, life: Life) -> Findings {
        if self.domain.backend() != Backend::Restartable {
            return findings;
        }
        let cpus = allowed_cpus().len();
        let bound = match life {
            // The kernel counts all CPUs that the process was ever allowed to use.
            Life::OnOneCpu => cpus,
            // A thread can be joined before the kernel has stopped counting it, so the kernel may
            // count a predecessor of each thread.
            Life::Short => cpus.min(2 * context.orders.threads + 1),
            // One more than the workers: the main thread.
            _ => cpus.min(context.orders.threads + 1),
        };
        // Since 6.19 Linux hands out up to a quarter more, but never more than `max_ids`.
        let bound = (bound + bound / 4).min(self.domain.max_ids() as usize);
        let greatest = self.counts.greatest.load(Relaxed);
        let detail = format!("IDs up to {greatest}, bound {bound}");
        findings.judge(Property::Contract, (greatest as usize) < bound, detail)
    }
}
