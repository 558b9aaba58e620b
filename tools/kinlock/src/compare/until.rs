//! Rounds until the intervals are narrow enough.
//!
//! If one looks at an interval again and again, and stops when it is narrow enough, the interval is
//! wrong more often than it claims. So there are looks only after fixed numbers of rounds, and they
//! share the 5 % with which any of them may be wrong: the first k looks together have k / (k + 1)
//! of it. Ranks are whole numbers, so a look may not use its whole share; later looks get the rest.
//! So all looks are right with 95 %, whichever is the last.

use std::str::FromStr;
use std::time::Duration;

/// The number of rounds before the first look, and the most rounds.
pub const FIRST: usize = 8;
pub const MOST: usize = 1000;
/// The highest probability that any of the looks is wrong.
const WRONG: f64 = 0.05;

/// How narrow an interval has to be: its reach to each side, as a fraction of the median ratio.
#[derive(Clone, Copy, Debug)]
pub struct Until(pub f64);

impl FromStr for Until {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent = text.strip_suffix('%').ok_or("write a percentage, as 2%")?;
        match percent.trim().parse() {
            Ok(percent) if (0.1..=50.0).contains(&percent) => Ok(Until(percent / 100.0)),
            _ => Err("it has to be a percentage from 0.1% to 50%".to_owned()),
        }
    }
}

/// The numbers of rounds after which there is a look: each a quarter more than the one before.
pub fn looks() -> impl Iterator<Item = usize> {
    let next = |rounds: &usize| (*rounds < MOST).then(|| (rounds * 5).div_ceil(4).min(MOST));
    std::iter::successors(Some(FIRST), next)
}

/// The probability with which any of the first `looks` looks may be wrong.
pub fn wrong(looks: usize) -> f64 {
    WRONG * looks as f64 / (looks + 1) as f64
}

/// Whether the remaining time is enough for another look, if rounds take as long as so far.
pub fn has_time(rounds: usize, elapsed: Duration, limit: Duration) -> bool {
    let next = looks().find(|&look| look > rounds);
    next.is_some_and(|next| elapsed.mul_f64(next as f64 / rounds as f64) <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_width_is_a_percentage() {
        assert_eq!("2%".parse::<Until>().unwrap().0, 0.02);
        assert_eq!("0.5 %".parse::<Until>().unwrap().0, 0.005);
        for bad in ["2", "x%", "0%", "51%", "-1%", "nan%", ""] {
            assert!(bad.parse::<Until>().is_err(), "{bad}");
        }
    }

    #[test]
    fn looks_are_each_a_quarter_later() {
        let looks: Vec<_> = looks().collect();
        assert_eq!(looks[..6], [8, 10, 13, 17, 22, 28]);
        assert_eq!(looks.last(), Some(&MOST));
        assert!(wrong(1) == WRONG / 2.0 && wrong(looks.len()) < WRONG);
    }

    #[test]
    fn a_look_that_would_come_too_late_is_not_waited_for() {
        let seconds = Duration::from_secs;
        assert!(has_time(8, seconds(8), seconds(10)));
        assert!(!has_time(8, seconds(9), seconds(11)));
        assert!(!has_time(MOST, seconds(1), seconds(1000)));
    }
}
