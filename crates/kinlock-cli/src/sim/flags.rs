//! Flags that the verbs which simulate share.

use std::thread::available_parallelism;

use clap::builder::RangedU64ValueParser;
use serde::{Deserialize, Serialize};

/// How often everything is simulated, and with what.
#[derive(clap::Args, Clone, Debug)]
pub struct Sampling {
    /// Seeds to simulate with; the median over them is shown, their extremes are part of the band
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = RangedU64ValueParser::<u64>::new().range(1..=1000))]
    pub seeds: u64,
    /// The first seed; the others follow
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Widens the band: the first seed also runs with everything between sockets that much faster, and that much
    /// slower; 0 leaves this out
    #[arg(long, value_name = "PERCENT", default_value_t = 20.0, value_parser = band, allow_negative_numbers = true)]
    pub band: f64,
    /// Simulations at a time; changes nothing in the results [default: the CPUs of this machine]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024))]
    host_threads: Option<usize>,
}

/// One simulation of a lock with a number of threads: a seed and a factor on the latencies between sockets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// Start of its random numbers.
    pub seed: u64,
    /// On what everything between sockets costs.
    pub remote_factor: f64,
}

impl Sampling {
    /// Simulations at a time.
    pub fn host_threads(&self) -> usize {
        let cpus = || available_parallelism().map_or(1, usize::from);
        self.host_threads.unwrap_or_else(cpus)
    }

    /// The seeds.
    pub fn all_seeds(&self) -> Vec<u64> {
        (0..self.seeds).map(|n| self.seed.wrapping_add(n)).collect()
    }

    /// What every lock runs with, on a machine with so many sockets: first every seed, then the first seed with other
    /// latencies.
    pub fn variants(&self, sockets: usize) -> Vec<Variant> {
        let seeds = self.all_seeds().into_iter().map(|seed| Variant {
            seed,
            remote_factor: 1.0,
        });
        let others = [-1.0, 1.0].map(|sign| Variant {
            seed: self.seed,
            remote_factor: (100.0 + sign * self.band) / 100.0,
        });
        let has_others = self.band > 0.0 && sockets > 1;
        seeds
            .chain(others.into_iter().filter(|_| has_others))
            .collect()
    }
}

/// What medians and bands are taken over, for people.
pub fn bands(variants: &[Variant]) -> String {
    let factors: Vec<_> = variants
        .iter()
        .map(|variant| variant.remote_factor)
        .filter(|&factor| factor != 1.0)
        .map(|factor| factor.to_string())
        .collect();
    let (of, over) = match variants.len() - factors.len() {
        1 => ("one seed".to_owned(), "that one"),
        n => (format!("median of {n} seeds"), "all of them"),
    };
    match factors.is_empty() {
        true => format!("{of}; bands: {over}"),
        false => format!(
            "{of}; bands: {over}, and the first seed with latencies between sockets times {}",
            factors.join(" and ")
        ),
    }
}

fn band(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if (0.0..=90.0).contains(&percent) => Ok(percent),
        _ => Err("it has to be a number from 0 to 90".to_owned()),
    }
}

/// Parses simulated seconds.
///
/// # Errors
/// If it is not a number from 0.0001 to 100.
pub fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.0001..=100.0).contains(&seconds) => Ok(seconds),
        _ => Err("it has to be a number from 0.0001 to 100".to_owned()),
    }
}
