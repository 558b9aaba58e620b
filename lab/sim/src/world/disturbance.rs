//! What a machine may do to a thread at a bad moment, chosen at random from a seed.
//!
//! A **disruption** comes before an access: the thread loses its CPU for a while, or an interrupt's
//! handler runs on it. A disruption is named by its **spot**: the thread, and the access before
//! which it comes. Whether there is a disruption at a spot, and which, depends only on the seed and
//! the spot. So leaving some out (`only`) does not change the others.
//!
//! Values are sequentially consistent with one exception: a [`glance`] that directly follows a
//! store may miss values that other threads have written since the thread came to the store. A
//! processor does the same: the store waits in a buffer, and the load goes ahead of it, unless
//! there is a heavy fence between them.
//!
//! [`glance`]: kinlock_core::platform::Atomic::glance

use super::{How, Sleeper, State, World};
use kinlock_core::events::Event;
use kinlock_measure::random::mix;
use std::rc::Rc;

/// The disturbances of a run. The contract of [`Platform`](kinlock_core::platform::Platform) allows
/// all of them.
#[derive(Clone, Default, Debug)]
pub struct Disturbance {
    /// The seed of the random numbers.
    pub seed: u64,
    /// One access in `one_in` is preceded by a disruption; 0: none.
    pub one_in: u64,
    /// One disruption in `interrupt_one_in` is an interrupt, the others are preemptions; 0: no
    /// interrupts.
    pub interrupt_one_in: u64,
    /// The longest preemption, in cycles. Short ones are as frequent as long ones.
    pub longest: u64,
    /// The only disruptions that happen; `None`: all that the seed picks.
    pub only: Option<Vec<Spot>>,
    /// One sleep in `spurious_one_in` ends without a wake-up, and one requeue in as many wakes the
    /// thread; 0: none. If not 0, sleepers wake in random order.
    pub spurious_one_in: u64,
    /// One time in `oversubscribed_one_in` the machine claims to be oversubscribed, so that waiters
    /// soon sleep; 0: it tells the truth.
    pub oversubscribed_one_in: u64,
    /// How the heavy fence works.
    pub fences: FencesDisturbed,
    /// One look after a store in `stale_one_in` goes ahead of the store; 0: none.
    pub stale_one_in: u64,
    /// The threads that wait with priority, a bit for each.
    pub priority: u64,
    /// The threads that cannot keep a waiter slot, a bit for each.
    pub forgetful: u64,
}

impl Disturbance {
    /// Preemptions only.
    pub fn preemptions(seed: u64, one_in: u64, longest: u64) -> Self {
        Disturbance {
            seed,
            one_in,
            longest,
            ..Disturbance::default()
        }
    }

    fn at(&self, spot: Spot) -> Option<Kind> {
        let name = (spot.thread as u64) << 32 | spot.access as u64;
        let dice = mix(self.seed ^ mix(name));
        let wanted = match &self.only {
            Some(only) => only.contains(&spot),
            None => self.one_in != 0 && dice % self.one_in == 0,
        };
        if !wanted {
            return None;
        }
        let dice = mix(dice);
        if self.interrupt_one_in != 0 && dice % self.interrupt_one_in == 0 {
            return Some(Kind::Interrupt);
        }
        Some(Kind::Preemption {
            cycles: log_uniform(mix(dice), self.longest),
        })
    }
}

/// How the heavy fence of a disturbed machine works.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum FencesDisturbed {
    /// Each fence is granted at once. This shows lost wake-ups best, since no sleep ends by itself.
    #[default]
    Granted,
    /// As on an undisturbed machine, and as on hardware: see [`kinlock_core::fence_calls`].
    Limited,
    /// Each fence is refused.
    Refused,
}

/// The writes that a thread whose last access was a store may miss in a glance.
#[derive(Debug, Default)]
pub(super) struct Unseen {
    stores: bool,
    /// Writes of others since the thread came to that store: the address, and the value before.
    before: Vec<(usize, u64)>,
}

/// A thread's access, by its number among those of the thread; the first is 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Spot {
    /// The thread.
    pub thread: u32,
    /// The access.
    pub access: u32,
}

/// Something that came before an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disruption {
    /// The access before which it came.
    pub spot: Spot,
    /// What it was.
    pub kind: Kind,
}

/// The kinds of disruptions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The thread did not run for some time.
    Preemption {
        /// For how long.
        cycles: u64,
    },
    /// A handler ran.
    Interrupt,
}

