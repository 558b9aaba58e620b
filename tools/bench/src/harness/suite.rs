//! The trait of suites, the length of their measurements, and the results of a cell. Field names of
//! the JSON are a contract: add, never rename.

use std::collections::BTreeMap;

use kinlock_cli::args::{Available, Named, ThreadCounts};
use kinlock_cli::outcome::Outcome;
use kinlock_cli::report::cells::{Compared, Usual};
use kinlock_measure::rounds::Placed;
use kinlock_measure::stats::{Fairness, Summary, is_noisy};
use serde::Serialize;
use serde_json::{Value, json};

use super::background::Background;
use super::slice::Sample;
use super::team::Team;

/// A suite: subjects that do the same workloads in different ways.
pub trait Suite: Sized + 'static {
    /// The name: `locks`.
    const NAME: &'static str;
    type Workload: Named;
    /// The things that are compared.
    type Subject;
    /// The results of a slice besides operations and times.
    type Extra;
    /// The fields of an entry of the report besides throughput.
    type Detail: Serialize;

    fn subjects(&self, workload: Self::Workload, threads: usize) -> Vec<Self::Subject>;
    fn name(subject: &Self::Subject) -> String;
    /// The subject with which the others of a workload are compared.
    fn baseline(&self, workload: Self::Workload) -> &'static str;
    /// The workloads to run: the ones asked for, or the default.
    fn workloads(&self, asked: &[Self::Workload]) -> anyhow::Result<Vec<Self::Workload>> {
        Ok(match asked {
            [] => Self::Workload::all(),
            asked => asked.to_vec(),
        })
    }
    /// The thread counts without `--threads`.
    fn usual_threads() -> ThreadCounts {
        ThreadCounts::for_cpus(cpus())
    }
    /// The default for a workload that is meant for other numbers of threads.
    fn usual_threads_in(_workload: Self::Workload) -> Option<Vec<usize>> {
        None
    }
    /// The number of threads of a workload that has a fixed one.
    fn own_threads(_workload: Self::Workload) -> Option<usize> {
        None
    }
    /// The background load, if it was asked for.
    fn background(&self) -> Option<Background> {
        None
    }
    /// How long a subject takes in a round, roughly, with slices of `seconds` seconds.
    fn turn_seconds(&self, workload: Self::Workload, seconds: f64) -> f64;
    /// The shortest usual slice of a cell.
    fn least_seconds(_workload: Self::Workload, _threads: usize) -> f64 {
        0.0
    }
    /// Prepares what the first measurement needs.
    fn prepare(&mut self, _plan: &Plan<Self>) -> anyhow::Result<()> {
        Ok(())
    }
    fn measure(&mut self, due: Due<'_, Self>) -> anyhow::Result<Sample<Self::Extra>>;
    /// The results of a round besides throughput, as fields of its JSON.
    fn round_detail(_own: &Sample<Self::Extra>, _baseline: &Sample<Self::Extra>) -> Value {
        json!({})
    }
    /// The results of all rounds of a subject besides throughput.
    fn detail(
        &self,
        subject: &Self::Subject,
        own: &[&Sample<Self::Extra>],
        baseline: &[&Sample<Self::Extra>],
    ) -> Self::Detail;
    /// The parameters of this suite only, as fields of the report's JSON.
    fn parameters(&self, _plan: &Plan<Self>) -> Value {
        json!({})
    }
    /// Draws conclusions from all results together.
    fn conclude(&self, _plan: &Plan<Self>, _results: &mut [Entry<Self>]) {}
    /// A summary of all results, as fields of the report's JSON.
    fn summary(_results: &[Entry<Self>]) -> BTreeMap<&'static str, Value> {
        BTreeMap::new()
    }
    /// The warnings of this suite only.
    fn warnings(&self, _plan: &Plan<Self>, _results: &[Entry<Self>]) -> Vec<String> {
        Vec::new()
    }
    /// What this build or machine lacks.
    fn unavailable() -> Vec<Unavailable> {
        Vec::new()
    }
    /// More about the machine, for the JSON report and the heading.
    fn facts() -> BTreeMap<&'static str, String> {
        BTreeMap::new()
    }
    /// Whether a subject did something wrong.
    fn verdict(&self) -> Outcome {
        Outcome::Done
    }
}

pub struct Due<'a, S: Suite> {
    pub subject: &'a S::Subject,
    pub workload: S::Workload,
    pub team: &'a Team,
    pub seconds: f64,
    /// The seed of its random numbers, which is the same for all subjects of a round.
    pub seed: u64,
}

