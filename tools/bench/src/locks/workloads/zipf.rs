//! Numbers with the popularity of keys in real programs: few are asked for often, most seldom.
//!
//! Source: the rejection-free inversion of Gray, Sundaresan, Englert, Baclawski and Weinberger,
//! "Quickly generating billion-record synthetic databases" (SIGMOD 1994), with the exponent that
//! YCSB made usual.

use kinlock_measure::random::Random;

/// The usual skew: of a million keys the most popular one gets 6.5 % of all requests, the first
/// hundred a third.
const EXPONENT: f64 = 0.99;

/// Draws from `0..n`, popular numbers scattered over the range.
pub struct Zipf {
    n: u64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    /// A distribution over `0..n`; `n` is at least 2. Takes time proportional to `n`.
    pub fn new(n: u64) -> Self {
        let zeta_of = |n: u64| (1..=n).map(|i| (i as f64).powf(-EXPONENT)).sum::<f64>();
        let zeta = zeta_of(n);
        let eta = (1.0 - (2.0 / n as f64).powf(1.0 - EXPONENT)) / (1.0 - zeta_of(2) / zeta);
        Self {
            n,
            zeta,
            alpha: 1.0 / (1.0 - EXPONENT),
            eta,
        }
    }

    #[inline]
    pub fn draw(&self, rng: &mut Random) -> u64 {
        self.scatter(self.rank(rng.unit()))
    }

    /// The rank at `u` of the cumulative distribution; 0 is the most popular.
    fn rank(&self, u: f64) -> u64 {
        let scaled = u * self.zeta;
        if scaled < 1.0 {
            0
        } else if scaled < 1.0 + 0.5f64.powf(EXPONENT) {
            1
        } else {
            let rank = self.n as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
            (rank as u64).min(self.n - 1)
        }
    }

    /// Maps ranks to numbers one to one, with neighbours far apart: steps of a prime that does not
    /// divide `n` reach all numbers.
    fn scatter(&self, rank: u64) -> u64 {
        const PRIME: u64 = 2_654_435_761;
        rank * PRIME % self.n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn popular_ranks_are_as_popular_as_they_should_be() {
        let zipf = Zipf::new(1000);
        let mut rng = Random::stream(1, 1);
        let mut drawn = vec![0u32; 1000];
        const DRAWS: u32 = 200_000;
        for _ in 0..DRAWS {
            drawn[zipf.draw(&mut rng) as usize] += 1;
        }
        for rank in [0u64, 1, 9, 99] {
            let expected = (rank as f64 + 1.0).powf(-EXPONENT) / zipf.zeta * f64::from(DRAWS);
            let got = f64::from(drawn[zipf.scatter(rank) as usize]);
            assert!(
                (got / expected - 1.0).abs() < 0.25,
                "{rank}: {got} {expected}"
            );
        }
    }

    #[test]
    fn scattering_is_one_to_one() {
        let zipf = Zipf::new(1000);
        let mut seen = vec![false; 1000];
        for rank in 0..1000 {
            seen[zipf.scatter(rank) as usize] = true;
        }
        assert!(seen.iter().all(|&seen| seen));
    }
}
