//! What a thread does besides accessing memory: it computes, spins, sleeps and wakes others.

use super::access::Pending;
use super::coroutine::{suspend, wait_for_turn};
use super::{State, World, with};
use kinlock_core::platform::{ANYBODY, Parked};

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

/// Spins on the line at `address` until `look`, which reads a word of it first of all, is content, or until the clock reaches
/// `until`. Whether `look` was content; it has just not been when this is called.
///
/// It is called whenever the line may have changed, by the scheduler if it can be, on another stack: to switch to the thread's
/// would cost more. So it must not wait for anything.
#[inline(always)]
pub(crate) fn spin_on<F: FnMut() -> bool>(address: usize, until: u64, mut look: F) -> bool {
    while with(|w| w.now()) < until {
        let disturbed = with(|w| w.disturbance.is_some());
        if disturbed {
            with(|w| w.spin(address, until));
        } else {
            with(|w| w.spin_looked_for(Look::new(address, until, &mut look)));
        }
        suspend();
        // What comes before an access needs the thread's stack.
        if disturbed && look() || with(|w| std::mem::take(&mut w.current().content)) {
            return true;
        }
    }
    false
}

/// What the scheduler needs to look for a spinner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    address: usize,
    until: u64,
    closure: *mut (),
    call: unsafe fn(*mut ()) -> bool,
}

impl Look {
    fn new<F: FnMut() -> bool>(address: usize, until: u64, look: &mut F) -> Self {
        Look {
            address,
            until,
            closure: (&raw mut *look).cast(),
            // SAFETY: invariant 3 of `world`; `closure` was made from an `F`.
            call: |closure| unsafe { (*closure.cast::<F>())() },
        }
    }
}

/// The current thread is to go on. If it spins, and has just read the line, it looks what it read. Whether it goes on.
#[inline]
pub(super) fn content_with_spinning() -> bool {
    match with(|w| w.current().look.take()) {
        None => true,
        Some(look) => look_again(look),
    }
}

fn look_again(look: Look) -> bool {
    with(|w| w.read_already = true);
    // SAFETY: invariant 3 of `world`: the thread is suspended in `spin_on`, which has the closure.
    let content = in_one_step(|| unsafe { (look.call)(look.closure) });
    with(|w| {
        let goes_on = content || w.now() >= look.until;
        if goes_on {
            w.current().content = content;
        } else {
            w.spin_looked_for(look);
        }
        goes_on
    })
}

/// Sleeps at `key`, as a member of `sets`, until unparked or until the clock reaches `until`, if `still` holds.
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

/// Wakes up to `n` threads that sleep at `key` in one of `sets`, first come first served, and says how many.
pub(crate) fn unpark(key: usize, n: usize, sets: u32) -> usize {
    with(|w| w.compute_alone(w.fabric.costs.unpark));
    wait_for_turn();
    with(|w| w.unpark(key, n, sets))
}

/// Wakes up to `n` threads that sleep at `key`, first come first served, and says whether others do still.
pub(crate) fn unpark_some(key: usize, n: usize) -> bool {
    with(|w| w.compute_alone(w.fabric.costs.unpark));
    wait_for_turn();
    with(|w| {
        w.unpark(key, n, ANYBODY);
        w.has_sleeper(key)
    })
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
    fn spin_looked_for(&mut self, look: Look) {
        let thread = &mut self.threads[self.current];
        thread.look = Some(look);
        // To look is to read it first of all.
        thread.pending = Pending::load(look.address);
        self.spin(look.address, look.until);
    }

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
