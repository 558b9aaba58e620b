//! The table of queues, and threads that wait in it.
//!
//! A bucket has the waiters of all keys that select it, oldest first. Its lock guards them, and
//! their states. The memory of a waiter is shared, so that one that leaves need not wait for the
//! thread that wakes it.

use kinlock::{Mutex, MutexGuard};
use kinlock_core::platform::{NEVER, Platform};
use kinlock_linux::Native;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

/// What an unparking thread tells the parked one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnparkToken(pub usize);

/// What a parked thread tells [`unpark_filter`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParkToken(pub usize);

const BUCKETS: usize = 256;

/// How long a bucket goes between two answers that say to be fair, in nanoseconds: half of this on
/// average.
const FAIR: u64 = 1_000_000;

static TABLE: [Bucket; BUCKETS] = [const { Bucket(Mutex::new(Queue::NEW)) }; BUCKETS];

/// On cache lines of its own.
#[repr(align(128))]
struct Bucket(Mutex<Queue>);

/// What the lock of a bucket guards.
pub(crate) struct Queue {
    pub(crate) waiters: VecDeque<Arc<Waiter>>,
    /// From this moment on the next answer says to be fair.
    fair: u64,
}

pub(crate) struct Waiter {
    /// Written under the locks of the old and the new bucket.
    key: AtomicUsize,
    pub(crate) park_token: ParkToken,
    unpark_token: AtomicUsize,
    /// Whether it has been unparked. The thread sleeps on this.
    unparked: AtomicU32,
}

impl Waiter {
    pub(crate) fn new(key: usize, park_token: ParkToken) -> Arc<Self> {
        Arc::new(Waiter {
            key: AtomicUsize::new(key),
            park_token,
            unpark_token: AtomicUsize::new(0),
            unparked: AtomicU32::new(0),
        })
    }

    pub(crate) fn has_key(&self, key: usize) -> bool {
        self.key.load(Relaxed) == key
    }

    pub(crate) fn set_key(&self, key: usize) {
        self.key.store(key, Relaxed);
    }

    /// The token, once the waiter is unparked. Acquires what was before that.
    pub(crate) fn token(&self) -> Option<UnparkToken> {
        let unparked = self.unparked.load(Acquire) != 0;
        unparked.then(|| UnparkToken(self.unpark_token.load(Relaxed)))
    }

    /// Sleeps until it is unparked, or the moment `until`.
    pub(crate) fn sleep(&self, until: u64) -> Option<UnparkToken> {
        loop {
            let token = self.token();
            if token.is_some() || until != NEVER && Native::now() >= until {
                return token;
            }
            let seen = || self.unparked.load(Relaxed);
            Native::park(self.address(), 0, until, seen);
        }
    }

    /// Ends its wait. The bucket is locked; [`wake`](Self::wake) follows when it is not.
    pub(crate) fn unpark(&self, token: UnparkToken) {
        self.unpark_token.store(token.0, Relaxed);
        self.unparked.store(1, Release);
    }

    pub(crate) fn wake(&self) {
        Native::unpark(self.address(), 1);
    }

    fn address(&self) -> *const u32 {
        self.unparked.as_ptr()
    }

    /// Locks the bucket that it is in.
    pub(crate) fn bucket(&self) -> (usize, MutexGuard<'static, Queue>) {
        loop {
            let key = self.key.load(Relaxed);
            let queue = lock(key);
            // Another thread may have requeued it meanwhile.
            if self.has_key(key) {
                return (key, queue);
            }
        }
    }
}

impl Queue {
    const NEW: Self = Queue {
        waiters: VecDeque::new(),
        fair: 0,
    };

    pub(crate) fn has(&self, key: usize) -> bool {
        self.waiters.iter().any(|waiter| waiter.has_key(key))
    }

    /// Whether it is time to be fair.
    pub(crate) fn is_fair(&mut self) -> bool {
        let now = Native::now();
        let fair = now >= self.fair;
        if fair {
            self.fair = now + u64::from(Native::random()) % FAIR;
        }
        fair
    }
}

fn index(key: usize) -> usize {
    let mixed = (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as usize % BUCKETS
}

/// Locks the bucket of `key`.
pub(crate) fn lock(key: usize) -> MutexGuard<'static, Queue> {
    TABLE[index(key)].0.lock()
}

/// Locks the buckets of two keys, in the order of the table. One, if both are the same.
pub(crate) fn lock_both(
    from: usize,
    to: usize,
) -> (
    MutexGuard<'static, Queue>,
    Option<MutexGuard<'static, Queue>>,
) {
    match index(from).cmp(&index(to)) {
        std::cmp::Ordering::Equal => (lock(from), None),
        std::cmp::Ordering::Less => {
            let first = lock(from);
            (first, Some(lock(to)))
        }
        std::cmp::Ordering::Greater => {
            let second = lock(to);
            (lock(from), Some(second))
        }
    }
}
