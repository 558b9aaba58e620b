//! The command as tests call it: no variable of the tests' environment that it reads reaches it.

// Each test program uses a part of this.
#![allow(dead_code)]

use std::process::{Command, Output};

use serde_json::Value;

/// The command, without arguments.
pub fn kinlock() -> Command {
    without_knobs(Command::new(env!("CARGO_BIN_EXE_kinlock")))
}

/// `command`, without the variables that the library reads.
pub fn without_knobs(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("KINLOCK_") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs the command with the words of `line`.
pub fn run(line: &str) -> Output {
    let mut command = kinlock();
    // The database of readrandom is filled once for all tests.
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.args(line.split_whitespace()).output().unwrap()
}

/// Runs it with `--json -`: its exit status has to be `status`, and nothing else may be on stdout.
pub fn json_with(line: &str, status: i32) -> Value {
    let output = run(&format!("{line} --json -"));
    let notes = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{line}: {notes}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The same with exit status 0.
pub fn json(line: &str) -> Value {
    json_with(line, 0)
}

/// Asserts that the input is refused with one line that says `expected`.
pub fn refused(line: &str, expected: &str) {
    let output = run(line);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{line}: {message}");
    assert!(output.stdout.is_empty(), "{line}");
    assert_eq!(message.lines().count(), 1, "{line}: {message}");
    assert!(message.contains(expected), "{line}: {message}");
}

/// The elements of an array.
pub fn list(value: &Value) -> &[Value] {
    value
        .as_array()
        .unwrap_or_else(|| panic!("no array: {value}"))
}

/// A string of each result.
pub fn names<'a>(report: &'a Value, field: &str) -> Vec<&'a str> {
    let results = list(&report["results"]).iter();
    results
        .map(|result| result[field].as_str().unwrap())
        .collect()
}

/// Asserts that `value` has numbers, or things that are not null, at these dotted paths.
pub fn has_numbers(value: &Value, paths: &str) {
    for path in paths.split_whitespace() {
        let found = path.split('.').fold(value, |value, field| &value[field]);
        assert!(found.is_number(), "{path}: {value}");
    }
}
