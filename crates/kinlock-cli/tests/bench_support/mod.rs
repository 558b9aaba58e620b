//! Calling `kinlock bench`, for its tests.

use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;

/// Runs it with `arguments`.
pub fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::cargo_bin("kinlock").unwrap();
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("KINLOCK_") {
            command.env_remove(name);
        }
    }
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
