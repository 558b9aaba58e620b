//! Calling `kinlock sim` and `kinlock reproduce`, for their tests.

// Each test program uses a part of this.
#![allow(dead_code)]

#[path = "../support/mod.rs"]
mod support;

use std::process::Output;

use serde_json::Value;

/// Runs the command with `arguments`.
pub fn kinlock(arguments: &[&str]) -> Output {
    support::kinlock().args(arguments).output().unwrap()
}

/// The same; it has to succeed. What it wrote to stdout.
pub fn done(arguments: &[&str]) -> String {
    let output = kinlock(arguments);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {message}");
    assert!(message.is_empty(), "{arguments:?}: {message}");
    String::from_utf8(output.stdout).unwrap()
}

/// The JSON on stdout: nothing else may be there.
pub fn json(arguments: &[&str]) -> Value {
    let all = [arguments, &["--json", "-"]].concat();
    serde_json::from_str(&done(&all)).unwrap()
}

/// Asserts that the input is refused with one line that says `expected`.
pub fn refused(arguments: &[&str], expected: &str) {
    let output = kinlock(arguments);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert_eq!(message.lines().count(), 1, "{arguments:?}: {message}");
    assert!(message.contains(expected), "{arguments:?}: {message}");
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
