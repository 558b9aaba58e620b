//! What the threads share: a monitor, a bounded queue, the state of the round, and what was found wrong.
//!
//! # Invariants
//!
//! 1. [`Board::wait`] is called with the lock held, by what [`Board::visit`] and [`Board::visit_alone`] run while they hold it.
//! 2. `visit_alone` releases the lock that it has just taken.

use super::{ITEM, ROOM};
use crate::crew::Worker;
use crate::injector::Injector;
use crate::monitors::{Limit, Monitor};
use crate::oracle::SharedState;
use crate::random::Random;
use crate::test_lock::TestLock;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::{Duration, Instant, SystemTime};

/// The most items that the queue ever holds.
const MOST: usize = 64;

/// See the module. What says so is changed with the lock held only.
pub(super) struct Board {
    pub monitor: Box<dyn Monitor>,
    pub state: SharedState,
    sections: AtomicU64,
    /// How many rounds have begun. With the lock.
    pub rounds: AtomicU64,
    /// How many members have arrived at the end of the round. With the lock.
    pub arrived: AtomicU64,
    /// The round that has begun is none: everybody goes. With the lock.
    pub over: AtomicBool,
    /// How many items a taker needs in this round. With the lock.
    pub each: AtomicU64,
    queue: Queue,
    broken: OnceLock<String>,
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

/// A notification that is still to come, when the lock is free.
pub(super) enum Call {
    One(usize),
    All(usize),
}

/// How long somebody waits.
#[derive(Clone, Copy)]
pub(super) enum Patience {
    Endless,
    /// Up to this moment, on one of the clocks.
    Limited(Clock, Instant, SystemTime),
}

#[derive(Clone, Copy)]
pub(super) enum Clock {
    Span,
    Moment,
    TimeOfDay,
}

impl Patience {
    /// From no time at all to longer than most waits; mostly so long that there is time to fall asleep.
    pub fn limited(random: &mut Random) -> Self {
        let shortest = if random.one_in(4) { 0 } else { 13 };
        let span = Duration::from_nanos(1 << (shortest + random.below(10)));
        let clock = [Clock::Span, Clock::Moment, Clock::TimeOfDay][random.below(3) as usize];
        Patience::Limited(clock, Instant::now() + span, SystemTime::now() + span)
    }

    fn limit(self) -> Limit {
        match self {
            Patience::Endless => Limit::Never,
            Patience::Limited(Clock::Span, moment, _) => {
                Limit::For(moment.saturating_duration_since(Instant::now()))
            }
            Patience::Limited(Clock::Moment, moment, _) => Limit::Until(moment),
            Patience::Limited(Clock::TimeOfDay, _, moment) => Limit::System(moment),
        }
    }

    /// Whether it ought to last. The time of day may be set back, which the other clock tells.
    fn lasts(self) -> bool {
        match self {
            Patience::Endless => true,
            Patience::Limited(Clock::TimeOfDay, moment, time) => {
                Instant::now() < moment && SystemTime::now() < time
            }
            Patience::Limited(_, moment, _) => Instant::now() < moment,
        }
    }
}

impl Board {
    pub fn new(monitor: Box<dyn Monitor>) -> Self {
        Board {
            monitor,
            state: SharedState::new(),
            sections: AtomicU64::new(0),
            rounds: AtomicU64::new(0),
            arrived: AtomicU64::new(0),
            over: AtomicBool::new(false),
            each: AtomicU64::new(1),
            queue: Queue {
                items: [const { AtomicU64::new(0) }; MOST],
                room: AtomicU64::new(1),
                put: AtomicU64::new(0),
                got: AtomicU64::new(0),
            },
            broken: OnceLock::new(),
            timely: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            children: AtomicU64::new(0),
        }
    }

    /// How often somebody was inside.
    pub fn sections(&self) -> u64 {
        self.sections.load(Relaxed)
    }

    pub fn contract(&self) -> Result<String, String> {
        match self.broken.get() {
            None => Ok(format!(
                "{} items in order, nobody gave up before its time",
                self.queue.got.load(Relaxed)
            )),
            Some(what) => Err(what.clone()),
        }
    }

    // ---- with the lock ---------------------------------------------------------------------------------------

    /// Takes the lock, does what `act` does, releases the lock and then calls whom it says. Nothing else is `worker`'s section: the watchdog is to see how long it all takes.
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

    /// The same for a thread that is not of the crew.
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
        self.sections.fetch_add(1, Relaxed);
        self.state.section(me.name, || me.injector.point());
    }

    /// Waits until it is `ready`. `false`: the time was up. Then nobody has looked again, so that a notification that this wait has taken without saying so is missed.
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
            // The lock is held again, whatever has come of the wait.
            self.section(me);
            if hasty {
                self.violated(|| "a wait ended before its time".to_owned());
            }
            if !notified {
                self.timeouts.fetch_add(1, Relaxed);
                return false;
            }
            if !matches!(patience, Patience::Endless) {
                self.timely.fetch_add(1, Relaxed);
            }
        }
        true
    }

    /// Waits until it is `ready`, now and then with time limits. With a new one when the time is up, as somebody does who wants to look at something else in between.
    pub fn wait_in_turns(&self, me: &mut Player, condvar: usize, ready: impl Fn(&Self) -> bool) {
        loop {
            let limited = me.random.one_in(8);
            let patience = match limited {
                true => Patience::limited(&mut me.random),
                false => Patience::Endless,
            };
            if self.wait(me, condvar, patience, &ready) {
                return;
            }
        }
    }

    /// Puts an item into the queue, as soon as there is room.
    pub fn give(&self, me: &mut Player) -> Option<Call> {
        self.wait_in_turns(me, ROOM, |board| {
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

    /// Draws what the next round is like.
    pub fn prepare(&self, me: &mut Player) {
        let room = [1, 2, 8, MOST as u64][me.random.below(4) as usize];
        self.queue.room.store(room, Relaxed);
        self.each.store(1 + me.random.below(3), Relaxed);
    }

    /// When all have arrived nothing is left.
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

    // ---- notifying -------------------------------------------------------------------------------------------

    /// Wakes at least one of those who wait: at once, with the lock held, or later.
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

    // ---- children --------------------------------------------------------------------------------------------

    /// Somebody whom no other thread is called like.
    pub fn new_child(&self, parent: &mut Player) -> Player {
        let name = 1_000_000 + self.children.fetch_add(1, Relaxed) as u32;
        Player {
            name,
            random: parent.random.branch(),
            injector: parent.injector.branch(),
        }
    }
}

impl Queue {
    fn len(&self) -> u64 {
        let (put, got) = (self.put.load(Relaxed), self.got.load(Relaxed));
        put.saturating_sub(got)
    }
}
