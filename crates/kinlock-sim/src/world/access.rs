//! The memory path: what one access of a thread does, and who spins on what.

use super::coroutine::in_turn;
use super::{State, What, World, next_random, with};
use crate::coherence::{Kind, Service};
use crate::run::Traffic;
use kinlock::platform::NEVER;
use std::rc::Rc;

/// One access of the current thread to the line at `address`.
#[inline]
pub(crate) fn access(address: usize, how: How) {
    if !with(|w| w.hit(address, how)) {
        access_in_turn(address, how);
    }
}

/// An access that may have to wait, that may be disturbed, and for which the line may have to come from elsewhere.
#[inline(never)]
fn access_in_turn(address: usize, how: How) {
    if let Some(handler) = with(World::count_access) {
        interrupt(&handler);
    }
    if let Some(travelled) = in_turn(|w| w.begin(address, how)) {
        in_turn(|w| w.finish(address, how, travelled));
    }
}

/// Runs a handler on the current thread, as a signal does.
#[cold]
fn interrupt(handler: &Rc<dyn Fn(usize)>) {
    let me = with(|w| w.current);
    with(|w| w.threads[me].interrupted = true);
    handler(me);
    with(|w| w.threads[me].interrupted = false);
}

/// How a write or read-modify-write meets the store buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// A load: the thread waits for it.
    Load,
    /// A store: buffered; the line is asked for meanwhile.
    Store,
    /// A locked read-modify-write: the buffer drains first, and the thread waits.
    Locked,
}

impl How {
    #[inline]
    fn kind(self) -> Kind {
        match self {
            How::Load => Kind::Read,
            How::Store | How::Locked => Kind::Write,
        }
    }
}

impl World {
    /// Counts an access, and disturbs it: returns the handler of an interrupt that comes now.
    #[inline]
    fn count_access(&mut self) -> Option<Rc<dyn Fn(usize)>> {
        self.accesses += 1;
        if self.disturbance.is_some() {
            self.disturb()
        } else {
            None
        }
    }

    /// An access that does not have to wait for its turn and hits the core's own caches. Whether it is one.
    #[inline]
    fn hit(&mut self, address: usize, how: How) -> bool {
        if !self.has_turn(1) || self.disturbance.is_some() {
            return false;
        }
        let thread = &mut self.threads[self.current];
        let line = self.lines.at(address);
        if !line.hits(how.kind(), thread.place.core) {
            return false;
        }
        self.accesses += 1;
        self.finish(address, how, 0);
        true
    }

    /// Sends a request for the line if it is elsewhere, unless nobody waits for the answer. For how long it travels; `None`
    /// if the access is finished.
    #[inline]
    fn begin(&mut self, address: usize, how: How) -> Option<u64> {
        // A store's request travels too, but its thread does not wait.
        if how != How::Store {
            let thread = &mut self.threads[self.current];
            let line = self.lines.at(address);
            let travel = self.fabric.travel(line, how.kind(), thread.place);
            if travel != 0 {
                if how == How::Locked {
                    thread.now = thread.now.max(thread.drained);
                }
                thread.now += travel;
                return Some(travel);
            }
        }
        self.finish(address, how, 0);
        None
    }

    /// The access itself, for which a request has already travelled for so long.
    #[inline]
    fn finish(&mut self, address: usize, how: How, travelled: u64) {
        let thread = &mut self.threads[self.current];
        let line = self.lines.at(address);
        let (now, drained) = (thread.now, thread.drained);
        let from = if how == How::Locked {
            now.max(drained)
        } else {
            now
        };
        let (done, service) = self.fabric.access(line, how.kind(), thread.place, from);
        self.traffic.count(service);
        let answered = done.saturating_sub(travelled).max(from);
        let mut visible = answered;
        match how {
            How::Load => thread.now = answered,
            How::Store => {
                // Stores become visible in program order; their requests overlap.
                visible = done.max(drained);
                thread.drained = visible;
                thread.now = now + 1;
            }
            How::Locked => thread.now = answered + self.fabric.costs.rmw,
        }
        if how != How::Load && !line.spinners.is_empty() {
            self.notify(address, visible);
        }
    }

    /// Everybody who spins on the line reads it again.
    #[cold]
    fn notify(&mut self, address: usize, at: u64) {
        let mut spinners = std::mem::take(&mut self.lines.at(address).spinners);
        for &(id, epoch) in &spinners {
            let id = id as usize;
            if self.threads[id].epoch != epoch {
                continue;
            }
            let pause = self.fabric.costs.pause.max(1);
            let thread = &mut self.threads[id];
            thread.epoch += 1;
            thread.state = State::Running;
            // Nobody knows where in its loop it is.
            let phase = next_random(&mut thread.random) % pause;
            thread.now = thread.now.max(at + phase);
            let now = thread.now;
            self.plan(now, id, What::Step);
        }
        spinners.clear();
        // The allocation is worth keeping.
        self.lines.at(address).spinners = spinners;
    }

    pub(super) fn spin(&mut self, address: usize, until: u64) {
        let id = self.current;
        let thread = &mut self.threads[id];
        thread.epoch += 1;
        thread.state = State::Spinning;
        let (epoch, now, preempt_at) = (thread.epoch, thread.now, thread.preempt_at);
        self.stand_in_line();
        self.lines.at(address).spinners.push((id as u32, epoch));
        if until != NEVER {
            self.plan(until.max(now), id, What::TimeLimit);
        }
        if preempt_at != NEVER {
            self.plan(preempt_at.max(now), id, What::SliceEnd);
        }
    }
}

impl Traffic {
    #[inline]
    fn count(&mut self, service: Service) {
        match service {
            Service::OwnCache => self.own_cache += 1,
            Service::LastLevel => self.last_level += 1,
            Service::Local => self.local += 1,
            Service::Remote => self.remote += 1,
            Service::Memory => self.memory += 1,
        }
    }
}
