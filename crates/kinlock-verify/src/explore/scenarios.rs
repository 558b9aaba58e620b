//! What threads do with the lock in a schedule.

use super::draw::Plan;
use super::locks::{Explored, Specimen};
use super::oracle::Oracle;
use crate::report::Property;
use kinlock::platform::Platform;
use kinlock_sim::schedule::{leave_line, moment, say};
use kinlock_sim::{Sim, Stuck};

/// A way to use a lock.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name in reports and replays.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    pub(super) ordered: bool,
    pub(super) timed: bool,
    pub(super) turns_knobs: bool,
    pub(super) interrupts: bool,
    pub(super) oversubscribed: bool,
}

const PLAIN: Scenario = Scenario {
    name: "plain",
    about: "every thread takes and releases the lock",
    ordered: false,
    timed: false,
    turns_knobs: false,
    interrupts: false,
    oversubscribed: false,
};

/// All scenarios, in the order in which they take turns.
pub const ALL: &[Scenario] = &[
    PLAIN,
    Scenario {
        name: "timed",
        about: "lock, try_lock and lock_until by turns: waiters give up anywhere in the queue",
        timed: true,
        ..PLAIN
    },
    Scenario {
        name: "knobs",
        about: "timed, and every wait finds other knobs",
        timed: true,
        turns_knobs: true,
        ..PLAIN
    },
    Scenario {
        name: "nested",
        about: "timed, and handlers that interrupt anything take another lock",
        timed: true,
        interrupts: true,
        ..PLAIN
    },
    Scenario {
        name: "crowded",
        about: "timed, with more threads than CPUs: time slices, and waiters that park",
        timed: true,
        oversubscribed: true,
        ..PLAIN
    },
    Scenario {
        name: "order",
        about: "plain, without stealing: who comes first",
        ordered: true,
        ..PLAIN
    },
];

/// What the threads of a schedule share.
pub(super) struct Shared {
    /// The lock of the bodies, and the lock of the handlers.
    locks: [&'static dyn Explored; 2],
    oracle: Oracle,
    timed: bool,
    rounds: u32,
    work: u64,
}

impl Shared {
    pub(super) fn new(lock: &Specimen, scenario: &Scenario, plan: &Plan) -> Self {
        Shared {
            locks: [(lock.place)(plan.park), (lock.place)(plan.park)],
            oracle: Oracle::new(plan),
            timed: scenario.timed,
            rounds: plan.rounds,
            work: plan.work,
        }
    }

    /// What every thread does.
    pub(super) fn body(&self, me: usize) {
        self.oracle.starts(me);
        for _ in 0..self.rounds {
            if self.oracle.has_failed() {
                return;
            }
            if self.acquire(me) {
                say("takes the lock");
                self.oracle.section(0, me, || self.work());
                say("releases the lock");
                self.locks[0].unlock();
            }
            self.work();
        }
    }

    /// What an interrupt does.
    pub(super) fn handler(&self, me: usize) {
        if !self.oracle.has_failed() {
            self.locks[1].lock();
            self.oracle.section(1, me, || self.work());
            self.locks[1].unlock();
        }
    }

    pub(super) fn judge(&self, end: &Result<(), Stuck>) -> Option<(Property, String)> {
        let at_rest = || self.locks.iter().all(|lock| lock.is_at_rest());
        self.oracle.judge(end, at_rest)
    }

    fn acquire(&self, me: usize) -> bool {
        let lock = self.locks[0];
        let dice = if self.timed { Sim::random() % 4 } else { 3 };
        match dice {
            0 => {
                // From no time at all to longer than any queue takes.
                let deadline = Sim::now() + (1 << (Sim::random() % 22));
                let taken = lock.lock_until(deadline);
                if !taken {
                    self.oracle.gives_up(me, deadline);
                }
                taken
            }
            1 => lock.try_lock(),
            _ => {
                let arrival = moment();
                lock.lock();
                self.oracle.acquires(me, arrival);
                leave_line();
                true
            }
        }
    }

    fn work(&self) {
        let nanos = Sim::random() as u64 % self.work;
        kinlock_sim::compute(nanos as f64);
    }
}
