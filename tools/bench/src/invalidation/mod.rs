//! The suite `invalidation`: delayed invalidation against other ways to do the same.

mod contenders;
mod epochs;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::*};

use anyhow::bail;
use kinlock_cli::args::{Named, ThreadCounts, named, with_baseline};
use kinlock_cli::names;
use kinlock_cli::outcome::{Outcome, tell};
use kinlock_cli::report::table::Columns;
use kinlock_invalidation::{Backend, Domain, Stats};
use kinlock_measure::interrupt::pause;
use kinlock_measure::workloads::pages::{Ours, Pool, Worker};
use serde::Serialize;

use self::contenders::{BusyFlag, Contender, ContenderName, LockHeld};
use self::epochs::{Crossbeam, Numbered, Seize};
use super::harness::plot::Pictured;
use super::harness::results::{Report, Shown};
use super::harness::run::Common;
use super::harness::slice::{self, Sample, Slice};
use super::harness::suite::{Due, Entry, Plan, Suite, Unavailable};

/// Measure delayed invalidation against other ways to do the same on this machine.
///
/// Every backend and every rival runs every workload with every number of threads. In each round
/// all run once, in random order; throughput is compared with that of the baseline in the same
/// round, so that drift of the machine cancels.
///
/// The workload `pages` is the demonstration: a real mapping, whose pages are given back by madvise
/// in batches and reused, with a stamp in each that is verified. If a stamp is lost, the exit
/// status is 1.
///
/// SIGINT (Ctrl-C), SIGTERM, SIGHUP and SIGQUIT end a run early, with a report of its complete
/// rounds: one under way has a second to complete. A second signal ends the process at once, unless
/// it comes within 0.3 s. Exit status: 0 done, 1 a stamp was lost (interrupted or not), 2 bad
/// input, 128 and the signal's number (130 SIGINT).
///
/// Example: kinlock bench invalidation --workload pages --threads 1,2,16 --rounds 10
#[derive(clap::Args)]
pub struct Args {
    /// Backends and rivals to measure, separated by commas; the baseline is always measured too
    /// [default: all]
    #[arg(
        long,
        visible_alias = "locks",
        value_name = "A,B",
        value_delimiter = ',',
        value_parser = named::<ContenderName>,
    )]
    backends: Vec<ContenderName>,
    /// The backend or rival that the others are compared with, if it does the workload
    #[arg(
        long,
        value_name = "NAME",
        default_value = Backend::default().name(),
        value_parser = named::<ContenderName>,
    )]
    baseline: ContenderName,
    #[command(flatten)]
    common: Common<Invalidation>,
}

pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    args.common.run(Invalidation {
        contenders: with_baseline(&args.backends, args.baseline)?,
        baseline: args.baseline,
        lost: BTreeMap::new(),
    })
}

pub struct Invalidation {
    /// All contenders, including the baseline.
    contenders: Vec<ContenderName>,
    baseline: ContenderName,
    /// Lost stamps, also those of incomplete rounds, which show a defect just as well.
    lost: BTreeMap<&'static str, u64>,
}

names! {
    /// A workload of the suite `invalidation`.
    Workload, "workload":
    Section = "section", "begin and end a section that covers nothing";
    Passed = "passed", "ask whether a tag has passed that has";
    Pages = "pages", "clear table entries, give their pages back by madvise; reuse others, with \
        stamps that are verified";
}

/// The suite's own results of a slice.
#[derive(Clone, Debug)]
pub struct Found {
    /// Stamps that were checked, and stamps that were lost.
    verified: u64,
    lost: u64,
    /// The statistics of our domain.
    stats: Option<Stats>,
}

/// The results of all rounds of a contender.
#[derive(Serialize)]
pub struct Detail {
    /// Stamps that were checked, in the demonstration.
    verified: u64,
    /// Stamps that were lost: the contender is wrong if there are any.
    lost: u64,
    /// The statistics of our domain over all rounds.
    sections: Option<Sections>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Sections {
    /// Waits for tags that had not passed.
    waits: u64,
    /// Waits that slept.
    slow_waits: u64,
    /// The most sections open at a time.
    longest_queue: u64,
}

impl Suite for Invalidation {
    const NAME: &'static str = "invalidation";
    type Workload = Workload;
    type Subject = ContenderName;
    type Extra = Found;
    type Detail = Detail;

    fn subjects(&self, workload: Workload, _: usize) -> Vec<ContenderName> {
        let mut contenders = self.contenders.clone();
        contenders.retain(|contender| contender.does(workload));
        contenders
    }

    fn name(contender: &ContenderName) -> String {
        contender.name().to_owned()
    }

    fn baseline(&self, _: Workload) -> &'static str {
        self.baseline.name()
    }

    fn usual_threads() -> ThreadCounts {
        ThreadCounts(vec![1, 2, 16, 64])
    }

    fn turn_seconds(&self, _: Workload, seconds: f64) -> f64 {
        1.1 * seconds + 0.01
    }

