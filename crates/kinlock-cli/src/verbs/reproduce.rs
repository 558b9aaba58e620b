//! `kinlock reproduce`: every published table beside the simulated one.

use crate::args::ThreadCounts;
use crate::args::keep_first;
use crate::outcome::Outcome;
use crate::report::Destinations;
use crate::reproduce::ids::{IdPlan, IdTableEntry};
use crate::reproduce::plan::{self, Plan, Wanted};
use crate::reproduce::results::{Report, TableEntry, Tables};
use crate::sim::flags::{Sampling, seconds};
use crate::sim::pool::Job;
use crate::verbs::sim::simulate;
use anyhow::bail;

/// Show published tables beside simulated ones.
///
/// Each table is simulated on its machine with its locks. Simulated throughputs are multiplied by one number per table,
/// so that the first row of the first lock fits; speed-ups are as they come out. Rows that miss the target are
/// shown as such, and are no reason for another exit status. Below the tables: which parameters of the simulation are
/// published, which were fitted and on what, and which are assumed.
///
/// Example: kinlock reproduce cna-lock2 --plot lock2.png
#[derive(clap::Args)]
pub struct Args {
    #[arg(value_name = "TABLE", value_parser = plan::table, help = format!("Which tables: {} [default: all]", plan::known_tables()))]
    tables: Vec<Wanted>,
    /// Only rows with these numbers of threads, as 1,72,142
    #[arg(long, value_name = "LIST")]
    threads: Option<ThreadCounts>,
    /// Another machine than the tables': the name of one that is built in, or a file that describes one
    #[arg(long, value_name = "NAME|FILE")]
    machine: Option<String>,
    /// Simulated seconds of each run, after a warm-up of a tenth of that [default: as the table needs; 0.1 gives each of
    /// four sockets its turn of 2^16 hand-offs]
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    seconds: Option<f64>,
    #[command(flatten)]
    sampling: Sampling,
    #[command(flatten)]
    destinations: Destinations<Report>,
    /// No progress bar and no notes
    #[arg(long)]
    quiet: bool,
}

/// Runs the verb.
///
/// # Errors
/// If the input is bad or the results cannot be written.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let mut tables = args.tables.clone();
    if tables.is_empty() {
        tables = Wanted::all().collect();
    }
    keep_first(&mut tables, Wanted::name);
    let threads = args.threads.as_ref().map_or(&[][..], |list| &list.0);
    let mut plans: Vec<Plan> = Vec::new();
    let mut id_plans: Vec<IdPlan> = Vec::new();
    for table in tables {
        match table {
            Wanted::Locks(table) => {
                plans.push(Plan::new(table, threads, args.machine.as_deref())?);
            }
            // Without names, only if the machine is large enough.
            Wanted::Ids(table) => match IdPlan::new(table, threads, args.machine.as_deref()) {
                Ok(plan) => id_plans.push(plan),
                Err(error) if !args.tables.is_empty() => return Err(error),
                Err(_) => {}
            },
        }
    }
    // Without names, all tables that have these rows.
    let has_rows = plans.iter().any(|plan| plan.check_has(threads).is_ok())
        || id_plans.iter().any(|plan| plan.has(threads));
    if args.tables.is_empty() && has_rows {
        plans.retain(|plan| plan.check_has(threads).is_ok());
        id_plans.retain(|plan| plan.has(threads));
    }
    for plan in &plans {
        plan.check_has(threads)?;
    }
    if let Some(plan) = id_plans.iter().find(|plan| !plan.has(threads)) {
        bail!("{} has no row with that many threads", plan.table.name);
    }
    let names = plans.iter().map(|plan| plan.table.name);
    let id_names = id_plans.iter().map(|plan| plan.table.name);
    let names: Vec<_> = names.chain(id_names).collect();
    let seconds = |plan: &Plan| args.seconds.unwrap_or(plan.table.seconds);
    // Workloads with concurrency IDs know how long they take.
    let id_seconds = args.seconds.unwrap_or(0.0);
    let outputs = args.destinations.open_for(&names)?;

    let sampling = &args.sampling;
    let variants = |plan: &Plan| sampling.variants(plan.machine.shape.sockets);
    let id_variants = |plan: &IdPlan| sampling.variants(plan.machine.shape.sockets);
    let by_plan: Vec<_> = plans
        .iter()
        .map(|plan| plan.jobs(&variants(plan), seconds(plan)))
        .collect();
    let by_id_plan: Vec<_> = id_plans
        .iter()
        .map(|plan| plan.jobs(&id_variants(plan), id_seconds))
        .collect();
    let jobs = [by_plan.concat(), by_id_plan.concat()].concat();
    let host_threads = sampling.host_threads();
    let Some(samples) = simulate(&jobs, host_threads, args.quiet) else {
        return Ok(Outcome::CheckFailed);
    };
    let mut rest = &samples[..];
    let mut take = |jobs: &Vec<Job>| {
        let (own, others) = rest.split_at(jobs.len());
        rest = others;
        own
    };
    let locks = plans.iter().zip(&by_plan).map(|(plan, jobs)| {
        TableEntry::new(plan, &variants(plan), take(jobs), threads, seconds(plan))
    });
    let locks = locks.collect();
    let ids = id_plans.iter().zip(&by_id_plan);
    let ids = ids.map(|(plan, jobs)| IdTableEntry::new(plan, &id_variants(plan), take(jobs)));
    let tables = Tables {
        locks,
        ids: ids.collect(),
    };
    outputs.write(&Report {
        kind: "reproduced",
        version: env!("CARGO_PKG_VERSION"),
        commit: option_env!("KINLOCK_COMMIT"),
        seconds: match &plans[..] {
            [first, rest @ ..] if rest.iter().all(|plan| seconds(plan) == seconds(first)) => {
                Some(seconds(first))
            }
            _ => None,
        },
        seeds: sampling.all_seeds(),
        host_threads,
        host_seconds: samples.iter().map(|sample| sample.host_seconds).sum(),
        tables,
    })?;
    Ok(Outcome::Done)
}
