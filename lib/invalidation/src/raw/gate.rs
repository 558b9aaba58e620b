//! Waiting and waking, for all backends.
//!
//! `awaited` is a lower bound of the generations that sleeping waiters wait for, or [`NONE`].
//!
//! | thread | does | then |
//! | --- | --- | --- |
//! | waiter | reads `wakeups`, checks, lowers `awaited` to its own, heavy fence | checks, sleeps |
//! | ender | lets a generation pass, light fence | reads `awaited`; if that has passed, *rouses* |
//! | waiter, passed | if `awaited` is not above its generation, rouses | leaves |
//!
//! To rouse the waiters, a thread stores [`NONE`] in `awaited`, adds 1 to `wakeups`, and wakes all
//! sleepers. A waiter repeats its line until its generation has passed. It sleeps only while
//! `wakeups` has the value that it read at first.
//!
//! A waiter's heavy fence covers the value that it has written to `awaited` as long as `wakeups`
//! stays the same: only threads that rouse raise `awaited`, and they change `wakeups` after that.
//!
//! So an end wakes nobody as long as the oldest generation that is waited for has not passed.
//!
//! 1. *No lost wake-up before the check*: the fences ensure that at least one side sees the other's
//!    store. Either the waiter sees the generation passed, or the ender sees the waiter's value of
//!    `awaited`, or a lower one, or that another thread has roused.
//! 2. *A thread that rouses may erase what a waiter has just written*, but `wakeups` changes after
//!    that. Either the waiter does not fall asleep, or it is woken. If it has read the new
//!    `wakeups` (Acquire), its value of `awaited` comes after [`NONE`] (Release).
//! 3. *A value of `awaited` is never left without an end to come*. Either its waiter has seen an
//!    open section that is not newer, whose end will find the value; or the waiter has seen its
//!    generation passed, and erases the value. The former includes a waiter whose time was up.

use super::{Config, Counts};
use core::marker::PhantomData;
use kinlock_core::platform::{Atomic, NEVER, Ordering::*, Platform, Ticket};

/// The length in nanoseconds of the first sleep without a heavy fence, where an ender may miss the
/// sleeper. Each later one is twice as long.
const UNNOTICED_SLEEP: u64 = 200_000;

/// No waiter sleeps. Above all generations.
const NONE: u64 = super::NEWEST + 1;

/// The sleeping place of waiters; see the top of this file.
#[derive(Debug)]
pub struct Gate<P: Platform, C: Config> {
    awaited: P::AtomicU64,
    wakeups: P::AtomicU32,
    config: PhantomData<C>,
}

impl<P: Platform, C: Config> Gate<P, C> {
    pub(super) fn new() -> Self {
        Gate {
            awaited: Atomic::new(NONE),
            wakeups: Atomic::new(0),
            config: PhantomData,
        }
    }

    /// Whether there are waiters and, according to `passed`, the lowest generation that any of them
    /// waits for has passed.
    #[inline]
    pub(super) fn is_awaited(&self, passed: impl FnOnce(u64) -> bool) -> bool {
        // Pairs with the heavy fence in `wait`.
        P::light_fence();
        let awaited = self.awaited.glance(Relaxed);
        awaited != NONE && passed(awaited)
    }

    /// Wakes all waiters.
    #[cold]
    #[inline(never)]
    pub(super) fn rouse(&self, counts: &Counts<P>) {
        self.erase();
        self.count_wake_up();
        self.wake_all(counts);
    }

    /// Notes that no generation is waited for.
    pub fn erase(&self) {
        self.awaited.store(NONE, Relaxed);
    }

    /// Keeps waiters that have not checked since from falling asleep.
    pub fn count_wake_up(&self) {
        // Release: a waiter that acquires this sees what has passed before, and `NONE`.
        self.wakeups.fetch_add(1, Release);
    }

    /// Wakes all sleeping waiters.
    pub fn wake_all(&self, counts: &Counts<P>) {
        counts.wakes.fetch_add(1, Relaxed);
        P::unpark(self.key(), u32::MAX);
    }

    /// Waits until `passed()` (`true`), or until the time `until` (`false`). `passed()` is false at
    /// the call, and tells about `generation`. Calls `slow()` before the first sleep.
    pub(super) fn wait(
        &self,
        counts: &Counts<P>,
        generation: u64,
        until: u64,
        slow: impl FnOnce(),
        passed: impl Fn() -> bool,
    ) -> bool {
        let time_is_up = || until != NEVER && P::now() >= until;
        if time_is_up() {
            return false;
        }
        for _ in 0..C::SPINS {
            P::relax();
            if passed() {
                return true;
            }
        }
        for _ in 0..C::YIELDS {
            P::yield_now();
            if passed() {
                return true;
            }
            if time_is_up() {
                return false;
            }
        }
        const { assert!(P::CAN_PARK, "waiters sleep") };
        let mut slow = Some(slow);
        let mut sleep = UNNOTICED_SLEEP;
        let (mut ticket, mut announced) = (Ticket::default(), None);
        loop {
            // Acquire pairs with the Release in `rouse`.
            let seen = self.wakeups.load(Acquire);
            if announced.replace(seen) != Some(seen) {
                ticket = Ticket::default();
            }
            if passed() {
                break;
            }
            let lower = |awaited| (generation < awaited).then_some(generation);
            let _ = self.awaited.fetch_update(Relaxed, lower);
            // Pairs with the light fence in `is_awaited`.
            let noticed = P::heavy_fence(&mut ticket);
            if passed() {
                break;
            }
            let mut limit = until;
            if !noticed {
                limit = until.min(P::now().saturating_add(sleep));
                sleep = sleep.saturating_mul(2);
            }
            if time_is_up() {
                return false;
            }
            if let Some(slow) = slow.take() {
                slow();
            }
            P::park(self.key(), seen, limit, || self.wakeups.load(Relaxed));
        }
        if self.awaited.load(Relaxed) <= generation {
            self.rouse(counts);
        }
        true
    }

    /// In a forked child: no thread sleeps there.
    pub(super) fn reset_in_child(&self) {
        self.erase();
    }

    fn key(&self) -> *const u32 {
        (&raw const self.wakeups).cast()
    }
}
