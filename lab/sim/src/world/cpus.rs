//! Which thread runs where: placement, time slices, migration, parking.
//!
//! A CPU runs one thread. Other threads assigned to it wait in its queue, first come first served,
//! for a time slice each. A thread that has slept goes before threads that lost the CPU, since it
//! has run less, but not before one that has waited for as many slices as threads wait. A pinned
//! thread stays on its CPU. An unpinned thread that wakes or has to leave its CPU goes to an idle
//! CPU if there is one: its last one, or else the one nearest to that.

use super::access::{NOTHING, Pending};
use super::{Noted, Setup, Sleeper, State, Thread, What, World};
use crate::coherence::Place;
use crate::machine::{CpuId, Shape};
use kinlock_core::platform::NEVER;
use kinlock_measure::random::Random;

with_names! {
    /// Where threads run.
    Placement
    /// Pinned, one per core, socket by socket; then the sibling hardware threads.
    Compact "compact";
    /// Pinned, one per core, sockets and last-level caches in turn; then the siblings.
    Spread "spread";
    /// Pinned to random cores, one thread per core before siblings.
    Random "random";
    /// Starts as `Spread`, in random order. Threads are not pinned, and migrate.
    Scheduled "scheduled";
}

impl Placement {
    /// The CPUs in the order in which they are given to threads.
    pub(crate) fn order(self, shape: &Shape, seed: u64) -> Vec<CpuId> {
        let cores = shape.cores();
        let mut order: Vec<usize> = (0..cores).collect();
        match self {
            Placement::Compact => {}
            Placement::Spread | Placement::Scheduled => {
                // Sorted by position within the cache, then by cache within the socket, then by
                // socket.
                order.sort_by_key(|&core| {
                    let cache = shape.cache(core);
                    (
                        core % shape.cores_per_cache,
                        cache % shape.caches_per_socket,
                        cache,
                    )
                });
            }
            Placement::Random => {
                Random::new(seed ^ 0x5bd1_e995).shuffle(&mut order);
            }
        }
        let sibling = |s: usize| {
            order
                .iter()
                .map(move |&core| core * shape.threads_per_core + s)
        };
        (0..shape.threads_per_core).flat_map(sibling).collect()
    }
}

