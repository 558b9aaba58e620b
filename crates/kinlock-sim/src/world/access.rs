//! The memory path: what one access of a thread does, and who spins on what.

use super::coroutine::wait_for_turn;
use super::{State, What, World, next_random, with};
use crate::coherence::{Kind, Place, Service};
use crate::run::Traffic;
use kinlock::platform::NEVER;
use std::rc::Rc;

/// One access of the current thread to the line at `address`.
#[inline]
pub(crate) fn access(address: usize, kind: Kind, how: How) {
    if let Some(handler) = with(World::count_access) {
        interrupt(&handler);
    }
    wait_for_turn();
    // A store's request travels too, but its thread does not wait.
    if how != How::Store && with(|w| w.send_request(address, kind, how)) {
        wait_for_turn();
    }
    with(|w| w.access(address, kind, how));
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

    /// Sends a request for a line that is elsewhere. Whether there is one.
    #[inline]
    fn send_request(&mut self, address: usize, kind: Kind, how: How) -> bool {
        let thread = &self.threads[self.current];
        let per_cache = self.machine.shape.cores_per_cache as u16;
        let owner_place = |core: u16| Place {
            core,
            cache: core / per_cache,
        };
        let line = self.lines.at(address);
        let travel = self.fabric.travel(line, kind, thread.place, owner_place);
        let thread = &mut self.threads[self.current];
        if how == How::Locked {
            thread.now = thread.now.max(thread.drained);
        }
        thread.now += travel;
        thread.travelled = travel;
        travel != 0
    }

    #[inline]
    fn access(&mut self, address: usize, kind: Kind, how: How) {
        let thread = &self.threads[self.current];
        let (place, now, drained) = (thread.place, thread.now, thread.drained);
        let from = if how == How::Locked {
            now.max(drained)
        } else {
            now
        };
        let line = self.lines.at(address);
        let per_cache = self.machine.shape.cores_per_cache as u16;
        let owner_place = |core: u16| Place {
            core,
            cache: core / per_cache,
        };
        let (mut done, service) = self.fabric.access(line, kind, place, owner_place, from);
        if how != How::Store {
            done = done
                .saturating_sub(self.threads[self.current].travelled)
                .max(from);
        }
        self.traffic.count(service);
        let mut visible = done;
        let thread = &mut self.threads[self.current];
        match how {
            How::Load => thread.now = done,
            How::Store => {
                // Stores become visible in program order; their requests overlap.
                visible = done.max(drained);
                thread.drained = visible;
                thread.now = now + 1;
            }
            How::Locked => thread.now = done + self.fabric.costs.rmw,
        }
        if kind == Kind::Write && !line.spinners.is_empty() {
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
