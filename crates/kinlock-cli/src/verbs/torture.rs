//! `kinlock torture`: correctness under stress.

mod child;
mod ids;
mod invalidation;
mod locks;

use crate::cli::Outcome;

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
