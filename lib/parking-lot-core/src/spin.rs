//! Growing pauses for loops that wait.

use std::hint::spin_loop;
use std::thread::yield_now;

/// The number of pauses after which a thread should sleep.
const PAUSES: u32 = 10;
/// How many of them, from the first, keep the CPU.
const BUSY: u32 = 3;

/// Pauses that grow from one to the next.
///
/// ```
/// let mut pauses = parking_lot_core::SpinWait::new();
/// assert!(pauses.spin());
/// while pauses.spin() {}
/// pauses.reset();
/// assert!(pauses.spin());
/// ```
#[derive(Default)]
pub struct SpinWait {
    made: u32,
}

impl SpinWait {
    /// No pause has been made.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins again with short pauses.
    pub fn reset(&mut self) {
        self.made = 0;
    }

    /// Pauses: a few times on the CPU, later by yielding it. `false`, without a pause: the thread
    /// has paused ten times and should sleep.
    pub fn spin(&mut self) -> bool {
        if self.made == PAUSES {
            return false;
        }
        self.made += 1;
        match self.made {
            made @ ..=BUSY => (0..1 << made).for_each(|_| spin_loop()),
            _ => yield_now(),
        }
        true
    }

    /// Pauses on the CPU. The pauses grow up to a limit, and never end.
    pub fn spin_no_yield(&mut self) {
        self.made = (self.made + 1).min(PAUSES);
        (0..1 << self.made).for_each(|_| spin_loop());
    }
}
