//! Draws of all assumed numbers at a time, which show on which of them an answer depends.
//!
//! The draws are a Latin hypercube: with n draws, the range of every number is cut into n parts,
//! and each part is drawn from once, in a random order for each number. So a dozen draws cover
//! every number's whole range.

use kinlock_measure::random::Random;
use kinlock_sim::machine::Origin;
use kinlock_sim::{Machine, workloads};
use serde::Serialize;

/// An assumed number may be larger or smaller by up to this factor.
const FACTOR: f64 = 1.4;

/// One of several draws.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Draw {
    /// The number of the draw, from 0 on.
    pub number: u32,
    pub of: u32,
}

/// The assumed numbers of a machine and a workload, by name, each with its factor in a draw.
pub fn factors(
    machine: &Machine,
    workload: &workloads::Kind,
    draw: Draw,
) -> Vec<(&'static str, f64)> {
    let machine = machine.parameters.iter();
    let machine = machine.filter(|number| number.origin == Origin::Assumed);
    let workload = workload.parameters.iter();
    let workload = workload.filter(|constant| constant.origin == Origin::Assumed);
    let names = machine.map(|number| number.name);
    let names = names.chain(workload.map(|constant| constant.name));
    let mut random = Random::new(1);
    names
        .map(|name| {
            let mut parts: Vec<u32> = (0..draw.of).collect();
            random.shuffle(&mut parts);
            let part = (parts[draw.number as usize] as f64 + 0.5) / draw.of as f64;
            (name, FACTOR.powf(2.0 * part - 1.0))
        })
        .collect()
}

/// Spearman's rank correlation of two series of the same length; 0 if one of them is constant.
pub fn rank_correlation(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (ranks(a), ranks(b));
    let middle = (a.len() as f64 - 1.0) / 2.0;
    let product = |x: &[f64], y: &[f64]| -> f64 {
        let pairs = x.iter().zip(y);
        pairs.map(|(x, y)| (x - middle) * (y - middle)).sum()
    };
    let spread = (product(&a, &a) * product(&b, &b)).sqrt();
    if spread == 0.0 {
        0.0
    } else {
        product(&a, &b) / spread
    }
}

/// The rank of each value among all; equal values have the mean of their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count();
        let equal = values.iter().filter(|other| *other == value).count();
        below as f64 + (equal as f64 - 1.0) / 2.0
    };
    values.iter().map(rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kinlock_sim::machine;

    #[test]
    fn draws_cover_the_range_of_every_assumed_number_once() {
        let machine = machine::load("haswell-ex-4s").unwrap();
        let workload = workloads::by_name("lock2").unwrap();
        let draw = |number| factors(&machine, &workload, Draw { number, of: 4 });
        let draws: Vec<_> = (0..4).map(draw).collect();
        assert!(draws[0].iter().any(|(name, _)| *name == "third_party_home"));
        assert!(
            draws[0]
                .iter()
                .any(|(name, _)| *name == "work under the lock")
        );
        assert!(draws[0].iter().all(|(name, _)| *name != "modified"));
        for number in 0..draws[0].len() {
            let mut all: Vec<_> = draws.iter().map(|draw| draw[number].1).collect();
            all.sort_by(f64::total_cmp);
            let parts = [-0.75, -0.25, 0.25, 0.75].map(|part| FACTOR.powf(part));
            assert!(all.iter().zip(parts).all(|(a, b)| (a - b).abs() < 1e-9));
        }
        let together = |n: usize| draws.iter().map(|draw| draw[n].1).collect::<Vec<_>>();
        assert!((1..draws[0].len()).any(|n| together(n) != together(0)));
    }

    #[test]
    fn ranks_correlate_by_order_alone() {
        assert_eq!(rank_correlation(&[1.0, 2.0, 9.0], &[0.1, 0.2, 0.3]), 1.0);
        assert_eq!(rank_correlation(&[1.0, 2.0, 9.0], &[5.0, 4.0, -7.0]), -1.0);
        assert_eq!(rank_correlation(&[1.0, 2.0, 3.0], &[4.0, 4.0, 4.0]), 0.0);
        let some = rank_correlation(&[1.0, 2.0, 3.0, 4.0], &[1.0, 1.0, 3.0, 2.0]);
        assert!(some > 0.6 && some < 0.8, "{some}");
    }
}
