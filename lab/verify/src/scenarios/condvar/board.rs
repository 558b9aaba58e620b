//! The state that the threads share: a monitor, a bounded queue, the round, and the first
//! violation.
//!
//! # Invariants
//!
//! 1. [`Board::wait`] is called with the lock held, within [`Board::visit`] or
//!    [`Board::visit_alone`].
//! 2. `visit_alone` releases the lock that it has just taken.

use super::super::patience::Patience;
use super::{ITEM, ROOM};
use crate::crew::Worker;
use crate::injector::Injector;
use crate::monitors::Monitor;
use crate::oracle::SharedState;
use crate::test_lock::TestLock;
use kinlock_measure::random::Random;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::Duration;

/// The most items that the queue ever holds.
const MOST: usize = 64;

/// See the module. Fields marked "with the lock" are written with the lock held only.
pub(super) struct Board {
    pub monitor: Box<dyn Monitor>,
    pub state: SharedState,
    queue: Queue,
    broken: OnceLock<String>,
    pub counts: Counts,
}

#[derive(Default)]
pub(super) struct Counts {
    sections: AtomicU64,
    /// How many rounds have begun. With the lock.
    pub rounds: AtomicU64,
    /// How many members have arrived at the round's end. With the lock.
    pub arrived: AtomicU64,
    /// The round that has begun is none: all threads end. With the lock.
    pub over: AtomicBool,
    /// How many items a taker needs in this round. With the lock.
    pub each: AtomicU64,
    /// Waits with a time limit that were notified.
    pub timely: AtomicU64,
    pub timeouts: AtomicU64,
    pub children: AtomicU64,
}

/// Items are numbered in the order in which they are put in. With the lock.
#[derive(Debug)]
struct Queue {
    items: [AtomicU64; MOST],
    room: AtomicU64,
    put: AtomicU64,
    got: AtomicU64,
}

/// A thread at the board: one of the crew, or a child of one.
pub(super) struct Player {
    pub name: u32,
    pub random: Random,
    pub injector: Injector,
}

/// A notification to be made when the lock is free.
pub(super) enum Call {
    One(usize),
    All(usize),
}

impl Board {
    pub fn new(monitor: Box<dyn Monitor>) -> Self {
        Board {
            monitor,
            state: SharedState::new(),
            queue: Queue {
                items: [const { AtomicU64::new(0) }; MOST],
                room: AtomicU64::new(1),
                put: AtomicU64::new(0),
                got: AtomicU64::new(0),
            },
            broken: OnceLock::new(),
            counts: Counts::default(),
        }
    }

    /// The number of critical sections.
    pub fn sections(&self) -> u64 {
        self.counts.sections.load(Relaxed)
    }

    pub fn contract(&self) -> Result<String, String> {
        match self.broken.get() {
            None => Ok(format!(
                "{} items in order, no wait ended before its time",
                self.queue.got.load(Relaxed)
            )),
            Some(what) => Err(what.clone()),
        }
    }

    // ---- with the lock -------------------------------------------------------------------------

    /// Takes the lock, runs `act`, releases the lock and then makes the notification that `act`
    /// returns. For the watchdog all that is one wait of `worker`'s.
    pub fn visit(
        &self,
        worker: &mut Worker,
        me: &mut Player,
        act: impl FnOnce(&Self, &mut Player) -> Option<Call>,
    ) {
        let mut call = None;
        let all = |lock: &dyn TestLock| {
            lock.lock();
            call = act(self, me);
            true
        };
        worker.with_lock(self.monitor.lock(), all, |_| ());
        self.call(call, me);
    }

    /// As [`visit`](Self::visit), for a thread that is not of the crew.
    pub fn visit_alone(
        &self,
        me: &mut Player,
        act: impl FnOnce(&Self, &mut Player) -> Option<Call>,
    ) {
        self.monitor.lock().lock();
        let call = act(self, me);
        // SAFETY: invariant 2.
        unsafe { self.monitor.lock().unlock() };
        self.call(call, me);
    }

    pub fn section(&self, me: &mut Player) {
        self.counts.sections.fetch_add(1, Relaxed);
        self.state.section(me.name, || me.injector.point());
    }

    /// Waits until it is `ready`. `false`: the time was up. Then it does not look again, so that a
    /// notification that this wait has swallowed is missed.
    pub fn wait(
        &self,
        me: &mut Player,
        condvar: usize,
        patience: Patience,
        ready: impl Fn(&Self) -> bool,
    ) -> bool {
        while !ready(self) {
            // SAFETY: invariant 1.
            let notified = unsafe { self.monitor.wait(condvar, patience.limit()) };
            let hasty = !notified && patience.lasts();
            // The lock is held again in either case.
            self.section(me);
            if hasty {
                self.violated(|| "a wait ended before its time".to_owned());
            }
            if !notified {
                self.counts.timeouts.fetch_add(1, Relaxed);
                return false;
            }
            if !matches!(patience, Patience::Endless) {
                self.counts.timely.fetch_add(1, Relaxed);
            }
        }
        true
    }

