//! What threads do with a lock in a schedule.
//!
//! # Invariant
//!
//! 1. A thread releases a lock in the way in which it has just taken it, once, or sends the right
//!    to do so to another thread, which does.

use super::locks::{Explored, Meeting, Runs, Specimen};
use super::oracle::Oracle;
use super::parameters::Plan;
use super::violation::Failure;
use crate::test_lock::ReadWrite;
use kinlock_core::platform::{NEVER, Platform};
use kinlock_sim::schedule::{leave_line, moment, say};
use kinlock_sim::{Sim, Stuck};
use std::cell::Cell;

/// A way to use a lock.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name in reports and replays.
    pub name: &'static str,
    /// One line of description.
    pub about: &'static str,
    pub(super) ordered: bool,
    pub(super) timed: bool,
    pub(super) changes_knobs: bool,
    pub(super) interrupts: bool,
    pub(super) oversubscribed: bool,
    /// Threads wait for each other through a condition variable.
    pub(super) meets: bool,
    /// Threads also take the lock for reading.
    pub(super) reads: bool,
    /// Threads release what other threads have taken for reading or writing.
    pub(super) sends: bool,
    /// Threads run functions once.
    pub(super) runs: bool,
}

/// Rows of name, what sets it apart from `plain`, and description.
macro_rules! scenarios {
    ($($name:literal [$($trait:ident)*]: $about:literal;)*) => {
        /// All scenarios, in the order in which schedules go through them.
        pub const ALL: &[Scenario] = &[$(Scenario {
            name: $name,
            about: $about,
            $($trait: true,)*
            ..PLAIN
        },)*];
    };
}

scenarios! {
    "plain" []: "every thread takes and releases the lock";
    "timed" [timed]:
        "lock, try_lock and lock_until, mixed: waiters give up anywhere in the queue";
    "knobs" [timed changes_knobs]: "timed, and every wait finds other knobs";
    "nested" [timed interrupts]: "timed, and handlers that interrupt anything take another lock";
    "oversubscribed" [timed oversubscribed]:
        "timed, with more threads than CPUs: time slices, and waiters that park";
    "order" [ordered]: "plain, without stealing: waiters are served in order";
    "tokens" [timed meets]:
        "threads that give tokens and notify, that wait for tokens, and that give up waiting";
    "readers" [timed reads]:
        "reading, writing, upgrading, in every way to wait, with and without bias";
    "readers-knobs" [timed changes_knobs reads]: "readers, and every wait finds other knobs";
    "readers-oversubscribed" [timed oversubscribed reads]: "readers, with more threads than CPUs";
    "readers-sent" [timed reads sends]:
        "readers, and what one thread has taken another one releases";
    "readers-sent-oversubscribed" [timed oversubscribed reads sends]:
        "readers-sent, with more threads than CPUs";
    "once" [runs]: "threads that each want a function to have run, one after the other";
    "once-oversubscribed" [oversubscribed runs]: "once, with more threads than CPUs";
    "tokens-oversubscribed" [timed oversubscribed meets]: "tokens, with more threads than CPUs";
}

const PLAIN: Scenario = Scenario {
    name: "",
    about: "",
    ordered: false,
    timed: false,
    changes_knobs: false,
    interrupts: false,
    oversubscribed: false,
    meets: false,
    reads: false,
    sends: false,
    runs: false,
};

/// The kinds of guards that are sent.
const SENT_READ: usize = 0;
const SENT_UPGRADABLE: usize = 1;
const SENT_WRITE: usize = 2;

/// What the threads of a schedule share.
pub(super) struct Shared {
    /// The lock of the bodies, and the lock of the handlers.
    locks: [Explored; 2],
    oracle: Oracle,
    timed: bool,
    sends: bool,
    rounds: u32,
    work: u64,
    threads: usize,
    /// Given and not yet taken. With the lock.
    tokens: Cell<usize>,
    /// How many read guards, upgradable ones and write guards have been sent and not yet received.
    sent: Cell<[u32; 3]>,
    /// The rounds whose function has begun, and has returned, one per bit.
    functions: [Cell<u64>; 2],
}

