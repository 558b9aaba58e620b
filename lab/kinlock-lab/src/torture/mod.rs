//! `kinlock-lab torture`: correctness under stress.
//!
//! Each specimen is tortured in a child process of its own ([`child`]): threads that wait forever
//! cannot be ended otherwise, and signal handlers, affinities and the locks' environment belong to
//! the process.

mod args;
mod child;
mod ids;
mod invalidation;
mod locks;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kinlock_cli::outcome::Outcome;
use kinlock_cli::parameters::Parameters;
use kinlock_verify::plan::{Settings, Tortured};
use kinlock_verify::report::Report;
use kinlock_verify::sandbox;

use self::args::{Common, Waiting};
use self::child::Task;
use crate::checks;

/// Test that our primitives are correct under stress
///
/// Without the name of a primitive: locks, with the options below.
///
/// Example: kinlock-lab torture --locks kinlock-spin --threads 4,64 --seconds 60
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_long_help = checks::HELP)]
// The flattened options have a group of the same name.
#[group(skip)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    locks: locks::Args,
}

#[derive(clap::Subcommand)]
enum What {
    Invalidation(invalidation::Args),
    Locks(locks::Args),
    Ids(ids::Args),
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    match &args.what {
        None => args.locks.run(),
        Some(What::Invalidation(args)) => args.run(),
        Some(What::Locks(args)) => args.run(),
        Some(What::Ids(args)) => args.run(),
    }
}

/// The torture of one primitive, as its arguments describe it.
struct Torture<'a, S> {
    /// The subcommand.
    primitive: &'static str,
    /// The flag that names specimens.
    flag: &'static str,
    specimens: Vec<S>,
    common: &'a Common,
    /// The flags of primitives whose threads wait for each other.
    waiting: Option<&'a Waiting>,
    settings: Settings,
    /// All flags that decide the run.
    parameters: Parameters,
}

impl<S: Tortured> Torture<'_, S> {
    /// Runs the torture. `tasks` divides the whole task for a specimen among child processes.
    fn run(self, tasks: impl Fn(S, Task) -> Vec<Task>) -> anyhow::Result<Outcome> {
        let (common, parameters) = (self.common, &self.parameters);
        let is_refused = self.waiting.is_some_and(|it| it.without_membarrier);
        if is_refused && common.in_process {
            // Done before there are threads, so that all threads inherit it.
            sandbox::refuse_membarrier().map_err(anyhow::Error::msg)?;
        }
        let outputs = checks::outputs(common.json.as_deref())?;
        let verb = format!("torture {}", self.primitive);
        let mut run = checks::Run::start(&outputs, &verb, parameters)?;
        for &specimen in &self.specimens {
            let report = if common.in_process {
                let bar = spinner(common.quiet);
                let report = specimen.torture(&self.settings, &mut |step| {
                    bar.set_message(step.to_owned());
                    bar.tick();
                });
                bar.finish_and_clear();
                report
            } else {
                let mut report = Report::new();
                for task in tasks(specimen, self.task(specimen)) {
                    report.merge(task.run()?);
                }
                report
            };
            run.add(&specimen, report, "")?;
        }
        let mut document = serde_json::to_value(&run.total)?;
        document["parameters"] = serde_json::to_value(parameters)?;
        let per_thread = format!("Per thread: {}", run.total.per_thread);
        let outcome = run.end(&per_thread)?;
        outputs.write(&document)?;
        Ok(outcome)
    }

    fn task(&self, specimen: S) -> Task {
        Task {
            primitive: self.primitive,
            specimen: specimen.name(),
            is_broken: specimen.defect().is_some(),
            parameters: self.parameters.with(self.flag, [specimen.name()]),
            seconds: self.common.seconds,
            hang: self.waiting.map_or(0.0, |waiting| waiting.hang),
            topology: None,
            quiet: self.common.quiet,
        }
    }
}

/// Shows progress on stderr.
fn spinner(quiet: bool) -> ProgressBar {
    let target = match quiet {
        true => ProgressDrawTarget::hidden(),
        false => ProgressDrawTarget::stderr(),
    };
    let bar = ProgressBar::with_draw_target(None, target);
    let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
    bar.set_style(style.expect("the template is valid"));
    bar
}
