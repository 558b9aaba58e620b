//! Shared by the verbs that check something: names of subjects, the display of verdicts, and the
//! exit status for them.

use std::path::Path;

use kinlock_cli::args::keep_first;
use kinlock_cli::outcome::Outcome;
use kinlock_cli::parameters::Parameters;
use kinlock_cli::report::write::Outputs;
use kinlock_cli::report::write_json;
use kinlock_verify::report::{Check, Report};
use kinlock_verify::{BUSTED, Named, by_name};
use serde_json::Value;

/// The end of the help of every primitive.
pub const HELP: &str = "\
`busted` stands for all that are broken on purpose. Each of them must be caught, so that the exit \
status is 1; it is tried until then, at most ten times as long. Locks and policies that are broken \
are in the copy of the source that ci/mutants.sh makes.

Exit status: 0 all checks passed, 1 a check failed, 2 bad input, 3 something that is broken on \
purpose was not caught by the check meant for it.";

/// Parses the name of a subject, or `busted`, which stands for all that are broken on purpose.
pub fn name<S: Named>(text: &str) -> Result<&'static str, String> {
    let all = S::all().iter();
    let busted = (!by_name::<S>(BUSTED).is_empty()).then_some(BUSTED);
    let names = all.map(S::name).chain(busted);
    find(S::KIND, text, names, |name| name)
}

/// The one that is called `text`. The error lists all names.
pub fn find<T>(
    kind: &str,
    text: &str,
    all: impl IntoIterator<Item = T>,
    name: impl Fn(&T) -> &str,
) -> Result<T, String> {
    let mut all: Vec<T> = all.into_iter().collect();
    match all.iter().position(|one| name(one) == text) {
        Some(place) => Ok(all.swap_remove(place)),
        None => Err(unknown(kind, all.iter().map(name))),
    }
}

/// The error for a name that is not among the known ones.
pub fn unknown<'a>(kind: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<_> = known.collect();
    format!("no such {kind}; known: {}", known.join(", "))
}

/// The subjects with these names, each once; without names, all that are meant to work.
pub fn chosen<S: Named>(names: &[&str]) -> Vec<S> {
    let sound = S::all().iter().filter(|one| one.defect().is_none());
    let mut chosen: Vec<S> = match names {
        [] => sound.copied().collect(),
        names => names.iter().flat_map(|name| by_name(name)).collect(),
    };
    keep_first(&mut chosen, S::name);
    chosen
}

/// The flag that names these subjects.
pub fn named<S: Named>(flag: &'static str, subjects: &[S]) -> Parameters {
    let names: Vec<_> = subjects.iter().map(S::name).collect();
    Parameters::default().add(flag, names)
}

/// The destination of the JSON report, if there is one. It is opened before the work, so that a
/// path that cannot be written is noticed at once, and not after minutes.
pub fn outputs(json: Option<&Path>) -> anyhow::Result<Outputs<Value>> {
    let mut outputs = Outputs::new();
    outputs.add(json, |document, out| write_json(document, out))?;
    Ok(outputs)
}

/// A line for each check.
fn text(report: &Report) -> String {
    let line = |check: &Check| {
        let verdict = if check.passed { "ok" } else { "FAILED" };
        format!("{verdict:<7} {:<44} {}\n", check.name, check.detail)
    };
    report.checks.iter().map(line).collect()
}

/// The last line on stdout.
pub fn end(passed: bool) -> String {
    let verdict = if passed { "SUCCESS" } else { "FAILURE" };
    format!("End of test: {verdict}\n")
}

/// A run over many subjects: its output, and its results so far.
pub struct Run<'a> {
    outputs: &'a Outputs<Value>,
    /// A command that repeats the run, printed at the beginning and at the end.
    echo: String,
    pub total: Report,
    sound_failed: bool,
}

impl<'a> Run<'a> {
    /// Starts a run with this verb and these parameters.
    pub fn start(
        outputs: &'a Outputs<Value>,
        verb: &str,
        parameters: &Parameters,
    ) -> anyhow::Result<Self> {
        let echo = format!("kinlock-lab {verb} {}\n", parameters.arguments().join(" "));
        outputs.say(&echo)?;
        Ok(Run {
            outputs,
            echo,
            total: Report::new(),
            sound_failed: false,
        })
    }

    /// Adds a subject. `more` is printed below its checks.
    pub fn add(&mut self, subject: &impl Named, report: Report, more: &str) -> anyhow::Result<()> {
        self.outputs.say(&text(&report))?;
        self.outputs.say(more)?;
        self.sound_failed |= subject.defect().is_none() && !report.passed;
        self.total.merge(report);
        Ok(())
    }

    /// Ends the run. `numbers` has the figures of the whole run, in words. In the exit status, a
    /// sound subject that failed has priority over a broken one that was not caught.
    pub fn end(self, numbers: &str) -> anyhow::Result<Outcome> {
        let total = &self.total;
        let failed = total.checks.iter().filter(|check| !check.passed).count();
        let checks = total.checks.len();
        let checks = format!("Checks: {checks}, failed: {failed}");
        let Run { outputs, echo, .. } = &self;
        outputs.say(&format!("{echo}{numbers}\n{checks}\n{}", end(total.passed)))?;
        Ok(match total {
            _ if self.sound_failed => Outcome::CheckFailed,
            _ if total.escaped() => Outcome::Escaped,
            Report { passed: true, .. } => Outcome::Done,
            _ => Outcome::CheckFailed,
        })
    }
}
