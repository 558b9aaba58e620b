//! Ways to ill-treat a lock, one file each.

mod barging;
mod basics;
mod churn;
mod condvar_relay;
mod domains;
mod fairness;
mod fork;
mod leak;
mod nudges;
mod overtaken;
mod partner;
mod patience;
mod played;
mod preemption;
mod readers;
mod relay;
mod signals;
mod stopped;

use crate::crew::{self, Crew, Outcome, Worker};
use crate::injector::Injector;
use crate::locks::Specimen;
use crate::oracle::SharedState;
use crate::plan::{self, Settings, Step, Tortured};
use crate::report::{Findings, Property, Report};
use crate::test_lock::{Algorithm, AnyTarget};
use kinlock_core::events::Event;
use std::sync::Arc;

/// A way to ill-treat a lock.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// One line of description.
    pub about: &'static str,
    /// Its share of the time, relative to the shares of the other scenarios.
    pub(crate) weight: u32,
    /// Whether it is for locks that have a condition variable.
    pub needs_condvar: bool,
    /// Whether it is for reader-writer locks.
    pub needs_readers: bool,
    /// Whether it is for what runs functions once.
    pub needs_runs: bool,
    pub(crate) run: fn(&Context) -> Findings,
}

/// What a lock must have for a scenario.
enum Needs {
    Nothing,
    Condvar,
    Readers,
    Runs,
}

/// Rows of name, weight, needs, function and description.
macro_rules! scenarios {
    ($($name:literal $weight:literal $needs:ident $run:path: $about:literal;)*) => {
        /// All scenarios, in the order in which they run: those that find most come first.
        pub const ALL: &[Scenario] = &[$(Scenario {
            name: $name,
            about: $about,
            weight: $weight,
            needs_condvar: matches!(Needs::$needs, Needs::Condvar),
            needs_readers: matches!(Needs::$needs, Needs::Readers),
            needs_runs: matches!(Needs::$needs, Needs::Runs),
            run: $run,
        },)*];
    };
}

scenarios! {
    "basics" 1 Nothing basics::run:
        "one thread checks what each call promises";
    "fairness" 4 Nothing fairness::run:
        "threads of two pretended domains fight without pause; nobody waits for long";
    "domains" 3 Nothing domains::pretended:
        "threads of 2, 4 or 8 pretended locality domains, while knobs are turned";
    "preemption" 4 Nothing preemption::run:
        "threads, also more than CPUs, yield and sleep inside and outside of sections";
    "barging" 4 Nothing barging::run:
        "threads that believe different things of the machine meet at one lock after the other";
    "timed" 4 Nothing played::timed:
        "lock, try_lock and try_lock_for with tiny limits, mixed: waiters abandon the queue";
    "relay" 4 Nothing relay::run:
        "a holder releases just when its only waiter falls asleep or gives up";
    "condvar-relay" 4 Condvar condvar_relay::run:
        "a notification comes just when its only waiter falls asleep or gives up";
    "condvar-delays" 4 Condvar played::condvar_delays:
        "as condvar, and threads are held up within waits and notifications";
    "condvar" 4 Condvar played::condvar:
        "waiters, notifications and time limits around tokens, while signals interrupt";
    "signals" 5 Nothing signals::run:
        "a storm of real-time signals, whose nested handlers take further locks";
    "stopped" 4 Nothing stopped::run:
        "waiters are stopped for longer than others have patience; one runs when nobody else does";
    "readers" 4 Readers played::readers:
        "reading, writing, upgrading and downgrading in every way, while threads are held up";
    "reader-flood" 2 Readers readers::reader_flood:
        "one writer, which may give up, among readers that leave no gap";
    "writer-flood" 2 Readers readers::writer_flood:
        "one reader among writers that leave no gap";
    "readers-sent" 4 Readers played::readers_sent:
        "as readers, and what one thread has taken another one releases; in a forked child, too";
    "readers-overtaken" 3 Readers overtaken::overtaken:
        "a guard is released elsewhere while a reader that a writer has let in has not run yet";
    "once" 4 Runs played::once:
        "threads that each want a function to have run, one after the other";
    "churn" 5 Nothing churn::run:
        "threads come and go, and take the lock in destructors of thread-locals and pthread keys";
    "fork" 3 Nothing fork::run:
        "children forked amid contention use locks of their own, at rest, and inherited";
    "leak" 2 Nothing leak::run:
        "threads that leaked guards, and some that wait for a leaked one, harm no other lock";
    "sent" 3 Nothing played::sent:
        "what one thread has taken another one releases";
    "topology" 3 Nothing domains::real:
        "threads pinned to CPUs that KINLOCK_TOPOLOGY divides, while knobs are turned";
}

/// Runs once for each thread count.
pub const PREEMPTION: &str = "preemption";
/// Runs once for each number of locality domains.
pub const DOMAINS: &str = "domains";
/// Means something only where `KINLOCK_TOPOLOGY` has divided the machine's CPUs.
pub const TOPOLOGY: &str = "topology";

/// The scenarios that run by default: all that do not need a prepared environment.
pub fn by_default() -> Vec<&'static str> {
    let named = ALL.iter().map(|scenario| scenario.name);
    named.filter(|&name| name != TOPOLOGY).collect()
}

