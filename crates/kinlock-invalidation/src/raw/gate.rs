//! Waiting and waking, for all backends.
//!
//! | thread | does | then |
//! | --- | --- | --- |
//! | waiter | `sleepers` + 1, heavy fence | reads `wakeups`, checks the generation, sleeps |
//! | ender | lets a generation pass, light fence | with `sleepers`: `wakeups` + 1, wakes all |
//!
//! The waiter repeats the last column until the generation has passed. It sleeps only while
//! `wakeups` has the value that it read before the check.
//!
//! 1. *No lost wake-up before the check*: the fences ensure that at least one side sees the other's
//!    store. Either the waiter sees the generation passed, or the ender sees the sleeper.
//! 2. *No lost wake-up between check and sleep*: `wakeups` has changed, so the waiter does not fall
//!    asleep. If it has read the new `wakeups` before the check (Acquire), it sees the generation
//!    passed, which precedes the ender's change of `wakeups` (Release).

use super::{Config, Fault};
use core::marker::PhantomData;
use kinlock_core::platform::{Atomic, NEVER, Ordering::*, Platform};

/// The length in nanoseconds of the first timed sleep on platforms without a heavy fence, where an
/// ender may miss a sleeper. Each later one is twice as long.
const UNNOTICED_SLEEP: u64 = 200_000;

/// The sleeping place of waiters; see the top of this file.
#[derive(Debug)]
pub struct Gate<P: Platform, C: Config> {
    sleepers: P::AtomicU32,
    wakeups: P::AtomicU32,
    config: PhantomData<C>,
}

impl<P: Platform, C: Config> Gate<P, C> {
    pub(super) fn new() -> Self {
        Gate {
            sleepers: Atomic::new(0),
            wakeups: Atomic::new(0),
            config: PhantomData,
        }
    }

    /// Wakes waiters, if any: a generation may have passed.
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
        // Release: a waiter that acquires this sees what has passed before.
        self.wakeups.fetch_add(1, Release);
        P::unpark(self.key(), u32::MAX);
    }

    /// Waits until `passed()` (`true`), or until the time `until` (`false`). `passed()` is false at
    /// the call. Calls `slow()` before the first sleep.
    pub(super) fn wait(&self, until: u64, slow: impl FnOnce(), passed: impl Fn() -> bool) -> bool {
        if until != NEVER && P::now() >= until {
            return false;
        }
        for _ in 0..C::SPINS {
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
        // Pairs with the light fence in `wake`. Once is enough: from here on every ender sees a
        // sleeper.
        let noticed = P::heavy_fence();
        let mut sleep = UNNOTICED_SLEEP;
        let done = loop {
            // Acquire pairs with the Release in `wake_all`.
            let seen = self.wakeups.load(Acquire);
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
                    sleep = sleep.saturating_mul(2);
                    until.min(now.saturating_add(sleep / 2))
                }
            };
            if let Some(slow) = slow.take() {
                slow();
            }
            P::park(self.key(), seen, limit, || self.wakeups.load(Relaxed));
        };
        self.sleepers.fetch_add(u32::MAX, Relaxed);
        done
    }

    /// In a forked child: no thread sleeps there.
    pub(super) fn reset_in_child(&self) {
        self.sleepers.store(0, Relaxed);
    }

    fn key(&self) -> *const u32 {
        (&raw const self.wakeups).cast()
    }
}
