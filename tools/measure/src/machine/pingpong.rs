//! Measures how long transfers between caches, wake-ups and reading the clock take on the host.

use super::MachineError;
use crate::cpus::pin_to;
use crate::random::Random;
use crate::stats::Summary;
use kinlock_core::platform::{EVERY_SET, NEVER, Platform};
use kinlock_linux::Native;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

/// How long a line takes from one of two CPUs to the other, in ns: the median of several series.
///
/// Each side takes the line with a compare-and-swap and waits with compare-and-swaps. So one way is
/// one transfer of a modified line plus the extra cost of a locked operation.
pub(super) fn one_way_ns(first: usize, second: usize, time: Duration) -> Result<f64, MachineError> {
    let line = Line(AtomicU32::new(SERVED));
    let serve = || serve(&line, time);
    let give_back = || while line.pass(RETURNED, SERVED) {};
    let end = || line.0.store(OVER, Relaxed);
    let series = on_two_cpus([first, second], serve, give_back, end)?;
    median(series).ok_or_else(|| not_pinned(first, second))
}

/// How long a load takes that depends on the previous load, in ns. The loads go through `bytes`
/// bytes in an unpredictable order.
pub(super) fn load_ns(bytes: usize) -> f64 {
    let next = shuffled_cycle((bytes / size_of::<Slot>()).max(2));
    let mut at = 0;
    best_ns(next.len().clamp(10_000, 1_000_000), |loads| {
        for _ in 0..loads {
            at = next[at].0;
        }
        black_box(at);
    })
}

/// How long a locked addition takes on a line of the thread's own, in ns.
pub(super) fn locked_ns() -> f64 {
    let line = Line(AtomicU32::new(0));
    best_ns(10_000, |times| {
        for _ in 0..times {
            black_box(line.0.fetch_add(1, Relaxed));
        }
    })
}

/// How long reading the clock takes, in ns.
pub fn clock_ns() -> f64 {
    best_ns(2_000, |times| {
        for _ in 0..times {
            black_box(Native::now());
        }
    })
}

/// How long an iteration of a spin loop takes, in ns.
pub(super) fn pause_ns() -> f64 {
    best_ns(2_000, |times| {
        for _ in 0..times {
            spin_loop();
        }
    })
}

/// How long it takes a thread on `first` to wake one that has slept on `second` for a short while,
/// and how much later the woken thread runs, in ns: the medians of at most `times` wake-ups.
pub(super) fn wake_ns(
    first: usize,
    second: usize,
    times: usize,
) -> Result<(f64, f64), MachineError> {
    let sleeper = Sleeper::default();
    let end = || {
        sleeper.over.store(true, Release);
        sleeper.wake_up();
    };
    let (wake, sleep) = (|| sleeper.wake(times), || sleeper.sleep_and_wake());
    let turns = on_two_cpus([first, second], wake, sleep, end)?;
    let (pays, later) = turns.into_iter().unzip();
    let both = median(pays).zip(median(later));
    both.ok_or_else(|| not_pinned(first, second))
}

/// How long a core takes per line to increment many lines that another core has modified, in ns:
/// the median of at most `times` turns.
pub(super) fn next_line_ns(first: usize, second: usize, times: usize) -> Result<f64, MachineError> {
    let lines = Lines::new();
    let one = || lines.increment_in_turn(SERVED, RETURNED, times);
    let other = || lines.increment_in_turn(RETURNED, SERVED, times);
    let end = || lines.turn.0.store(OVER, Relaxed);
    let turns = on_two_cpus([first, second], one, other, end)?;
    median(turns).ok_or_else(|| not_pinned(first, second))
}

/// A line without padding, so that the lines of an array are adjacent, as in a program.
#[repr(align(64))]
struct Neighbour(AtomicU32);

struct Lines {
    turn: Line,
    lines: Vec<Neighbour>,
}

impl Lines {
    fn new() -> Self {
        let lines = (0..128).map(|_| Neighbour(AtomicU32::new(0)));
        Lines {
            turn: Line(AtomicU32::new(SERVED)),
            lines: lines.collect(),
        }
    }

