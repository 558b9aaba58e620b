//! Ways to keep a page from being reused before it has been given back: ours, a lock that is held
//! until then, a flag per slot.

use std::sync::atomic::{AtomicU32, Ordering::*};

use kinlock::Mutex;
use kinlock_cli::args::Available;
use kinlock_cli::names;
use kinlock_core::platform::{NEVER, Platform};
use kinlock_invalidation::Domain;
use kinlock_linux::Native;
use kinlock_measure::workloads::pages::{Ours, Protection};

use super::Workload;

names! {
    /// A way to protect pages.
    ContenderName, "backend or rival":
    Locked = "locked", "ours: a list under our mutex";
    Slots = "slots", "ours: slots instead of a list";
    LockHeld = "lock-held", "the shard's lock is held until the pages have been given back";
    BusyFlag = "busy-flag", "a flag in each slot";
    Crossbeam = "crossbeam-epoch", "the crate crossbeam-epoch";
    Seize = "seize", "the crate seize";
    CkEpoch = "ck-epoch", "Concurrency Kit's epochs";
    Urcu = "liburcu", "liburcu";
}

impl Available for ContenderName {
    fn unavailable(self) -> Option<&'static str> {
        match self {
            #[cfg(not(have_ck_epoch))]
            Self::CkEpoch => {
                Some("install Concurrency Kit (Debian: libck-dev, Fedora: ck-devel) and rebuild")
            }
            #[cfg(not(have_urcu))]
            Self::Urcu => Some(
                "install liburcu (Debian: liburcu-dev, Fedora: userspace-rcu-devel) and rebuild",
            ),
            _ => None,
        }
    }
}

impl ContenderName {
    /// Whether the contender takes part in this workload.
    pub fn does(self, workload: Workload) -> bool {
        match workload {
            Workload::Pages => true,
            // The flag has no sections to begin and end.
            Workload::Section => self != Self::BusyFlag,
            // While the lock is held, there is nothing to check.
            Workload::Passed => self != Self::LockHeld,
        }
    }
}

/// A [`Protection`] that can be measured.
pub trait Contender: Protection + Sized {
    /// A batch that covers nothing.
    #[inline(always)]
    fn empty(&self) {
        let section = self.begin();
        self.end(section, std::iter::empty());
    }

    /// Whether the page with this mark has been given back. A reuser asks this first.
    fn passed(&self, mark: &Self::Mark) -> bool;

    /// Our domain, if the contender is one.
    fn domain(&self) -> Option<&Domain> {
        None
    }
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
/// How often a reuser spins before it sleeps: as often as with our backends.
const SPINS: u32 = 64;

impl Protection for BusyFlag {
    type Mark = AtomicU32;
    type Section<'a> = ();

    fn begin(&self) {}

    fn mark(&self, (): &(), busy: &AtomicU32) {
        // Relaxed: the lock, which is held, publishes it.
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
        for _ in 0..SPINS {
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
