//! Calling `kinlock bench`, for its tests.

#[path = "../support/mod.rs"]
mod support;

use std::process::Output;

use serde_json::Value;
pub use support::kinlock;

/// Runs it with `arguments`.
pub fn bench(arguments: &[&str]) -> Output {
    let mut command = kinlock();
    // The database of readrandom is filled once for all tests.
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.arg("bench").args(arguments).output().unwrap()
}

/// The shortest run of two rounds, with more arguments.
pub fn short(arguments: &[&str]) -> Output {
    let mut all = vec!["--seconds", "0.002", "--rounds", "2"];
    all.extend(arguments);
    bench(&all)
}

/// The JSON report of the shortest run.
pub fn json(arguments: &[&str]) -> Value {
    let mut all = vec!["--json", "-"];
    all.extend(arguments);
    let output = short(&all);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // Fails if anything else is on stdout.
    serde_json::from_slice(&output.stdout).unwrap()
}