    /// Nanoseconds per line in each of at most `times` turns. The turns end early if the other side
    /// has ended.
    fn increment_in_turn(&self, own: u32, other: u32, times: usize) -> Vec<f64> {
        let mut turns = Vec::new();
        let begin = Instant::now();
        while turns.len() < times && (turns.is_empty() || begin.elapsed() < LONGEST) {
            match self.turn.0.load(Acquire) {
                OVER => break,
                turn if turn != own => continue,
                _ => {}
            }
            let start = Instant::now();
            for Neighbour(line) in &self.lines {
                line.store(line.load(Relaxed).wrapping_add(1), Relaxed);
            }
            let nanos = start.elapsed().as_nanos() as f64;
            turns.push(nanos / self.lines.len() as f64);
            // This fails if the other side has ended.
            let passed = self.turn.0.compare_exchange(own, other, Release, Relaxed);
            if passed.is_err() {
                break;
            }
        }
        turns
    }
}

/// Runs `one` on the first CPU and `other` on the second, and returns both results. The side that
/// ends first, or cannot be pinned, calls `end`, so that the other one ends, too.
fn on_two_cpus<T: Send, U: Send>(
    [first, second]: [usize; 2],
    one: impl FnOnce() -> T + Send,
    other: impl FnOnce() -> U + Send,
    end: impl Fn() + Sync,
) -> Result<T, MachineError> {
    let done = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let done = pin_to(second).then(other);
            end();
            done
        });
        let one = scope.spawn(|| {
            let done = pin_to(first).then(one);
            end();
            done
        });
        // Neither thread panics.
        (one.join().ok().flatten(), other.join().ok().flatten())
    });
    match done {
        (Some(result), Some(_)) => Ok(result),
        _ => Err(not_pinned(first, second)),
    }
}

fn not_pinned(first: usize, second: usize) -> MachineError {
    let problem = format!("threads could not be pinned to CPUs {first} and {second}");
    MachineError::new("this", problem)
}

/// A thread that sleeps again and again.
#[derive(Default)]
struct Sleeper {
    word: AtomicU32,
    /// When the thread ran again, by [`Platform::now`]; 0: it has not.
    ran_at: AtomicU64,
    /// One of the two has ended.
    over: AtomicBool,
}

const SLEEP: u32 = 0;
const WAKE: u32 = 1;
/// How long the thread sleeps. Waits for a lock that outlast the spinning last about this long.
const ASLEEP: Duration = Duration::from_micros(20);
/// After this time fewer turns have to be enough: the machine is not idle.
const LONGEST: Duration = Duration::from_millis(200);

impl Sleeper {
    fn sleep_and_wake(&self) {
        let word = || self.word.load(Acquire);
        while !self.over.load(Acquire) {
            if word() == SLEEP {
                Native::park(self.word.as_ptr(), SLEEP, NEVER, word);
            } else if self.ran_at.load(Relaxed) == 0 {
                self.ran_at.store(Native::now(), Release);
            }
        }
    }

    /// Wakes the sleeper, at most `times` times. Returns how long each wake-up took, and how much
    /// later the sleeper ran. Wake-ups that came before the sleeper slept are left out.
    fn wake(&self, times: usize) -> Vec<(f64, f64)> {
        let mut turns = Vec::new();
        let begin = Instant::now();
        while turns.len() < times && (turns.is_empty() || begin.elapsed() < LONGEST) {
            self.ran_at.store(0, Relaxed);
            self.word.store(SLEEP, Release);
            let asleep = Instant::now();
            while asleep.elapsed() < ASLEEP {
                spin_loop();
            }
            let begin = Native::now();
            let woken = self.wake_up();
            let end = Native::now();
            while self.ran_at.load(Acquire) == 0 {
                if self.over.load(Acquire) {
                    return turns;
                }
                spin_loop();
            }
            if woken == 1 {
                let later = self.ran_at.load(Relaxed).saturating_sub(end);
                turns.push(((end - begin) as f64, later as f64));
            }
        }
        turns
    }

    fn wake_up(&self) -> u32 {
        self.word.store(WAKE, Release);
        Native::unpark_in(self.word.as_ptr(), 1, EVERY_SET)
    }
}

