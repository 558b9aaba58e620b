//! What threads do with a lock, for torture and for the explorer: operations and what is demanded
//! of them. Torture and the explorer each bring a [`World`], in which threads draw random numbers,
//! take time and touch the data behind the lock.
//!
//! | a target with | one round of a thread |
//! | --- | --- |
//! | a lock only | takes and releases it; *timed*: blocking, at once, or with a time limit |
//! | a condition variable | gives tokens, takes one, or takes one in time and gives it back |
//! | readers | sets the bias, reads, also twice, writes, down- and upgrades, in every way to wait |
//! | functions | wants the round's function to have run once |
//!
//! *Sends*: sometimes another thread releases the lock than the one that took it.
//!
//! # Invariants
//!
//! 1. A thread releases a lock in the way in which it has just taken it, once, or sends the right
//!    to do so, once, to the thread that receives it.
//! 2. [`Meeting::wait`] is called by a thread that holds the lock only, as it demands.

use crate::report::Property;
use crate::test_lock::{Algorithm, Meeting, ReadWrite, Runs, Target};
use kinlock_core::platform::NEVER;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

/// What is played with a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Plays {
    /// Any lock.
    Lock,
    /// Also reading and upgrading.
    Readers,
    /// Tokens around a condition variable.
    Tokens,
    /// Functions that run once.
    Functions,
}

/// Where one thread plays.
pub(crate) trait World {
    /// The number of the thread.
    fn me(&self) -> usize;
    fn random(&self) -> u32;
    /// The clock of the lock.
    fn now(&self) -> u64;
    /// Whether this round is played.
    fn goes_on(&self, round: u32) -> bool;
    /// Lets a random time pass.
    fn pause(&self);
    /// Changes the data behind the lock, and takes a while.
    fn section(&self);
    /// Reads the data behind the lock, and takes a while.
    fn look(&self);
    /// Notes a violation unless the property `holds`.
    fn demand(&self, property: Property, holds: bool, what: impl FnOnce() -> String);

    /// Runs `act`, in which the thread may wait.
    fn operation(&self, act: impl FnOnce()) {
        act();
    }

    /// Takes the lock, however long that takes.
    fn wait_in_line(&self, lock: &dyn Algorithm) {
        lock.lock();
    }

    /// Notes in the trace what the thread does next.
    fn say(&self, _what: &'static str) {}

    /// Counts an event that a scenario may be meant to reach.
    fn count(&self, _what: Count) {}
}

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Count {
    /// The data were changed.
    Section,
    /// The data were read.
    Look,
    /// A wait with a time limit succeeded in time.
    Timely,
    /// A wait ended by its time limit.
    Timeout,
    /// A thread has released what another one has taken.
    Received,
}

impl Count {
    pub(crate) const ALL: [Self; 5] = [
        Count::Section,
        Count::Look,
        Count::Timely,
        Count::Timeout,
        Count::Received,
    ];
}

/// The kinds of guards that are sent.
const SENT_READ: usize = 0;
const SENT_UPGRADABLE: usize = 1;
const SENT_WRITE: usize = 2;

/// A play in which one thread uses a reader-writer lock in one way, and all others in the other
/// way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flood {
    /// One writes, the others read.
    OfReaders,
    /// One reads, the others write.
    OfWriters,
}

/// What the threads of one play share.
#[derive(Debug, Default)]
pub(crate) struct Play {
    threads: usize,
    timed: bool,
    sends: bool,
    flood: Option<Flood>,
    /// How many tokens are given and not yet taken. Protected by the lock.
    tokens: AtomicUsize,
    /// How often the readers of a flood have read.
    reads: AtomicU32,
    /// How many read guards, upgradable guards and write guards are sent and not yet received.
    sent: [AtomicU32; 3],
    /// One bit per round: whether the function of the round has begun, and whether it has returned.
    functions: [AtomicU64; 2],
}

impl Play {
    /// `timed`: threads also try once, and wait with time limits. `sends`: threads release what
    /// other threads have taken.
    pub(crate) fn new(threads: usize, timed: bool, sends: bool, flood: Option<Flood>) -> Self {
        Play {
            threads,
            timed,
            sends,
            flood,
            ..Play::default()
        }
    }

    /// What every thread does.
    pub(crate) fn part(&self, target: &dyn Target, world: &impl World) {
        let lock = target.lock();
        let part = Part {
            play: self,
            lock,
            world,
        };
        let mut round = 0;
        while world.goes_on(round) {
            world.operation(|| part.round(target, round));
            world.pause();
            round += 1;
        }
        if self.sends {
            // A guard that nobody released would make this hang.
            world.operation(|| {
                while part.receive(target) {}
                lock.lock();
                part.section();
                part.unlock();
            });
        }
    }
}

struct Part<'a, W> {
    play: &'a Play,
    lock: &'a dyn Algorithm,
    world: &'a W,
}

