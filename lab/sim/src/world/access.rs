//! The memory path: what one access of a thread does, and which threads spin on a line.

use super::coroutine::suspend_with;
use super::{State, What, World, with};
use crate::coherence::{How, Kind, LINE, Service};
use crate::trace::Served;
use corosensei::Yielder;
use kinlock_core::platform::NEVER;

/// How many loads of one line are sent at once: the number of values that a look at a lock reads.
const LOADS_AT_ONCE: u64 = 3;

/// No load has fetched a line.
pub(super) const NOTHING: (usize, u64) = (usize::MAX, 0);

/// One access of the current thread to the line at `address`.
///
/// The thread is suspended in this inlined function, in its caller's frame, and not in a function
/// that returns here: processors predict return addresses, and mispredict after a switch of stacks.
#[inline(always)]
pub(crate) fn access(address: usize, how: How) {
    if let Some(yielder) = try_access(address, how) {
        // The thread resumes when the access is finished.
        suspend_with(yielder);
    }
}

/// Begins an access. If it is not finished, returns the yielder that suspends the thread.
#[inline(never)]
fn try_access(address: usize, how: How) -> Option<*const Yielder<(), ()>> {
    if with(|w| w.hit(address, how)) {
        return None;
    }
    if with(|w| w.setup.disturbance.is_some()) {
        disturb();
        with(|w| w.prepare_for_glances(how));
    }
    let is_finished = with(|w| w.go_on_with(address, how, 0));
    (!is_finished).then(|| with(|w| w.threads[w.current].yielder))
}

/// Applies the disturbance before an access. A handler may run on the current thread, as a signal's
/// does.
#[cold]
fn disturb() {
    let Some(handler) = with(World::disturb) else {
        return;
    };
    let me = with(|w| w.current);
    with(|w| w.threads[me].interrupted = true);
    handler(me);
    with(|w| w.threads[me].interrupted = false);
}

/// The access in which a thread is suspended. The scheduler continues the access, and resumes the
/// coroutine when it is finished. Switching stacks in between would cost more than the access.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    address: usize,
    /// How long its request has travelled; 0: it has not been sent.
    travelled: u64,
    /// `None`: there is no access.
    how: Option<How>,
}

impl Pending {
    pub(super) const NONE: Pending = Pending {
        address: 0,
        travelled: 0,
        how: None,
    };
}

impl World {
    /// Counts an access, and makes it if it is simple: it hits the core's own caches, no event
    /// comes first, and no other thread notices. Returns whether it was simple.
    #[inline]
    fn hit(&mut self, address: usize, how: How) -> bool {
        self.accesses += 1;
        let thread = &mut self.threads[self.current];
        let line = self.lines.at(address);
        let simple = thread.now <= self.events.earliest
            && thread.now < thread.preempt_at
            && line.hits(how.kind(), thread.place.core)
            && (how.kind() == Kind::Read || line.spinners.is_empty())
            && !self.watched;
        if simple {
            self.traffic.own_cache += 1;
            let cost = self.fabric.costs.own_cache;
            match how {
                How::Load => thread.now += cost,
                // No cost of its own, like any instruction that nothing waits for.
                How::Glance | How::Ahead | How::Prefetch => {}
                How::Store => {
                    thread.drained = thread.drained.max(thread.now + cost);
                    line.delay_until(thread.drained);
                    thread.now += 1;
                }
                How::Locked => {
                    thread.now = thread.now.max(thread.drained) + cost + self.fabric.costs.rmw;
                }
            }
        }
        simple || how.kind() == Kind::Read && self.came_along(address, how)
    }

    /// Makes a load that follows directly on one that has fetched the line: a processor sends both
    /// at once, and one transfer serves both, even if the line is then taken away.
    #[inline]
    fn came_along(&mut self, address: usize, how: How) -> bool {
        let cost = self.fabric.costs.own_cache;
        let thread = &mut self.threads[self.current];
        let (line, at) = thread.fetched;
        let follows = line == address / LINE
            && thread.now < at + (LOADS_AT_ONCE - 1) * cost
            && self.setup.disturbance.is_none();
        if follows {
            self.traffic.own_cache += 1;
            if how == How::Load {
                thread.now += cost;
            }
        }
        follows
    }

    /// Continues the access in which the current thread is suspended, if any, until an earlier
    /// event comes first. Returns whether the coroutine is to be resumed.
    #[inline]
    pub(super) fn go_on(&mut self) -> bool {
        let pending = &mut self.threads[self.current].pending;
        match pending.how.take() {
            None => true,
            Some(how) => {
                let (address, travelled) = (pending.address, pending.travelled);
                self.go_on_with(address, how, travelled)
            }
        }
    }

