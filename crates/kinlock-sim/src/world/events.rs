//! In which order things happen.

use super::{State, Stuck, World, Yielder};
use std::cmp::Reverse;

/// What is going to happen: at its time; of two at the same time, first the one that was planned first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Event {
    pub(super) time: u64,
    seq: u64,
    pub(super) thread: u32,
    epoch: u32,
    pub(super) what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum What {
    /// The thread goes on.
    Step,
    /// The time limit of its wait is over.
    TimeLimit,
    /// Its time slice is over while it spins.
    SliceEnd,
}

impl World {
    /// The thread to go on; `None` when all have ended.
    pub(super) fn next(&mut self) -> Result<Option<usize>, Stuck> {
        if self.accesses > self.max_accesses {
            return Err(Stuck::Endless(self.describe()));
        }
        while let Some(Reverse(event)) = self.heap.pop() {
            let id = event.thread as usize;
            if event.epoch != self.threads[id].epoch {
                continue;
            }
            if event.time > self.limit {
                return Err(Stuck::Endless(self.describe()));
            }
            if self.due(id, event) {
                self.switches += 1;
                self.current = id;
                return Ok(Some(id));
            }
        }
        if self.ended == self.threads.len() {
            Ok(None)
        } else {
            Err(Stuck::Deadlock(self.describe()))
        }
    }

    pub(super) fn plan(&mut self, time: u64, thread: usize, what: What) {
        self.seq += 1;
        self.heap.push(Reverse(Event {
            time,
            seq: self.seq,
            thread: thread as u32,
            epoch: self.threads[thread].epoch,
            what,
        }));
    }

    /// Whether the current thread has to let others go first: then its return is planned.
    #[inline]
    pub(super) fn must_yield(&mut self) -> Option<*const Yielder<(), ()>> {
        let thread = &self.threads[self.current];
        let now = thread.now;
        let others_first = self.heap.peek().is_some_and(|Reverse(e)| e.time < now);
        let go_on = !others_first && now < thread.preempt_at && self.accesses <= self.max_accesses;
        if go_on || self.in_one_step || thread.yielder.is_null() || self.over {
            return None;
        }
        Some(self.leave_for_now())
    }

    fn describe(&self) -> String {
        let mut text = String::new();
        for (id, thread) in self.threads.iter().enumerate() {
            let what = match thread.state {
                State::Running => "runs",
                State::Spinning => "spins",
                State::Queued => "waits for a CPU",
                State::Parked(_) => "sleeps",
                State::Ended => continue,
            };
            let separator = if text.is_empty() { "" } else { ", " };
            text += &format!("{separator}thread {id} {what}");
        }
        text
    }
}
