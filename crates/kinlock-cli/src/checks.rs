//! What the verbs that check things share: how subjects are named, how verdicts are shown, and what
//! the process's exit status says about them.

use std::path::Path;

use kinlock_verify::report::Report;
use serde_json::Value;

use crate::outcome::Outcome;
use crate::report::write::Outputs;
use crate::report::write_json;

/// What the help of every primitive ends with.
pub const HELP: &str = "\
`busted` stands for all that are broken on purpose. Each of them must be caught, so that the exit \
status is 1; it is tried until then, at most ten times as long.

Exit status: 0 all checks passed, 1 a check failed, 2 bad input, 3 something that is broken on \
purpose was not caught by the check meant for it.";

/// The name that stands for all subjects that are broken on purpose.
pub use kinlock_verify::locks::BUSTED;

/// `text`, if it is one of the known names.
pub fn one_of<'a>(
    kind: &str,
    text: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Result<String, String> {
    let known: Vec<_> = known.into_iter().collect();
    match known.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(format!("no such {kind}; known: {}", known.join(", "))),
    }
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
    let line = |check: &kinlock_verify::report::Check| {
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
