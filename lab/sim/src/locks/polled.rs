//! The mutexes of the published tables, modelled as closely as possible on those of the kernels
//! that were measured. Either all spinners poll the word all the time, or they queue and only the
//! head of the queue polls. They never sleep: in a kernel, a CPU without other work spins for as
//! long as the holder runs.

use super::osq::{CpuNumber, Osq};
use super::{Kind, Lock, observed};
use crate::platform::{Sim, SimU8, SimU32};
use crate::world::with;
use kinlock_core::platform::{Atomic, NEVER, Ordering::*, Platform};
use std::cell::Cell;

/// All polled mutexes.
pub(super) const ALL: &[Kind] = &[
    Kind::new(
        "polled",
        |_| crate::place(Owned::new(None)),
        "a mutex as before the published tables: every spinner polls the word, nobody parks",
    ),
    Kind::new(
        "polled-fifo",
        |threads| crate::place(Owned::new(Some(Osq::new(threads, CpuNumber::Copied)))),
        "a mutex as in the published tables: spinners queue, their head polls the word, nobody \
         parks",
    ),
    Kind::new(
        "polled-osq-shared",
        |threads| place_impatient(threads, CpuNumber::InNode),
        "the same, and spinners read their predecessor's CPU number in its node",
    ),
    Kind::new(
        "polled-osq-own-line",
        |threads| place_impatient(threads, CpuNumber::OwnLine),
        "the same, in a line of its own",
    ),
    Kind::new(
        "polled-osq-cached",
        |threads| place_impatient(threads, CpuNumber::Copied),
        "the same, in a copy of their own",
    ),
];

const FREE: u8 = 0;
const HELD: u8 = 1;

/// The word of a mutex, and the queue of its spinners.
struct Polled {
    locked: SimU8,
    queue: Option<Osq>,
    /// How many cycles spinners have spent in the queue, and how many at its head.
    spent: [Cell<u64>; 2],
}

impl Polled {
    fn new(queue: Option<Osq>) -> Self {
        Polled {
            locked: SimU8::new(FREE),
            queue,
            spent: Default::default(),
        }
    }

    fn take(&self) -> bool {
        let taken = self.locked.compare_exchange(FREE, HELD, Acquire, Relaxed);
        taken.is_ok()
    }

    /// Takes the lock (`true`), or gives up at `until`.
    fn lock_until(&self, me: usize, until: u64) -> bool {
        if self.take() {
            return true;
        }
        let Some(queue) = &self.queue else {
            return self.poll(until);
        };
        let came = with(|w| w.now());
        let is_head = queue.join(me, until);
        let queued = with(|w| w.now());
        self.spend(0, queued - came);
        if !is_head {
            return false;
        }
        let taken = self.poll(until);
        self.spend(1, with(|w| w.now()) - queued);
        queue.leave(me);
        taken
    }

    fn spend(&self, place: usize, cycles: u64) {
        self.spent[place].set(self.spent[place].get() + cycles);
    }

    fn observed(&self) -> Vec<(&'static str, f64)> {
        let nanos = |cycles: &Cell<u64>| with(|w| w.costs().nanos(cycles.get()));
        let [queued, polled] = self.spent.each_ref().map(nanos);
        match self.queue {
            Some(_) => vec![(observed::QUEUED, queued), (observed::POLLED, polled)],
            None => Vec::new(),
        }
    }

    /// Waits until the word is free, looks at it again, and only then tries to take it.
    ///
    /// The first reads of the clock and of the word stand for what a kernel checks between its
    /// wait and its attempt. Without the second look all spinners would try at the same moment.
    fn poll(&self, until: u64) -> bool {
        loop {
            Sim::now();
            self.locked.load(Relaxed);
            let now = Sim::now();
            if self.locked.load(Relaxed) == FREE {
                if self.take() {
                    return true;
                }
            } else if now >= until {
                return false;
            } else {
                let left = if until == NEVER { NEVER } else { until - now };
                let _ = Sim::wait_for(&self.locked, Relaxed, left, |locked| locked == FREE);
            }
        }
    }

    /// Releases by an exchange, because those kernels incremented a count. Unlike a store, it makes
    /// the holder wait for the line.
    fn unlock(&self) {
        self.locked.swap(FREE, Release);
    }
}

/// A mutex that also stores its owner's number, as a kernel's mutex does. The number is written
/// after locking and cleared before unlocking.
struct Owned {
    mutex: Polled,
    owner: SimU32,
}

impl Owned {
    fn new(queue: Option<Osq>) -> Self {
        Owned {
            mutex: Polled::new(queue),
            owner: SimU32::new(0),
        }
    }
}

impl Lock for Owned {
    fn lock(&self, me: usize) {
        self.mutex.lock_until(me, NEVER);
        self.owner.store(me as u32 + 1, Relaxed);
    }

    fn unlock(&self, _: usize) {
        self.owner.store(0, Relaxed);
        self.mutex.unlock();
    }

    fn observed(&self) -> Vec<(&'static str, f64)> {
        self.mutex.observed()
    }
}

/// A mutex whose waiters give up now and then, and start again from the end of the queue. So they
/// leave the queue from any place in it.
struct Impatient(Polled);

fn place_impatient(threads: usize, number: CpuNumber) -> &'static dyn Lock {
    crate::place(Impatient(Polled::new(Some(Osq::new(threads, number)))))
}

/// How many nanoseconds a waiter waits before it gives up for the first time. Each later wait may
/// last twice as long as the one before it.
const FIRST_LIMIT_NS: u64 = 200_000;

impl Lock for Impatient {
    fn lock(&self, me: usize) {
        let mut limit = FIRST_LIMIT_NS;
        while !self.0.lock_until(me, Sim::now() + limit) {
            limit *= 2;
        }
    }

    fn unlock(&self, _: usize) {
        self.0.unlock();
    }

    fn observed(&self) -> Vec<(&'static str, f64)> {
        self.0.observed()
    }
}
