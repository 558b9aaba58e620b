//! A few nanoseconds under the lock, then about 100 ns of private work.

use kinlock_measure::random::Random;
use kinlock_measure::workloads::counter::{THINK_NS, WORDS};

use crate::locks::round::Workload;
use crate::locks::work_loop::ThinkTime;

pub struct Counter {
    think: ThinkTime,
}

impl Counter {
    pub fn new() -> Self {
        Self {
            think: ThinkTime::of_ns(THINK_NS),
        }
    }
}

impl Workload for Counter {
    /// Four words: with the lock word they fill most of one cache line, as small structures do.
    type Shared = [u64; WORDS];
    type Local = Random;

    fn shared(&self) -> [u64; WORDS] {
        [0; WORDS]
    }

    fn local(&self, rng: Random) -> Random {
        rng
    }

    #[inline(always)]
    fn think(&self, rng: &mut Random) {
        self.think.pass(rng);
    }

    #[inline(always)]
    fn section(&self, words: &mut [u64; WORDS], _: &mut Random) {
        for word in words {
            *word += 1;
        }
    }
}
