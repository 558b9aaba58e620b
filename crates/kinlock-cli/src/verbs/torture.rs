//! `kinlock torture`: correctness under stress.

mod child;
mod ids;
mod invalidation;
mod locks;

use std::path::Path;

use kinlock_verify::report::Report;
use serde::Serialize;

use crate::outcome::Outcome;
use crate::report::write::Outputs;
use crate::report::write_json;

/// Test that our primitives are correct under stress.
///
/// Without the name of a primitive: locks, with the options below.
///
/// Example: kinlock torture --locks kinlock-spin --threads 4,64 --seconds 60
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
// The flattened options bring a group of the same name.
#[group(skip)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    locks: locks::Args,
}

/// What can be tortured.
#[derive(clap::Subcommand)]
enum What {
    Invalidation(invalidation::Args),
    Locks(locks::Args),
    Ids(ids::Args),
}

/// Runs the verb.
///
/// # Errors
/// If the input is bad or the results cannot be written.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    match &args.what {
        None => locks::run(&args.locks),
        Some(What::Invalidation(args)) => invalidation::run(args),
        Some(What::Locks(args)) => locks::run(args),
        Some(What::Ids(args)) => ids::run(args),
    }
}

/// What programs read.
#[derive(Serialize)]
struct Document<P> {
    #[serde(flatten)]
    report: Report,
    parameters: P,
}

/// Where that goes, if anywhere. To be had before the work: what cannot be written must not cost minutes to find out.
fn outputs<P: Serialize>(json: Option<&Path>) -> anyhow::Result<Outputs<Document<P>>> {
    let mut outputs = Outputs::new();
    outputs.add(json, |document, out| write_json(document, out))?;
    Ok(outputs)
}
