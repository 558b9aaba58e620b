//! The scenarios of locks, and what their threads share: a [`Play`] on the simulated machine.

use super::locks::{Knobs, Specimen};
use super::oracle::{Oracle, Order};
use super::violation::Failure;
use crate::play::{Play, Plays, World};
use crate::report::Property;
use crate::test_lock::{Algorithm, Target};
use kinlock_core::platform::Platform;
use kinlock_sim::schedule::{leave_line, moment, say};
use kinlock_sim::{Schedule, Sim, Stuck};

/// A way to use a lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) ordered: bool,
    timed: bool,
    pub(super) changes_knobs: bool,
    pub(super) interrupts: bool,
    pub(super) oversubscribed: bool,
    /// Threads release what other threads have taken for reading or writing.
    sends: bool,
    pub(super) plays: Plays,
}

/// Each row: the name, what is played, and how the scenario differs from `plain`.
macro_rules! scenarios {
    ($($name:literal $plays:ident [$($trait:ident)*];)*) => {
        /// All scenarios, in the order in which schedules go through them.
        pub(super) const ALL: &[Scenario] = &[$(Scenario {
            name: $name,
            plays: Plays::$plays,
            $($trait: true,)*
            ..PLAIN
        },)*];
    };
}

scenarios! {
    // Every thread takes and releases the lock.
    "plain" Lock [];
    // Lock, try_lock and lock_until, mixed: waiters give up anywhere in the queue.
    "timed" Lock [timed];
    // Timed, and every wait finds other knobs.
    "knobs" Lock [timed changes_knobs];
    // Timed, and handlers that interrupt anything take another lock.
    "nested" Lock [timed interrupts];
    // Timed, with more threads than CPUs: time slices, and waiters that park.
    "oversubscribed" Lock [timed oversubscribed];
    // Plain, without stealing: waiters are served in order.
    "order" Lock [ordered];
    // Threads that give tokens and notify, that wait for tokens, and that give up waiting.
    "tokens" Tokens [timed];
    // Reading, writing, upgrading, in every way to wait, with and without bias.
    "readers" Readers [timed];
    // Readers, and every wait finds other knobs.
    "readers-knobs" Readers [timed changes_knobs];
    // Readers, with more threads than CPUs.
    "readers-oversubscribed" Readers [timed oversubscribed];
    // Readers, and some threads release what other threads have taken.
    "readers-sent" Readers [timed sends];
    // Readers-sent, with more threads than CPUs.
    "readers-sent-oversubscribed" Readers [timed oversubscribed sends];
    // Threads that each want a function to have run, one after the other.
    "once" Functions [];
    // Once, with more threads than CPUs.
    "once-oversubscribed" Functions [oversubscribed];
    // Tokens, with more threads than CPUs.
    "tokens-oversubscribed" Tokens [timed oversubscribed];
}

const PLAIN: Scenario = Scenario {
    name: "",
    ordered: false,
    timed: false,
    changes_knobs: false,
    interrupts: false,
    oversubscribed: false,
    sends: false,
    plays: Plays::Lock,
};

/// The parameters of one schedule.
pub(super) struct Plan {
    pub(super) schedule: Schedule,
    pub(super) knobs: Knobs,
    /// Whether waiters may park.
    pub(super) park: bool,
    /// How often each thread takes the lock.
    pub(super) rounds: u32,
    /// The longest computation between and within critical sections, in cycles.
    pub(super) work: u64,
    pub(super) order: Option<Order>,
}

/// What the threads of a schedule share.
pub(super) struct Shared {
    /// The lock of the bodies, and the lock of the handlers.
    targets: [&'static dyn Target; 2],
    play: Play,
    oracle: Oracle,
    rounds: u32,
    work: u64,
}

impl Shared {
    pub(super) fn new(lock: &Specimen, scenario: &Scenario, plan: &Plan) -> Self {
        Shared {
            targets: [(lock.place)(plan.park), (lock.place)(plan.park)],
            play: Play::new(plan.schedule.threads, scenario.timed, scenario.sends, None),
            oracle: Oracle::new(plan.schedule.threads, plan.order),
            rounds: plan.rounds,
            work: plan.work,
        }
    }

    /// What every thread does.
    pub(super) fn body(&self, me: usize) {
        self.oracle.starts(me);
        self.play.part(self.targets[0], &Seat { shared: self, me });
    }

    /// What an interrupt does.
    pub(super) fn handler(&self, me: usize) {
        if !self.oracle.has_failed() {
            let lock = self.targets[1].lock();
            lock.lock();
            self.oracle.section(1, me, || self.work());
            // SAFETY: taken above.
            unsafe { lock.unlock() };
        }
    }

    pub(super) fn judge(&self, end: &Result<(), Stuck>) -> Option<Failure> {
        let at_rest = || self.targets.iter().all(|target| target.is_at_rest());
        self.oracle.judge(end, at_rest)
    }

    fn work(&self) {
        let nanos = Sim::random() as u64 % self.work;
        kinlock_sim::compute(nanos as f64);
    }
}

/// A thread's view of the simulated machine.
struct Seat<'a> {
    shared: &'a Shared,
    me: usize,
}

impl World for Seat<'_> {
    fn me(&self) -> usize {
        self.me
    }

    fn random(&self) -> u32 {
        Sim::random()
    }

    fn now(&self) -> u64 {
        Sim::now()
    }

    fn goes_on(&self, round: u32) -> bool {
        round < self.shared.rounds && !self.shared.oracle.has_failed()
    }

    fn pause(&self) {
        self.shared.work();
    }

    fn section(&self) {
        (self.shared.oracle).section(0, self.me, || self.shared.work());
    }

    fn look(&self) {
        (self.shared.oracle).look(self.me, || self.shared.work());
    }

    fn demand(&self, property: Property, holds: bool, what: impl FnOnce() -> String) {
        self.shared.oracle.demand(property, holds, what);
    }

    fn wait_in_line(&self, lock: &dyn Algorithm) {
        let arrival = moment();
        lock.lock();
        self.shared.oracle.acquires(self.me, arrival);
        leave_line();
    }

    fn say(&self, what: &'static str) {
        say(what);
    }
}
