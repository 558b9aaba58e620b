//! `kinlock-lab sim`: a workload on a simulated machine.
//!
//! [`args`] and [`plan`] say what runs. [`results`] has the results, which [`report`] and [`plot`]
//! show; [`grid`] shows how locks compare in its cells, [`replay`] how long a recorded program
//! would wait, and [`trace`] what hand-offs waited for.

mod args;
mod grid;
mod plan;
mod plot;
mod replay;
mod report;
mod results;
mod trace;

use kinlock_cli::outcome::Outcome;

pub use self::args::Args;

use self::plan::Plan;
use self::results::Report;
use crate::simulation::pool;

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let plan = Plan::new(args)?;
    if let Some(file) = &args.trace_handoffs {
        return trace::run(&plan, file);
    }
    let host_threads = args.sampling.host_threads();
    let outputs = args.destinations.open()?;
    let runs = plan.runs();
    let Some(samples) = pool::run(&plan.jobs(&runs), host_threads, args.quiet) else {
        return Ok(Outcome::CheckFailed);
    };
    outputs.write(&Report::new(plan.setup(), host_threads, &runs, samples))?;
    Ok(Outcome::Done)
}
