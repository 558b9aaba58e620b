//! Ways to keep a page from being reused before it has been given back: ours, a lock held meanwhile, a flag per slot.

use std::sync::atomic::{AtomicU32, Ordering::*};

use kinlock::Mutex;
use kinlock_core::Native;
use kinlock_core::platform::{NEVER, Platform};
use kinlock_invalidation::{Backend, Domain};
use kinlock_verify::invalidation::Ours;
use kinlock_verify::pages::Protection;

/// A [`Protection`] that can be measured.
pub trait Contender: Protection + Sized {
    /// A batch that covers nothing.
    #[inline(always)]
    fn empty(&self) {
        let section = self.begin();
        self.end(section, std::iter::empty());
    }

    /// Whether what `mark` stands for has been given back: what a reuser asks first.
    fn passed(&self, mark: &Self::Mark) -> bool;

    /// Our domain, if it is one.
    fn domain(&self) -> Option<&Domain> {
        None
    }
}

/// Ours with this backend.
pub fn ours(backend: Backend) -> Ours {
    Ours::new(backend).expect("the plan has asked")
}

impl Contender for Ours {
    #[inline(always)]
    fn empty(&self) {
        drop(self.0.begin());
    }

    #[inline(always)]
    fn passed(&self, tag: &Self::Mark) -> bool {
        self.0.passed(tag)
    }

    fn domain(&self) -> Option<&Domain> {
        Some(&self.0)
    }
}

/// The shard's lock is held until the pages have been given back.
#[derive(Debug, Default)]
pub struct LockHeld(Mutex<()>);

impl Protection for LockHeld {
    type Mark = ();
    type Section<'a> = ();
    const HOLDS_LOCK: bool = true;

    fn begin(&self) {}
    fn mark(&self, (): &(), (): &()) {}
    fn end<'a>(&self, (): (), _: impl Iterator<Item = &'a ()>) {}
    fn wait(&self, (): &()) {}
}

impl Contender for LockHeld {
    #[inline(always)]
    fn empty(&self) {
        drop(self.0.lock());
    }

    #[inline(always)]
    fn passed(&self, (): &()) -> bool {
        true
    }
}

/// A busy flag in each slot, on which reusers sleep.
#[derive(Debug, Default)]
pub struct BusyFlag;

/// 0: idle.
const BUSY: u32 = 1;
const BUSY_WITH_SLEEPERS: u32 = 2;
/// How often a reuser looks before it sleeps: as often as ours.
const LOOKS: u32 = 64;

impl Protection for BusyFlag {
    type Mark = AtomicU32;
    type Section<'a> = ();

    fn begin(&self) {}

    fn mark(&self, (): &(), busy: &AtomicU32) {
        // Under the lock, which publishes it.
        busy.store(BUSY, Relaxed);
    }

    fn end<'a>(&self, (): (), marks: impl Iterator<Item = &'a AtomicU32>) {
        for busy in marks {
            if busy.swap(0, Release) == BUSY_WITH_SLEEPERS {
                Native::unpark(busy.as_ptr(), u32::MAX);
            }
        }
    }

    fn wait(&self, busy: &AtomicU32) {
        for _ in 0..LOOKS {
            if busy.load(Acquire) == 0 {
                return;
            }
            std::hint::spin_loop();
        }
        loop {
            let _ = busy.compare_exchange(BUSY, BUSY_WITH_SLEEPERS, Relaxed, Relaxed);
            if busy.load(Acquire) == 0 {
                return;
            }
            Native::park(busy.as_ptr(), BUSY_WITH_SLEEPERS, NEVER, || {
                busy.load(Relaxed)
            });
        }
    }
}

impl Contender for BusyFlag {
    #[inline(always)]
    fn passed(&self, busy: &AtomicU32) -> bool {
        busy.load(Acquire) == 0
    }
}
