//! In which order things happen.

#[cfg(test)]
mod tests;

use super::doing::Look;
use super::{State, Stuck, World};
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

/// How far out of order a time limit may be and still find its place among the others. Threads run ahead of each other by
/// an access or so, thus a few limits are a little out of order.
const NEAR: usize = 32;

/// What is going to happen: at its time; of two at the same time, first the one that was planned first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    time: u64,
    number: u64,
    thread: u32,
    epoch: u32,
    pub(super) what: What,
}

impl Event {
    #[inline]
    pub(super) fn time(&self) -> u64 {
        self.time
    }

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

/// All events that are planned.
#[derive(Debug)]
pub(super) struct Events {
    heap: BinaryHeap<Event>,
    /// Time limits, in order. There are many, most are void by the time they come, and most come in the order in which
    /// they are planned: they would only make the heap deep.
    limits: VecDeque<Event>,
    /// The thread that runs has planned to go on and is about to be suspended.
    return_planned: Option<Event>,
    planned: u64,
    /// The time of the earliest.
    pub(super) earliest: u64,
}

impl Events {
    pub(super) fn new() -> Self {
        Events {
            heap: BinaryHeap::new(),
            limits: VecDeque::new(),
            return_planned: None,
            planned: 0,
            earliest: u64::MAX,
        }
    }

    fn make(&mut self, time: u64, thread: usize, epoch: u32, what: What) -> Event {
        self.planned += 1;
        Event {
            time,
            number: self.planned,
            thread: thread as u32,
            epoch,
            what,
        }
    }

    fn push(&mut self, event: Event) {
        self.earliest = self.earliest.min(event.time());
        if event.what == What::TimeLimit {
            let in_order = |limit: &&Event| limit.order() > event.order();
            let later = self.limits.iter().rev().take(NEAR + 1);
            let later = later.take_while(in_order).count();
            if later <= NEAR {
                self.limits.insert(self.limits.len() - later, event);
                return;
            }
        }
        self.heap.push(event);
    }

    /// Removes the earliest.
    #[inline]
    fn pop(&mut self) -> Option<Event> {
        if let Some(own) = self.return_planned.take() {
            // It was planned last: of two at the same time it is the second.
            if own.time < self.earliest {
                return Some(own);
            }
            if self.limit_first() {
                self.heap.push(own);
            } else {
                // Cheaper than to push and to pop.
                let top = self.heap.peek_mut();
                let event = top.map(|mut top| std::mem::replace(&mut *top, own));
                self.note_earliest();
                return event;
            }
        }
        let event = if self.limit_first() {
            self.limits.pop_front()
        } else {
            self.heap.pop()
        };
        self.note_earliest();
        event
    }

    /// Whether the earliest is in `limits`.
    #[inline]
    fn limit_first(&self) -> bool {
        match (self.limits.front(), self.heap.peek()) {
            (Some(limit), Some(first)) => limit.order() < first.order(),
            (limit, _) => limit.is_some(),
        }
    }

    #[inline]
    fn note_earliest(&mut self) {
        let first = self.heap.peek().map_or(u64::MAX, Event::time);
        let limit = self.limits.front().map_or(u64::MAX, Event::time);
        self.earliest = first.min(limit);
    }
}

impl World {
    /// The thread to go on; `None` when all have ended.
    pub(super) fn next(&mut self) -> Result<Option<usize>, Stuck> {
        loop {
            if self.accesses > self.max_accesses {
                return Err(Stuck::Endless(self.describe()));
            }
            let Some(event) = self.events.pop() else {
                break;
            };
            let id = event.thread as usize;
            if event.epoch != self.threads[id].epoch {
                continue;
            }
            if event.time() > self.limit {
                return Err(Stuck::Endless(self.describe()));
            }
            if self.due(id, event) {
                self.switches += 1;
                self.current = id;
                let thread = &mut self.threads[id];
                let pending = thread.pending.take();
                let pending = pending.or_else(|| thread.look.as_ref().map(Look::access));
                if self.go_on(pending) {
                    return Ok(Some(id));
                }
            }
        }
        if self.ended == self.threads.len() {
            Ok(None)
        } else {
            Err(Stuck::Deadlock(self.describe()))
        }
    }

    pub(super) fn plan(&mut self, time: u64, thread: usize, what: What) {
        let epoch = self.threads[thread].epoch;
        let event = self.events.make(time, thread, epoch, what);
        self.events.push(event);
    }

    /// Plans that the current thread, which is about to be suspended, goes on when others had their turn.
    #[inline]
    pub(super) fn plan_return(&mut self) {
        let thread = &self.threads[self.current];
        let event = self
            .events
            .make(thread.now, self.current, thread.epoch, What::Step);
        debug_assert!(self.events.return_planned.is_none());
        self.events.return_planned = Some(event);
    }

    /// Whether the current thread has to let others go first: then its return is planned.
    #[inline]
    pub(super) fn must_yield(&mut self) -> bool {
        let thread = &self.threads[self.current];
        let go_on = thread.now <= self.events.earliest
            && thread.now < thread.preempt_at
            && self.accesses <= self.max_accesses;
        !go_on && self.yield_if_possible()
    }

    #[inline(never)]
    fn yield_if_possible(&mut self) -> bool {
        let yielder = self.threads[self.current].yielder;
        if self.in_one_step || yielder.is_null() || self.over {
            return false;
        }
        self.leave_for_now();
        true
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
