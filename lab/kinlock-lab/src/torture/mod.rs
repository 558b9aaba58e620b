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
use kinlock_verify::{Named, sandbox};

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
// The flattened options bring a group of the same name.
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
        None => torture(&args.locks),
        Some(What::Invalidation(args)) => torture(args),
        Some(What::Locks(args)) => torture(args),
        Some(What::Ids(args)) => torture(args),
    }
}

/// The torture of one primitive, as its arguments describe it.
trait Torture {
    type Specimen: Tortured;
    /// The subcommand.
    const PRIMITIVE: &'static str;
    /// The flag that names specimens.
    const FLAG: &'static str;

    /// The flags that all primitives have.
    fn common(&self) -> &Common;

    /// What to torture, each once.
    fn specimens(&self) -> anyhow::Result<Vec<Self::Specimen>>;

    /// The flags and their values, without names.
    fn parameters(&self, names: Parameters) -> Parameters;

    /// The flags of primitives whose threads wait for each other.
    fn waiting(&self) -> Option<&Waiting> {
        None
    }

    /// What each torture is to do.
    fn settings(&self) -> Settings {
        self.common().settings(self.waiting())
    }

    /// What child processes do for a specimen; `whole` is one task with all of it.
    fn tasks(&self, _specimen: Self::Specimen, whole: Task) -> Vec<Task> {
        vec![whole]
    }
}

fn torture<T: Torture>(args: &T) -> anyhow::Result<Outcome> {
    let common = args.common();
    let specimens = args.specimens()?;
    let names: Vec<_> = specimens.iter().map(Named::name).collect();
    let parameters = args.parameters(Parameters::default().add(T::FLAG, names));
    let is_refused = args
        .waiting()
        .is_some_and(|waiting| waiting.without_membarrier);
    if is_refused && common.in_process {
        // Before there are threads: later ones inherit it.
        sandbox::refuse_membarrier().map_err(anyhow::Error::msg)?;
    }
    let outputs = checks::outputs(common.json.as_deref())?;
    let verb = format!("torture {}", T::PRIMITIVE);
    let mut run = checks::Run::start(&outputs, &verb, &parameters)?;
    for specimen in specimens {
        let report = if common.in_process {
            let bar = spinner(common.quiet);
            let report = specimen.torture(&args.settings(), &mut |step| {
                bar.set_message(step.to_owned());
                bar.tick();
            });
            bar.finish_and_clear();
            report
        } else {
            in_children(args, specimen, &parameters)?
        };
        run.add(&specimen, report, "")?;
    }
    let mut document = serde_json::to_value(&run.total)?;
    document["parameters"] = serde_json::to_value(&parameters)?;
    let per_thread = format!("Per thread: {}", run.total.per_thread);
    let outcome = run.end(&per_thread)?;
    outputs.write(&document)?;
    Ok(outcome)
}

fn in_children<T: Torture>(
    args: &T,
    specimen: T::Specimen,
    parameters: &Parameters,
) -> anyhow::Result<Report> {
    let common = args.common();
    let whole = Task {
        primitive: T::PRIMITIVE,
        specimen: specimen.name(),
        is_broken: specimen.defect().is_some(),
        parameters: parameters.with(T::FLAG, [specimen.name()]),
        seconds: common.seconds,
        hang: args.waiting().map_or(0.0, |waiting| waiting.hang),
        topology: None,
        quiet: common.quiet,
    };
    let mut report = Report::new();
    for task in args.tasks(specimen, whole) {
        report.merge(task.run()?);
    }
    Ok(report)
}

/// Shows on stderr what is going on.
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
