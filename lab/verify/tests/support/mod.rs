//! Runs tests in processes of their own: handlers, affinities and sandboxes belong to the process,
//! and threads that hang cannot be ended otherwise.
//!
//! # Invariants
//!
//! 1. `alarm` has no preconditions.

// Each test program uses only a part of this module.
#![allow(dead_code)]

use kinlock_verify::child::{self, Child, FINE};
use kinlock_verify::plan::{Settings, Tortured};
use kinlock_verify::report::{Property, Report};
use kinlock_verify::{Preemption, by_name};
use std::process::{Command, Output};
use std::time::Duration;

/// The variable that is set in the child process.
const CHILD: &str = "KINLOCK_TEST_CHILD";

/// Runs the test `name` again, in a new process with this value of `GLIBC_TUNABLES`. Returns `None`
/// in the new process.
pub fn again(name: &str, tunables: &str) -> Option<Output> {
    if std::env::var_os(CHILD).is_some() {
        return None;
    }
    let this = std::env::current_exe().expect("the test knows its own program");
    let output = Command::new(this)
        .args(["--exact", name, "--include-ignored"])
        .args(["--nocapture", "--test-threads", "1"])
        .env(CHILD, "1")
        .env("GLIBC_TUNABLES", tunables)
        .output();
    Some(output.expect("a child process can be started"))
}

/// The name by which the test program knows a test; `module` is the test's `module_path!()`.
pub fn test_name(module: &str, test: &str) -> String {
    match module.split_once("::") {
        Some((_, module)) => format!("{module}::{test}"),
        None => test.to_owned(),
    }
}

/// Runs `body`, the body of the test `name`, in a process of its own; see [`again`].
pub fn in_child(name: &str, tunables: &str, body: impl FnOnce()) {
    match again(name, tunables) {
        None => body(),
        Some(output) => assert!(output.status.success(), "{}", text(&output)),
    }
}

/// A process that takes longer than this counts as hanging.
const PATIENCE: Duration = Duration::from_secs(300);
/// The pause between two looks at a child.
pub const PAUSE: Duration = Duration::from_micros(100);

/// Sets an alarm that ends this process if it hangs. A child does not inherit the alarm.
pub fn end_in_time() {
    // SAFETY: invariant 1.
    unsafe { libc::alarm(PATIENCE.as_secs() as u32) };
}

/// As [`in_child`], but an alarm ends the process if it hangs.
pub fn on_its_own(name: &str, body: impl FnOnce()) {
    in_child(name, "", || {
        end_in_time();
        body();
    });
}

/// Forks a child that runs `work`, and that an alarm ends if it hangs.
pub fn fork(work: impl FnOnce() -> bool) -> Child {
    let child = child::fork(|| {
        end_in_time();
        if work() { FINE } else { 1 }
    });
    child.expect("a child can be forked")
}

/// Waits for the child. Returns whether its work returned true.
pub fn has_held(child: Child) -> bool {
    child.wait(PATIENCE, |_| std::thread::sleep(PAUSE)) == Ok(FINE)
}

/// Whether `work` returns true in a forked child.
pub fn holds_in_a_fork(work: impl FnOnce() -> bool) -> bool {
    has_held(fork(work))
}

/// What a process has written to its standard output and error.
pub fn text(output: &Output) -> String {
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    format!("{stdout}{stderr}")
}

/// The settings for a torture of `millis` milliseconds.
pub fn settings(millis: u64, threads: &[usize], scenarios: Vec<&'static str>) -> Settings {
    Settings {
        time: Duration::from_millis(millis),
        threads: threads.to_vec(),
        domains: vec![2, 4],
        preemption: Preemption::Light,
        hang: Duration::from_secs(30),
        seed: 1,
        scenarios,
    }
}

/// Tortures the specimen with this name, and prints what was found.
pub fn torture<S: Tortured>(name: &str, settings: &Settings) -> Report {
    let report = by_name::<S>(name)[0].torture(settings, &mut |_| ());
    for check in &report.checks {
        let verdict = if check.passed { "ok" } else { "FAILED" };
        println!("{verdict} {}: {}", check.name, check.detail);
    }
    report
}

/// Tortures the specimen with this name, and asserts that the outcome [`is_right`].
pub fn judge<S: Tortured>(name: &str, settings: &Settings) {
    let report = torture::<S>(name, settings);
    assert!(is_right::<S>(name, &report), "{name}: {report:#?}");
}

/// Whether a sound specimen has passed, or one that is broken on purpose was caught.
///
/// What a scenario reaches in such a short time depends on what else the machine does. So only the
/// longer runs of `ci/torture.sh` demand that it reaches the situations that it is meant to reach.
pub fn is_right<S: Tortured>(name: &str, report: &Report) -> bool {
    let mut failed = report.checks.iter().filter(|check| !check.passed);
    match by_name::<S>(name)[0].defect() {
        None => failed.all(|check| check.property == Property::Reach),
        Some(_) => !report.passed && !report.escaped(),
    }
}
