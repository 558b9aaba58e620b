//! The values of the knobs, and their text forms.

use core::fmt;
use core::str::FromStr;

/// Whether queues are reordered by locality domain. Spelt `auto`, `on` and `off`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Numa {
    /// On if the process may run in several locality domains, and what the machine reports about
    /// them is credible. Off for spinlocks if the domains are caches of a single NUMA node.
    ///
    /// `Decision::reason` says what decided.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never: first in, first out.
    Off,
}

/// How long hand-offs may stay in one locality domain while waiters of other domains exist. Spelt
/// `10ms` or `2^16`.
///
/// Only [`time`](Self::time), [`count`](Self::count) and parsing make a value, so its number is
/// always in range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LocalLimit {
    /// A number of milliseconds.
    #[non_exhaustive]
    Time {
        /// 1 to 100.
        ms: u8,
    },
    /// A number of hand-offs, counted approximately.
    #[non_exhaustive]
    Count {
        /// The binary logarithm of the number of hand-offs, 0 to 31.
        log2: u8,
    },
}

/// How long a mutex stays with threads that keep taking it while another thread waits at the front.
///
/// From [`FAIR`](Self::FAIR) to [`THROUGHPUT`](Self::THROUGHPUT). Spelt `250us`, `fair` and
/// `throughput`.
///
/// Taking a lock again on the same CPU is ten times faster than passing it on. A short quantum
/// costs throughput; with a long quantum waits are rare but long. If several threads wait, all have
/// their turns in about two quanta.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantum(u16);

/// All knobs that a lock's slow path reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tuning {
    /// Whether queues are reordered by locality domain.
    pub reorder: bool,
    /// How long hand-offs may stay local.
    pub limit: LocalLimit,
    /// Whether a running thread may take a free lock ahead of a front waiter that does not run.
    pub stealing: bool,
    /// How long running threads may take a mutex again while a waiter is at its front.
    pub quantum: Quantum,
    /// Whether a thread that has waited for a lock asks the scheduler for more time to hold it.
    pub slice_extension: bool,
}

/// Whether queues are reordered, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether queues are reordered by locality domain.
    pub reorder: bool,
    /// The reason, in one clause.
    pub reason: &'static str,
}

impl LocalLimit {
    /// The default if domains are last-level caches. A machine has many, and a wait may last one
    /// limit for each other domain.
    pub(crate) const BETWEEN_CACHES: Self = LocalLimit::Time { ms: 1 };

    /// A limit of `ms` milliseconds.
    ///
    /// # Errors
    ///
    /// [`ParseError`] unless `ms` is 1 to 100.
    pub const fn time(ms: u8) -> Result<Self, ParseError> {
        match ms {
            1..=100 => Ok(LocalLimit::Time { ms }),
            _ => Err(ParseError::new("1ms to 100ms")),
        }
    }

    /// A limit of 2 to the power of `log2` hand-offs.
    ///
    /// # Errors
    ///
    /// [`ParseError`] unless `log2` is 0 to 31.
    pub const fn count(log2: u8) -> Result<Self, ParseError> {
        match log2 {
            0..=31 => Ok(LocalLimit::Count { log2 }),
            _ => Err(ParseError::new("2^0 to 2^31")),
        }
    }
}

impl Quantum {
    /// No time: the waiter at the front requests a hand-off at once.
    pub const FAIR: Self = Quantum(0);
    /// A millisecond, the default: the cost of hand-offs becomes negligible.
    pub const THROUGHPUT: Self = Quantum(1000);

    /// A quantum of `micros` microseconds.
    ///
    /// # Errors
    ///
    /// [`ParseError`] unless `micros` is 0 to 1000.
    pub const fn from_micros(micros: u16) -> Result<Self, ParseError> {
        match micros {
            0..=1000 => Ok(Quantum(micros)),
            _ => Err(ParseError::new("0us to 1000us")),
        }
    }

    /// Its length in microseconds.
    pub const fn micros(self) -> u16 {
        self.0
    }

    /// Its length in nanoseconds.
    pub const fn nanos(self) -> u64 {
        self.0 as u64 * 1000
    }

    /// The quantum of `micros` microseconds, a number that came from [`micros`](Self::micros).
    pub(crate) const fn packed(micros: u16) -> Self {
        Quantum(micros)
    }
}

impl Default for Quantum {
    fn default() -> Self {
        Tuning::DEFAULT.quantum
    }
}