impl Shared {
    pub(super) fn new(lock: &Specimen, scenario: &Scenario, plan: &Plan) -> Self {
        Shared {
            locks: [(lock.place)(plan.park), (lock.place)(plan.park)],
            oracle: Oracle::new(plan),
            timed: scenario.timed,
            sends: scenario.sends,
            rounds: plan.rounds,
            work: plan.work,
            threads: plan.schedule.threads,
            tokens: Cell::new(0),
            sent: Cell::default(),
            functions: Default::default(),
        }
    }

    /// What every thread does.
    pub(super) fn body(&self, me: usize) {
        self.oracle.starts(me);
        for round in 0..self.rounds {
            if self.oracle.has_failed() {
                return;
            }
            if let Some(meeting) = self.locks[0].meeting {
                self.meet(me, meeting);
            } else if let Some(running) = self.locks[0].running {
                self.run_once(me, round as usize, running);
            } else if let Some(lock) = self.locks[0].reading {
                // Before it waits itself: all other threads may wait already.
                while self.receive(me, lock) {}
                self.read_or_write(me, lock);
            } else if self.acquire(me) {
                say("takes the lock");
                self.oracle.section(0, me, || self.work());
                say("releases the lock");
                self.locks[0].unlock();
            }
            self.work();
        }
        if let Some(lock) = self.locks[0].reading.filter(|_| self.sends) {
            while self.receive(me, lock) {}
            // A reader that nobody releases is found here.
            lock.lock();
            self.oracle.section(0, me, || self.work());
            self.locks[0].unlock();
        }
    }

    /// Releases what another thread has taken, if anything was sent.
    fn receive(&self, me: usize, lock: &dyn ReadWrite) -> bool {
        let mut sent = self.sent.get();
        let Some(kind) = sent.iter().position(|&number| number > 0) else {
            return false;
        };
        sent[kind] -= 1;
        self.sent.set(sent);
        say("receives a guard");
        // SAFETY: invariant 1.
        unsafe {
            match kind {
                SENT_READ => {
                    self.oracle.look(me, || self.work());
                    lock.unlock_read();
                }
                SENT_UPGRADABLE => {
                    self.oracle.look(me, || self.work());
                    lock.unlock_upgradable();
                }
                _ => {
                    self.oracle.section(0, me, || self.work());
                    lock.unlock();
                }
            }
        }
        true
    }

    /// Lets another thread release the lock, sometimes. It was taken in this way.
    fn sends(&self, kind: usize) -> bool {
        let sends = self.sends && Sim::random() % 2 == 0;
        if sends {
            let mut sent = self.sent.get();
            sent[kind] += 1;
            self.sent.set(sent);
            say("sends its guard");
            self.work();
        }
        sends
    }

    /// One round with a reader-writer lock.
    fn read_or_write(&self, me: usize, lock: &dyn ReadWrite) {
        // From no time at all to longer than any queue takes.
        let deadline = match Sim::random() % 3 {
            0 => Sim::now() + (1 << (Sim::random() % 22)),
            _ => NEVER,
        };
        let held = |taken: bool| {
            if !taken {
                self.oracle.gives_up(me, deadline);
            }
            taken
        };
        match Sim::random() % 16 {
            0 => lock.set_biased(),
            1..=6 if held(lock.read_until(deadline, false)) => self.end_read(me, lock),
            7 if lock.try_read(false) => self.end_read(me, lock),
            8 if held(lock.read_until(deadline, true)) => {
                self.oracle.look(me, || self.work());
                // Whatever waits, a thread that reads may read again.
                if lock.try_read(true) {
                    self.end_read(me, lock);
                } else {
                    self.oracle.refused(me);
                }
                self.end_read(me, lock);
            }
            9..=12 if held(lock.lock_until(deadline)) => self.end_write(me, lock),
            13 if lock.try_lock() => self.end_write(me, lock),
            14 if held(lock.lock_until(deadline)) => {
                self.oracle.section(0, me, || self.work());
                // SAFETY: invariant 1.
                unsafe { lock.downgrade() };
                self.end_read(me, lock);
            }
            15 if held(lock.upgradable_until(deadline)) => self.upgrade(me, lock, deadline),
            _ => {}
        }
    }

