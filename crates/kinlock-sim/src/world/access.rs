//! The memory path: what one access of a thread does, and who spins on what.

use super::coroutine::suspend_with;
use super::{State, What, World, next_random, with};
use crate::coherence::{Kind, Service};
use crate::run::Traffic;
use corosensei::Yielder;
use kinlock::platform::NEVER;
use std::rc::Rc;

/// One access of the current thread to the line at `address`.
pub(crate) fn access(address: usize, how: How) {
    if with(World::count_access) {
        disturb();
    }
    if let Some(yielder) = with(|w| w.access(address, how)) {
        // It is resumed when the access is finished.
        suspend_with(yielder);
    }
}

/// What may come before an access.
#[cold]
fn disturb() {
    if let Some(handler) = with(World::disturb) {
        interrupt(&handler);
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
    /// A load that only a predicted branch depends on: the thread waits for it only if the line is elsewhere.
    Glance,
    /// A store: buffered; the line is asked for meanwhile.
    Store,
    /// A locked read-modify-write: the buffer drains first, and the thread waits.
    Locked,
}

impl How {
    #[inline]
    fn kind(self) -> Kind {
        match self {
            How::Load | How::Glance => Kind::Read,
            How::Store | How::Locked => Kind::Write,
        }
    }
}

/// An access that a suspended thread is at. The scheduler goes on with it, and resumes the coroutine when it is finished:
/// to switch stacks in between would cost more than the access.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    address: usize,
    how: How,
    /// For how long its request has travelled; 0: it has not been sent.
    travelled: u64,
}

impl World {
    /// Counts an access. Whether something may come before it.
    #[inline]
    fn count_access(&mut self) -> bool {
        self.accesses += 1;
        self.disturbance.is_some()
    }

    /// An access of the current thread. Returns what to suspend it with if it is not finished.
    #[inline]
    fn access(&mut self, address: usize, how: How) -> Option<*const Yielder<(), ()>> {
        let pending = Pending {
            address,
            how,
            travelled: 0,
        };
        if self.go_on(Some(pending)) {
            None
        } else {
            Some(self.threads[self.current].yielder)
        }
    }

    /// Goes on with an access of the current thread, if there is one, as long as nobody is to go first. Whether it is
    /// finished.
    #[inline]
    pub(super) fn go_on(&mut self, mut pending: Option<Pending>) -> bool {
        while let Some(access) = pending {
            if self.must_yield() {
                self.threads[self.current].pending = pending;
                return false;
            }
            pending = if access.travelled == 0 {
                self.begin(access)
            } else {
                self.finish(access);
                None
            };
        }
        true
    }

    /// Sends a request for the line if it is elsewhere, unless nobody waits for the answer. Returns what is left to do.
    #[inline]
    fn begin(&mut self, access: Pending) -> Option<Pending> {
        let Pending { address, how, .. } = access;
        // A store asks at once: its thread does not wait for the line.
        if how != How::Store {
            let thread = &mut self.threads[self.current];
            let line = self.lines.at(address);
            let travelled = self.fabric.travel(line, how.kind(), thread.place);
            if travelled != 0 {
                if how == How::Locked {
                    thread.now = thread.now.max(thread.drained);
                }
                thread.now += travelled;
                return Some(Pending {
                    travelled,
                    ..access
                });
            }
        }
        self.finish(access);
        None
    }

    /// The access itself, when its request has arrived.
    #[inline]
    fn finish(&mut self, access: Pending) {
        let Pending {
            address,
            how,
            travelled,
        } = access;
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
            // Like any instruction that nothing waits for.
            How::Glance if service == Service::OwnCache => {}
            How::Glance => thread.now = answered,
            How::Store => {
                // Stores become visible in program order; their requests overlap.
                visible = done.max(drained);
                thread.drained = visible;
                thread.now = now + 1;
                // Until then nobody sees the value, also not who has not spun on the line before.
                line.delay_until(visible);
            }
            How::Locked => thread.now = answered + self.fabric.costs.rmw,
        }
        if how.kind() == Kind::Write && !line.spinners.is_empty() {
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
