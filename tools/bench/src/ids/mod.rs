//! The suite `ids`: data structures on concurrency IDs against locked additions, thread-locals and
//! crates with the same purpose.

mod intermittent;
mod objects;
mod subject;
mod subjects;

use std::collections::BTreeMap;

use kinlock_cli::args::seconds;
use kinlock_cli::outcome::Outcome;
use kinlock_cli::report::table::Columns;
use kinlock_cli::report::units::time;
use kinlock_ids::Backend;
use kinlock_measure::interrupt::pause;
use serde_json::{Value, json};

use self::subject::{Kind, Subject};
use self::subjects::Workload;
use super::harness::plot::Pictured;
use super::harness::results::{Report, Shown};
use super::harness::run::Common;
use super::harness::slice::{self, Sample};
use super::harness::suite::{Due, Entry, Plan, Suite, cpus};

/// Measure concurrency IDs and what is built on them on this machine.
///
/// Counters, stacks and pools by restartable sequences and by leases, against locked additions,
/// thread-locals and crates with the same purpose. All of them run in each round, in random order;
/// throughput is compared with the baseline's in the same round.
///
/// Workloads: counter (add 1), lease (take an ID and give it back), stack (push and pop), pool
/// (allocate and free), cache (as pool, but objects are kept for a while), intermittent (bursts
/// over the 16 KiB of one's ID, one thread at a time, rarely; it has one thread per CPU).
///
/// SIGINT (Ctrl-C), SIGTERM, SIGHUP and SIGQUIT end a run early, with a report of its complete
/// rounds: one under way has a second to complete. A second signal ends the process at once, unless
/// it comes within 0.3 s. Exit status: 0 done, 2 bad input, 128 and the signal's number (130
/// SIGINT).
///
/// Examples:
///   kinlock bench ids
///   kinlock bench ids --workload counter --threads 1,8 --json -
///   kinlock bench ids --workload intermittent --delay 0.2 --rounds 3
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The time between two bursts of intermittent, in seconds
    #[arg(long, value_name = "S", default_value = "0.01", value_parser = seconds)]
    delay: f64,
    #[command(flatten)]
    common: Common<Ids>,
}

pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let mut backends = Backend::ALL.to_vec();
    backends.retain(|backend| backend.available().is_ok());
    args.common.run(Ids {
        backends,
        delay: args.delay,
    })
}

pub struct Ids {
    /// The backends that this machine has, in the order of tables.
    backends: Vec<Backend>,
    /// The time between two bursts of `intermittent`, in seconds.
    delay: f64,
}

impl Suite for Ids {
    const NAME: &'static str = "ids";
    type Workload = Workload;
    type Subject = Subject;
    type Extra = ();
    type Detail = ();

    fn subjects(&self, workload: Workload, _: usize) -> Vec<Subject> {
        subjects::of(workload, &self.backends)
    }

    fn name(subject: &Subject) -> String {
        subject.name.clone()
    }

    fn baseline(&self, workload: Workload) -> &'static str {
        subjects::baseline(workload)
    }

    /// `intermittent` has one thread per CPU.
    fn own_threads(workload: Workload) -> Option<usize> {
        (workload == Workload::Intermittent).then(|| cpus().max(2))
    }

    fn turn_seconds(&self, workload: Workload, seconds: f64) -> f64 {
        match workload {
            Workload::Intermittent => intermittent::BURSTS as f64 * self.delay + 0.005,
            _ => seconds * 1.1 + 0.005,
        }
    }

    fn measure(&mut self, due: Due<'_, Self>) -> anyhow::Result<Sample<()>> {
        let make = match &due.subject.kind {
            Kind::Areas(domain) => return intermittent::slice(&due, domain.as_ref(), self.delay),
            Kind::Repeated(make) => make,
        };
        let work = make();
        let spans = [slice::warm_up(due.seconds), due.seconds];
        slice::run(due.team, spans, &mut |_, span| pause(span), &*work)
    }

    fn detail(&self, _: &Subject, _: &[&Sample<()>], _: &[&Sample<()>]) {}

    fn parameters(&self, _: &Plan<Self>) -> Value {
        json!({ "delay_seconds": self.delay })
    }

    fn facts() -> BTreeMap<&'static str, String> {
        let available = Backend::Restartable.available();
        let available = available.map_or_else(|why| why.to_string(), |()| "available".to_owned());
        BTreeMap::from([("restartable", available)])
    }
}

impl Pictured for Ids {
    const PLOT: &'static str = "Draw the time per operation; the name ends in .svg";
    const CURVES: bool = false;
}

impl Shown for Ids {
    const SUBJECTS: &'static str = "what";
    const OURS: &'static [&'static str] = &["kinlock-rseq", "kinlock-lease"];

    fn columns(_: &Report<Self>, _: &Entry<Self>) -> Columns<Entry<Self>> {
        Columns::<Entry<Self>>::new()
            .speed()
            .add("cpu/op", |e| time(e.cpu_ns_per_op.median))
            .ratio("x baseline")
            .spread("spread", |usual| usual.ratio)
            .min_over_mean()
    }

    fn csv_columns() -> Columns<Entry<Self>> {
        Columns::<Entry<Self>>::new()
            .csv_key()
            .csv_ops("ops_per_s", ["min", "max"], 1)
            .csv_ns_per_op()
            .number("cpu_ns_per_op", 3, |e| e.cpu_ns_per_op.median)
            .csv_ratio()
            .csv_min_over_mean()
            .add("noisy", |e| e.noisy)
            .add("rounds", |e| e.rounds.len())
    }
}