impl Scenario {
    /// Whether it applies to `lock`. A broken condition variable comes with a sound lock, and so
    /// does all that runs functions once.
    pub fn suits(&self, lock: &Specimen) -> bool {
        if self.needs_runs || lock.runs.is_some() {
            return self.needs_runs && lock.runs.is_some();
        }
        let broken = lock.defect.is_some();
        let has = [lock.meets.is_some(), lock.reads.is_some()];
        match (self.needs_condvar, self.needs_readers) {
            (true, _) => has[0],
            (_, true) => has[1],
            _ => !(broken && (has[0] || has[1])),
        }
    }
}

impl Tortured for Specimen {
    fn torture(self, settings: &Settings, progress: &mut dyn FnMut(&str)) -> Report {
        let steps = steps(&self, settings);
        plan::run(self, settings, &steps, progress, |run, context| {
            run(context)
        })
    }
}

/// Runs a scenario.
type Runner = fn(&Context) -> Findings;

fn steps(specimen: &Specimen, settings: &Settings) -> Vec<Step<Runner>> {
    let few = settings.threads[0];
    let chosen = ALL
        .iter()
        .filter(|known| settings.scenarios.contains(&known.name) && known.suits(specimen));
    let mut steps = Vec::new();
    for &Scenario {
        name, weight, run, ..
    } in chosen
    {
        let mut add = |label: String, threads| {
            steps.push(Step {
                label,
                weight,
                threads,
                what: run,
            });
        };
        let with = |number: usize| format!("{name}-{number}");
        match name {
            PREEMPTION => (settings.threads.iter()).for_each(|&n| add(with(n), n)),
            // Two threads for each domain to pretend.
            DOMAINS => (settings.domains.iter()).for_each(|&n| add(with(n), 2 * n)),
            TOPOLOGY => add(with(kinlock_linux::topology::domain_count()), few),
            _ => add(name.to_owned(), few),
        }
    }
    steps
}

/// What a scenario works with.
type Context = crate::plan::Context<Specimen>;

impl Context {
    /// An injector for a worker of this scenario.
    fn injector(&self, worker: &mut Worker) -> Injector {
        Injector::new(self.preemption, worker.random.branch())
    }

    /// Runs a crew that takes the lock of `stage` again and again and is interrupted inside and
    /// outside of critical sections. Each thread begins with `begin`.
    fn contend(
        &self,
        stage: &Arc<Stage>,
        begin: fn(&Worker),
        meanwhile: impl FnMut(&Crew) -> bool,
    ) -> Outcome {
        let (stage, context) = (Arc::clone(stage), self.clone());
        let body = move |worker: &mut Worker| {
            begin(worker);
            let mut injector = context.injector(worker);
            while worker.running() {
                stage.visit(worker, &mut injector);
                injector.point();
            }
        };
        crew::run(&self.orders, body, meanwhile)
    }
}

/// A lock and the state that it protects.
struct Stage {
    target: AnyTarget,
    state: SharedState,
}

impl Stage {
    fn new(new: fn() -> AnyTarget) -> Self {
        Stage {
            target: new(),
            state: SharedState::new(),
        }
    }

    fn lock(&self) -> &dyn Algorithm {
        self.target.lock()
    }

    /// One critical section, with interruptions.
    fn visit(&self, worker: &mut Worker, injector: &mut Injector) {
        worker.with_lock(self.lock(), blocking, |worker| {
            self.state.section(worker.name(), || injector.point());
        });
    }

    /// One critical section without interruptions, by `acquire`. Returns whether the lock was
    /// taken.
    fn visit_by(&self, worker: &mut Worker, acquire: impl FnOnce(&dyn Algorithm) -> bool) -> bool {
        worker.with_lock(self.lock(), acquire, |worker| {
            self.state.section(worker.name(), || ());
        })
    }
}

/// Waits for as long as it takes: the plain way for [`Worker::with_lock`].
fn blocking(lock: &dyn Algorithm) -> bool {
    lock.lock();
    true
}

/// The events of all locks' slow paths since a moment.
struct Events(kinlock_core::events::Snapshot);

impl Events {
    fn start() -> Self {
        kinlock_core::events::set_enabled(true);
        Events(kinlock_core::events::snapshot())
    }

    fn get(&self, event: Event) -> u64 {
        kinlock_core::events::snapshot().since(&self.0).get(event)
    }

    fn list(&self, events: &[Event]) -> String {
        let name = |&event: &Event| format!("{} {}", event.name(), self.get(event));
        events.iter().map(name).collect::<Vec<_>>().join(", ")
    }
}

/// The verdict on waits that ended before their time.
fn nobody_hasty(hasty: u64, timeouts: u64) -> Result<String, String> {
    match hasty {
        0 => Ok("nobody gave up before its time".into()),
        _ => Err(format!("{hasty} of {timeouts} gave up before their time")),
    }
}

impl Findings {
    /// Adds whether the scenario reached what it is for.
    fn with_reach(self, reached: bool, detail: String) -> Self {
        self.judge(Property::Reach, reached, detail)
    }
}
