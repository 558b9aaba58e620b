//! What a thread does besides accessing memory: it computes, spins, sleeps and wakes others.

use super::coroutine::{suspend, wait_for_turn};
use super::{State, World, with};
use kinlock::platform::ANYBODY;

/// The current thread computes for `cycles`, slower while the sibling hardware thread is busy.
pub(crate) fn compute(cycles: u64) {
    let mut left = cycles;
    loop {
        // In pieces, so that a time slice can end in between.
        let piece = left.min(with(|w| w.fabric.costs.time_slice));
        with(|w| w.compute(piece));
        left -= piece;
        if left == 0 {
            return;
        }
        wait_for_turn();
    }
}

/// Spins until a write to the line at `address` or until the clock reaches `until`; the caller looks again.
pub(crate) fn spin_on(address: usize, until: u64) {
    with(|w| w.spin(address, until));
    suspend();
}

/// Sleeps at `key`, as a member of `sets`, until unparked or until the clock reaches `until` (`false`), if `still` holds.
pub(crate) fn park(key: usize, until: u64, sets: u32, still: impl FnOnce() -> bool) -> bool {
    with(|w| w.compute_alone(w.fabric.costs.park));
    wait_for_turn();
    if in_one_step(still) {
        let until = with(|w| w.sleep_until(until));
        with(|w| w.park(key, until, sets));
        suspend();
        return !with(|w| w.threads[w.current].overslept);
    }
    true
}

/// Wakes up to `n` threads that sleep at `key` in one of `sets`, first come first served, and says how many.
pub(crate) fn unpark(key: usize, n: usize, sets: u32) -> usize {
    with(|w| w.compute_alone(w.fabric.costs.unpark));
    wait_for_turn();
    with(|w| w.unpark(key, n, sets))
}

/// Wakes `woken` of those who sleep at `from` and moves the others to `to`, if `still` holds; else wakes them all.
pub(crate) fn requeue_but(woken: usize, from: usize, to: usize, still: impl FnOnce() -> bool) {
    with(|w| w.compute_alone(w.fabric.costs.unpark));
    wait_for_turn();
    let still = in_one_step(still);
    with(|w| {
        if !still || w.by_chance(|d| d.spurious_one_in) {
            w.unpark(from, usize::MAX, ANYBODY);
        } else {
            w.unpark(from, woken, ANYBODY);
            w.requeue(from, to);
        }
    });
}

/// Runs `f` with nobody else in between.
fn in_one_step<R>(f: impl FnOnce() -> R) -> R {
    with(|w| w.in_one_step = true);
    let result = f();
    with(|w| w.in_one_step = false);
    result
}

impl World {
    fn compute(&mut self, cycles: u64) {
        let percent = self.sibling_percent();
        self.threads[self.current].now += cycles * percent / 100;
    }

    fn compute_alone(&mut self, cycles: u64) {
        self.threads[self.current].now += cycles;
    }

    /// How long computing takes, in percent of computing alone on the core.
    fn sibling_percent(&self) -> u64 {
        let per_core = self.machine.shape.threads_per_core;
        if per_core == 1 {
            return 100;
        }
        let thread = &self.threads[self.current];
        let (mine, first) = (thread.cpu, thread.first_sibling);
        let costs = &self.fabric.costs;
        let mut percent = 100;
        for cpu in (first..first + per_core).filter(|&cpu| cpu != mine) {
            percent = percent.max(
                match self.cpus[cpu].running.map(|t| self.threads[t].state) {
                    Some(State::Running) => costs.sibling_computes_pct,
                    Some(State::Spinning) => costs.sibling_spins_pct,
                    _ => 100,
                },
            );
        }
        percent
    }
}