    fn go_on_with(&mut self, address: usize, how: How, mut travelled: u64) -> bool {
        if travelled == 0 {
            if self.must_yield() {
                return self.put_off(address, how, travelled);
            }
            travelled = self.begin(address, how);
        }
        if travelled != 0 && self.must_yield() {
            return self.put_off(address, how, travelled);
        }
        self.finish(address, how, travelled);
        true
    }

    #[inline]
    fn put_off(&mut self, address: usize, how: How, travelled: u64) -> bool {
        self.threads[self.current].pending = Pending {
            address,
            travelled,
            how: Some(how),
        };
        false
    }

    /// Sends a request for the line if it is elsewhere and the thread waits for it. Returns how
    /// long it travels.
    #[inline(always)]
    fn begin(&mut self, address: usize, how: How) -> u64 {
        let thread = &mut self.threads[self.current];
        let line = self.lines.at(address);
        let travelled = self.fabric.travel(line, how.kind(), thread.place);
        if travelled != 0 {
            if how == How::Locked {
                self.recorder
                    .tell(|recorder| recorder.drains(self.current, thread.now, thread.drained));
                thread.now = thread.now.max(thread.drained);
            }
            thread.now += travelled;
        }
        travelled
    }

    /// The access itself, when its request has arrived.
    #[inline(always)]
    fn finish(&mut self, address: usize, how: How, travelled: u64) {
        let thread = &mut self.threads[self.current];
        let line = self.lines.at(address);
        let (now, drained) = (thread.now, thread.drained);
        let from = if how == How::Locked {
            now.max(drained)
        } else {
            now
        };
        let busy = line.busy();
        let (done, service) = self.fabric.access(line, how.kind(), thread.place, from);
        self.traffic.count(service);
        let answered = done.saturating_sub(travelled).max(from);
        let mut visible = answered;
        if matches!(how, How::Load | How::Glance) && service != Service::OwnCache {
            thread.fetched = (address / LINE, answered);
        }
        match how {
            How::Load => thread.now = answered,
            // No cost of its own, like any instruction that nothing waits for.
            How::Glance if service == Service::OwnCache => {}
            How::Glance => thread.now = answered,
            How::Store => {
                // Stores become visible in program order; their requests overlap.
                visible = answered.max(drained);
                thread.drained = visible;
                // The thread has gone on since. Until `now` it sees what others have done up to
                // `now`, which is inexact by half a latency at most.
                thread.now = now - travelled + 1;
                // Until then no other core sees the value, whether it spins on the line or not.
                line.delay_until(visible);
            }
            How::Ahead if service == Service::OwnCache => {}
            How::Ahead => {
                // The load retires when the line has arrived, and later stores come after it.
                thread.drained = drained.max(answered);
                thread.now = now - travelled;
            }
            How::Prefetch => thread.now = now - travelled,
            How::Locked => thread.now = answered + self.fabric.costs.rmw,
        }
        let wakes = how.kind() == Kind::Write && !line.spinners.is_empty();
        if self.recorder.0.is_some() {
            let served = Served {
                how,
                service,
                sent: from - travelled,
                arrived: from,
                busy,
                answered,
                visible,
            };
            self.record(address, (now, drained), served);
        }
        if wakes {
            self.notify(address, visible);
        }
    }

    #[cold]
    #[inline(never)]
    fn record(&mut self, address: usize, (now, drained): (u64, u64), served: Served) {
        self.recorder.tell(|recorder| {
            if served.how == How::Locked {
                recorder.drains(self.current, now, drained);
            }
            recorder.access(self.current, address, served);
        });
    }

    /// Makes all threads that spin on the line read it again.
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
            thread.enter(State::Running);
            // The write may come at any point of its loop.
            let phase = thread.random.below(pause);
            thread.now = thread.now.max(at + phase);
            let now = thread.now;
            self.recorder.tell(|recorder| recorder.looks_again(id, now));
            self.plan(now, id, What::Step);
        }
        spinners.clear();
        // Keep the allocation.
        self.lines.at(address).spinners = spinners;
    }

    pub(super) fn spin(&mut self, address: usize, until: u64) {
        let id = self.current;
        let thread = &mut self.threads[id];
        thread.enter(State::Spinning);
        // The next look at the line is a request of its own.
        thread.fetched = NOTHING;
        let (epoch, now, preempt_at) = (thread.epoch, thread.now, thread.preempt_at);
        self.recorder.tell(|recorder| recorder.stops(id, now));
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
