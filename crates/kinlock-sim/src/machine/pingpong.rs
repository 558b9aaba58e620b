//! Measures the latencies of the host's caches.
//!
//! # Invariants
//!
//! 1. The mask passed to the kernel is a live buffer of the size passed with it.

use super::MachineError;
use crate::random::Random;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A line travels between two CPUs: how long one way takes, in ns; the median of several series.
///
/// Each side takes the line with a compare-and-swap and waits with compare-and-swaps. So one way is
/// one transfer of a modified line plus the extra cost of a locked operation.
///
/// # Errors
///
/// If a thread cannot be pinned.
pub(super) fn one_way_ns(first: usize, second: usize, time: Duration) -> Result<f64, MachineError> {
    let line = Line(AtomicU32::new(SERVED));
    let series = std::thread::scope(|scope| {
        let returner = scope.spawn(|| {
            let pinned = pin_to(second);
            if pinned {
                while line.pass(RETURNED, SERVED) {}
            }
            line.0.store(OVER, Relaxed);
            pinned
        });
        let server = scope.spawn(|| {
            let series = if pin_to(first) {
                serve(&line, time)
            } else {
                Vec::new()
            };
            line.0.store(OVER, Relaxed);
            series
        });
        let (pinned, series) = (returner.join(), server.join());
        // Neither thread panics.
        if pinned.unwrap_or(false) {
            series.unwrap_or_default()
        } else {
            Vec::new()
        }
    });
    median(series).ok_or_else(|| {
        MachineError::new(
            "this",
            format!("threads could not be pinned to CPUs {first} and {second}"),
        )
    })
}

/// How long a load takes that depends on the one before, in ns, within `bytes` bytes in an
/// unpredictable order.
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

/// How long an iteration of a spin loop takes, in ns.
pub(super) fn pause_ns() -> f64 {
    best_ns(2_000, |times| {
        for _ in 0..times {
            spin_loop();
        }
    })
}

/// Runs `work` on a thread that is pinned to `cpu`.
///
/// # Errors
///
/// If it cannot be pinned.
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
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

const SERVED: u32 = 0;
const RETURNED: u32 = 1;
const OVER: u32 = 2;

/// Two lines, as some processors fetch them in pairs.
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

/// A link in a chain of loads: the index of the next one. Two lines, as above.
#[derive(Clone)]
#[repr(align(128))]
struct Slot(usize);

const ROUNDS_OF_A_SERIES: u32 = 100;

/// One way in ns, by series. The first series does not count: the other thread is still starting.
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

/// In bytes.
const NEIGHBOURHOOD: usize = 64 << 10;

/// Confines the calling thread to a CPU; false if the kernel refuses.
#[cfg(target_os = "linux")]
fn pin_to(cpu: usize) -> bool {
    const BITS: usize = usize::BITS as usize;
    let mut mask = vec![0usize; cpu / BITS + 1];
    mask[cpu / BITS] = 1 << (cpu % BITS);
    // SAFETY: invariant 1.
    unsafe { libc::sched_setaffinity(0, size_of_val(&*mask), mask.as_ptr().cast()) == 0 }
}

/// Confines the calling thread to a CPU; not here.
#[cfg(not(target_os = "linux"))]
fn pin_to(_cpu: usize) -> bool {
    false
}

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
    fn the_median_of_nothing_is_nothing() {
        assert_eq!(median(Vec::new()), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error() {
        let error = one_way_ns(0, 8000, Duration::from_millis(1)).unwrap_err();
        assert!(error.to_string().contains("8000"), "{error}");
    }
}
