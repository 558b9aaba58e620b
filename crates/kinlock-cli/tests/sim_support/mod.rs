//! Calling the verbs that simulate or check: a command line is one text, split at spaces.

// Each test program uses a part of this.
#![allow(dead_code)]

#[path = "../support/mod.rs"]
mod support;

use std::process::Output;

use serde_json::Value;

pub use support::kinlock as command;

/// Runs the command.
pub fn kinlock(line: &str) -> Output {
    let output = command().args(line.split_whitespace()).output();
    output.expect("the command can be started")
}

/// The same; it has to end with this status. What it wrote to stdout.
pub fn ends(status: i32, line: &str) -> String {
    let output = kinlock(line);
    let text = String::from_utf8(output.stdout).unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(status),
        "{line}: {message}\n{text}"
    );
    text
}

/// Runs the command, which has to succeed and to write nothing to stderr. What it wrote to stdout.
pub fn done(line: &str) -> String {
    let output = kinlock(line);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{line}: {message}");
    assert!(message.is_empty(), "{line}: {message}");
    String::from_utf8(output.stdout).unwrap()
}

/// The JSON on stdout: nothing else may be there.
pub fn json(line: &str) -> Value {
    serde_json::from_str(&done(&format!("{line} --json -"))).expect("stdout is JSON")
}

/// Asserts that the input is refused with one line that says `expected`.
pub fn refused(line: &str, expected: &str) {
    refused_words(&line.split_whitespace().collect::<Vec<_>>(), expected);
}

/// The same with words, one of which may be empty.
pub fn refused_words(words: &[&str], expected: &str) {
    let output = command().args(words).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{words:?}: {message}");
    assert!(output.stdout.is_empty(), "{words:?}");
    assert_eq!(message.lines().count(), 1, "{words:?}: {message}");
    assert!(message.contains(expected), "{words:?}: {message}");
}

/// The same without what depends on the machine that simulates.
pub fn without_host(mut value: Value) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|name, _| !name.contains("host"));
                fields.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    strip(&mut value);
    value
}