    fn measure(&mut self, due: Due<'_, Self>) -> anyhow::Result<Sample<Found>> {
        let contender = *due.subject;
        let sample = match contender {
            ContenderName::Locked => measure(Ours::new(Backend::Locked), &due),
            ContenderName::Slots => measure(Ours::new(Backend::Slots), &due),
            ContenderName::LockHeld => measure(LockHeld::default(), &due),
            ContenderName::BusyFlag => measure(BusyFlag, &due),
            ContenderName::Crossbeam => measure(Numbered::<Crossbeam>::new(), &due),
            ContenderName::Seize => measure(Numbered::<Seize>::new(), &due),
            #[cfg(have_ck_epoch)]
            ContenderName::CkEpoch => measure(Numbered::<epochs::CkEpoch>::new(), &due),
            #[cfg(have_urcu)]
            ContenderName::Urcu => measure(Numbered::<epochs::Urcu>::new(), &due),
            #[allow(unreachable_patterns)]
            absent => bail!("{} is not in this build", absent.name()),
        }?;
        if sample.extra.lost > 0 {
            *self.lost.entry(contender.name()).or_default() += sample.extra.lost;
        }
        Ok(sample)
    }

    fn detail(&self, _: &ContenderName, own: &[&Sample<Found>], _: &[&Sample<Found>]) -> Detail {
        let mut sections = None;
        for stats in own.iter().filter_map(|sample| sample.extra.stats) {
            let sum = sections.get_or_insert_with(Sections::default);
            sum.waits += stats.waits;
            sum.slow_waits += stats.slow_waits;
            sum.longest_queue = sum.longest_queue.max(stats.longest_queue);
        }
        Detail {
            verified: own.iter().map(|sample| sample.extra.verified).sum(),
            lost: own.iter().map(|sample| sample.extra.lost).sum(),
            sections,
        }
    }

    fn warnings(&self, _: &Plan<Self>, results: &[Entry<Self>]) -> Vec<String> {
        let told = |entry: &Entry<Self>| {
            let (lock, threads, lost) = (&entry.lock, entry.threads, entry.detail.lost);
            format!("{lock} LOST {lost} stamps with {threads} threads: it is wrong")
        };
        let lost = results.iter().filter(|entry| entry.detail.lost > 0);
        lost.map(told).collect()
    }

    fn unavailable() -> Vec<Unavailable> {
        Unavailable::all::<ContenderName>()
    }

    fn verdict(&self) -> Outcome {
        for (contender, stamps) in &self.lost {
            let what = format!("{contender} LOST {stamps} stamps: it is wrong");
            tell(&format!("kinlock: {what}"));
        }
        match self.lost.is_empty() {
            true => Outcome::Done,
            false => Outcome::CheckFailed,
        }
    }
}

impl Pictured for Invalidation {
    const PLOT: &'static str =
        "Draw throughput over threads, and the time of the small operations; the name ends in .svg";
}

impl Shown for Invalidation {
    const SUBJECTS: &'static str = "what";
    const OURS: &'static [&'static str] = &["slots", "locked"];

    fn columns(_: &Report<Self>, _: &Entry<Self>) -> Columns<Entry<Self>> {
        let shown = |text: fn(&Sections) -> String| {
            move |entry: &Entry<Self>| entry.detail.sections.as_ref().map_or("-".to_owned(), text)
        };
        Columns::<Entry<Self>>::new()
            .speed()
            .ratio("ratio")
            .spread("spread", |usual| usual.ratio)
            .jain()
            .add(
                "waits (slept)",
                shown(|s| format!("{} ({})", s.waits, s.slow_waits)),
            )
            .add("queue", shown(|s| s.longest_queue.to_string()))
    }

    fn csv_columns() -> Columns<Entry<Self>> {
        let of_sections = |count: fn(Sections) -> u64| {
            move |entry: &Entry<Self>| count(entry.detail.sections.unwrap_or_default())
        };
        Columns::<Entry<Self>>::new()
            .csv_key()
            .csv_ops("ops_per_s", ["min", "max"], 1)
            .csv_ns_per_op()
            .csv_ratio()
            .add("waits", of_sections(|s| s.waits))
            .add("slow_waits", of_sections(|s| s.slow_waits))
            .add("longest_queue", of_sections(|s| s.longest_queue))
            .add("verified", |e| e.detail.verified)
            .add("lost", |e| e.detail.lost)
            .add("rounds", |e| e.rounds.len())
    }
}

/// Shards of the demonstration's pool: 16 MiB of slots.
const SHARDS: usize = 64;
/// Operations between two checks whether the slice is over, if an operation takes nanoseconds.
const CHUNK: u64 = 64;

fn measure<C: Contender>(
    contender: C,
    due: &Due<'_, Invalidation>,
) -> anyhow::Result<Sample<Found>> {
    let pool = Pool::new(contender, SHARDS)?;
    let protection = &pool.protection;
    let verified = AtomicU64::new(0);
    let work = |slice: &Slice, index| {
        let mark = C::Mark::default();
        let mut worker = Worker::new(due.seed, index, None);
        slice.repeat(index, || match due.workload {
            Workload::Section => {
                (0..CHUNK).for_each(|_| protection.empty());
                CHUNK
            }
            Workload::Passed => {
                for _ in 0..CHUNK {
                    black_box(protection.passed(black_box(&mark)));
                }
                CHUNK
            }
            Workload::Pages => {
                pool.turn(&mut worker);
                1
            }
        });
        verified.fetch_add(worker.verified, Relaxed);
    };
    let spans = [slice::warm_up(due.seconds), due.seconds];
    let sample = slice::run(due.team, spans, &mut |_, span| pause(span), &work)?;
    Ok(sample.with(Found {
        verified: verified.into_inner(),
        lost: pool.lost(),
        stats: protection.domain().map(Domain::stats),
    }))
}
