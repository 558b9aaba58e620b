//! Domains of delayed invalidation under stress on real hardware: threads are interrupted at bad
//! moments, and by signals.
//!
//! | scenario | what threads do | what is demanded |
//! | --- | --- | --- |
//! | `generations` | begin, end and wait as fast as they can | generations increase (contract) |
//! | `pages` | the [demonstration](pages) | no stamp is lost (exclusion) |
//!
//! Generations increase if a section's generation is above the generations of all sections that had
//! begun before. In both scenarios no operation may take long (progress), every thread has to come
//! to an end (completion), and the threads together have to get something done (reach).

use super::{Context, Specimen};
use crate::crew::{self, Worker};
use crate::injector::Injector;
use crate::nudges::Nudges;
use crate::plan::{self, Settings, Step, Tortured};
use crate::report::{Findings, Property, Report};
use kinlock_measure::random::Random;
use kinlock_measure::workloads::pages::{self, Pool, Protection};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// Shards of the demonstration's pool: few, so that threads meet.
const SHARDS: usize = 2;
/// For how long a signal holds a thread up.
const LINGER: u64 = 2_000;

impl Tortured for Specimen {
    fn torture(self, settings: &Settings, progress: &mut dyn FnMut(&str)) -> Report {
        let step = |name: &str, threads, run: fn(&Context) -> Findings| Step {
            label: format!("{name}-{threads}"),
            weight: 1,
            threads,
            run,
        };
        let steps = settings.threads.iter().flat_map(|&threads| {
            [
                step("generations", threads, |context| {
                    (context.specimen.torture)(context, false)
                }),
                step("pages", threads, |context| {
                    (context.specimen.torture)(context, true)
                }),
            ]
        });
        plan::run(self, settings, &steps.collect::<Vec<_>>(), progress)
    }
}

struct Shared<P: Protection> {
    pool: Pool<P>,
    marks: Vec<P::Mark>,
    /// The newest generation of a section that has begun.
    newest: AtomicU64,
    /// Sections whose generation was not above the generations of all sections that had begun
    /// before.
    late: AtomicU64,
}

pub(super) fn torture<P: Protection>(protection: P, pages: bool, context: &Context) -> Findings {
    let mut nudges = Nudges::start(context.orders.seed, LINGER, libc::SA_RESTART);
    let shared = Arc::new(Shared {
        pool: Pool::new(protection, SHARDS).expect("address space is left"),
        marks: (0..8).map(|_| P::Mark::default()).collect(),
        newest: AtomicU64::new(0),
        late: AtomicU64::new(0),
    });
    let (orders, preemption) = (&context.orders, context.preemption);
    let (of_crew, seed) = (Arc::clone(&shared), orders.seed);
    let body = move |worker: &mut Worker| {
        let own = Random::stream(seed, !(worker.index() as u64));
        let mut at_bad_moments = Injector::new(preemption, own);
        let interrupt = Box::new(move || at_bad_moments.point());
        let mut at_pages = pages::Worker::new(seed, worker.index(), Some(interrupt));
        let mut random = worker.random.branch();
        let mut injector = Injector::new(preemption, random.branch());
        while worker.running() {
            worker.operation(|| match pages {
                true => of_crew.pool.turn(&mut at_pages),
                false => of_crew.section(&mut random, &mut injector),
            });
        }
    };
    let findings = crew::run(orders, body, |crew| {
        nudges.send(crew);
        true
    });
    judge(findings, &shared, pages, nudges.sent)
}

impl<P: Protection> Shared<P> {
    fn section(&self, random: &mut Random, injector: &mut Injector) {
        let protection = &self.pool.protection;
        let before = self.newest.load(SeqCst);
        let section = protection.begin();
        let mark = &self.marks[random.below(self.marks.len() as u64) as usize];
        if let Some(generation) = protection.generation(&section) {
            self.late.fetch_add((generation <= before) as u64, Relaxed);
            self.newest.fetch_max(generation, SeqCst);
        }
        protection.mark(&section, mark);
        injector.point();
        protection.end(section, std::iter::once(mark));
        if random.one_in(4) {
            protection.wait(mark);
        }
    }
}

fn judge<P: Protection>(
    findings: Findings,
    shared: &Shared<P>,
    pages: bool,
    signals: u64,
) -> Findings {
    let operations = &findings.operations;
    let total: u64 = operations.iter().sum();
    let idle = operations.iter().filter(|&&n| n == 0).count();
    // With very many threads, not every thread gets a CPU in a short time.
    let reached = total > 0 && idle <= operations.len() / 2;
    let (lost, late) = (shared.pool.lost(), shared.late.load(Relaxed));
    let (what, property, holds, detail) = if pages {
        let detail = format!("{lost} stamps lost");
        ("batches", Property::Exclusion, lost == 0, detail)
    } else {
        let detail = format!("{late} generations not above all before");
        ("sections", Property::Contract, late == 0, detail)
    };
    let reach = format!("{total} {what}, {signals} signals, {idle} threads did nothing");
    findings
        .judge(property, holds, detail)
        .judge(Property::Reach, reached, reach)
}
