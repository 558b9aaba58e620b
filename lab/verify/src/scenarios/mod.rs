//! Ways to ill-treat a lock, one file each.

mod basics;
mod churn;
mod domains;
mod fairness;
mod fork;
mod leak;
mod played;
mod preemption;
mod relay;
mod signals;
mod stopped;

use crate::crew::{self, Crew, Worker};
use crate::injector::Injector;
use crate::locks::Specimen;
use crate::oracle::SharedState;
use crate::plan::{self, Scenario, Settings, Step, Tortured, scenario};
use crate::play::Plays;
use crate::report::{Findings, Property, Report};
use crate::test_lock::{Algorithm, AnyTarget};
use kinlock_core::events::Event;
use std::sync::Arc;

/// All scenarios, in the order in which they run: the ones that find most defects come first.
pub const ALL: &[Scenario<Specimen>] = &[
    // One thread checks what each call promises.
    scenario("basics", 1, any_lock, basics::run),
    // Threads of two pretended domains fight without pause, and no thread may wait for long.
    scenario("fairness", 4, any_lock, fairness::run),
    // Threads of 2, 4 or 8 pretended locality domains, while knobs are turned.
    scenario("domains", 3, any_lock, domains::pretended),
    // Threads, in some steps more than CPUs, yield and sleep inside and outside of sections.
    scenario("preemption", 4, any_lock, preemption::run),
    // Threads that are told different things about the machine meet at one lock after the other.
    scenario("barging", 4, any_lock, played::barging),
    // Lock, try_lock and try_lock_for with tiny limits, mixed: waiters abandon the queue.
    scenario("timed", 4, any_lock, played::timed),
    // A holder releases just when its only waiter falls asleep or gives up.
    scenario("relay", 4, any_lock, relay::of_lock),
    // A notification comes just when its only waiter falls asleep or gives up.
    scenario("condvar-relay", 4, tokens, relay::of_condvar),
    // As condvar, but threads are held up within waits and notifications.
    scenario("condvar-delays", 4, tokens, played::condvar_delays),
    // Waiters, notifications and time limits around tokens, while signals interrupt.
    scenario("condvar", 4, tokens, played::condvar),
    // A storm of real-time signals, whose nested handlers take further locks.
    scenario("signals", 5, any_lock, signals::run),
    // Waiters are stopped for longer than others have patience; one runs only on an idle CPU.
    scenario("stopped", 4, any_lock, stopped::run),
    // Reading, writing, upgrading and downgrading in every way, while threads are held up.
    scenario("readers", 4, readers, played::readers),
    // One writer among readers that leave no gap. When it gives up, they must go on without it.
    scenario("reader-flood", 2, readers, played::reader_flood),
    // One reader among writers that leave no gap.
    scenario("writer-flood", 2, readers, played::writer_flood),
    // As readers, but threads release what others have taken; in a forked child, too.
    scenario("readers-sent", 4, readers, played::readers_sent),
    // A guard is released elsewhere while a reader that a writer has let in has not run yet.
    scenario("readers-overtaken", 3, readers, played::readers_overtaken),
    // Threads that each want a function to have run, one after the other.
    scenario("once", 4, functions, played::once),
    // Threads come and go, and take the lock in destructors of thread-locals and pthread keys.
    scenario("churn", 5, any_lock, churn::run),
    // Children forked amid contention use locks of their own, at rest, and inherited.
    scenario("fork", 3, any_lock, fork::run),
    // Threads that leaked guards, and threads that wait for a leaked lock, harm no other lock.
    scenario("leak", 2, any_lock, leak::run),
    // Threads release what other threads have taken.
    scenario("sent", 3, any_lock, played::sent),
    // Threads pinned to CPUs that KINLOCK_TOPOLOGY divides, while knobs are turned.
    scenario("topology", 3, any_lock, domains::real),
];

fn any_lock(lock: &Specimen) -> bool {
    match lock.plays {
        Plays::Lock => true,
        Plays::Readers => lock.defect.is_none(),
        // The defect is in the condition variable, or in what runs functions once; the lock is
        // sound.
        Plays::Tokens | Plays::Functions => false,
    }
}

fn readers(lock: &Specimen) -> bool {
    lock.plays == Plays::Readers
}

fn tokens(lock: &Specimen) -> bool {
    lock.condvar.is_some()
}

fn functions(lock: &Specimen) -> bool {
    lock.plays == Plays::Functions
}

/// The scenario that runs once for each thread count.
pub const PREEMPTION: &str = "preemption";
/// The scenario that runs once for each number of locality domains.
pub const DOMAINS: &str = "domains";
/// The scenario that makes sense only where `KINLOCK_TOPOLOGY` has divided the machine's CPUs.
pub const TOPOLOGY: &str = "topology";

/// The scenarios that run by default: all that do not need a prepared environment.
pub fn by_default() -> Vec<&'static str> {
    let named = ALL.iter().map(|scenario| scenario.name);
    named.filter(|&name| name != TOPOLOGY).collect()
}

impl Tortured for Specimen {
    fn torture(self, settings: &Settings, progress: &mut dyn FnMut(&str)) -> Report {
        plan::run(self, settings, &steps(&self, settings), progress)
    }
}

fn steps(specimen: &Specimen, settings: &Settings) -> Vec<Step<Specimen>> {
    let few = settings.threads[0];
    let chosen = ALL
        .iter()
        .filter(|known| settings.scenarios.contains(&known.name) && (known.fits)(specimen));
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
                run,
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
    ) -> Findings {
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

/// Waits without a time limit, for [`Worker::with_lock`].
fn blocking(lock: &dyn Algorithm) -> bool {
    lock.lock();
    true
}

/// Counts the events of all locks' slow paths from [`start`](Self::start) on.
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
    /// Adds whether the scenario reached the situations that it is meant to reach.
    fn with_reach(self, reached: bool, detail: String) -> Self {
        self.judge(Property::Reach, reached, detail)
    }
}
