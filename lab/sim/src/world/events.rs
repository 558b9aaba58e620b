//! The order in which things happen.

#[cfg(test)]
mod tests;

use super::{State, Stuck, World};
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

/// How many of the earliest events are kept in order.
const NEAR: usize = 32;

/// How many are fetched when there are none left.
const FETCHED: usize = 8;

/// How far out of order a time limit may be and still be put among the others. Threads run ahead of
/// each other by an access or so, thus a few limits are a little out of order.
const OUT_OF_ORDER: usize = 32;

/// A planned event. Of two at the same time, the one that was planned first comes first.
#[derive(Clone, Copy, Debug)]
struct Event {
    time: u64,
    number: u64,
    whose: Whose,
}

/// The thread of an event, the epoch of its wait, and what happens; packed, since events move
/// often.
#[derive(Clone, Copy, Debug)]
struct Whose(u64);

impl Whose {
    #[inline]
    fn new(thread: usize, epoch: u32, what: What) -> Self {
        Whose((epoch as u64) << 32 | (thread as u64) << 2 | what as u64)
    }

    #[inline]
    fn thread(self) -> usize {
        self.0 as u32 as usize >> 2
    }

    #[inline]
    fn epoch(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline]
    fn what(self) -> What {
        match self.0 & 3 {
            0 => What::Step,
            1 => What::TimeLimit,
            _ => What::SliceEnd,
        }
    }
}

impl Event {
    const NONE: Event = Event {
        time: u64::MAX,
        number: u64::MAX,
        whose: Whose(0),
    };

    #[inline]
    fn order(&self) -> u128 {
        (self.time as u128) << 64 | self.number as u128
    }
}

/// The earliest is the greatest, as [`BinaryHeap`] wants it.
impl Ord for Event {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        other.order().cmp(&self.order())
    }
}

impl PartialOrd for Event {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Event {}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// The thread goes on.
    Step,
    /// The time limit of its wait is over.
    TimeLimit,
    /// Its time slice is over while it spins.
    SliceEnd,
}

/// All planned events. Most are planned for soon, before all but a few of the others. A short
/// ordered list has those, and a new event searches its place there from the front.
#[derive(Debug)]
pub(super) struct Events {
    /// The earliest ones except `limits`, the last one first. Empty only if `far` is empty too.
    near: [Event; NEAR],
    /// How many there are.
    len: usize,
    far: BinaryHeap<Event>,
    /// The time of the earliest that is far.
    earliest_far: u64,
    /// Most time limits, in order. They are many, most are void by the time they come, and most
    /// come in the order in which they are planned. Elsewhere they would slow the others down.
    limits: VecDeque<Event>,
    /// The time of the earliest limit.
    earliest_limit: u64,
    planned: u64,
    /// The time of the earliest of all.
    pub(super) earliest: u64,
}

impl Events {
    pub(super) fn new() -> Self {
        Events {
            near: [Event::NONE; NEAR],
            len: 0,
            far: BinaryHeap::new(),
            earliest_far: u64::MAX,
            limits: VecDeque::new(),
            earliest_limit: u64::MAX,
            planned: 0,
            earliest: u64::MAX,
        }
    }

    #[inline]
    fn plan(&mut self, time: u64, thread: usize, epoch: u32, what: What) {
        self.planned += 1;
        let event = Event {
            time,
            number: self.planned,
            whose: Whose::new(thread, epoch, what),
        };
        self.earliest = self.earliest.min(time);
        if what == What::TimeLimit && self.plan_limit(event) {
            return;
        }
        if self.len == NEAR {
            self.make_room();
        }
        if time >= self.earliest_far {
            // It was planned later, so it comes after that one.
            self.far.push(event);
            return;
        }
        let mut place = self.len;
        while place > 0 && self.near[place - 1].time <= time {
            self.near[place] = self.near[place - 1];
            place -= 1;
        }
        self.near[place] = event;
        self.len += 1;
    }

    /// Puts a time limit among the others, unless it is too far out of order. Returns whether it
    /// did.
    fn plan_limit(&mut self, event: Event) -> bool {
        let in_order = |limit: &&Event| limit.time > event.time;
        let later = self.limits.iter().rev().take(OUT_OF_ORDER + 1);
        let later = later.take_while(in_order).count();
        if later > OUT_OF_ORDER {
            return false;
        }
        self.limits.insert(self.limits.len() - later, event);
        self.earliest_limit = self.earliest_limit.min(event.time);
        true
    }

    /// Moves the later half of the near events to the far ones.
    #[cold]
    fn make_room(&mut self) {
        let half = NEAR / 2;
        self.far.extend(&self.near[..half]);
        self.near.copy_within(half.., 0);
        self.len -= half;
        self.note_earliest_far();
    }