impl FromStr for Quantum {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        const EXPECTED: ParseError = ParseError::new("0us to 1000us, fair or throughput");
        let micros = match text {
            "fair" => return Ok(Self::FAIR),
            "throughput" => return Ok(Self::THROUGHPUT),
            _ => text.strip_suffix("us").ok_or(EXPECTED)?,
        };
        let number = micros.bytes().all(|byte| byte.is_ascii_digit());
        match micros.parse() {
            Ok(micros) if number => Self::from_micros(micros).map_err(|_| EXPECTED),
            _ => Err(EXPECTED),
        }
    }
}

impl fmt::Display for Quantum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

impl Default for LocalLimit {
    fn default() -> Self {
        Tuning::DEFAULT.limit
    }
}

impl Tuning {
    /// The defaults: queues are not reordered, and running threads overtake sleepers.
    pub const DEFAULT: Tuning = Tuning {
        reorder: false,
        limit: LocalLimit::Time { ms: 10 },
        stealing: true,
        quantum: Quantum(1000),
        slice_extension: false,
    };
}

impl Default for Tuning {
    fn default() -> Self {
        Tuning::DEFAULT
    }
}

impl FromStr for Numa {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "auto" => Ok(Numa::Auto),
            "on" => Ok(Numa::On),
            "off" => Ok(Numa::Off),
            _ => Err(ParseError::new("auto, on or off")),
        }
    }
}

impl FromStr for LocalLimit {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        const EXPECTED: ParseError =
            ParseError::new("a time from 1ms to 100ms or a count from 2^0 to 2^31");
        let number = |digits: &str| match digits.bytes().all(|byte| byte.is_ascii_digit()) {
            true => digits.parse().map_err(|_| EXPECTED),
            false => Err(EXPECTED),
        };
        if let Some(ms) = text.strip_suffix("ms") {
            return LocalLimit::time(number(ms)?);
        }
        match text.strip_prefix("2^") {
            Some(log2) => LocalLimit::count(number(log2)?),
            None => Err(EXPECTED),
        }
    }
}

impl fmt::Display for Numa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Numa::Auto => "auto",
            Numa::On => "on",
            Numa::Off => "off",
        })
    }
}

impl fmt::Display for LocalLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LocalLimit::Time { ms } => write!(f, "{ms}ms"),
            LocalLimit::Count { log2 } => write!(f, "2^{log2}"),
        }
    }
}

/// The text is not a value of the knob. The message says what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseError {
    expected: &'static str,
}

impl ParseError {
    /// The error for a text that `expected` does not describe.
    pub const fn new(expected: &'static str) -> Self {
        ParseError { expected }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", self.expected)
    }
}

impl core::error::Error for ParseError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelt<T: FromStr<Err = ParseError> + fmt::Display + PartialEq + fmt::Debug>(
        values: &[(&str, T)],
    ) {
        for (text, value) in values {
            assert_eq!(text.parse::<T>().as_ref(), Ok(value));
            assert_eq!(value.to_string(), *text);
        }
    }

    #[test]
    fn values_are_spelt_as_documented() {
        spelt(&[("auto", Numa::Auto), ("on", Numa::On), ("off", Numa::Off)]);
        for ms in 1..=100 {
            spelt(&[(&*format!("{ms}ms"), LocalLimit::Time { ms })]);
        }
        for micros in [0, 1, 100, 1000] {
            spelt(&[(&*format!("{micros}us"), Quantum(micros))]);
        }
        assert_eq!("fair".parse(), Ok(Quantum::FAIR));
        assert_eq!("throughput".parse(), Ok(Quantum::THROUGHPUT));
        for log2 in 0..=31 {
            spelt(&[(&*format!("2^{log2}"), LocalLimit::Count { log2 })]);
        }
    }

    #[test]
    fn other_spellings_are_refused() {
        for text in ["", "On", "auto ", "1", "yes"] {
            assert!(text.parse::<Numa>().is_err(), "{text}");
        }
        for text in [
            "", "us", "1", "1ms", "-1us", "+1us", "1001us", "65536us", "Fair",
        ] {
            assert!(text.parse::<Quantum>().is_err(), "{text}");
        }
        for text in [
            "", "ms", "0ms", "101ms", "256ms", "-1ms", "+1ms", "1 ms", "10", "1s", "2^", "2^32",
            "2^256", "2^-1", "2^+1", "3^2",
        ] {
            assert!(text.parse::<LocalLimit>().is_err(), "{text}");
        }
        assert_eq!(
            LocalLimit::time(0).unwrap_err().to_string(),
            "expected 1ms to 100ms"
        );
        assert_eq!(
            LocalLimit::count(32).unwrap_err().to_string(),
            "expected 2^0 to 2^31"
        );
    }
}
