//! `kinlock-lab reproduce`: published tables next to simulated ones.
//!
//! [`plan`] says what to simulate, [`results`] how far off it is; [`report`] and [`plot`] show
//! that.

mod args;
mod plan;
mod plot;
mod report;
mod results;

pub use self::args::Args;

use kinlock_cli::args::keep_first;
use kinlock_cli::outcome::Outcome;
use kinlock_sim::published::TABLES;

use self::plan::Plan;
use self::results::{Report, TableEntry};
use crate::simulation::pool::{self, Job};

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let plans = plans(args)?;
    let names: Vec<_> = plans.iter().map(|plan| plan.table.name).collect();
    let outputs = args.destinations.open_for(&names)?;
    let sampling = &args.sampling;
    let variants = |plan: &Plan| sampling.variants(plan.machine.shape.sockets);
    let by_plan: Vec<Vec<Job>> = plans
        .iter()
        .map(|plan| plan.jobs(&variants(plan)))
        .collect();
    let host_threads = sampling.host_threads();
    let Some(samples) = pool::run(&by_plan.concat(), host_threads, args.quiet) else {
        return Ok(Outcome::CheckFailed);
    };
    let mut rest = &samples[..];
    let tables = plans.iter().zip(&by_plan).map(|(plan, jobs)| {
        let (own, others) = rest.split_at(jobs.len());
        rest = others;
        TableEntry::new(plan, &variants(plan), own)
    });
    let tables: Vec<_> = tables.collect();
    let mut seconds: Vec<_> = tables.iter().filter_map(|table| table.seconds).collect();
    seconds.dedup();
    outputs.write(&Report {
        kind: "reproduced",
        version: kinlock_cli::VERSION,
        commit: kinlock_cli::COMMIT,
        seconds: match seconds[..] {
            [same] => Some(same),
            _ => None,
        },
        seeds: sampling.all_seeds(),
        host_threads,
        host_seconds: samples.iter().map(|s| s.outcome.host_seconds).sum(),
        tables,
    })?;
    Ok(Outcome::Done)
}

/// The tables and rows that were asked for. Without names: all tables that have these rows and fit
/// the machine.
fn plans(args: &Args) -> anyhow::Result<Vec<Plan>> {
    let is_named = !args.tables.is_empty();
    let mut tables = match is_named {
        true => args.tables.clone(),
        false => TABLES.to_vec(),
    };
    keep_first(&mut tables, |table| table.name);
    let threads = args.threads.as_ref().map_or(&[][..], |list| &list.0);
    let machine = args.machine.as_deref();
    let new = |table| Plan::new(table, machine, args.seconds);
    let mut plans = tables.into_iter().map(new).collect::<Result<Vec<_>, _>>()?;
    if !is_named && plans.iter().any(|plan| plan.check_has(threads).is_ok()) {
        plans.retain(|plan| plan.check_has(threads).is_ok());
    }
    for plan in &mut plans {
        plan.check_has(threads)?;
        plan.keep(threads);
    }
    if !is_named {
        plans.retain(|plan| plan.check_fits().is_ok());
    }
    plans.iter().try_for_each(Plan::check_fits)?;
    Ok(plans)
}
