//! `leveldb-readrandom`: LevelDB's benchmark of random reads, on the mutex that its threads share.
//!
//! Each read takes a user-space mutex twice, for some reference counting, and otherwise works on
//! its own. The mutex is the C library's: 0 free, 1 held, 2 held and perhaps with sleepers. A
//! thread that finds it held sleeps in the kernel. The kernel keeps its sleepers in buckets of a
//! hash table, and guards each bucket by a spinlock. That spinlock is the lock under test: every
//! sleep and every wake-up takes it.

use super::{Body, Constant, Kind, Metered, work};
use crate::platform::{Sim, SimU32, SimU64};
use crate::world::Placement;
use kinlock_core::platform::{Atomic, NEVER, Ordering::*, Platform};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

const READ: Constant = Constant::fitted(
    1_571.0,
    "private work per read",
    "leveldb-readrandom, stock, 1 thread",
);
const COUNT: Constant = Constant::assumed(
    150.0,
    "work under the mutex, each time",
    "description of the workload: a few hundred nanoseconds of reference counting per read",
);
const QUEUE: Constant = Constant::assumed(
    30.0,
    "queueing a sleeper, under the spinlock",
    "a list insertion and a look at the mutex",
);

/// The workload.
pub const KIND: Kind = Kind::new(
    "leveldb-readrandom",
    Placement::Scheduled,
    &[READ, COUNT, QUEUE],
    prepare,
    "a mutex taken twice per read; sleeping and waking take a kernel spinlock, the lock under test",
);

struct ReadRandom {
    mutex: &'static SimU32,
    /// The references that are counted.
    references: &'static SimU64,
    bucket: Metered,
    /// The sleepers, first come first served.
    queue: RefCell<VecDeque<usize>>,
    /// The line of the bucket that a change of the queue touches.
    chain: &'static SimU64,
    sleepers: &'static [Sleeper],
}

/// The word that a thread sleeps on: 1 until it is woken.
#[repr(align(128))]
struct Sleeper(SimU32);

fn prepare(threads: usize, bucket: Metered) -> Rc<dyn Body> {
    Rc::new(ReadRandom {
        mutex: crate::place(SimU32::new(0)),
        references: crate::place(SimU64::new(0)),
        bucket,
        queue: RefCell::default(),
        chain: crate::place(SimU64::new(0)),
        sleepers: crate::place_slice(threads, |_| Sleeper(SimU32::new(0))),
    })
}

impl Body for ReadRandom {
    fn iterate(&self, me: usize) -> u64 {
        for _ in 0..2 {
            work(READ.value() / 2.0);
            self.lock(me);
            self.references.increment();
            work(COUNT.value());
            self.unlock(me);
        }
        1
    }
}

impl ReadRandom {
    fn lock(&self, me: usize) {
        if self.mutex.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
            return;
        }
        // From now on others may sleep.
        while self.mutex.swap(2, Acquire) != 0 {
            self.sleep(me);
        }
    }

    fn unlock(&self, me: usize) {
        if self.mutex.swap(0, Release) == 2 {
            self.wake(me);
        }
    }

    /// Sleeps if the mutex is still 2. A later unlock takes the bucket's lock too, and finds this
    /// thread.
    fn sleep(&self, me: usize) {
        let sleeper = &self.sleepers[me].0;
        self.bucket.lock(me);
        let still = self.mutex.load(Relaxed) == 2;
        if still {
            sleeper.store(1, Relaxed);
            self.chain.increment();
            self.queue.borrow_mut().push_back(me);
            work(QUEUE.value());
        }
        self.bucket.unlock(me);
        while still && sleeper.load(Acquire) == 1 {
            Sim::park((&raw const *sleeper).cast(), 1, NEVER, || {
                sleeper.load(Relaxed)
            });
        }
    }

    fn wake(&self, me: usize) {
        self.bucket.lock(me);
        let first = self.queue.borrow_mut().pop_front();
        if first.is_some() {
            self.chain.increment();
            work(QUEUE.value());
        }
        self.bucket.unlock(me);
        if let Some(first) = first {
            let sleeper = &self.sleepers[first].0;
            sleeper.store(0, Release);
            Sim::unpark((&raw const *sleeper).cast(), 1);
        }
    }
}
