//! The verdict on a lock from all rounds, without assumptions about the distribution of values.

use kinlock_measure::stats::Summary;
use serde::Serialize;

use super::until;

/// With fewer rounds nothing is claimed.
pub const ENOUGH: usize = 5;
/// The intended confidence of all intervals together. Each of them gets an equal part of the
/// permitted error (Bonferroni), so that nothing is assumed about how they depend on each other.
pub const CONFIDENCE: f64 = 0.95;

/// How many times as good as the reference a lock is: above 1 is better.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    pub to: String,
    #[serde(flatten)]
    pub over_rounds: Summary,
    /// The interval: from one of the rounds' ratios to another.
    pub low: f64,
    pub high: f64,
    /// The probability that such an interval, by itself, contains the true median.
    pub confidence: f64,
    /// Rounds in which the lock was better than the reference.
    pub wins: usize,
    pub losses: usize,
    /// There are enough rounds to claim something.
    #[serde(skip)]
    pub claims: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Reference,
    Better,
    Worse,
    NoDifference,
    TooFewRounds,
    /// Every run failed, or every run under the reference did, and the two ended differently.
    Failed,
}

impl Ratio {
    /// The ratio over at least one round, for one of `intervals` intervals that hold together.
    pub fn of(to: &str, ratios: &[f64], intervals: usize) -> Self {
        let mut sorted = ratios.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let (rank, confidence) = rank(n, 1.0 - (1.0 - CONFIDENCE) / intervals as f64);
        Ratio {
            to: to.to_owned(),
            over_rounds: Summary::of(ratios.iter().copied()),
            low: sorted[rank],
            high: sorted[n - 1 - rank],
            confidence,
            wins: ratios.iter().filter(|&&ratio| ratio > 1.0).count(),
            losses: ratios.iter().filter(|&&ratio| ratio < 1.0).count(),
            claims: n >= ENOUGH,
        }
    }

    /// The same if there were [looks](until), one of which may have ended the rounds. The interval
    /// is the one of the last look, extended to the median if that now lies outside it.
    pub fn looked_at(to: &str, ratios: &[f64], intervals: usize) -> Self {
        let all = Self::of(to, ratios, intervals);
        let looks = until::looks().take_while(|&rounds| rounds <= ratios.len());
        let (mut last, mut wrong) = (None, 0.0);
        for (look, rounds) in (1..).zip(looks) {
            let (rank, confidence) = rank(
                rounds,
                1.0 - (until::wrong(look) / intervals as f64 - wrong),
            );
            wrong += 1.0 - confidence;
            last = Some((rounds, rank));
        }
        let Some((rounds, rank)) = last else {
            return Ratio {
                confidence: 0.0,
                claims: false,
                ..all
            };
        };
        let mut sorted = ratios[..rounds].to_vec();
        sorted.sort_by(f64::total_cmp);
        let median = all.over_rounds.median;
        Ratio {
            low: sorted[rank].min(median),
            high: sorted[rounds - 1 - rank].max(median),
            confidence: 1.0 - wrong,
            claims: true,
            ..all
        }
    }

    /// How far the interval reaches from the median, on the side where it reaches further, as a
    /// fraction of the median.
    pub fn reach(&self) -> f64 {
        let median = self.over_rounds.median;
        (self.high / median).max(median / self.low) - 1.0
    }

    pub fn verdict(&self) -> Verdict {
        match self {
            ratio if ratio.over_rounds.median.is_nan() => Verdict::Failed,
            ratio if !ratio.claims => Verdict::TooFewRounds,
            ratio if ratio.low > 1.0 => Verdict::Better,
            ratio if ratio.high < 1.0 => Verdict::Worse,
            _ => Verdict::NoDifference,
        }
    }

    /// `1.21x [1.15, 1.27]`.
    pub fn words(&self) -> String {
        let [median, low, high] = digits([self.over_rounds.median, self.low, self.high]);
        format!("{median}x [{low}, {high}]")
    }

    /// The same for the reference over this lock.
    fn inverse(&self) -> String {
        let [median, low, high] = [self.over_rounds.median, self.high, self.low].map(|r| 1.0 / r);
        let [median, low, high] = digits([median, low, high]);
        format!("{median}x [{low}, {high}]")
    }

    /// A sentence about the lock `name`, with these words for better and for worse.
    pub fn sentence(&self, name: &str, rounds: usize, [better, worse]: [&str; 2]) -> String {
        let to = &self.to;
        match self.verdict() {
            Verdict::Reference => format!("{name} is the reference"),
            Verdict::Failed => {
                format!("{name} and {to}: not compared, because all runs under one of them failed")
            }
            Verdict::Better => {
                let (ratio, wins) = (self.words(), self.wins);
                format!("{name} is {ratio} {better} than {to} ({wins} of {rounds} rounds)")
            }
            Verdict::Worse => {
                let (ratio, losses) = (self.inverse(), self.losses);
                format!("{name} is {ratio} {worse} than {to} ({losses} of {rounds} rounds)")
            }
            Verdict::NoDifference => {
                let ratio = self.words();
                format!("{name} and {to}: no difference that these rounds can show ({ratio})")
            }
            Verdict::TooFewRounds => {
                let [median, ..] = digits([self.over_rounds.median, self.low, self.high]);
                let few = match rounds {
                    1 => "1 round is".to_owned(),
                    n => format!("{n} rounds are"),
                };
                format!("{name}: {median}x of {to}, but {few} too few to tell that from chance")
            }
        }
    }
}

