//! Where waiters sleep, whatever the backend.
//!
//! | who | does | and then |
//! | --- | --- | --- |
//! | waiter | `sleepers` + 1, heavy fence | reads `turns`, looks whether the generation has passed, sleeps while `turns` is what it was |
//! | who ends a section | lets a generation pass, light fence | reads `sleepers`; if there are any: `turns` + 1, wakes them all |
//!
//! 1. *Falling asleep against ending*: of the two fences' sides at least one sees the other's store. Either the waiter sees the generation passed, or who ends sees the sleeper.
//! 2. *A wake-up between the look and falling asleep*: `turns` has changed, so that the waiter does not fall asleep. If it has read the new `turns`, it sees the generation that passed before,
//!    since the two are released and acquired in that order.

use super::{Config, Fault};
use core::marker::PhantomData;
use kinlock_core::platform::{Atomic, NEVER, Ordering::*, Platform};

/// The first sleep where no heavy fence guarantees that a sleeper is noticed, in nanoseconds; later ones are longer.
const UNNOTICED_SLEEP: u64 = 200_000;

/// See the top of this file.
#[derive(Debug)]
pub struct Gate<P: Platform, C: Config> {
    sleepers: P::AtomicU32,
    turns: P::AtomicU32,
    config: PhantomData<C>,
}

impl<P: Platform, C: Config> Gate<P, C> {
    pub(super) fn new() -> Self {
        Gate {
            sleepers: Atomic::new(0),
            turns: Atomic::new(0),
            config: PhantomData,
        }
    }

    /// A generation may have passed that somebody waits for.
    #[inline]
    pub(super) fn wake(&self) {
        // Pairs with the heavy fence in `wait`.
        P::light_fence();
        if self.sleepers.glance(Relaxed) != 0 && C::FAULT as u8 != Fault::WakeLost as u8 {
            self.wake_all();
        }
    }

    #[cold]
    #[inline(never)]
    fn wake_all(&self) {
        // Release: who acquires this sees what has passed before.
        self.turns.fetch_add(1, Release);
        P::unpark(self.key(), u32::MAX);
    }

    /// Waits until `passed()`, which it is not now (`true`), or until `until`; `slow()` is called before the thread sleeps for the first time.
    pub(super) fn wait(&self, until: u64, slow: impl FnOnce(), passed: impl Fn() -> bool) -> bool {
        if until != NEVER && P::now() >= until {
            return false;
        }
        for _ in 0..C::LOOKS {
            P::relax();
            if passed() {
                return true;
            }
        }
        if !P::CAN_PARK {
            while !passed() {
                if until != NEVER && P::now() >= until {
                    return false;
                }
                P::relax();
            }
            return true;
        }
        let mut slow = Some(slow);
        self.sleepers.fetch_add(1, Relaxed);
        // Pairs with the light fence in `wake`. Once is enough: from here on whoever ends a section sees a sleeper.
        let noticed = P::heavy_fence();
        let mut nap = UNNOTICED_SLEEP;
        let done = loop {
            // Acquire pairs with the Release in `wake_all`.
            let turn = self.turns.load(Acquire);
            if passed() {
                break true;
            }
            let limit = if noticed && until == NEVER {
                NEVER
            } else {
                let now = P::now();
                if now >= until {
                    break false;
                }
                if noticed {
                    until
                } else {
                    nap = nap.saturating_mul(2);
                    until.min(now.saturating_add(nap / 2))
                }
            };
            if let Some(slow) = slow.take() {
                slow();
            }
            P::park(self.key(), turn, limit, || self.turns.load(Relaxed));
        };
        self.sleepers.fetch_add(u32::MAX, Relaxed);
        done
    }

    /// Nobody sleeps in a forked child.
    pub(super) fn reset_in_child(&self) {
        self.sleepers.store(0, Relaxed);
    }

    fn key(&self) -> *const u32 {
        (&raw const self.turns).cast()
    }
}
