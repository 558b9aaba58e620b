//! What the verbs that check things share: how subjects are named, how verdicts are shown, and what
//! the process's exit status says about them.

use std::path::Path;

use kinlock_verify::report::{Check, Report};
use kinlock_verify::{BUSTED, Named, by_name};
use serde_json::Value;

use crate::args::keep_first;
use crate::outcome::Outcome;
use crate::report::write::Outputs;
use crate::report::write_json;

/// What the help of every primitive ends with.
pub const HELP: &str = "\
`busted` stands for all that are broken on purpose. Each of them must be caught, so that the exit \
status is 1; it is tried until then, at most ten times as long.

Exit status: 0 all checks passed, 1 a check failed, 2 bad input, 3 something that is broken on \
purpose was not caught by the check meant for it.";

/// Parses a name of one of them, or of all that are broken on purpose.
pub fn name<S: Named>(text: &str) -> Result<&'static str, String> {
    one_of(S::KIND, text, S::ALL.iter().map(S::name).chain([BUSTED]))
}

/// The known name that `text` is.
pub fn one_of(
    kind: &str,
    text: &str,
    known: impl IntoIterator<Item = &'static str>,
) -> Result<&'static str, String> {
    let known: Vec<_> = known.into_iter().collect();
    let found = known.iter().find(|&&name| name == text);
    let unknown = || format!("no such {kind}; known: {}", known.join(", "));
    found.copied().ok_or_else(unknown)
}

/// Those with these names, each once; without names all that are meant to work.
pub fn chosen<S: Named>(names: &[&str]) -> Vec<S> {
    let sound = S::ALL.iter().filter(|one| one.defect().is_none());
    let mut chosen: Vec<S> = match names {
        [] => sound.copied().collect(),
        names => names.iter().flat_map(|name| by_name(name)).collect(),
    };
    keep_first(&mut chosen, S::name);
    chosen
}

/// Where the JSON report goes, if anywhere. It is opened before the work: a path that cannot be
/// written must not cost minutes to find out.
pub fn outputs(json: Option<&Path>) -> anyhow::Result<Outputs<Value>> {
    let mut outputs = Outputs::new();
    outputs.add(json, |document, out| write_json(document, out))?;
    Ok(outputs)
}

/// A line for each check.
pub fn text(report: &Report) -> String {
    let line = |check: &Check| {
        let verdict = if check.passed { "ok" } else { "FAILED" };
        format!("{verdict:<7} {:<44} {}\n", check.name, check.detail)
    };
    report.checks.iter().map(line).collect()
}

/// How many checks there were, and how it ended.
pub fn summary(report: &Report) -> String {
    let failed = report.checks.iter().filter(|check| !check.passed).count();
    let checks = report.checks.len();
    format!("Checks: {checks}, failed: {failed}\n{}", end(report.passed))
}

/// The last line on stdout.
pub fn end(passed: bool) -> String {
    let verdict = if passed { "SUCCESS" } else { "FAILURE" };
    format!("End of test: {verdict}\n")
}

/// A sound subject that failed is worse than a broken one that was not caught.
pub fn outcome(report: &Report, sound_failed: bool) -> Outcome {
    match report {
        _ if sound_failed => Outcome::CheckFailed,
        _ if report.escaped() => Outcome::Escaped,
        Report { passed: true, .. } => Outcome::Done,
        _ => Outcome::CheckFailed,
    }
}
