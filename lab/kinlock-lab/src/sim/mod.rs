//! `kinlock-lab sim`: a workload on a simulated machine.
//!
//! What runs: [`args`], [`recording`] for recorded programs, [`plan`], and [`part`] for runs that
//! are divided among machines. What came out: [`setup`] and [`results`], shown by [`report`] and
//! [`plot`]; [`grid`] shows how locks stand in its cells, [`replay`] what a recorded program would
//! wait, and [`trace`] what hand-offs waited for.

mod args;
mod grid;
mod part;
mod plan;
mod plot;
mod recording;
mod replay;
mod report;
mod results;
mod setup;
mod trace;

use kinlock_cli::outcome::Outcome;

pub use self::args::Args;

use self::part::Part;
use self::plan::Plan;
use self::results::Report;
use crate::simulation::pool;

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    if !args.merge.is_empty() {
        let outputs = args.destinations.open()?;
        outputs.write(&part::merge(&args.merge)?)?;
        return Ok(Outcome::Done);
    }
    let plan = Plan::new(args)?;
    if let Some(file) = &args.trace_handoffs {
        return trace::run(&plan, file);
    }
    let mut jobs = plan.jobs();
    let host_threads = args.sampling.host_threads();
    if let Some(shard) = args.shard {
        let outputs = part::open(&args.destinations)?;
        let mut place = 0..;
        jobs.retain(|_| place.next().is_some_and(|place| shard.has(place)));
        let Some(samples) = pool::run(&jobs, host_threads, args.quiet) else {
            return Ok(Outcome::CheckFailed);
        };
        outputs.write(&Part {
            shard,
            setup: plan.setup(),
            host_threads,
            samples,
        })?;
    } else {
        let outputs = args.destinations.open()?;
        let Some(samples) = pool::run(&jobs, host_threads, args.quiet) else {
            return Ok(Outcome::CheckFailed);
        };
        outputs.write(&Report::new(plan.setup(), host_threads, samples))?;
    }
    Ok(Outcome::Done)
}