/// An entry of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Note {
    /// The time, in cycles, by the clock of the thread.
    pub time: u64,
    /// The thread to which it happened.
    pub thread: usize,
    /// What happened.
    pub what: Noted,
}

/// The kinds of entries of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Noted {
    /// The lock counted an event.
    Counted(Event),
    /// A disruption began.
    Disrupted(Disruption),
    /// The thread fell asleep.
    Parks,
    /// A remark by the thread's body.
    Said(&'static str),
}

impl World {
    /// Disturbs the coming access. Returns the handler of an interrupt that comes before it.
    pub(super) fn disturb(&mut self) -> Option<Rc<dyn Fn(usize)>> {
        let id = self.current;
        let thread = &mut self.threads[id];
        if self.in_one_step || self.over || thread.yielder.is_null() {
            return None;
        }
        thread.accesses += 1;
        let spot = Spot {
            thread: id as u32,
            access: thread.accesses,
        };
        let kind = self.setup.disturbance.as_ref()?.at(spot)?;
        let interrupted = thread.interrupted;
        let handler = match kind {
            Kind::Preemption { cycles } => {
                thread.now += cycles;
                None
            }
            Kind::Interrupt => self.handler.clone().filter(|_| !interrupted),
        };
        if kind != Kind::Interrupt || handler.is_some() {
            let disruption = Disruption { spot, kind };
            self.done.push(disruption);
            self.note(Noted::Disrupted(disruption));
        }
        handler
    }

    /// Notes whether the next access of the current thread may miss writes.
    pub(super) fn prepare_for_glances(&mut self, how: How) {
        if self
            .setup
            .disturbance
            .as_ref()
            .is_none_or(|d| d.stale_one_in == 0)
        {
            return;
        }
        self.unseen.resize_with(self.threads.len(), Unseen::default);
        let unseen = &mut self.unseen[self.current];
        match how {
            How::Glance | How::Prefetch => {}
            How::Store => {
                unseen.stores = true;
                unseen.before.clear();
            }
            How::Load | How::Ahead | How::Locked => unseen.stores = false,
        }
    }

    /// Notes that the current thread replaces the value `before` at `address`.
    pub(crate) fn wrote(&mut self, address: usize, before: u64) {
        for (thread, unseen) in self.unseen.iter_mut().enumerate() {
            if thread == self.current {
                unseen.before.retain(|&(at, _)| at != address);
            } else if unseen.stores && unseen.before.iter().all(|&(at, _)| at != address) {
                unseen.before.push((address, before));
            }
        }
    }

    /// The stale value that a glance of the current thread at `address` sees, if it goes ahead of
    /// the store before it.
    pub(crate) fn stale(&mut self, address: usize) -> Option<u64> {
        let unseen = self.unseen.get(self.current).filter(|u| u.stores)?;
        let &(_, before) = unseen.before.iter().find(|&&(at, _)| at == address)?;
        self.by_chance(|d| d.stale_one_in).then_some(before)
    }

    /// Makes all threads execute a fence: from now on they see all earlier writes.
    pub(crate) fn fence_all(&mut self) {
        for unseen in &mut self.unseen {
            unseen.before.clear();
        }
    }

    /// How the heavy fence works.
    pub(crate) fn fences_disturbed(&self) -> FencesDisturbed {
        let disturbance = self.setup.disturbance.as_ref();
        disturbance.map_or(FencesDisturbed::Limited, |d| d.fences)
    }

    /// Whether the bit of the current thread is set in a mask of the disturbance.
    pub(crate) fn disturbed(&self, mask: impl Fn(&Disturbance) -> u64) -> bool {
        let mask = self.setup.disturbance.as_ref().map_or(0, mask);
        mask >> self.current.min(63) & 1 != 0
    }

    /// True once in as many times as the disturbance says.
    pub(super) fn by_chance(&mut self, one_in: impl Fn(&Disturbance) -> u64) -> bool {
        let n = self.setup.disturbance.as_ref().map_or(0, one_in);
        n != 0 && self.random() % n == 0
    }

    /// Whether the machine is oversubscribed, if the disturbance decides that.
    pub(crate) fn oversubscribed_by_chance(&mut self) -> Option<bool> {
        let one_in = self.setup.disturbance.as_ref()?.oversubscribed_one_in;
        (one_in != 0).then(|| self.random() % one_in == 0)
    }

