//! How often everything is simulated, and with which seeds and latencies.

use std::thread::available_parallelism;

use clap::builder::RangedU64ValueParser;
use serde::Serialize;

use super::draws::Draw;

/// Flags of the verbs that simulate.
#[derive(clap::Args, Clone, Debug)]
pub struct Sampling {
    /// How many seeds to simulate with; the median over them is shown, and their extremes are part
    /// of the band
    #[arg(
        long,
        value_name = "N",
        default_value_t = 3,
        value_parser = RangedU64ValueParser::<u64>::new().range(1..=1000),
    )]
    pub seeds: u64,
    /// The first seed; the others follow
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Widen the band: the first seed also runs with all latencies between sockets lower, and
    /// higher, by this percentage; 0 leaves this out
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 20.0,
        value_parser = band,
        allow_negative_numbers = true,
    )]
    pub band: f64,
    /// Widen the band: the first seed also runs with N draws of all assumed numbers at a time, each
    /// up to 1.4 times as large or as small; a dozen draws show which numbers matter
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        value_parser = RangedU64ValueParser::<u32>::new().range(0..=1000),
    )]
    pub bands: u32,
    /// Simulations at a time; changes nothing in the results [default: the CPUs of this machine]
    #[arg(
        long,
        value_name = "N",
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024),
    )]
    host_threads: Option<usize>,
}

/// One simulation of a lock with a number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Variant {
    /// The seed of its random numbers.
    pub seed: u64,
    /// Factor on all latencies between sockets.
    pub remote_factor: f64,
    /// The draw of all assumed numbers, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draw: Option<Draw>,
}

impl Sampling {
    /// Simulations at a time.
    pub fn host_threads(&self) -> usize {
        let cpus = || available_parallelism().map_or(1, usize::from);
        self.host_threads.unwrap_or_else(cpus)
    }

    pub fn all_seeds(&self) -> Vec<u64> {
        (0..self.seeds).map(|n| self.seed.wrapping_add(n)).collect()
    }

    /// The variants with which every lock runs, on a machine with `sockets` sockets: first every
    /// seed, then the first seed with other latencies, then with draws of all assumed numbers.
    pub fn variants(&self, sockets: usize) -> Vec<Variant> {
        let variant = |seed, remote_factor| Variant {
            seed,
            remote_factor,
            draw: None,
        };
        let seeds = self.all_seeds().into_iter();
        let mut variants: Vec<_> = seeds.map(|seed| variant(seed, 1.0)).collect();
        if self.band > 0.0 && sockets > 1 {
            let others = [100.0 - self.band, 100.0 + self.band];
            variants.extend(others.map(|percent| variant(self.seed, percent / 100.0)));
        }
        variants.extend((0..self.bands).map(|number| Variant {
            draw: Some(Draw {
                number,
                of: self.bands,
            }),
            ..variant(self.seed, 1.0)
        }));
        variants
    }
}

/// An explanation of medians and bands, for people.
pub fn bands(variants: &[Variant]) -> String {
    let draws = variants.iter().filter(|v| v.draw.is_some()).count();
    let factors = variants.iter().map(|variant| variant.remote_factor);
    let others = factors.filter(|&factor| factor != 1.0);
    let others: Vec<_> = others.map(|factor| factor.to_string()).collect();
    let (of, over) = match variants.len() - others.len() - draws {
        1 => ("one seed".to_owned(), "that one"),
        n => (format!("median of {n} seeds"), "all of them"),
    };
    let mut text = format!("{of}; bands: {over}");
    if !others.is_empty() {
        let factors = others.join(" and ");
        text += ", and the first seed with latencies between sockets times ";
        text += &factors;
    }
    if draws > 0 {
        text += &format!(", and with {draws} draws of all assumed numbers");
    }
    text
}

fn band(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if (0.0..=90.0).contains(&percent) => Ok(percent),
        _ => Err("it has to be a number from 0 to 90".to_owned()),
    }
}

/// Parses simulated seconds.
pub fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.0001..=100.0).contains(&seconds) => Ok(seconds),
        _ => Err("it has to be a number from 0.0001 to 100".to_owned()),
    }
}
