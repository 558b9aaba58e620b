//! The outcome: checks, each with a name, a verdict and the numbers behind it.

use serde::{Deserialize, Serialize};

/// What a check is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Property {
    /// At most one thread at a time was inside.
    Exclusion,
    /// Every thread got out after being told to stop.
    Completion,
    /// No thread waited for too long while others went on.
    Progress,
    /// The calls did what they promise.
    Contract,
    /// The scenario reached the situations that it is meant to reach.
    Reach,
    /// A specimen that is broken on purpose failed a check that [shows](Property::shows) the
    /// defect.
    Catch,
}

impl Check {
    /// A check of `of`, which names a lock or one of its scenarios.
    pub fn new(of: &str, property: Property, passed: bool, detail: String) -> Self {
        Check {
            name: format!("{of}/{}", property.name()),
            property,
            passed,
            detail,
        }
    }
}

impl Property {
    /// Whether a failure of this check shows a defect that violates `broken`.
    ///
    /// How threads meet decides which check fails first: a lock that lets two threads in may lose a
    /// waiter before any check sees two threads inside, and a starved waiter cannot be told from a
    /// lost one. A lost wake-up, however, never causes two threads to be inside.
    pub fn shows(self, broken: Property) -> bool {
        use Property::{Catch, Completion, Contract, Exclusion, Progress, Reach};
        match (self, broken) {
            (Reach | Catch, _) => false,
            (_, Exclusion | Contract) => true,
            (Completion | Progress, Completion | Progress) => true,
            _ => self == broken,
        }
    }

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Property::Exclusion => "exclusion",
            Property::Completion => "completion",
            Property::Progress => "progress",
            Property::Contract => "contract",
            Property::Reach => "reach",
            Property::Catch => "catch",
        }
    }
}

/// One verdict.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Check {
    /// `lock/scenario/property`, unique within a report.
    pub name: String,
    /// The property that was checked.
    pub property: Property,
    /// The verdict.
    pub passed: bool,
    /// What was counted, or what went wrong.
    pub detail: String,
}

/// Acquisitions per thread, over the threads that lived as long as their scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PerThread {
    /// The smallest number of a thread.
    pub min: u64,
    /// The largest number of a thread.
    pub max: u64,
    /// The mean over the threads.
    pub mean: f64,
    /// The number of threads.
    #[serde(default)]
    pub threads: u64,
}

impl PerThread {
    /// The numbers over these threads; all zero if there are none.
    pub fn of(acquisitions: &[u64]) -> Self {
        let threads = acquisitions.len() as u64;
        PerThread {
            min: acquisitions.iter().copied().min().unwrap_or(0),
            max: acquisitions.iter().copied().max().unwrap_or(0),
            mean: acquisitions.iter().sum::<u64>() as f64 / threads.max(1) as f64,
            threads,
        }
    }

    /// The numbers over the threads of both.
    pub fn merge(self, other: Self) -> Self {
        if self.threads == 0 || other.threads == 0 {
            return if self.threads == 0 { other } else { self };
        }
        let threads = self.threads + other.threads;
        let sum = self.mean * self.threads as f64 + other.mean * other.threads as f64;
        PerThread {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
            mean: sum / threads as f64,
            threads,
        }
    }
}

impl std::fmt::Display for PerThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "min {} max {} mean {:.0} acquisitions per thread",
            self.min, self.max, self.mean
        )
    }
}

/// The outcome of a torture run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Whether every check passed.
    pub passed: bool,
    /// All checks, in the order in which they were made.
    pub checks: Vec<Check>,
    /// Acquisitions per thread over all scenarios.
    pub per_thread: PerThread,
}

impl Report {
    /// A report without checks, which has passed.
    pub fn new() -> Self {
        Report {
            passed: true,
            ..Report::default()
        }
    }

    /// Whether a specimen that is broken on purpose was not caught.
    pub fn escaped(&self) -> bool {
        self.checks
            .iter()
            .any(|check| check.property == Property::Catch && !check.passed)
    }

    /// Adds a check.
    pub fn push(&mut self, check: Check) {
        self.passed &= check.passed;
        self.checks.push(check);
    }

    /// Adds everything of another report.
    pub fn merge(&mut self, other: Report) {
        self.passed &= other.passed;
        self.checks.extend(other.checks);
        self.per_thread = self.per_thread.merge(other.per_thread);
    }
}

/// `Ok`: passed, `Err`: failed; in both cases with the details.
pub type Verdict = Result<String, String>;

/// The outcome of one scenario.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// The verdicts, each with its property.
    pub verdicts: Vec<(Property, Verdict)>,
    /// Acquisitions of each thread that lived as long as the scenario.
    pub operations: Vec<u64>,
    /// Whether threads hung and had to be left behind.
    pub left_threads: bool,
}

impl Findings {
    /// Adds a verdict.
    pub fn with(mut self, property: Property, verdict: Verdict) -> Self {
        self.verdicts.push((property, verdict));
        self
    }

    /// Adds the verdict on whether a property `holds`.
    pub fn judge(self, property: Property, holds: bool, detail: String) -> Self {
        self.with(property, if holds { Ok(detail) } else { Err(detail) })
    }

    /// Whether the property was violated.
    pub fn failed(&self, property: Property) -> bool {
        let mut verdicts = self.verdicts.iter();
        verdicts.any(|(of, verdict)| *of == property && verdict.is_err())
    }

    /// A report with these verdicts as checks of `step`.
    pub fn report(self, step: &str) -> Report {
        let mut report = Report::new();
        report.per_thread = PerThread::of(&self.operations);
        for (property, verdict) in self.verdicts {
            let (passed, detail) = match verdict {
                Ok(detail) => (true, detail),
                Err(what) => (false, what),
            };
            report.push(Check::new(step, property, passed, detail));
        }
        report
    }
}