/// How things are measured. The fields for the report are serialised.
#[derive(Serialize)]
#[serde(bound = "")]
pub struct Plan<S: Suite> {
    #[serde(skip)]
    pub workloads: Vec<S::Workload>,
    /// Numbers of threads.
    #[serde(skip)]
    pub threads: Vec<usize>,
    /// Whether the user chose the numbers of threads. If not, workloads that are meant for other
    /// numbers use those.
    #[serde(skip)]
    pub same_threads: bool,
    /// Length of the shortest timed slice.
    pub seconds: f64,
    /// Whether all slices have this length.
    #[serde(skip)]
    pub same_seconds: bool,
    pub rounds: usize,
    pub seed: u64,
    /// The number of CPU-bound processes in the background.
    pub hogs: usize,
    /// The background load, if it was asked for.
    pub background: Option<Background>,
    /// The share of the CPUs that the run may use, in percent, if it is limited.
    pub quota_percent: Option<usize>,
}

/// The length of a whole run in seconds, unless the length of a slice is given.
const BUDGET: f64 = 35.0;

/// The shortest usual slice with a quota: several of the kernel's periods.
const LEAST_WITH_QUOTA: f64 = 0.5;

/// CPUs that this process may use.
pub fn cpus() -> usize {
    kinlock_measure::cpus::allowed_cpus().len().max(1)
}

impl<S: Suite> Plan<S> {
    /// The cells, workload by workload, with the number of subjects of each.
    pub fn cells(&self, suite: &S) -> Vec<(S::Workload, usize, usize)> {
        let cells = self.workloads.iter().flat_map(|&workload| {
            let counts = self.threads_in(workload).into_iter();
            counts.map(move |threads| (workload, threads))
        });
        let cells = cells.map(|(w, threads)| (w, threads, suite.subjects(w, threads).len()));
        cells.filter(|&(.., subjects)| subjects > 0).collect()
    }

    pub fn threads_in(&self, workload: S::Workload) -> Vec<usize> {
        match (S::own_threads(workload), S::usual_threads_in(workload)) {
            (Some(own), _) => vec![own],
            (None, Some(usual)) if !self.same_threads => usual,
            (None, _) => self.threads.clone(),
        }
    }

    /// The length of the timed slices of a cell, if the shortest ones of the run have the length
    /// `shortest`.
    pub fn seconds_in(&self, workload: S::Workload, threads: usize, shortest: f64) -> f64 {
        let limited = self.quota_percent.map_or(0.0, |_| LEAST_WITH_QUOTA);
        match self.same_seconds {
            true => shortest,
            false => shortest
                .max(S::least_seconds(workload, threads))
                .max(limited),
        }
    }

    /// The length of slices in words.
    pub fn slice(&self) -> String {
        let least = if self.same_seconds { "" } else { "at least " };
        format!("{least}{:.3} s", self.seconds)
    }

    /// Roughly how long the whole run takes, with slices of at least `seconds` seconds.
    pub fn expected_seconds(&self, suite: &S, seconds: f64) -> f64 {
        let cells = self.cells(suite).into_iter();
        let each = cells.map(|(w, threads, n)| {
            let seconds = self.seconds_in(w, threads, seconds);
            n as f64 * suite.turn_seconds(w, seconds)
        });
        self.rounds as f64 * each.sum::<f64>()
    }

    /// The length of a slice that makes the whole run fit into [`BUDGET`].
    pub fn usual_seconds(&self, suite: &S) -> f64 {
        let fixed = self.expected_seconds(suite, 0.0);
        let per_second = self.expected_seconds(suite, 1.0) - fixed;
        ((BUDGET - fixed) / per_second.max(1.0)).clamp(0.01, 0.5)
    }
}

/// A subject that could not be measured.
#[derive(Serialize)]
pub struct Unavailable {
    pub lock: &'static str,
    pub remedy: &'static str,
}

impl Unavailable {
    /// All usual subjects that are unavailable.
    pub fn all<T: Available>() -> Vec<Self> {
        let missing = |one: T| Some((one.name(), one.unavailable()?));
        let usual = T::all().into_iter().filter(|one| one.is_usual());
        let missing = usual.filter_map(missing);
        missing
            .map(|(lock, remedy)| Self { lock, remedy })
            .collect()
    }
}

