//! Injected preemption: at chosen points a thread is slowed down, taken off its CPU, or put to
//! sleep.

use kinlock_measure::random::Random;
use std::time::Duration;

/// How often threads are interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preemption {
    /// Only by the operating system.
    Off,
    /// Now and then.
    Light,
    /// At nearly every point something happens.
    Heavy,
}

/// The levels, with their names on the command line.
pub const LEVELS: [(&str, Preemption); 3] = [
    ("off", Preemption::Off),
    ("light", Preemption::Light),
    ("heavy", Preemption::Heavy),
];

/// One thread's source of interruptions, determined by its seed.
#[derive(Debug)]
pub struct Injector {
    /// Something happens at one point in `rarity`; 0 = at none.
    rarity: u64,
    /// A number drawn below 256 decides: if it is below the first bound, the thread sleeps for
    /// long, below the second it sleeps shortly, below the third it yields; otherwise it spins.
    kinds: [u64; 3],
    random: Random,
}

/// For threads that pass many points, each of which costs time.
const MOSTLY_SHORT: [u64; 3] = [1, 4, 64];
/// For threads that pass few points: long enough that other threads get something done.
const MOSTLY_LONG: [u64; 3] = [4, 96, 192];

impl Injector {
    /// An injector for the points of a scenario.
    pub fn new(level: Preemption, random: Random) -> Self {
        Injector {
            rarity: [0, 32, 2][level as usize],
            kinds: MOSTLY_SHORT,
            random,
        }
    }

    /// An injector for the points within an algorithm.
    pub fn inside(level: Preemption, random: Random) -> Self {
        Injector {
            rarity: [0, 8, 2][level as usize],
            kinds: MOSTLY_LONG,
            random,
        }
    }

    /// A point at which the thread may be interrupted.
    pub fn point(&mut self) {
        if self.rarity == 0 || !self.random.one_in(self.rarity) {
            return;
        }
        let [long, short, yielded] = self.kinds;
        match self.random.below(256) {
            n if n < long => std::thread::sleep(Duration::from_micros(500)),
            n if n < short => std::thread::sleep(Duration::from_micros(20)),
            n if n < yielded => std::thread::yield_now(),
            _ => spin(self.random.below(100)),
        }
    }
}

/// Spins for about `n` times a few nanoseconds.
pub fn spin(n: u64) {
    for _ in 0..n {
        std::hint::spin_loop();
    }
}