/// Two decimals; three if the ratios are near 1.
fn digits(ratios: [f64; 3]) -> [String; 3] {
    let near = ratios.iter().all(|ratio| (0.95..1.05).contains(ratio));
    ratios.map(|ratio| match near {
        true => format!("{ratio:.3}"),
        false => format!("{ratio:.2}"),
    })
}

/// The index, in `n` sorted values, of the value that bounds the median from below (and, counted
/// from the other end, from above), and the confidence of that interval: at least `aim`, if there
/// are enough values. Each value is below the median with probability one half, so the number of
/// values below it is binomial.
fn rank(n: usize, aim: f64) -> (usize, f64) {
    let mut term = 0.5f64.powi(n as i32);
    let mut below = term;
    let mut rank = 0;
    loop {
        term *= (n - rank) as f64 / (rank + 1) as f64;
        if 1.0 - 2.0 * (below + term) < aim || 2 * (rank + 1) >= n {
            return (rank, (1.0 - 2.0 * below).max(0.0));
        }
        below += term;
        rank += 1;
    }
}

/// After how many rounds this number of intervals holds together with the intended confidence.
pub fn rounds_for(intervals: usize) -> usize {
    let holds = |&n: &usize| together([rank(n, 1.0).1].repeat(intervals)) >= CONFIDENCE;
    (ENOUGH..).find(holds).unwrap_or(ENOUGH)
}

/// A lower bound of the probability that intervals with these confidences hold together.
pub fn together(confidences: impl IntoIterator<Item = f64>) -> f64 {
    let wrong = confidences.into_iter().map(|one| 1.0 - one).sum::<f64>();
    (1.0 - wrong).max(0.0)
}

/// The factor by which values change from the first third of the rounds to the last, if they rise
/// or fall too steadily for chance (Kendall's rank correlation) and by more than 5 %.
pub fn trend(values: &[f64]) -> Option<f64> {
    let n = values.len();
    if n < 6 {
        return None;
    }
    let pairs = (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j)));
    let score: f64 = pairs.map(|(i, j)| sign(values[j] - values[i])).sum();
    let deviation = ((n * (n - 1) * (2 * n + 5)) as f64 / 18.0).sqrt();
    let median = |part: &[f64]| Summary::of(part.iter().copied()).median;
    let change = median(&values[n - n / 3..]) / median(&values[..n / 3]);
    (score.abs() > 2.58 * deviation && (change - 1.0).abs() > 0.05).then_some(change)
}

fn sign(value: f64) -> f64 {
    if value == 0.0 { 0.0 } else { value.signum() }
}

/// The number of outliers: values that are further from the median than a tenth of it, and than
/// seven times the median distance from it.
pub fn far_values(values: &[f64]) -> usize {
    if values.len() < ENOUGH {
        return 0;
    }
    let median = Summary::of(values.iter().copied()).median;
    let distance = |value: &f64| (value - median).abs();
    let usual = Summary::of(values.iter().map(distance)).median;
    let is_far = |value: &&f64| distance(value) > (7.0 * usual).max(0.1 * median);
    values.iter().filter(is_far).count()
}

/// Whether all values, in seconds, are within one percent, and too long for that to be chance.
pub fn are_alike(values: &[f64]) -> bool {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    values.len() >= ENOUGH && least >= 0.5 && most <= 1.01 * least
}

#[cfg(test)]
mod tests {
    use kinlock_measure::random::Random;

    use super::*;

    #[test]
    fn ranks_are_those_of_tables() {
        let known = [
            (5, 0),
            (6, 0),
            (9, 1),
            (10, 1),
            (12, 2),
            (15, 3),
            (20, 5),
            (100, 39),
        ];
        for (n, expected) in known {
            let (rank, confidence) = rank(n, CONFIDENCE);
            assert_eq!(rank, expected, "{n}");
            assert!(confidence >= if n < 6 { 0.93 } else { 0.95 } && confidence < 0.99);
        }
        assert_eq!(rank(1, CONFIDENCE), (0, 0.0));
    }