/// One subject in one cell.
#[derive(Serialize)]
#[serde(bound = "")]
pub struct Entry<S: Suite> {
    pub suite: &'static str,
    /// The name of the subject. The field is called `lock` in all suites.
    pub lock: String,
    pub workload: &'static str,
    pub threads: usize,
    /// Operations of all threads per second.
    pub ops_per_s: Summary,
    /// Nanoseconds from one operation of any thread to the next: 1e9 / `ops_per_s`.
    pub ns_per_op: Summary,
    /// CPU time of the process per operation.
    pub cpu_ns_per_op: Summary,
    /// Throughput divided by the baseline's in the same round.
    pub ratio: Ratio,
    /// The fairness of the operations of all rounds together.
    pub fairness: Fairness,
    /// Whether the rounds disagree on which is faster, by more than 10 %.
    pub noisy: bool,
    /// The results of this suite only.
    #[serde(flatten)]
    pub detail: S::Detail,
    pub rounds: Vec<Round>,
}

/// A ratio to the baseline, round by round.
#[derive(Serialize)]
pub struct Ratio {
    pub to: String,
    #[serde(flatten)]
    pub over_rounds: Summary,
}

/// One round of one subject.
#[derive(Serialize)]
pub struct Round {
    /// Its place in the order of the round, from 0.
    pub place: usize,
    pub seconds: f64,
    pub ops_per_s: f64,
    /// Throughput divided by the baseline's in this round.
    pub ratio: f64,
    /// Operations of each thread; a single number if each operation takes all threads.
    pub ops_per_thread: Vec<u64>,
    /// CPU time of the process per operation.
    pub cpu_ns_per_op: f64,
    /// The results of this suite only.
    #[serde(flatten)]
    detail: Value,
}

/// A subject with the samples of its rounds.
pub type Measured<'a, S> = (
    &'a <S as Suite>::Subject,
    Vec<Placed<Sample<<S as Suite>::Extra>>>,
);

impl<S: Suite> Entry<S> {
    /// The entries of a cell. A cell without a complete round has none.
    pub fn of_cell(
        suite: &S,
        workload: S::Workload,
        threads: usize,
        cell: &[Measured<S>],
    ) -> Vec<Self> {
        // A baseline that does not take part here is replaced by the first subject.
        let is_baseline =
            |(subject, _): &&Measured<S>| S::name(subject) == suite.baseline(workload);
        let Some(baseline) = cell.iter().find(is_baseline).or(cell.first()) else {
            return Vec::new();
        };
        let cell = cell.iter().filter(|(_, samples)| !samples.is_empty());
        cell.map(|own| Self::new(suite, workload, threads, own, baseline))
            .collect()
    }

    fn new(
        suite: &S,
        workload: S::Workload,
        threads: usize,
        (subject, own): &Measured<S>,
        (baseline, others): &Measured<S>,
    ) -> Self {
        let pairs = own.iter().zip(others);
        let rounds = pairs.map(|((place, own), (_, other))| Round {
            place: *place,
            seconds: own.elapsed.as_secs_f64(),
            ops_per_s: own.ops_per_s(),
            ratio: own.ops_per_s() / other.ops_per_s(),
            ops_per_thread: own.ops.clone(),
            cpu_ns_per_op: own.cpu.as_nanos() as f64 / own.total_ops(),
            detail: S::round_detail(own, other),
        });
        let rounds: Vec<Round> = rounds.collect();
        let over = |value: fn(&Round) -> f64| Summary::of(rounds.iter().map(value));
        let own: Vec<_> = own.iter().map(|(_, sample)| sample).collect();
        let others: Vec<_> = others.iter().map(|(_, sample)| sample).collect();
        Entry {
            suite: S::NAME,
            lock: S::name(subject),
            workload: workload.name(),
            threads,
            ops_per_s: over(|round| round.ops_per_s),
            ns_per_op: over(|round| 1e9 / round.ops_per_s),
            cpu_ns_per_op: over(|round| round.cpu_ns_per_op),
            ratio: Ratio {
                to: S::name(baseline),
                over_rounds: over(|round| round.ratio),
            },
            fairness: Fairness::over(own.iter().map(|sample| &sample.ops[..])),
            noisy: is_noisy(rounds.iter().map(|round| round.ratio)),
            detail: suite.detail(subject, &own, &others),
            rounds,
        }
    }
}

impl<S: Suite> Compared for Entry<S> {
    fn usual(&self) -> Usual<'_> {
        Usual {
            suite: self.suite,
            workload: self.workload,
            threads: self.threads,
            lock: &self.lock,
            ops: self.ops_per_s,
            ns_per_op: self.ns_per_op,
            baseline: &self.ratio.to,
            ratio: self.ratio.over_rounds,
            noisy: self.noisy,
            fairness: self.fairness,
        }
    }
}
