//! Workloads that only compute: a few words and perhaps a while under the lock, then private work.

use kinlock_measure::random::Random;
use kinlock_measure::workloads::counter::{THINK_NS, WORDS};

use crate::locks::round::Workload;
use crate::locks::work_loop::{self, ThinkTime};

/// Adds to `N` words under the lock.
pub struct Computed<const N: usize> {
    /// Iterations of the work loop in a section, in addition to the words; 0: none.
    section: u64,
    think: Option<ThinkTime>,
    /// The number of sections back to back before private work.
    burst: u32,
}

impl Computed<WORDS> {
    /// A few nanoseconds under the lock, then about 100 ns of private work. With the lock word the
    /// words fill most of one cache line, as small structures do.
    pub fn counter() -> Self {
        Self {
            section: 0,
            think: Some(ThinkTime::of_ns(THINK_NS)),
            burst: 1,
        }
    }
}

/// With one word, the C library's mutex of 40 bytes, the word and the trace fill one cache line.
impl Computed<1> {
    /// About a microsecond under the lock, then about 100 ns of private work.
    pub fn long() -> Self {
        Self {
            section: work_loop::iterations(1000.0),
            think: Some(ThinkTime::of_ns(100.0)),
            burst: 1,
        }
    }

    /// The same section and no private work, so that the lock is nearly always held.
    pub fn saturated() -> Self {
        Self {
            think: None,
            ..Self::long()
        }
    }

    /// Sections of a few nanoseconds, 32 of them back to back, then a pause that is several times
    /// as long as these sections take without waits. A lock that adapts to what it saw last sees,
    /// by turns, that its holder takes it again at once, and that nobody does.
    pub fn bursts() -> Self {
        Self {
            section: 0,
            think: Some(ThinkTime::of_ns(2000.0)),
            burst: 32,
        }
    }
}

/// The private state of a thread.
pub struct Local {
    rng: Random,
    /// The remaining sections of the burst.
    left: u32,
}

impl<const N: usize> Workload for Computed<N> {
    type Shared = [u64; N];
    type Local = Local;

    fn shared(&self) -> [u64; N] {
        [0; N]
    }

    fn local(&self, rng: Random) -> Local {
        Local { rng, left: 0 }
    }

    #[inline(always)]
    fn think(&self, local: &mut Local) {
        if local.left == 0 {
            local.left = self.burst;
            if let Some(think) = &self.think {
                think.pass(&mut local.rng);
            }
        }
        local.left -= 1;
    }

    #[inline(always)]
    fn section(&self, words: &mut [u64; N], local: &mut Local) {
        if self.section > 0 {
            work_loop::spin(self.section, &mut local.rng);
        }
        for word in words {
            *word += 1;
        }
    }
}
