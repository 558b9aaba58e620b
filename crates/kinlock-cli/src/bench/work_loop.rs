//! A loop that keeps a CPU busy for a given time without looking at a clock.
//!
//! A clock costs tens of nanoseconds, more than a short critical section. So the loop is a chain of dependent
//! multiplications, calibrated once per process.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

/// Iterations that take about `ns` nanoseconds on an otherwise idle CPU; at least 1.
pub fn iterations(ns: f64) -> u64 {
    ((ns / ns_per_iteration()).round() as u64).max(1)
}

/// What one iteration takes, in nanoseconds, as measured when first asked.
pub fn ns_per_iteration() -> f64 {
    static CALIBRATED: OnceLock<f64> = OnceLock::new();
    *CALIBRATED.get_or_init(measure_again)
}

/// What one iteration takes now, in nanoseconds.
pub fn measure_again() -> f64 {
    const ITERATIONS: u64 = 20_000;
    // The fastest try is the one that nothing interrupted.
    (0..100)
        .map(|_| {
            let start = Instant::now();
            spin(black_box(ITERATIONS));
            start.elapsed().as_nanos() as f64 / ITERATIONS as f64
        })
        .fold(f64::INFINITY, f64::min)
        .max(0.01)
}

/// Works for `iterations`.
#[inline]
pub fn spin(iterations: u64) {
    let mut x = iterations;
    for _ in 0..iterations {
        x = black_box(x.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1));
    }
}
