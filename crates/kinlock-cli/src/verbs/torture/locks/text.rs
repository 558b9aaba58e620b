//! The report as people read it.

use std::fmt::Write;

use kinlock_verify::report::Report;

use super::settings::Parameters;

/// The parameters, as a command that repeats the run.
pub fn parameters(parameters: &Parameters) -> String {
    format!(
        "kinlock torture locks {}\n",
        parameters.arguments().join(" ")
    )
}

/// A line for each check.
pub fn checks(report: &Report) -> String {
    let mut text = String::new();
    for check in &report.checks {
        let verdict = if check.passed { "ok" } else { "FAILED" };
        let _ = writeln!(text, "{verdict:<7} {:<44} {}", check.name, check.detail);
    }
    text
}

/// Who got how much, and how it ended.
pub fn summary(report: &Report) -> String {
    let failed = report.checks.iter().filter(|check| !check.passed).count();
    format!(
        "Per thread: {}\nChecks: {}, failed: {failed}\nEnd of test: {}\n",
        report.per_thread,
        report.checks.len(),
        if report.passed { "SUCCESS" } else { "FAILURE" },
    )
}