    /// Removes the earliest.
    #[inline(always)]
    fn pop(&mut self) -> Option<(u64, Whose)> {
        if self.limit_first() {
            return self.pop_limit();
        }
        let last = self.len.checked_sub(1)?;
        let Event { time, whose, .. } = self.near[last];
        self.len = last;
        if last == 0 {
            self.fetch();
        }
        self.note_earliest();
        Some((time, whose))
    }

    /// Whether a limit is the earliest of all.
    #[inline]
    fn limit_first(&self) -> bool {
        let limit = self.earliest_limit;
        let Some(last) = self.len.checked_sub(1) else {
            return limit != u64::MAX;
        };
        let first = self.near[last].time;
        limit < first || limit == first && self.limits[0].number < self.near[last].number
    }

    #[inline(never)]
    fn pop_limit(&mut self) -> Option<(u64, Whose)> {
        let limit = self.limits.pop_front()?;
        self.earliest_limit = self.limits.front().map_or(u64::MAX, |limit| limit.time);
        self.note_earliest();
        Some((limit.time, limit.whose))
    }

    /// No event is near: fetches the next ones from the far events.
    #[inline(never)]
    fn fetch(&mut self) {
        let n = FETCHED.min(self.far.len());
        for place in (0..n).rev() {
            self.near[place] = self.far.pop().expect("there are so many");
        }
        self.len = n;
        self.note_earliest_far();
    }

    fn note_earliest_far(&mut self) {
        self.earliest_far = self.far.peek().map_or(u64::MAX, |event| event.time);
    }

    #[inline]
    fn note_earliest(&mut self) {
        let near = match self.len {
            0 => u64::MAX,
            len => self.near[len - 1].time,
        };
        self.earliest = near.min(self.earliest_limit);
    }
}

impl World {
    /// The thread to go on. `None` if there is none; [`verdict`](Self::verdict) says why.
    pub(super) fn next(&mut self) -> Option<usize> {
        loop {
            if self.accesses > self.max_accesses {
                return None;
            }
            let (time, whose) = self.events.pop()?;
            let id = whose.thread();
            if whose.epoch() != self.threads[id].epoch {
                continue;
            }
            if time > self.limit {
                self.too_late = true;
                return None;
            }
            if self.due(id, time, whose.what()) {
                self.switches += 1;
                self.current = id;
                if self.go_on() {
                    return Some(id);
                }
            }
        }
    }

    /// How the run ended, when no thread is to go on.
    pub(super) fn verdict(&self) -> Result<(), Stuck> {
        if self.too_late || self.accesses > self.max_accesses {
            Err(Stuck::Endless(self.describe()))
        } else if self.ended == self.threads.len() {
            Ok(())
        } else {
            Err(Stuck::Deadlock(self.describe()))
        }
    }

    #[inline]
    pub(super) fn plan(&mut self, time: u64, thread: usize, what: What) {
        let epoch = self.threads[thread].epoch;
        self.events.plan(time, thread, epoch, what);
    }

    /// Whether the current thread has to let others go first. If so, its return is planned.
    #[inline]
    pub(super) fn must_yield(&mut self) -> bool {
        !self.may_go_on() && self.yield_if_possible()
    }

    #[inline]
    fn may_go_on(&self) -> bool {
        let thread = &self.threads[self.current];
        thread.now <= self.events.earliest
            && thread.now < thread.preempt_at
            && self.accesses <= self.max_accesses
    }

    #[inline(never)]
    fn yield_if_possible(&mut self) -> bool {
        let yielder = self.threads[self.current].yielder;
        if self.in_one_step || yielder.is_null() || self.over {
            return false;
        }
        self.forget_void_limits();
        if self.may_go_on() {
            return false;
        }
        self.leave_for_now();
        true
    }

    /// Forgets the earliest limits whose waits are over. If the current thread let them go first,
    /// it would fall behind other threads that are due at the same time: a void limit would decide
    /// the order.
    fn forget_void_limits(&mut self) {
        while self.events.limit_first() {
            let whose = self.events.limits[0].whose;
            if whose.epoch() == self.threads[whose.thread()].epoch {
                return;
            }
            self.events.pop_limit();
        }
    }

    fn describe(&self) -> String {
        let mut text = String::new();
        for (id, thread) in self.threads.iter().enumerate() {
            let what = match thread.state {
                State::Running => "runs",
                State::Spinning => "spins",
                State::Queued => "waits for a CPU",
                State::Parked => "sleeps",
                State::Ended => continue,
            };
            let separator = if text.is_empty() { "" } else { ", " };
            text += &format!("{separator}thread {id} {what}");
        }
        text
    }
}
