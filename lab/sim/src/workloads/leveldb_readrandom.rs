//! `leveldb-readrandom`: LevelDB's benchmark of random reads, on the mutex that its threads share.
//!
//! Each read takes a user-space mutex twice, for some reference counting, and otherwise works on
//! its own. The mutex is the C library's: 0 free, 1 held, 2 held and perhaps with sleepers. A
//! thread that finds it held sleeps in the kernel. The kernel keeps its sleepers in buckets of a
//! hash table, and guards each bucket by a spinlock. That spinlock is the lock under test: every
//! sleep and every wake-up takes it.
//!
//! A bucket is one line: the number of sleepers, including those about to sleep, the spinlock, and
//! the ends of the list. A sleeper is counted before it takes the spinlock. Its entry is on its own
//! stack. Under the spinlock, a thread that sleeps or wakes another one also reads or writes the
//! entries of neighbours in the list, and a thread that wakes another one takes a reference to it.

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
    5.0,
    "queueing a sleeper, under the spinlock",
    "a few compares, as under lock2's lock; the lines of the list and the mutex are simulated",
);

/// The workload.
pub const KIND: Kind = Kind::new(
    "leveldb-readrandom",
    Placement::Scheduled,
    &[READ, COUNT, QUEUE],
    prepare,
    "a mutex taken twice per read; sleeping and waking take a kernel spinlock, the lock under test",
);

/// Adding this subtracts one.
const LESS: u64 = u64::MAX;

struct ReadRandom {
    mutex: &'static SimU32,
    /// The reference count.
    references: &'static SimU64,
    bucket: Metered,
    /// The sleepers, first come first served.
    queue: RefCell<VecDeque<usize>>,
    /// The number of sleepers, including those about to sleep, in the line of the bucket.
    announced: &'static SimU64,
    /// The ends of the list, in the same line.
    ends: &'static SimU64,
    sleepers: &'static [Sleeper],
}

/// A thread that may sleep.
#[repr(align(128))]
struct Sleeper {
    /// The word that it sleeps on: 1 until it is woken.
    word: SimU32,
    entry: Entry,
    task: Task,
}

/// Its place in the list of the bucket.
#[repr(align(64))]
struct Entry(SimU64);

/// The count of references to the thread.
#[repr(align(64))]
struct Task(SimU64);

fn prepare(threads: usize, bucket: Metered) -> Rc<dyn Body> {
    let [announced, ends] = bucket.beside();
    let sleeper = |_| Sleeper {
        word: SimU32::new(0),
        entry: Entry(SimU64::new(0)),
        task: Task(SimU64::new(0)),
    };
    Rc::new(ReadRandom {
        mutex: crate::place(SimU32::new(0)),
        references: crate::place(SimU64::new(0)),
        bucket,
        queue: RefCell::default(),
        announced,
        ends,
        sleepers: crate::place_slice(threads, sleeper),
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
        // The mutex is taken as 2, since others may sleep.
        while self.mutex.swap(2, Acquire) != 0 {
            self.sleep(me);
        }
    }

    fn unlock(&self, me: usize) {
        if self.mutex.swap(0, Release) == 2 {
            self.wake(me);
        }
    }

    /// Sleeps if the mutex is still 2. A later unlock also takes the bucket's lock, and finds this
    /// thread.
    fn sleep(&self, me: usize) {
        let own = &self.sleepers[me];
        self.announced.fetch_add(1, SeqCst);
        self.bucket.lock(me);
        let still = self.mutex.load(Relaxed) == 2;
        if still {
            own.word.store(1, Relaxed);
            let (first, last) = {
                let queue = self.queue.borrow();
                (queue.front().copied(), queue.back().copied())
            };
            if let Some((first, last)) = first.zip(last) {
                // The first one's priority is compared, and the last one's link is written.
                self.sleepers[first].entry.0.load(Relaxed);
                self.sleepers[last].entry.0.increment();
            }
            own.entry.0.increment();
            self.ends.increment();
            self.queue.borrow_mut().push_back(me);
            work(QUEUE.value());
        }
        self.bucket.unlock(me);
        if !still {
            self.announced.fetch_add(LESS, Relaxed);
        }
        while still && own.word.load(Acquire) == 1 {
            Sim::park((&raw const own.word).cast(), 1, NEVER, || {
                own.word.load(Relaxed)
            });
        }
    }

    fn wake(&self, me: usize) {
        if self.announced.load(Relaxed) == 0 {
            return;
        }
        self.bucket.lock(me);
        let first = self.queue.borrow_mut().pop_front();
        if let Some(first) = first {
            let woken = &self.sleepers[first];
            woken.entry.0.load(Relaxed);
            woken.task.0.fetch_add(1, Relaxed);
            let second = self.queue.borrow().front().copied();
            if let Some(second) = second {
                self.sleepers[second].entry.0.increment();
            }
            self.ends.increment();
            self.announced.fetch_add(LESS, Relaxed);
            woken.entry.0.increment();
            work(QUEUE.value());
        }
        self.bucket.unlock(me);
        if let Some(first) = first {
            let word = &self.sleepers[first].word;
            word.store(0, Release);
            Sim::unpark((&raw const *word).cast(), 1);
        }
    }
}
