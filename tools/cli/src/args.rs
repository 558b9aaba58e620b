//! Values of flags that several verbs share.

use std::str::FromStr;

use anyhow::bail;

/// The most threads one run may have. Each costs a kernel thread and a histogram, and no machine
/// has a use for more.
pub const MAX_THREADS: usize = 4096;

/// What `sweep` stands for: from a thread alone to far more than CPUs.
const SWEEP: [usize; 6] = [1, 2, 4, 16, 64, 256];

/// Thread counts in the order given, without repetitions: a list of numbers and inclusive ranges,
/// or `sweep`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadCounts(pub Vec<usize>);

impl ThreadCounts {
    /// The default: one thread, two, one per CPU, and four per CPU.
    pub fn for_cpus(cpus: usize) -> Self {
        let mut counts = vec![1, 2, cpus.min(MAX_THREADS), (4 * cpus).min(MAX_THREADS)];
        counts.sort_unstable();
        counts.dedup();
        Self(counts)
    }
}

impl FromStr for ThreadCounts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut counts = Vec::new();
        for part in text.split(',') {
            if part == "sweep" {
                counts.extend(SWEEP);
                continue;
            }
            let (first, last) = match part.split_once("..") {
                Some((first, last)) => (count(first)?, count(last.trim_start_matches('='))?),
                None => (count(part)?, count(part)?),
            };
            if first > last {
                return Err(format!("the range {part} is empty"));
            }
            counts.extend(first..=last);
        }
        keep_first(&mut counts, |count| *count);
        Ok(Self(counts))
    }
}

fn count(text: &str) -> Result<usize, String> {
    match text.trim().parse() {
        Ok(count) if (1..=MAX_THREADS).contains(&count) => Ok(count),
        Ok(count) => Err(format!("{count} threads; it has to be 1 to {MAX_THREADS}")),
        Err(_) => Err(format!(
            "{text:?} is not a number of threads (write 1,2,8 or 1..16 or sweep)"
        )),
    }
}

/// Something that is chosen by name on the command line.
pub trait Named: Copy + PartialEq + Send + Sync + 'static {
    /// What kind of thing this is, for messages: `workload`.
    const WHAT: &'static str;
    /// All values that are listed, in that order.
    fn all() -> Vec<Self>;
    /// The name on the command line and in reports.
    fn name(self) -> &'static str;
    /// A description in one line.
    fn summary(self) -> &'static str;
    /// The value with this name. It may be one that is not listed.
    fn find(text: &str) -> Option<Self> {
        Self::all().into_iter().find(|one| one.name() == text)
    }
}

/// Parses a name.
///
/// # Errors
/// If the name is unknown: the error lists the known ones.
pub fn named<T: Named>(text: &str) -> Result<T, String> {
    T::find(text).ok_or_else(|| {
        let known: Vec<_> = T::all().into_iter().map(T::name).collect();
        format!("no such {}; known: {}", T::WHAT, known.join(", "))
    })
}

/// Something that a build or a machine may lack.
pub trait Available: Named {
    /// Why it is missing and how to get it; `None` if it is available.
    fn unavailable(self) -> Option<&'static str>;
    /// Whether it belongs to the default selection.
    fn is_usual(self) -> bool {
        true
    }
}

/// `asked`, or all that are usual and available if `asked` is empty, followed by `baseline`.
pub fn with_baseline<T: Available>(asked: &[T], baseline: T) -> anyhow::Result<Vec<T>> {
    let mut chosen = asked.to_vec();
    if chosen.is_empty() {
        chosen = T::all();
        chosen.retain(|one| one.is_usual() && one.unavailable().is_none());
    }
    chosen.push(baseline);
    keep_first(&mut chosen, |one| *one);
    for one in &chosen {
        if let Some(remedy) = one.unavailable() {
            bail!("{} is not there: {remedy}", one.name());
        }
    }
    Ok(chosen)
}

/// Defines an enum of names, each with a description in one line. `+` adds the names of another
/// type, which are found but not listed.
#[macro_export]
macro_rules! names {
    ($(#[$doc:meta])* $type:ident, $what:literal:
     $($variant:ident = $name:literal, $summary:literal;)*
     $(+ $more:ident($of:ty), $about:literal;)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type {
            $(#[doc = $summary] $variant,)*
            $(#[doc = $about] $more($of),)?
        }

        impl $crate::args::Named for $type {
            const WHAT: &'static str = $what;
            fn all() -> Vec<Self> {
                vec![$(Self::$variant),*]
            }
            fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                    $(Self::$more(one) => <$of>::name(one),)?
                }
            }
            fn summary(self) -> &'static str {
                match self {
                    $(Self::$variant => $summary,)*
                    $(Self::$more(_) => $about,)?
                }
            }
            $(fn find(text: &str) -> Option<Self> {
                let mut all = Self::all().into_iter();
                all.find(|one| one.name() == text).or_else(|| <$of>::find(text).map(Self::$more))
            })?
        }
    };
}
/// Parses the length of a measured slice.
pub fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("it has to be a number from 0.001 to 3600".to_owned()),
    }
}

/// Removes all items but the first of each key.
pub fn keep_first<T, K: PartialEq>(items: &mut Vec<T>, key: impl Fn(&T) -> K) {
    let mut seen = Vec::new();
    items.retain(|item| {
        let key = key(item);
        let is_new = !seen.contains(&key);
        seen.push(key);
        is_new
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<usize>, String> {
        text.parse().map(|ThreadCounts(counts)| counts)
    }

    #[test]
    fn lists_and_ranges() {
        assert_eq!(parse("1,2,4").unwrap(), [1, 2, 4]);
        assert_eq!(parse("1..4,3,8").unwrap(), [1, 2, 3, 4, 8]);
        assert_eq!(parse("2..=3").unwrap(), [2, 3]);
        assert_eq!(parse("1..142").unwrap().len(), 142);
        assert_eq!(parse("sweep").unwrap(), [1, 2, 4, 16, 64, 256]);
        assert_eq!(parse("sweep,8,2").unwrap(), [1, 2, 4, 16, 64, 256, 8]);
    }

    #[test]
    fn nonsense_is_named() {
        for bad in ["0", "100000", "", "x", "3..2", "1,,2", "-1", "1.5"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(parse("100000").unwrap_err().contains("4096"));
    }

    #[test]
    fn defaults() {
        assert_eq!(ThreadCounts::for_cpus(1).0, [1, 2, 4]);
        assert_eq!(ThreadCounts::for_cpus(2).0, [1, 2, 8]);
        assert_eq!(ThreadCounts::for_cpus(64).0, [1, 2, 64, 256]);
    }
}