    /// One round of threads that want a function to have run, of which there is one per round.
    fn run_once(&self, me: usize, round: usize, running: &dyn Runs) {
        let [begun, returned] = &self.functions;
        let bit = 1 << (round % 64);
        let mut function = || {
            self.oracle.runs(me, begun.get() & bit == 0);
            begun.set(begun.get() | bit);
            say("runs the function");
            self.work();
            returned.set(returned.get() | bit);
        };
        running.call(round, &mut function);
        self.oracle.passes(me, returned.get() & bit != 0);
    }

    fn end_read(&self, me: usize, lock: &dyn ReadWrite) {
        say("reads");
        self.oracle.look(me, || self.work());
        say("ends reading");
        if self.sends(SENT_READ) {
            // While another thread may be looking for the reader that it is to release.
            lock.read_until(NEVER, true);
            self.oracle.look(me, || ());
        }
        // SAFETY: invariant 1.
        unsafe { lock.unlock_read() };
    }

    fn end_write(&self, me: usize, lock: &dyn ReadWrite) {
        say("writes");
        self.oracle.section(0, me, || self.work());
        say("ends writing");
        if !self.sends(SENT_WRITE) {
            // SAFETY: invariant 1.
            unsafe { lock.unlock() };
        }
    }

    fn upgrade(&self, me: usize, lock: &dyn ReadWrite, deadline: u64) {
        self.oracle.look(me, || self.work());
        // SAFETY: invariant 1.
        unsafe {
            if lock.upgrade_until(deadline) {
                self.end_write(me, lock);
            } else {
                self.oracle.gives_up(me, deadline);
                self.oracle.look(me, || self.work());
                if !self.sends(SENT_UPGRADABLE) {
                    lock.unlock_upgradable();
                }
            }
        }
    }

    /// One round of threads that wait for each other. By number: every second one gives tokens,
    /// every fourth takes one, and the others take one with a time limit and give it back. There
    /// are as many tokens as needed.
    fn meet(&self, me: usize, meeting: &dyn Meeting) {
        match me % 4 {
            0 | 2 => {
                let givers = self.threads.div_ceil(2);
                let takers = (self.threads + 2) / 4;
                // The takers are dealt out to the givers.
                self.give((takers + givers - 1 - me / 2) / givers, meeting);
            }
            1 => {
                self.take(me, NEVER, meeting);
            }
            _ => {
                // From no time at all to longer than a spinner spins.
                let deadline = Sim::now() + (1 << (Sim::random() % 22));
                if self.take(me, deadline, meeting) {
                    self.give(1, meeting);
                }
            }
        }
    }

    fn give(&self, tokens: usize, meeting: &dyn Meeting) {
        let notify = || match Sim::random() % 2 {
            _ if tokens == 0 => {}
            0 => meeting.notify_all(),
            _ => (0..tokens).for_each(|_| meeting.notify_one()),
        };
        let inside = Sim::random() % 2 == 0;
        self.locks[0].lock.lock();
        self.tokens.set(self.tokens.get() + tokens);
        say("gives tokens");
        if inside {
            notify();
        }
        self.locks[0].unlock();
        if !inside {
            notify();
        }
    }

    /// `false`: the time was up.
    fn take(&self, me: usize, deadline: u64, meeting: &dyn Meeting) -> bool {
        self.locks[0].lock.lock();
        let mut taken = true;
        while taken && self.tokens.get() == 0 {
            say("waits for a token");
            taken = meeting.wait_until(deadline);
        }
        if taken {
            say("takes a token");
            self.tokens.set(self.tokens.get() - 1);
            self.oracle.section(0, me, || self.work());
        } else {
            // It does not look again: if it has swallowed a notification, another thread misses
            // that.
            self.oracle.gives_up(me, deadline);
        }
        self.locks[0].unlock();
        taken
    }

    /// What an interrupt does.
    pub(super) fn handler(&self, me: usize) {
        if !self.oracle.has_failed() {
            self.locks[1].lock.lock();
            self.oracle.section(1, me, || self.work());
            self.locks[1].unlock();
        }
    }

    pub(super) fn judge(&self, end: &Result<(), Stuck>) -> Option<Failure> {
        let at_rest = || self.locks.iter().all(|lock| lock.is_at_rest());
        self.oracle.judge(end, at_rest)
    }

    fn acquire(&self, me: usize) -> bool {
        let lock = self.locks[0].lock;
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
