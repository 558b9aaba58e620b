//! The order in which things happen.

#[cfg(test)]
mod tests;

use super::{State, Stuck, World};
use std::collections::VecDeque;

/// By how many places a time limit may be out of order and still be put among the other limits.
/// Threads run ahead of each other by about an access, so a few limits are slightly out of order.
const OUT_OF_ORDER: usize = 32;

/// A planned event. Of two events at the same time, the one that was planned first comes first.
#[derive(Clone, Copy, Debug)]
struct Event {
    time: u64,
    number: u64,
    thread: usize,
    /// The epoch of the thread's wait.
    epoch: u32,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// The thread goes on.
    Step,
    /// The time limit of its wait is over.
    TimeLimit,
    /// Its time slice is over while it spins.
    SliceEnd,
}

/// All planned events.
#[derive(Debug)]
pub(super) struct Events {
    /// All events that are not in `limits`, the earliest one last. Most new events come before all
    /// but a few of the others, so the place of a new one is searched from the end. A heap is
    /// slower by a quarter.
    others: Vec<Event>,
    /// Most time limits, in order. There are many, most are void when their time comes, and most
    /// are planned in order. Among the other events they would slow these down.
    limits: VecDeque<Event>,
    planned: u64,
    /// The time of the earliest event.
    pub(super) earliest: u64,
}

impl Events {
    pub(super) fn new() -> Self {
        Events {
            others: Vec::new(),
            limits: VecDeque::new(),
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
            thread,
            epoch,
            what,
        };
        self.earliest = self.earliest.min(time);
        if what != What::TimeLimit || !self.plan_limit(event) {
            let earlier = self.others.iter().rev();
            let earlier = earlier.take_while(|other| other.time <= time).count();
            self.others.insert(self.others.len() - earlier, event);
        }
    }

    /// Puts a time limit among the other limits, unless it is too far out of order. Returns whether
    /// it did.
    fn plan_limit(&mut self, event: Event) -> bool {
        let in_order = |limit: &&Event| limit.time > event.time;
        let later = self.limits.iter().rev().take(OUT_OF_ORDER + 1);
        let later = later.take_while(in_order).count();
        if later > OUT_OF_ORDER {
            return false;
        }
        self.limits.insert(self.limits.len() - later, event);
        true
    }

    /// Removes the earliest event.
    #[inline(always)]
    fn pop(&mut self) -> Option<Event> {
        let event = match self.earliest_limit() {
            None => self.others.pop()?,
            Some(_) => self.limits.pop_front()?,
        };
        let limit = self.limits.front().map_or(u64::MAX, |limit| limit.time);
        let other = self.others.last().map_or(u64::MAX, |other| other.time);
        self.earliest = limit.min(other);
        Some(event)
    }

    /// The earliest event, if it is one of `limits`.
    #[inline]
    fn earliest_limit(&self) -> Option<&Event> {
        let limit = self.limits.front()?;
        let is_first = |other: &Event| (limit.time, limit.number) < (other.time, other.number);
        self.others.last().is_none_or(is_first).then_some(limit)
    }
}

impl World {
    /// The next thread to run. `None` if there is none; [`verdict`](Self::verdict) says why.
    pub(super) fn next(&mut self) -> Option<usize> {
        loop {
            if self.accesses > self.setup.max_accesses {
                return None;
            }
            let event = self.events.pop()?;
            let id = event.thread;
            if event.epoch != self.threads[id].epoch {
                continue;
            }
            if event.time > self.setup.limit {
                self.too_late = true;
                return None;
            }
            if self.due(id, event.time, event.what) {
                self.current = id;
                if self.go_on() {
                    return Some(id);
                }
            }
        }
    }

    /// How the run ended, when there is no thread to run.
    pub(super) fn verdict(&self) -> Result<(), Stuck> {
        if self.too_late || self.accesses > self.setup.max_accesses {
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
            && self.accesses <= self.setup.max_accesses
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

    /// Forgets the earliest limits whose waits are over. If the current thread gave way to them, it
    /// would fall behind other threads that are due at the same time, and a void limit would decide
    /// the order.
    fn forget_void_limits(&mut self) {
        while let Some(limit) = self.events.earliest_limit() {
            if limit.epoch == self.threads[limit.thread].epoch {
                return;
            }
            self.events.pop();
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
