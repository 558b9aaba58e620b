//! Whether a process keeps its CPUs busy.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// How old what is known must be before it is asked for again, ...
const INTERVAL: u64 = 1_000_000;
/// ... and how many times what asking has cost: with thousands of threads the kernel takes long to add their times up.
const COSTS: u64 = 64;
/// What has been longer ago says nothing about now.
const LONG_AGO: u64 = 100_000_000;

/// How much CPU time a process has used of late. Times are nanoseconds.
pub(super) struct Load {
    /// When it was asked for last, ...
    asked: AtomicU64,
    /// ... what had been used by then, ...
    used: AtomicU64,
    /// ... when it may be asked for again, ...
    next: AtomicU64,
    /// ... and whether it was nearly all that there is of `cpus`.
    full: AtomicBool,
}

impl Load {
    pub(super) const fn new() -> Self {
        Self {
            asked: AtomicU64::new(0),
            used: AtomicU64::new(0),
            next: AtomicU64::new(0),
            full: AtomicBool::new(false),
        }
    }

    /// Whether seven eighths of the time of so many CPUs have been used, or more. `now` reads the clock, `used` what has been used since the process began. Of two that
    /// ask at a time one may be told what was true before.
    pub(super) fn is_full(&self, cpus: u32, now: impl Fn() -> u64, used: impl Fn() -> u64) -> bool {
        let (start, next) = (now(), self.next.load(Relaxed));
        // Not for ever: in the child of a fork the one who asks may not exist.
        let asks = || {
            self.next
                .compare_exchange(next, start + INTERVAL, Relaxed, Relaxed)
        };
        if start >= next && asks().is_ok() {
            let elapsed = start.saturating_sub(self.asked.swap(start, Relaxed));
            let used = used();
            let of_these = used.saturating_sub(self.used.swap(used, Relaxed));
            let full = elapsed < LONG_AGO && of_these * 8 >= elapsed * cpus as u64 * 7;
            self.full.store(full, Relaxed);
            let cost = now().saturating_sub(start);
            self.next.store(start + INTERVAL.max(cost * COSTS), Relaxed);
        }
        self.full.load(Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::cell::Cell;

    const MS: u64 = 1_000_000;
    const START: u64 = 1_000 * MS;

    /// What each of these steps leads to: time that passes, CPU time that is used meanwhile.
    fn loads(cpus: u32, steps: &[(u64, u64)]) -> Vec<bool> {
        let load = Load::new();
        let (mut now, mut used) = (START, 0);
        let ask = |now: u64, used: u64| load.is_full(cpus, || now, || used);
        assert!(!ask(now, used), "nothing is known yet");
        let after = |&(passed, taken): &(u64, u64)| {
            (now, used) = (now + passed, used + taken);
            ask(now, used)
        };
        steps.iter().map(after).collect()
    }

    #[test]
    fn seven_eighths_are_all() {
        let steps = [(8 * MS, 14 * MS), (8 * MS, 14 * MS - 1), (8 * MS, 16 * MS)];
        assert_eq!(loads(2, &steps), [true, false, true]);
        assert_eq!(loads(3, &steps), [false; 3]);
    }

    #[test]
    fn what_is_known_is_asked_for_again_after_a_while() {
        let steps = [(INTERVAL, INTERVAL), (INTERVAL - 1, 0), (1, 0)];
        assert_eq!(loads(1, &steps), [true, true, false]);
    }

    #[test]
    fn an_average_over_long_says_nothing() {
        let steps = [(LONG_AGO, LONG_AGO), (MS, MS), (LONG_AGO - 1, LONG_AGO)];
        assert_eq!(loads(1, &steps), [false, true, true]);
    }

    /// As after a fork.
    #[test]
    fn a_sum_that_begins_anew_is_none() {
        let load = Load::new();
        load.is_full(1, || START, || 5 * MS);
        assert!(!load.is_full(1, || START + MS, || 0));
        assert!(load.is_full(1, || START + 2 * MS, || MS));
    }

    #[test]
    fn to_ask_takes_one_part_in_sixty_four_of_the_time_at_most() {
        let (load, time, asked) = (Load::new(), Cell::new(START), Cell::new(0));
        while time.get() < START + 1_000 * MS {
            let used = || {
                asked.set(asked.get() + 1);
                time.set(time.get() + MS);
                0
            };
            load.is_full(1, || time.get(), used);
            time.set(time.get() + MS / 10);
        }
        assert!((14..=16).contains(&asked.get()), "{}", asked.get());
    }

    /// While one asks, others are told what was known.
    #[test]
    fn one_asks_at_a_time() {
        let load = Load::new();
        let inner = || {
            assert!(!load.is_full(1, || START + INTERVAL - 1, || unreachable!("somebody asks")));
            0
        };
        load.is_full(1, || START, inner);
    }
}
