//! A loop that keeps a CPU busy for a given time without looking at a clock.
//!
//! A clock costs tens of nanoseconds, more than a short critical section. So the loop is a chain of
//! dependent multiplications, calibrated once per process.
//!
//! There is one copy of its code, and its state stays in registers. When it was inlined into the
//! loop of each lock and passed its state through memory, the same work took 75 ns in one copy and
//! 145 ns in another, depending on whether the CPU renamed that memory. Locks differ by less. Each
//! call begins with the result of the previous one; otherwise a CPU would begin the next private
//! work before it has done the last.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

use kinlock_measure::random::Random;

/// Iterations that take about `ns` nanoseconds on an otherwise idle CPU; at least 1.
pub fn iterations(ns: f64) -> u64 {
    ((ns / ns_per_iteration()).round() as u64).max(1)
}

/// The time of one iteration in nanoseconds, measured at the first call.
pub fn ns_per_iteration() -> f64 {
    static CALIBRATED: OnceLock<f64> = OnceLock::new();
    *CALIBRATED.get_or_init(measure_again)
}

/// The time of one iteration in nanoseconds, measured now.
pub fn measure_again() -> f64 {
    const ITERATIONS: u64 = 20_000;
    // The fastest try was not interrupted.
    (0..100)
        .map(|_| {
            let start = Instant::now();
            black_box(chain(black_box(ITERATIONS), 1));
            start.elapsed().as_nanos() as f64 / ITERATIONS as f64
        })
        .fold(f64::INFINITY, f64::min)
        .max(0.01)
}

/// Works for `iterations`. The work depends on all numbers that were drawn from `rng`, and all
/// later numbers depend on it.
pub fn spin(iterations: u64, rng: &mut Random) {
    let end = chain(iterations, rng.next());
    rng.stir(end);
}

/// Never inlined, so that there is only one copy.
#[inline(never)]
fn chain(iterations: u64, start: u64) -> u64 {
    let mut x = start;
    for _ in 0..iterations {
        // A step that cannot be combined with the next one.
        x = (x ^ x >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    x
}

/// Private work of random length, from half to one and a half times the mean: a fixed length would
/// let the threads fall into step.
pub struct ThinkTime {
    mean: u64,
}

impl ThinkTime {
    /// Work of `ns` nanoseconds on average.
    pub fn of_ns(ns: f64) -> Self {
        Self {
            mean: iterations(ns),
        }
    }

    #[inline(always)]
    pub fn pass(&self, rng: &mut Random) {
        // Numbers have 48 bits, so this scales one without a division, which would take longer.
        let more = (u128::from(rng.next()) * u128::from(self.mean + 1)) >> 48;
        let iterations = self.mean / 2 + more as u64;
        spin(iterations, rng);
    }
}
