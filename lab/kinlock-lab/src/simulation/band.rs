//! A value over several simulations: the median over seeds, and the extremes over seeds and other
//! latencies between sockets.

use kinlock_measure::stats::Summary;
use kinlock_sim::Outcome;
use serde::Serializer;

use super::sample::Sample;

/// The band of a value of every sample.
pub fn band(samples: &[Sample], value: impl Fn(&Outcome) -> f64) -> Summary {
    band_of_pairs(
        samples
            .iter()
            .map(|sample| (sample, value(&sample.outcome))),
    )
}

/// The band of values that belong to samples.
pub fn band_of_pairs<'a>(pairs: impl Iterator<Item = (&'a Sample, f64)> + Clone) -> Summary {
    let usual = pairs.clone().filter(|(sample, _)| sample.is_usual());
    Summary {
        median: median(usual.map(|(_, value)| value)),
        ..Summary::of(pairs.map(|(_, value)| value))
    }
}

/// A band multiplied by a number.
pub fn scaled(band: Summary, factor: f64) -> Summary {
    Summary {
        median: band.median * factor,
        min: band.min * factor,
        max: band.max * factor,
    }
}

/// Serialises a band with the names that its edges have in reports.
pub fn with_edges<S: Serializer>(band: &Summary, serializer: S) -> Result<S::Ok, S::Error> {
    let fields = [
        ("median", band.median),
        ("low", band.min),
        ("high", band.max),
    ];
    serializer.collect_map(fields)
}

/// The median of at least one value.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    Summary::of(values).median
}

/// A quotient, or 0 if the divisor is 0, so that it can be shown and written.
pub fn over(a: f64, b: f64) -> f64 {
    if b == 0.0 { 0.0 } else { a / b }
}
