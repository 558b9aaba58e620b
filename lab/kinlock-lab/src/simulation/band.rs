//! A value over several simulations.

use kinlock_measure::stats::Summary;
use kinlock_sim::Outcome;
use serde::Serialize;

use super::sample::Sample;

/// The median over seeds, and the extremes over these and other latencies between sockets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Band {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Band {
    /// Of a value of every sample.
    pub fn of(samples: &[Sample], value: impl Fn(&Outcome) -> f64) -> Self {
        Self::of_pairs(
            samples
                .iter()
                .map(|sample| (sample, value(&sample.outcome))),
        )
    }

    /// Of values that belong to samples.
    pub fn of_pairs<'a>(pairs: impl Iterator<Item = (&'a Sample, f64)> + Clone) -> Self {
        let all = Summary::of(pairs.clone().map(|(_, value)| value));
        let usual = pairs.filter(|(sample, _)| sample.is_usual());
        Self {
            median: median(usual.map(|(_, value)| value)),
            low: all.min,
            high: all.max,
        }
    }

    /// The same times a number.
    pub fn times(self, factor: f64) -> Self {
        Self {
            median: self.median * factor,
            low: self.low * factor,
            high: self.high * factor,
        }
    }
}

impl From<Band> for Summary {
    fn from(band: Band) -> Self {
        Self {
            median: band.median,
            min: band.low,
            max: band.high,
        }
    }
}

impl From<Band> for [f64; 3] {
    fn from(band: Band) -> Self {
        [band.median, band.low, band.high]
    }
}

/// The median of at least one value.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    Summary::of(values).median
}

/// A quotient; 0 if nothing was done, so that it can be shown and written.
pub fn over(a: f64, b: f64) -> f64 {
    if b == 0.0 { 0.0 } else { a / b }
}
