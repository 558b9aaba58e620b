//! Injected preemption: at chosen points a thread is slowed down, taken off its CPU, or put to sleep.

use crate::random::Random;
use std::time::Duration;

/// How often threads are interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preemption {
    /// Never, beyond what the operating system does.
    Off,
    /// Now and then.
    Light,
    /// At nearly every point something happens.
    Heavy,
}

/// Every level, with its name on the command line.
pub const LEVELS: [(&str, Preemption); 3] = [
    ("off", Preemption::Off),
    ("light", Preemption::Light),
    ("heavy", Preemption::Heavy),
];

/// One thread's source of interruptions, determined by its seed.
#[derive(Debug)]
pub struct Injector {
    /// Something happens at one point in so many; 0 = at none.
    rarity: u64,
    random: Random,
}

impl Injector {
    /// An injector of interruptions as `random` decides.
    pub fn new(level: Preemption, random: Random) -> Self {
        Self::once_in([0, 32, 2][level as usize], random)
    }

    /// The same for points that are few, those within an algorithm.
    pub fn frequent(level: Preemption, random: Random) -> Self {
        Self::once_in([0, 4, 2][level as usize], random)
    }

    fn once_in(rarity: u64, random: Random) -> Self {
        Injector { rarity, random }
    }

    /// One as busy, for another thread.
    pub fn branch(&mut self) -> Self {
        Self::once_in(self.rarity, self.random.branch())
    }

    /// A point at which the thread may be interrupted.
    pub fn point(&mut self) {
        if self.rarity == 0 || !self.random.one_in(self.rarity) {
            return;
        }
        match self.random.below(256) {
            0 => std::thread::sleep(Duration::from_micros(500)),
            1..4 => std::thread::sleep(Duration::from_micros(20)),
            4..64 => std::thread::yield_now(),
            _ => spin(self.random.below(100)),
        }
    }
}

/// Wastes about `n` times a few nanoseconds.
pub fn spin(n: u64) {
    for _ in 0..n {
        std::hint::spin_loop();
    }
}