impl<W: World> Part<'_, W> {
    fn round(&self, target: &dyn Target, round: u32) {
        // Before this thread waits: all other threads may wait for these guards already.
        while self.play.sends && self.receive(target) {}
        if let Some(meeting) = target.meeting() {
            self.meet(meeting);
        } else if let Some(running) = target.running() {
            self.run_once(round as usize, running);
        } else if let Some(lock) = target.reading() {
            self.read_or_write(lock);
        } else if self.acquire() {
            self.end_write();
        }
    }

    // ---- any lock ------------------------------------------------------------------------------

    fn acquire(&self) -> bool {
        let (lock, world) = (self.lock, self.world);
        match if self.play.timed {
            world.random() % 4
        } else {
            3
        } {
            0 => {
                let deadline = self.soon();
                self.in_time(lock.lock_until(deadline), deadline)
            }
            1 => lock.try_lock(),
            _ => {
                world.wait_in_line(lock);
                true
            }
        }
    }

    /// A deadline between now and a time by which any queue is through.
    fn soon(&self) -> u64 {
        self.world.now() + (1 << (self.world.random() % 22))
    }

    /// Judges a wait that ended, `succeeded` or not, with this deadline. Returns `succeeded`.
    fn in_time(&self, succeeded: bool, deadline: u64) -> bool {
        let world = self.world;
        if !succeeded {
            world.demand(Property::Contract, world.now() >= deadline, || {
                format!("thread {} gave up before its time limit", world.me())
            });
            world.count(Count::Timeout);
        } else if deadline != NEVER {
            world.count(Count::Timely);
        }
        succeeded
    }

    fn end_write(&self) {
        self.section();
        if !self.sends(SENT_WRITE) {
            self.unlock();
        }
    }

    fn unlock(&self) {
        self.world.say("releases the lock");
        // SAFETY: invariant 1.
        unsafe { self.lock.unlock() }
    }

    fn section(&self) {
        self.world.say("has the lock");
        self.world.count(Count::Section);
        self.world.section();
    }

    fn look(&self) {
        self.world.say("reads");
        self.world.count(Count::Look);
        self.world.look();
    }

    // ---- guards that are sent ------------------------------------------------------------------

    /// Sometimes lets another thread release the lock, which was taken as `kind` says. Returns
    /// whether it does.
    fn sends(&self, kind: usize) -> bool {
        let sends = self.play.sends && self.world.random() % 2 == 0;
        if sends {
            // Pairs with the acquire in `receive`.
            self.play.sent[kind].fetch_add(1, Release);
            self.world.say("sends its guard");
            self.world.pause();
        }
        sends
    }

    /// Releases what another thread has taken, if anything was sent.
    fn receive(&self, target: &dyn Target) -> bool {
        let one_less = |number: &AtomicU32| {
            let less = number.fetch_update(Acquire, Relaxed, |number| number.checked_sub(1));
            less.is_ok()
        };
        let Some(kind) = self.play.sent.iter().position(one_less) else {
            return false;
        };
        self.world.say("receives a guard");
        self.world.count(Count::Received);
        match (kind, target.reading()) {
            (SENT_READ, Some(lock)) => {
                self.look();
                // SAFETY: invariant 1.
                unsafe { lock.unlock_read() };
            }
            (SENT_UPGRADABLE, Some(lock)) => {
                self.look();
                // SAFETY: invariant 1.
                unsafe { lock.unlock_upgradable() };
            }
            _ => {
                self.section();
                self.unlock();
            }
        }
        true
    }

    // ---- readers -------------------------------------------------------------------------------

    /// One round with a reader-writer lock.
    fn read_or_write(&self, lock: &dyn ReadWrite) {
        let deadline = match self.world.random() % 3 {
            0 => self.soon(),
            _ => NEVER,
        };
        let held = |taken: bool| self.in_time(taken, deadline);
        match (self.play.flood, self.world.me()) {
            (None, _) => {}
            (Some(Flood::OfReaders), 0) | (Some(Flood::OfWriters), 1..) => {
                return self.write_in_a_flood(lock, deadline);
            }
            _ => {
                if held(lock.read_until(deadline, false)) {
                    self.end_read(lock);
                    self.play.reads.fetch_add(1, Relaxed);
                }
                return;
            }
        }
        match self.world.random() % 16 {
            0 => lock.set_biased(),
            1..=6 if held(lock.read_until(deadline, false)) => self.end_read(lock),
            7 if lock.try_read(false) => self.end_read(lock),
            8 if held(lock.read_until(deadline, true)) => {
                self.look();
                // Even if a writer waits, a thread that reads may read again.
                let again = lock.try_read(true);
                self.world.demand(Property::Contract, again, || {
                    let me = self.world.me();
                    format!("thread {me} reads, and could not read once more")
                });
                if again {
                    self.end_read(lock);
                }
                self.end_read(lock);
            }
            9..=12 if held(lock.lock_until(deadline)) => self.end_write(),
            13 if lock.try_lock() => self.end_write(),
            14 if held(lock.lock_until(deadline)) => {
                self.section();
                // SAFETY: invariant 1.
                unsafe { lock.downgrade() };
                self.end_read(lock);
            }
            15 if held(lock.upgradable_until(deadline)) => self.upgrade(lock, deadline),
            _ => {}
        }
    }

    /// When a writer has given up, readers that waited for its turn must go on without another
    /// writer.
    fn write_in_a_flood(&self, lock: &dyn ReadWrite, deadline: u64) {
        if self.in_time(lock.lock_until(deadline), deadline) {
            self.end_write();
        } else if self.play.flood == Some(Flood::OfReaders) {
            let before = self.play.reads.load(Relaxed);
            while self.world.goes_on(0) && self.play.reads.load(Relaxed) == before {
                self.world.pause();
            }
        }
    }

    fn end_read(&self, lock: &dyn ReadWrite) {
        self.look();
        if self.sends(SENT_READ) {
            // Reads again while another thread may be looking for the reader that it is to release.
            lock.read_until(NEVER, true);
            self.look();
        }
        self.world.say("ends reading");
        // SAFETY: invariant 1.
        unsafe { lock.unlock_read() };
    }

    fn upgrade(&self, lock: &dyn ReadWrite, deadline: u64) {
        self.look();
        // SAFETY: invariant 1.
        let upgraded = unsafe { lock.upgrade_until(deadline) };
        if self.in_time(upgraded, deadline) {
            self.end_write();
            return;
        }
        self.look();
        if !self.sends(SENT_UPGRADABLE) {
            // SAFETY: invariant 1.
            unsafe { lock.unlock_upgradable() };
        }
    }

    // ---- condition variables -------------------------------------------------------------------

    /// One round of threads that wait for each other. The thread's number decides: half of the
    /// threads give tokens, a quarter take one, and the others take one with a time limit and give
    /// it back. There are exactly as many tokens as needed, so a thread whose notification is lost
    /// sleeps forever.
    fn meet(&self, meeting: &dyn Meeting) {
        let (me, threads) = (self.world.me(), self.play.threads);
        match me % 4 {
            0 | 2 => {
                let givers = threads.div_ceil(2);
                let takers = (threads + 2) / 4;
                // Together the givers give one token to each taker.
                self.give((takers + givers - 1 - me / 2) / givers, meeting);
            }
            1 => {
                self.take(NEVER, meeting);
            }
            _ => {
                if self.take(self.soon(), meeting) {
                    self.give(1, meeting);
                }
            }
        }
    }

    fn give(&self, tokens: usize, meeting: &dyn Meeting) {
        let notify = || match self.world.random() % 2 {
            _ if tokens == 0 => {}
            0 => meeting.notify_all(),
            _ => (0..tokens).for_each(|_| meeting.notify_one()),
        };
        let inside = self.world.random() % 2 == 0;
        while !self.acquire() {}
        self.world.say("gives tokens");
        self.play.tokens.fetch_add(tokens, Relaxed);
        self.section();
        if inside {
            notify();
        }
        self.unlock();
        if !inside {
            self.world.pause();
            notify();
        }
    }

    /// Takes a token. `false`: the time was up.
    fn take(&self, deadline: u64, meeting: &dyn Meeting) -> bool {
        self.lock.lock();
        let mut taken = true;
        while taken && self.play.tokens.load(Relaxed) == 0 {
            self.world.say("waits for a token");
            // When the time is up, the thread does not look for a token again: if the wait has
            // consumed a notification nevertheless, another thread misses it, which shows the
            // defect.
            // SAFETY: invariant 2.
            taken = self.in_time(unsafe { meeting.wait(deadline) }, deadline);
        }
        if taken {
            self.world.say("takes a token");
            self.play.tokens.fetch_sub(1, Relaxed);
        }
        self.section();
        self.unlock();
        taken
    }

    // ---- functions -----------------------------------------------------------------------------

    /// One round of threads that want the function of this round to have run.
    fn run_once(&self, round: usize, running: &dyn Runs) {
        let (me, world) = (self.world.me(), self.world);
        let [begun, returned] = &self.play.functions;
        let bit = 1 << (round % 64);
        let mut function = || {
            let first = begun.fetch_or(bit, Relaxed) & bit == 0;
            world.demand(Property::Exclusion, first, || {
                format!("thread {me} runs a function that another has run")
            });
            world.say("runs the function");
            world.pause();
            returned.fetch_or(bit, Relaxed);
        };
        running.call(round, &mut function);
        let awaited = returned.load(Relaxed) & bit != 0;
        world.demand(Property::Exclusion, awaited, || {
            format!("thread {me} goes on, but the function has not returned")
        });
    }
}
