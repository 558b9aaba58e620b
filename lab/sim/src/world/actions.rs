//! Actions of a thread other than memory accesses: compute, spin, sleep and wake others.

use super::coroutine::{suspend, wait_for_turn};
use super::{State, World, with};
use kinlock_core::platform::{EVERY_SET, Parked};

/// The current thread computes for `cycles`, slower while the sibling hardware thread is busy.
pub(crate) fn compute(cycles: u64) {
    let mut left = cycles;
    loop {
        // In pieces, so that a time slice can end between them.
        let piece = left.min(with(|w| w.fabric.costs.time_slice));
        with(|w| w.compute(piece));
        left -= piece;
        if left == 0 {
            return;
        }
        wait_for_turn();
    }
}

/// The current thread leaves a spin loop.
pub(crate) fn leave_spin() {
    let (from, cycles) = with(|w| (w.now(), w.fabric.costs.spin_exit));
    compute(cycles);
    with(|w| {
        let (me, to) = (w.current, w.now());
        w.recorder
            .tell(|recorder| recorder.leaves_spin(me, from, to));
    });
}

/// Spins until the line at `address` may have changed, or until the clock reaches `until`.
pub(crate) fn spin(address: usize, until: u64) {
    with(|w| w.spin(address, until));
    suspend();
}

/// If `still` holds, sleeps at `key`, as a member of `sets`, until unparked or until the clock
/// reaches `until`.
pub(crate) fn park(key: usize, until: u64, sets: u32, still: impl FnOnce() -> bool) -> Parked {
    with(|w| w.compute_alone(w.fabric.costs.park));
    wait_for_turn();
    if in_one_step(still) {
        let until = with(|w| w.sleep_until(until));
        with(|w| w.park(key, until, sets));
        suspend();
        return match with(|w| w.threads[w.current].overslept) {
            true => Parked::Unwoken,
            false => Parked::Woken,
        };
    }
    Parked::Differed
}

/// Wakes up to `n` threads that sleep at `key` in one of `sets`, first come first served, and
/// returns how many.
pub(crate) fn unpark(key: usize, n: usize, sets: u32) -> usize {
    with(|w| w.compute_alone(w.fabric.costs.unpark));
    wait_for_turn();
    with(|w| w.unpark(key, n, sets))
}

/// Wakes up to `n` threads that sleep at `key`, first come first served. Returns how many, or
/// `n + 1` if others still sleep.
pub(crate) fn unpark_some(key: usize, n: usize) -> usize {
    with(|w| w.compute_alone(w.fabric.costs.unpark));
    wait_for_turn();
    with(|w| {
        let woken = w.unpark(key, n, EVERY_SET);
        woken + usize::from(w.has_sleeper(key))
    })
}

/// If `still` holds, wakes `woken` of the threads that sleep at `from` and moves the others to
/// `to`; otherwise wakes all of them. Returns how many it woke or moved.
pub(crate) fn requeue_but(
    woken: usize,
    from: usize,
    to: usize,
    still: impl FnOnce() -> bool,
) -> usize {
    with(|w| w.compute_alone(w.fabric.costs.unpark));
    wait_for_turn();
    let still = in_one_step(still);
    with(|w| {
        if !still || w.by_chance(|d| d.spurious_one_in) {
            w.unpark(from, usize::MAX, EVERY_SET)
        } else {
            w.unpark(from, woken, EVERY_SET) + w.requeue(from, to)
        }
    })
}

/// Runs `f` with no other thread in between.
fn in_one_step<R>(f: impl FnOnce() -> R) -> R {
    with(|w| w.in_one_step = true);
    let result = f();
    with(|w| w.in_one_step = false);
    result
}

impl World {
    fn compute(&mut self, cycles: u64) {
        let percent = self.sibling_percent();
        let thread = &mut self.threads[self.current];
        let since = thread.now;
        thread.now += cycles * percent / 100;
        if thread.now >= thread.next_tick {
            self.tick(since);
        }
    }

    /// Lets the system's timer interrupt the current thread, unless that has already happened while
    /// the thread waited, before `since`.
    #[cold]
    fn tick(&mut self, since: u64) {
        let (tick, period) = (self.fabric.costs.tick, self.fabric.costs.tick_period);
        let thread = &mut self.threads[self.current];
        if thread.next_tick < since {
            thread.next_tick += (since - thread.next_tick).div_ceil(period) * period;
        }
        while thread.now >= thread.next_tick {
            thread.now += tick;
            thread.next_tick += period;
        }
    }

    fn compute_alone(&mut self, cycles: u64) {
        self.threads[self.current].now += cycles;
    }

    /// How long computing takes, in percent of computing alone on the core.
    fn sibling_percent(&self) -> u64 {
        let per_core = self.setup.machine.shape.threads_per_core;
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