    /// When a sleep ends by itself: at `until` or, now and then, before.
    pub(super) fn sleep_until(&mut self, until: u64) -> u64 {
        if !self.by_chance(|d| d.spurious_one_in) {
            return until;
        }
        let longest = self.setup.disturbance.as_ref().map_or(1, |d| d.longest);
        let cycles = log_uniform(mix(self.random()), longest);
        until.min(self.now() + cycles)
    }

    /// Which sleeper at `key` is woken: the first or, if disturbed, any.
    pub(super) fn next_sleeper(&mut self, key: usize, sets: u32) -> Option<usize> {
        let meant = |s: &Sleeper| s.key == key && s.sets & sets != 0;
        let sleepers = self.parked.iter().filter(|&s| meant(s)).count();
        if sleepers == 0 {
            return None;
        }
        let shuffled = self
            .setup
            .disturbance
            .as_ref()
            .is_some_and(|d| d.spurious_one_in != 0);
        let nth = if shuffled {
            self.random() as usize % sleepers
        } else {
            0
        };
        let mut asleep = self.parked.iter().enumerate().filter(|&(_, s)| meant(s));
        asleep.nth(nth).map(|(i, _)| i)
    }

    /// Called when the current thread blocks: if it has begun to wait in line, it now certainly is
    /// in line.
    pub(super) fn stand_in_line(&mut self) {
        let accesses = self.accesses;
        let thread = &mut self.threads[self.current];
        debug_assert!(thread.state != State::Ended);
        if thread.in_line {
            thread.in_line_since.get_or_insert(accesses);
        }
    }

    pub(crate) fn note(&mut self, what: Noted) {
        let (thread, time) = (self.current, self.now());
        if let Some(notes) = &mut self.notes {
            notes.push(Note { time, thread, what });
        }
    }
}

/// A number from 1 to `longest`, with all powers of two equally likely.
fn log_uniform(dice: u64, longest: u64) -> u64 {
    let top = 1u64 << (dice % (longest.max(1).ilog2() as u64 + 1));
    (top + (dice >> 32) % top).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{Sim, SimU32, place};
    use crate::{Schedule, machine};
    use kinlock_core::fence_calls::INTERVAL_NS;
    use kinlock_core::platform::{Atomic, Ordering::Relaxed, Platform, Ticket};

    /// The number of schedules, of 300, in which each of two threads misses the other's write. One
    /// thread stores, and glances at the other's word. The other sets a flag, waits for a heavy
    /// fence (unless it is refused), and loads.
    fn both_miss(fences: FencesDisturbed, stale_one_in: u64) -> usize {
        let machine = machine::load("haswell-ex-4s").expect("it is built in");
        let plays = (0..300).map(|seed| {
            let mut disturbance = Disturbance::preemptions(seed, 2, 20_000);
            disturbance.fences = fences;
            disturbance.stale_one_in = stale_one_in;
            let schedule = Schedule::new(machine.clone(), 2, disturbance);
            let (played, missed) = schedule.play(
                || [(); 4].map(|()| place(SimU32::new(0))),
                move |[stored, flag, missed @ ..], thread| {
                    let saw = if thread == 0 {
                        stored.store(1, Relaxed);
                        flag.glance(Relaxed)
                    } else {
                        flag.fetch_or(1, Relaxed);
                        let mut ticket = Ticket::default();
                        while !Sim::heavy_fence(&mut ticket) && fences == FencesDisturbed::Limited {
                            Sim::back_off(INTERVAL_NS);
                        }
                        stored.load(Relaxed)
                    };
                    missed[thread].store(1 - saw, Relaxed);
                },
                |_, _| {},
                |[_, _, missed @ ..], _| missed.map(|m| m.load(Relaxed)),
            );
            assert_eq!(played.end, Ok(()));
            missed
        });
        plays.filter(|missed| missed == &[1, 1]).count()
    }

    #[test]
    fn a_glance_goes_ahead_of_a_store_unless_a_fence_comes_between() {
        assert_eq!(both_miss(FencesDisturbed::Refused, 0), 0);
        assert_eq!(both_miss(FencesDisturbed::Granted, 1), 0);
        assert_eq!(both_miss(FencesDisturbed::Limited, 1), 0);
        assert_ne!(both_miss(FencesDisturbed::Refused, 1), 0);
    }
}