/// Runs `work` on a thread that is pinned to `cpu`.
pub(super) fn on_cpu<T: Send>(
    cpu: usize,
    work: impl FnOnce() -> T + Send,
) -> Result<T, MachineError> {
    let done = std::thread::scope(|scope| {
        let worker = scope.spawn(|| pin_to(cpu).then(work));
        worker.join().ok().flatten()
    });
    done.ok_or_else(|| {
        MachineError::new("this", format!("a thread could not be pinned to CPU {cpu}"))
    })
}

/// The median; `None` of nothing.
pub(super) fn median(values: Vec<f64>) -> Option<f64> {
    (!values.is_empty()).then(|| Summary::of(values).median)
}

const SERVED: u32 = 0;
const RETURNED: u32 = 1;
const OVER: u32 = 2;

/// A line with 128 bytes to itself, since some processors fetch lines in pairs.
#[repr(align(128))]
struct Line(AtomicU32);

impl Line {
    /// Waits for `from` and makes it `to`; false if the other side has ended.
    ///
    /// Relaxed, since nothing but this word is shared.
    fn pass(&self, to: u32, from: u32) -> bool {
        loop {
            match self.0.compare_exchange(from, to, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(OVER) => return false,
                Err(_) => {}
            }
        }
    }
}

/// A link in a chain of loads: the index of the next one. It has 128 bytes, as above.
#[derive(Clone)]
#[repr(align(128))]
struct Slot(usize);

const ROUNDS_OF_A_SERIES: u32 = 100;

/// The time of one way in ns, by series. The first series does not count: the other thread is still
/// starting.
fn serve(line: &Line, time: Duration) -> Vec<f64> {
    let mut series = Vec::new();
    let mut deadline = None;
    while deadline.is_none_or(|end| Instant::now() < end) || series.is_empty() {
        let start = Instant::now();
        for _ in 0..ROUNDS_OF_A_SERIES {
            if !line.pass(SERVED, RETURNED) {
                return series;
            }
        }
        let ns = start.elapsed().as_nanos() as f64 / f64::from(2 * ROUNDS_OF_A_SERIES);
        match deadline {
            None => deadline = Some(Instant::now() + time),
            Some(_) => series.push(ns),
        }
    }
    series
}

/// The time per repetition of the fastest of several tries, which nothing interrupted.
fn best_ns(times: usize, mut work: impl FnMut(usize)) -> f64 {
    (0..15)
        .map(|_| {
            let start = Instant::now();
            work(times);
            start.elapsed().as_nanos() as f64 / times as f64
        })
        .fold(f64::INFINITY, f64::min)
}

/// A cycle through all of `n` slots: neighbourhoods one after the other, each in random order. A
/// neighbourhood has only a few pages, to keep the cost of address translation out.
fn shuffled_cycle(n: usize) -> Vec<Slot> {
    let mut order: Vec<usize> = (0..n).collect();
    let mut random = Random::new(1);
    for neighbours in order.chunks_mut(NEIGHBOURHOOD / size_of::<Slot>()) {
        random.shuffle(neighbours);
    }
    let mut next = vec![Slot(order[0]); n];
    for pair in order.windows(2) {
        next[pair[0]] = Slot(pair[1]);
    }
    next
}

/// The size of a neighbourhood in bytes.
const NEIGHBOURHOOD: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_visits_every_slot_once() {
        for n in [2, 3, 64, 10_000] {
            let next = shuffled_cycle(n);
            let mut at = 0;
            let mut seen = vec![false; n];
            for _ in 0..n {
                assert!(!std::mem::replace(&mut seen[at], true), "{n}: {at} twice");
                at = next[at].0;
            }
            assert_eq!(at, 0);
        }
    }

    #[test]
    fn two_threads_that_cannot_be_pinned_are_an_error() {
        for (first, second) in [(0, 8000), (8000, 0)] {
            for error in [
                one_way_ns(first, second, Duration::from_millis(1)).unwrap_err(),
                wake_ns(first, second, 3).unwrap_err(),
                next_line_ns(first, second, 3).unwrap_err(),
            ] {
                assert!(error.to_string().contains("8000"), "{error}");
            }
        }
    }
}
