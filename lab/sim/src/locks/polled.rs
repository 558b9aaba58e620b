//! The mutexes of the published tables, modelled as closely as possible on those of the kernels
//! that were measured. Either all spinners poll the word all the time, or they queue and only the
//! head of the queue polls. They never sleep: in a kernel, a CPU without other work spins for as
//! long as the holder runs. The queue of AIM7's tables (Linux 3.10) is an MCS lock, and its head
//! leaves it after each attempt. The queue of the later tables is the cancellable one, whose head
//! stays.

use super::mcs::Mcs;
use super::osq::{CpuNumber, Osq};
use super::ticket::Ticket;
use super::{Lock, observed};
use crate::platform::{Sim, SimU8, SimU32};
use crate::world::with;
use kinlock_core::platform::{Atomic, NEVER, Ordering::*, Platform};
use std::cell::Cell;
use std::mem::offset_of;

const FREE: u8 = 0;
const HELD: u8 = 1;

/// The word of a mutex, and what its spinners have spent.
struct Polled {
    locked: SimU8,
    spent: Spent,
}

/// How many cycles spinners have spent in the queue, and how many at its head.
#[derive(Default)]
struct Spent([Cell<u64>; 2]);

impl Spent {
    /// Adds the times of a spinner that came at `came`, became head at `headed`, and now stops
    /// spinning or queues again.
    fn add(&self, came: u64, headed: u64) {
        let spent = [headed - came, with(|w| w.now()) - headed];
        for (sum, cycles) in self.0.iter().zip(spent) {
            sum.set(sum.get() + cycles);
        }
    }

    fn observed(&self) -> Vec<(&'static str, f64)> {
        let nanos = |cycles: &Cell<u64>| with(|w| w.costs().nanos(cycles.get()));
        let [queued, polled] = self.0.each_ref().map(nanos);
        vec![(observed::QUEUED, queued), (observed::POLLED, polled)]
    }
}

impl Polled {
    fn new() -> Self {
        Polled {
            locked: SimU8::new(FREE),
            spent: Spent::default(),
        }
    }

    fn take(&self) -> bool {
        let taken = self.locked.compare_exchange(FREE, HELD, Acquire, Relaxed);
        taken.is_ok()
    }

    /// Waits until the word is free, looks at it again, and only then tries to take it (`true`);
    /// gives up at `until`.
    ///
    /// The first reads of the clock and of the word stand for the checks that a kernel makes
    /// between its wait and its attempt. Without the second look all spinners would try at the same
    /// moment.
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

/// A mutex that also stores its owner's number, as a kernel's mutex does, and the lock in which its
/// spinners queue. The number is written after locking and cleared before unlocking.
// `repr(C)`: the tail of the queue, the owner and the word in the first 64 bytes, which are a line.
#[repr(C)]
struct Owned<Q> {
    queue: Option<Q>,
    owner: SimU32,
    mutex: Polled,
}

const _: () = assert!(offset_of!(Owned<Mcs>, mutex) < 64);

const NOBODY: u32 = 0;

pub(super) fn place_unqueued(_: usize) -> &'static dyn Lock {
    crate::place(Owned::<Mcs>::new(None))
}

pub(super) fn place_mcs(threads: usize) -> &'static dyn Lock {
    crate::place(Owned::new(Some(Mcs::new(threads))))
}

pub(super) fn place_ticket(_: usize) -> &'static dyn Lock {
    crate::place(Owned::new(Some(Ticket::new())))
}

impl<Q: Lock> Owned<Q> {
    fn new(queue: Option<Q>) -> Self {
        Owned {
            queue,
            owner: SimU32::new(NOBODY),
            mutex: Polled::new(),
        }
    }

    fn own(&self, me: usize) {
        self.owner.store(me as u32 + 1, Relaxed);
    }

    /// A turn in the queue: the head watches the owner until that changes, tries once, and leaves
    /// the queue, whether it has the mutex (`true`) or not.
    ///
    /// A spinner that finds another owner in its place would go to sleep in a kernel.
    fn take_turn(&self, queue: &Q, me: usize) -> bool {
        let came = with(|w| w.now());
        queue.lock(me);
        let headed = with(|w| w.now());
        let mut owner = self.owner.load(Relaxed);
        if owner != NOBODY {
            owner = Sim::wait(&self.owner, Relaxed, |now| now != owner);
        }
        self.mutex.spent.add(came, headed);
        let taken = owner == NOBODY && self.mutex.locked.load(Relaxed) == FREE && self.mutex.take();
        if taken {
            self.own(me);
        }
        queue.unlock(me);
        taken
    }
}

impl<Q: Lock> Lock for Owned<Q> {
    fn lock(&self, me: usize) {
        if self.mutex.take() {
            return self.own(me);
        }
        let Some(queue) = &self.queue else {
            self.mutex.poll(NEVER);
            return self.own(me);
        };
        while !self.take_turn(queue, me) {
            Sim::relax();
        }
    }

    fn unlock(&self, _: usize) {
        self.owner.store(NOBODY, Relaxed);
        self.mutex.unlock();
    }

    fn observed(&self) -> Vec<(&'static str, f64)> {
        match self.queue {
            Some(_) => self.mutex.spent.observed(),
            None => Vec::new(),
        }
    }
}

/// A mutex whose waiters give up now and then, at any place in the queue, and start again from its
/// end.
// `repr(C)`: the word and the tail of the queue in the first line.
#[repr(C)]
struct Impatient {
    mutex: Polled,
    queue: Osq,
}

const _: () = assert!(offset_of!(Impatient, queue) + size_of::<Osq>() <= 64);

pub(super) fn place_osq(threads: usize, number: CpuNumber) -> &'static dyn Lock {
    crate::place(Impatient {
        mutex: Polled::new(),
        queue: Osq::new(threads, number),
    })
}

/// How many nanoseconds a waiter waits before it gives up for the first time. Each later wait may
/// last twice as long as the one before it.
const FIRST_LIMIT_NS: u64 = 200_000;

impl Impatient {
    /// Takes the lock (`true`), or gives up at `until`.
    fn lock_until(&self, me: usize, until: u64) -> bool {
        if self.mutex.take() {
            return true;
        }
        let came = with(|w| w.now());
        let is_head = self.queue.join(me, until);
        let headed = with(|w| w.now());
        let taken = is_head && self.mutex.poll(until);
        self.mutex.spent.add(came, headed);
        if is_head {
            self.queue.leave(me);
        }
        taken
    }
}

impl Lock for Impatient {
    fn lock(&self, me: usize) {
        let mut limit = FIRST_LIMIT_NS;
        while !self.lock_until(me, Sim::now() + limit) {
            limit *= 2;
        }
    }

    fn unlock(&self, _: usize) {
        self.mutex.unlock();
    }

    fn observed(&self) -> Vec<(&'static str, f64)> {
        let mut all = self.mutex.spent.observed();
        all.extend(self.queue.observed());
        all
    }
}