    /// Waits until it is `ready`, now and then with a time limit, and with a new one when it is up.
    pub fn wait_patiently(&self, me: &mut Player, condvar: usize, ready: impl Fn(&Self) -> bool) {
        loop {
            let limited = me.random.one_in(8);
            let patience = match limited {
                true => me.limited_patience(),
                false => Patience::Endless,
            };
            if self.wait(me, condvar, patience, &ready) {
                return;
            }
        }
    }

    /// Puts an item into the queue, as soon as there is room.
    pub fn give(&self, me: &mut Player) -> Option<Call> {
        self.wait_patiently(me, ROOM, |board| {
            board.queue.len() < board.queue.room.load(Relaxed)
        });
        self.section(me);
        self.put();
        self.notify(me, ITEM)
    }

    /// Gets an item from the queue, unless the time is up before.
    pub fn take(&self, me: &mut Player, patience: Patience) -> (bool, Option<Call>) {
        if !self.wait(me, ITEM, patience, |board| board.queue.len() > 0) {
            return (false, None);
        }
        self.section(me);
        self.get();
        (true, self.notify(me, ROOM))
    }

    /// Draws the parameters of the next round.
    pub fn prepare(&self, me: &mut Player) {
        let room = [1, 2, 8, MOST as u64][me.random.below(4) as usize];
        self.queue.room.store(room, Relaxed);
        self.counts.each.store(1 + me.random.below(3), Relaxed);
    }

    /// When all have arrived no item is left.
    pub fn expect_rest(&self) {
        if self.queue.len() != 0 {
            self.violated(|| format!("{} items are left after a round", self.queue.len()));
        }
    }

    fn put(&self) {
        let (number, room) = (self.queue.put.load(Relaxed), self.queue.room.load(Relaxed));
        if self.queue.len() >= room {
            self.violated(|| format!("an item was put into a queue that held {room}"));
        }
        self.queue.items[number as usize % MOST].store(number, Relaxed);
        self.queue.put.store(number + 1, Relaxed);
    }

    fn get(&self) {
        let number = self.queue.got.load(Relaxed);
        let item = self.queue.items[number as usize % MOST].load(Relaxed);
        if self.queue.len() == 0 {
            self.violated(|| "an item was taken from an empty queue".to_owned());
        } else if item != number {
            self.violated(|| format!("item {item} came in the place of item {number}"));
        }
        self.queue.got.store(number + 1, Relaxed);
    }

    fn violated(&self, what: impl FnOnce() -> String) {
        self.broken.get_or_init(what);
    }

    // ---- notifying -----------------------------------------------------------------------------

    /// Wakes at least one waiter: at once, with the lock held, or later.
    pub fn notify(&self, me: &mut Player, condvar: usize) -> Option<Call> {
        if me.random.one_in(8) {
            return self.notify_all_now_or_later(me, condvar);
        }
        if me.random.one_in(2) {
            return Some(Call::One(condvar));
        }
        self.monitor.notify_one(condvar);
        None
    }

    pub fn notify_all_now_or_later(&self, me: &mut Player, condvar: usize) -> Option<Call> {
        if me.random.one_in(2) {
            return Some(Call::All(condvar));
        }
        self.monitor.notify_all(condvar);
        None
    }

    fn call(&self, call: Option<Call>, me: &mut Player) {
        me.injector.point();
        match call {
            None => {}
            Some(Call::One(condvar)) => self.monitor.notify_one(condvar),
            Some(Call::All(condvar)) => self.monitor.notify_all(condvar),
        }
    }

    /// A player with a name of its own.
    pub fn new_child(&self, parent: &mut Player) -> Player {
        let name = 1_000_000 + self.counts.children.fetch_add(1, Relaxed) as u32;
        Player {
            name,
            random: parent.random.branch(),
            injector: parent.injector.branch(),
        }
    }
}

impl Player {
    /// From no time at all to longer than most waits; mostly long enough to fall asleep.
    pub fn limited_patience(&mut self) -> Patience {
        let shortest = if self.random.one_in(4) { 0 } else { 13 };
        let span = Duration::from_nanos(1 << (shortest + self.random.below(10)));
        Patience::limited(&mut self.random, span)
    }
}

impl Queue {
    fn len(&self) -> u64 {
        let (put, got) = (self.put.load(Relaxed), self.got.load(Relaxed));
        put.saturating_sub(got)
    }
}