    #[test]
    fn intervals_of_several_locks_hold_together() {
        // Ten rounds leave out one ratio at each end for one lock, and none for three.
        let ratios: Vec<f64> = (1..=10).map(f64::from).collect();
        let bounds = |intervals| {
            let ratio = Ratio::of("x", &ratios, intervals);
            assert!(together([ratio.confidence].repeat(intervals)) >= CONFIDENCE);
            (ratio.low, ratio.high)
        };
        assert_eq!((bounds(1), bounds(3)), ((2.0, 9.0), (1.0, 10.0)));
        // Six rounds are enough only for one lock, and five for none. The confidence says so.
        let few = |rounds, intervals| {
            let one = Ratio::of("x", &ratios[..rounds], intervals).confidence;
            together([one].repeat(intervals))
        };
        assert!(few(6, 1) >= CONFIDENCE && few(6, 2) < CONFIDENCE && few(5, 1) < CONFIDENCE);
        assert!((few(6, 2) - (1.0 - 4.0 / 64.0)).abs() < 1e-12);
        assert_eq!([1, 2, 3, 4].map(rounds_for), [6, 7, 7, 8]);
        // With looks, several locks also share the permitted error.
        let ratios = [1.0; 100];
        for intervals in 1..=4 {
            let one = Ratio::looked_at("x", &ratios, intervals).confidence;
            assert!(
                together([one].repeat(intervals)) >= CONFIDENCE,
                "{intervals}"
            );
        }
    }

    /// Even if the run stops as soon as an interval misses the true value, intervals are right as
    /// often as they claim.
    #[test]
    fn intervals_hold_although_they_are_looked_at() {
        const RUNS: usize = 400;
        let mut random = Random::new(11);
        let (mut missed, mut missed_by_others) = (0, 0);
        for _ in 0..RUNS {
            // Skewed, with median 1.
            let ratios: Vec<f64> = (0..until::MOST)
                .map(|_| (4.0 * (random.unit() - 0.5)).exp())
                .collect();
            let leaves_out = |ratio: Ratio| !(ratio.low..=ratio.high).contains(&1.0);
            let mut looks = until::looks().map(|rounds| &ratios[..rounds]);
            missed += usize::from(looks.any(|ratios| leaves_out(Ratio::looked_at("x", ratios, 1))));
            let mut looks = until::looks().map(|rounds| &ratios[..rounds]);
            missed_by_others +=
                usize::from(looks.any(|ratios| leaves_out(Ratio::of("x", ratios, 1))));
        }
        // At most 5 in 100 runs. With intervals of 95 % at each look it would be 28 in 100.
        assert!(missed <= RUNS / 20, "{missed}");
        assert!(missed_by_others > RUNS / 5, "{missed_by_others}");
    }

    #[test]
    fn an_interval_that_was_looked_at_is_that_of_the_last_look() {
        let few = Ratio::looked_at("x", &[1.0; 7], 1);
        assert_eq!((few.claims, few.verdict()), (false, Verdict::TooFewRounds));
        // An outlier is within the interval after eight rounds, and outside of it after ten.
        let mut ratios = vec![1.5; 12];
        ratios[2] = 9.0;
        let eight = Ratio::looked_at("x", &ratios[..9], 1);
        let found = (eight.low, eight.high, eight.over_rounds.median);
        assert_eq!(found, (1.5, 9.0, 1.5));
        assert!((eight.reach() - 5.0).abs() < 1e-9);
        let all = Ratio::looked_at("x", &ratios, 1);
        assert_eq!((all.low, all.high, all.reach()), (1.5, 1.5, 0.0));
        assert!(all.confidence >= 0.95 && all.confidence < 0.99);
    }

    #[test]
    fn sentences() {
        let ratios = [
            1.15, 1.3, 1.21, 1.2, 1.27, 1.22, 1.1, 1.2, 1.21, 1.25, 1.15, 1.3,
        ];
        let of = |ratios: &[f64]| {
            Ratio::of("pthread", ratios, 1).sentence("ours", ratios.len(), ["faster", "slower"])
        };
        assert_eq!(
            of(&ratios),
            "ours is 1.21x [1.15, 1.27] faster than pthread (12 of 12 rounds)"
        );
        let slower = ratios.map(|ratio| 1.0 / ratio);
        assert!(of(&slower).starts_with("ours is 1.21x [1.15, 1.27] slower than pthread (12"));
        assert!(of(&ratios[..4]).contains("too few"));
        let alike = [0.99, 1.01, 1.0, 0.98, 1.02, 1.0];
        assert!(of(&alike).contains("no difference that these rounds can show (1.000x [0.980"));
    }

    #[test]
    fn drift_and_outliers_are_told_from_noise() {
        let rising: Vec<f64> = (0..10).map(|i| 1.0 + 0.05 * f64::from(i)).collect();
        assert!(trend(&rising).is_some_and(|change| change > 1.2));
        let mut random = Random::new(3);
        let noise: Vec<f64> = (0..30).map(|_| 1.0 + 0.2 * random.unit()).collect();
        assert_eq!((trend(&noise), far_values(&noise)), (None, 0));
        assert_eq!(far_values(&[1.0, 1.01, 0.99, 1.02, 2.5, 1.0]), 1);
    }

    #[test]
    fn runs_of_one_length_are_alike() {
        let alike = [3.001, 3.0, 3.002, 3.009, 3.004, 3.0];
        assert!(are_alike(&alike));
        assert!(
            !are_alike(&alike.map(|seconds| seconds / 10.0)),
            "too short"
        );
        assert!(!are_alike(&[3.0, 3.0, 3.0, 3.0, 3.0, 3.04]));
        assert!(!are_alike(&alike[..2]));
    }
}