impl World {
    pub(super) fn start(&mut self, setup: &Setup) {
        let shape = &setup.machine.shape;
        let mut order = setup.placement.order(shape, setup.seed);
        order.truncate(setup.cpus.unwrap_or(usize::MAX).max(1));
        self.usable_cpus = order.len();
        for &cpu in &order {
            self.cpus[cpu].usable = true;
        }
        let mut seeds = Random::new(setup.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        // Threads that are neighbours in a workload's tables are neighbours on the machine only if
        // they are pinned.
        let mut spot: Vec<usize> = (0..setup.threads).collect();
        if setup.placement == Placement::Scheduled {
            seeds.shuffle(&mut spot);
        }
        for spot in spot {
            let cpu = order[spot % order.len()];
            let next_tick = match &setup.machine.costs {
                costs if costs.tick == 0 || costs.tick_period == 0 => NEVER,
                costs => seeds.below(costs.tick_period),
            };
            self.threads.push(Thread {
                // Threads do not start in lock-step.
                now: seeds.below(1000),
                epoch: 0,
                state: State::Queued,
                cpu,
                first_sibling: cpu - cpu % shape.threads_per_core,
                place: Place::default(),
                next_tick,
                drained: 0,
                fetched: NOTHING,
                preempt_at: NEVER,
                pinned: setup.placement != Placement::Scheduled,
                overslept: false,
                yielder: std::ptr::null(),
                random: Random::new(seeds.next() | 1),
                slot: 0,
                row: None,
                accesses: 0,
                in_line: false,
                in_line_since: None,
                pending: Pending::NONE,
                interrupted: false,
            });
        }
        for thread in 0..setup.threads {
            let now = self.threads[thread].now;
            self.enqueue(thread, self.threads[thread].cpu, now, false);
        }
    }

    /// Called when the current thread gives way to earlier events, or its time slice is over.
    #[inline]
    pub(super) fn leave_for_now(&mut self) {
        let thread = &self.threads[self.current];
        if thread.now < thread.preempt_at {
            self.plan(thread.now, self.current, What::Step);
        } else {
            let now = thread.now;
            self.end_slice(self.current, now);
        }
    }

    /// Ends the time slice of a thread.
    fn end_slice(&mut self, id: usize, at: u64) {
        self.recorder.tell(|recorder| {
            if self.threads[id].state == State::Spinning {
                recorder.gives_up(id, at);
            }
            recorder.stops(id, at);
        });
        self.threads[id].enter(State::Queued);
        self.vacate(self.threads[id].cpu, at);
        self.make_ready(id, at, 0, false);
    }

    /// Handles an event that is not void. Returns whether its thread is to run.
    #[inline]
    pub(super) fn due(&mut self, id: usize, time: u64, what: What) -> bool {
        let thread = &mut self.threads[id];
        if what == What::Step {
            thread.now = thread.now.max(time);
            return true;
        }
        self.due_while_waiting(id, time, what)
    }

    #[cold]
    fn due_while_waiting(&mut self, id: usize, time: u64, what: What) -> bool {
        let thread = &mut self.threads[id];
        match (what, thread.state) {
            (What::TimeLimit, State::Spinning) => {
                thread.enter(State::Running);
                thread.now = thread.now.max(time);
                self.recorder
                    .tell(|recorder| recorder.gives_up(id, thread.now));
                true
            }
            (What::TimeLimit, State::Parked) => {
                thread.overslept = true;
                self.parked.retain(|sleeper| sleeper.id != id);
                self.wake(id, time);
                false
            }
            (What::SliceEnd, State::Spinning) => {
                self.end_slice(id, time);
                false
            }
            _ => false,
        }
    }

    pub(super) fn end_current(&mut self) {
        let id = self.current;
        let thread = &mut self.threads[id];
        thread.enter(State::Ended);
        let (cpu, now) = (thread.cpu, thread.now);
        self.ended += 1;
        self.vacate(cpu, now);
    }

    pub(super) fn park(&mut self, key: usize, until: u64, sets: u32) {
        let id = self.current;
        let thread = &mut self.threads[id];
        thread.enter(State::Parked);
        thread.overslept = false;
        let (cpu, now) = (thread.cpu, thread.now);
        self.recorder.tell(|recorder| recorder.stops(id, now));
        self.stand_in_line();
        self.note(Noted::Parks);
        self.parked.push(Sleeper { key, id, sets });
        if until != NEVER {
            self.plan(until.max(now), id, What::TimeLimit);
        }
        self.vacate(cpu, now);
    }

    pub(super) fn unpark(&mut self, key: usize, n: usize, sets: u32) -> usize {
        let at = self.now();
        for woken in 0..n {
            let Some(i) = self.next_sleeper(key, sets) else {
                return woken;
            };
            let sleeper = self.parked.remove(i);
            self.recorder
                .tell(|recorder| recorder.wakes(self.current, sleeper.id, at));
            self.wake(sleeper.id, at);
        }
        n
    }

    pub(super) fn has_sleeper(&self, key: usize) -> bool {
        self.parked.iter().any(|sleeper| sleeper.key == key)
    }

    pub(super) fn requeue(&mut self, from: usize, to: usize) -> usize {
        let mut moved = 0;
        for sleeper in self.parked.iter_mut().filter(|s| s.key == from) {
            sleeper.key = to;
            moved += 1;
        }
        moved
    }

    fn wake(&mut self, id: usize, at: u64) {
        self.threads[id].enter(State::Queued);
        self.make_ready(id, at, self.fabric.costs.wake_latency, true);
    }

    /// Finds a CPU for a thread that is to run. On an idle CPU it runs after `latency`.
    fn make_ready(&mut self, id: usize, at: u64, latency: u64, woken: bool) {
        let thread = &mut self.threads[id];
        thread.now = thread.now.max(at);
        let cpu = if thread.pinned {
            thread.cpu
        } else {
            self.nearest_idle(id)
        };
        let idle = self.cpus[cpu].running.is_none();
        self.enqueue(id, cpu, at + if idle { latency } else { 0 }, woken);
    }

    /// The thread's last CPU if it is idle, else the idle CPU nearest to it. If no CPU is idle, the
    /// last one.
    fn nearest_idle(&self, id: usize) -> CpuId {
        let last = self.threads[id].cpu;
        let shape = &self.setup.machine.shape;
        let home = shape.cache(shape.core(last));
        let idle = |cpu: &CpuId| {
            let cpu = &self.cpus[*cpu];
            cpu.usable && cpu.running.is_none() && cpu.queue.is_empty()
        };
        if idle(&last) {
            return last;
        }
        (0..self.cpus.len())
            .filter(idle)
            .min_by_key(|&cpu| {
                let core = shape.core(cpu);
                let first = core * shape.threads_per_core;
                let sibling_busy = (first..first + shape.threads_per_core).any(|c| !idle(&c));
                (shape.distance(home, shape.cache(core)), sibling_busy, cpu)
            })
            .unwrap_or(last)
    }

    /// Assigns a thread to a CPU, on which it runs at once if that is idle.
    fn enqueue(&mut self, id: usize, cpu: CpuId, at: u64, woken: bool) {
        let queue = &mut self.cpus[cpu].queue;
        let slices = self.fabric.costs.time_slice * queue.len() as u64;
        // The clock of a thread in a queue is the time at which it came.
        let overtaken = |&other: &usize| woken && self.threads[other].now + slices > at;
        let place = queue.iter().position(overtaken).unwrap_or(queue.len());
        queue.insert(place, id);
        self.movable += !self.threads[id].pinned as usize;
        match self.cpus[cpu].running {
            None => self.dispatch(cpu, at, 0),
            Some(runner) => self.bound_slice(runner, at),
        }
    }

    /// Sets the end of the time slice of `runner`, since another thread now waits for its CPU.
    fn bound_slice(&mut self, runner: usize, now: u64) {
        if self.threads[runner].preempt_at != NEVER {
            return;
        }
        let end = self.cpus[self.threads[runner].cpu].slice_end.max(now);
        self.threads[runner].preempt_at = end;
        if self.threads[runner].state == State::Spinning {
            self.plan(end, runner, What::SliceEnd);
        }
    }

    /// Called when the thread that ran on `cpu` has left it.
    fn vacate(&mut self, cpu: CpuId, at: u64) {
        if let Some(left) = self.cpus[cpu].running.take() {
            self.threads[left].preempt_at = NEVER;
            let from = self.cpus[cpu].since.max(self.setup.start);
            self.busy += at.min(self.setup.end).saturating_sub(from);
        }
        if self.cpus[cpu].queue.is_empty() && self.movable != 0 {
            self.pull(cpu);
        }
        if !self.cpus[cpu].queue.is_empty() {
            self.dispatch(cpu, at, self.fabric.costs.context_switch);
        }
    }

    /// Lets an idle CPU take a thread that waits for another CPU, from the longest queue.
    fn pull(&mut self, cpu: CpuId) {
        let movable = |c: &CpuId| self.cpus[*c].queue.iter().any(|&t| !self.threads[t].pinned);
        let busiest = (0..self.cpus.len())
            .filter(movable)
            .max_by_key(|&c| (self.cpus[c].queue.len(), c));
        let Some(from) = busiest else {
            return;
        };
        let queue = &mut self.cpus[from].queue;
        if let Some(i) = queue.iter().position(|&t| !self.threads[t].pinned) {
            let thread = queue.remove(i);
            self.cpus[cpu].queue.extend(thread);
        }
    }

    fn dispatch(&mut self, cpu: CpuId, at: u64, switch: u64) {
        let Some(id) = self.cpus[cpu].queue.pop_front() else {
            return;
        };
        self.movable -= !self.threads[id].pinned as usize;
        let slice = self.fabric.costs.time_slice;
        let shape = &self.setup.machine.shape;
        let core = shape.core(cpu);
        let thread = &mut self.threads[id];
        thread.now = thread.now.max(at) + switch;
        thread.drained = thread.drained.min(thread.now);
        thread.cpu = cpu;
        thread.first_sibling = core * shape.threads_per_core;
        thread.place = Place {
            core: core as u16,
            cache: shape.cache(core) as u16,
        };
        thread.enter(State::Running);
        let now = thread.now;
        let socket = self.fabric.socket(thread.place.cache) as usize;
        self.recorder
            .tell(|recorder| recorder.is_back(id, now, socket));
        let processor = &mut self.cpus[cpu];
        processor.running = Some(id);
        processor.since = now - switch;
        processor.slice_end = now + slice;
        thread.preempt_at = if processor.queue.is_empty() {
            NEVER
        } else {
            now + slice
        };
        self.plan(now, id, What::Step);
    }
}
