//! A mutex of three states, as many standard libraries have: a thread tries, spins shortly, and
//! then sleeps. Any running thread may take a free mutex. There is no queue, no hand-off.
//!
//! It is what ours is compared with on machines that nobody has at hand. The behaviour is that of
//! Rust's `std::sync::Mutex` on Linux.

use super::Lock;
use crate::platform::{Sim, SimU32};
use crate::world::with;
use kinlock_core::platform::{Atomic, NEVER, Ordering::*, Platform};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a thread may sleep.
const CONTENDED: u32 = 2;

/// How often a thread looks at a held mutex before it sleeps.
const LOOKS: u64 = 100;

pub(super) struct Futex {
    state: SimU32,
}

pub(super) fn place(_: usize) -> &'static dyn Lock {
    crate::place(Futex::new())
}

impl Futex {
    fn new() -> Self {
        Futex {
            state: SimU32::new(FREE),
        }
    }

    fn key(&self) -> *const u32 {
        (&raw const self.state).cast()
    }

    /// Looks until the mutex is free, or contended: then others sleep already. Returns what was
    /// seen last.
    fn spin(&self) -> u32 {
        // A look is a load that hits and a pause. Waiting for that long is the same to the machine
        // as looking so often, and costs the host less.
        let look = with(|w| w.costs().nanos(w.costs().own_cache + w.costs().pause));
        let nanos = (LOOKS as f64 * look) as u64;
        let (Ok(state) | Err(state)) =
            Sim::wait_for(&self.state, Relaxed, nanos, |state| state != HELD);
        state
    }

    fn take(&self) -> bool {
        let taken = self.state.compare_exchange(FREE, HELD, Acquire, Relaxed);
        taken.is_ok()
    }

    #[cold]
    fn lock_contended(&self) {
        let mut state = self.spin();
        if state == FREE && self.take() {
            return;
        }
        loop {
            // From here on the thread leaves the mutex as contended, since others may sleep: its
            // own wake-up has been used up.
            if state != CONTENDED && self.state.swap(CONTENDED, Acquire) == FREE {
                return;
            }
            let current = || self.state.load(Relaxed);
            Sim::park(self.key(), CONTENDED, NEVER, current);
            state = self.spin();
        }
    }
}

impl Lock for Futex {
    fn lock(&self, _: usize) {
        if !self.take() {
            self.lock_contended();
        }
    }

    fn unlock(&self, _: usize) {
        if self.state.swap(FREE, Release) == CONTENDED {
            Sim::unpark(self.key(), 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::SimU64;
    use crate::{Disturbance, Played, Schedule, machine, place};

    /// As the mutex, but a woken thread forgets that others may sleep.
    struct Forgetful(Futex);

    impl Lock for Forgetful {
        fn lock(&self, _: usize) {
            while !self.0.take() {
                let contended = self
                    .0
                    .state
                    .compare_exchange(HELD, CONTENDED, Relaxed, Relaxed);
                if contended != Err(FREE) {
                    let current = || self.0.state.load(Relaxed);
                    Sim::park(self.0.key(), CONTENDED, NEVER, current);
                }
            }
        }

        fn unlock(&self, me: usize) {
            self.0.unlock(me);
        }
    }

    /// As the mutex, but a waiter enters after a while.
    struct Hasty(Futex);

    impl Lock for Hasty {
        fn lock(&self, _: usize) {
            if !self.0.take() {
                self.0.spin();
            }
        }

        fn unlock(&self, me: usize) {
            self.0.unlock(me);
        }
    }

    const THREADS: usize = 5;
    const TURNS: u64 = 4;

    /// Plays a schedule: threads count under the lock, by a load and a store that others may come
    /// between. Returns how it went, and the count.
    fn play<L: Lock + 'static>(seed: u64, lock: fn() -> L) -> (Played, u64) {
        let machine = machine::load("haswell-ex-4s").unwrap();
        let disturbance = Disturbance::preemptions(seed, 5, 20_000);
        Schedule::new(machine, THREADS, disturbance).play(
            || (place(lock()), place(SimU64::new(0))),
            |(lock, count), me| {
                for _ in 0..TURNS {
                    lock.lock(me);
                    let before = count.load(Relaxed);
                    count.store(before + 1, Relaxed);
                    lock.unlock(me);
                }
            },
            |_, _| {},
            |(_, count), _| count.load(Relaxed),
        )
    }

    fn fails<L: Lock + 'static>(seed: u64, lock: fn() -> L) -> bool {
        let (played, count) = play(seed, lock);
        played.end.is_err() || count != THREADS as u64 * TURNS
    }

    #[test]
    fn it_excludes_and_loses_no_wake_up() {
        for seed in 0..300 {
            assert!(!fails(seed, Futex::new), "{seed}");
        }
    }

    #[test]
    fn a_lost_wake_up_and_a_lack_of_exclusion_show() {
        let stuck = |seed| play(seed, || Forgetful(Futex::new())).0.end.is_err();
        assert!((0..300).any(stuck));
        assert!((0..300).any(|seed| fails(seed, || Hasty(Futex::new()))));
    }
}
