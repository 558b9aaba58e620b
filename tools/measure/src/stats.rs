//! The few statistics that reports use.

use std::ops::RangeInclusive;

use serde::Serialize;

/// Median and extremes over rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The middle value, or the mean of the two in the middle.
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Summary {
    /// The summary of at least one value.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let sorted = sorted(values);
        let n = sorted.len();
        Self {
            median: (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0,
            min: sorted[0],
            max: sorted[n - 1],
        }
    }
}

impl From<Summary> for [f64; 3] {
    fn from(summary: Summary) -> Self {
        [summary.median, summary.min, summary.max]
    }
}

fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The range of the middle half of at least one value. Fewer than four values: their whole range.
fn middle_half(values: impl IntoIterator<Item = f64>) -> RangeInclusive<f64> {
    let sorted = sorted(values);
    let n = sorted.len();
    sorted[n / 4]..=sorted[n - 1 - n / 4]
}

/// Whether rounds disagree on what is faster: the middle half of their ratios includes 1 and spans
/// more than 10 %.
pub fn is_noisy(ratios: impl IntoIterator<Item = f64>) -> bool {
    let usual = middle_half(ratios);
    usual.contains(&1.0) && *usual.end() > 1.1 * usual.start()
}

/// The geometric mean of at least one value.
pub fn geometric_mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len() as f64;
    (values.map(f64::ln).sum::<f64>() / n).exp()
}

/// How evenly threads were served.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fairness {
    /// Jain's index: 1 if all threads did the same number of operations, 1/n if one did all.
    pub jain: f64,
    /// The slowest thread's operations, divided by the mean.
    pub min_over_mean: f64,
}

impl Fairness {
    /// The fairness of each thread's operations, summed over rounds.
    pub fn over<'a>(rounds: impl IntoIterator<Item = &'a [u64]>) -> Self {
        let mut sums = Vec::new();
        for ops in rounds {
            sums.resize(ops.len(), 0);
            for (sum, of_round) in sums.iter_mut().zip(ops) {
                *sum += of_round;
            }
        }
        Self::of(&sums)
    }

    /// The fairness of operations per thread; perfect if no thread did anything.
    pub fn of(ops: &[u64]) -> Self {
        let sum: f64 = ops.iter().map(|&n| n as f64).sum();
        let squares: f64 = ops.iter().map(|&n| (n as f64).powi(2)).sum();
        let least = ops.iter().copied().min().unwrap_or(0) as f64;
        if sum == 0.0 {
            return Self {
                jain: 1.0,
                min_over_mean: 1.0,
            };
        }
        let n = ops.len() as f64;
        Self {
            jain: sum * sum / (n * squares),
            min_over_mean: least * n / sum,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(Summary::of([3.0, 1.0, 2.0]).median, 2.0);
        let even = Summary::of([4.0, 1.0, 2.0, 3.0]);
        assert_eq!((even.median, even.min, even.max), (2.5, 1.0, 4.0));
    }

    #[test]
    fn the_middle_half_leaves_outliers_out() {
        assert_eq!(middle_half([1.0, 9.0, 2.0, 3.0, 0.0]), 1.0..=3.0);
        assert_eq!(middle_half([1.0, 9.0, 2.0]), 1.0..=9.0);
        assert_eq!(middle_half([5.0]), 5.0..=5.0);
    }

    #[test]
    fn ratios_and_their_inverses_cancel() {
        assert!((geometric_mean([4.0, 0.25, 8.0].into_iter()) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn fairness_of_extremes() {
        let fair = Fairness::of(&[10, 10, 10, 10]);
        assert_eq!((fair.jain, fair.min_over_mean), (1.0, 1.0));
        let monopoly = Fairness::of(&[40, 0, 0, 0]);
        assert_eq!((monopoly.jain, monopoly.min_over_mean), (0.25, 0.0));
        assert_eq!(Fairness::of(&[0, 0]).jain, 1.0);
        assert_eq!(Fairness::of(&[1, 3]).min_over_mean, 0.5);
    }
}
