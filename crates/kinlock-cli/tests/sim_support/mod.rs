//! Calling the verbs that simulate or check: a command line is one text, split at spaces.

// Each test program uses a part of this.
#![allow(dead_code)]

#[path = "../support/mod.rs"]
mod support;

use serde_json::Value;

#[allow(unused_imports)]
pub use support::{kinlock as command, refused, run as kinlock};

/// Runs the command, which has to end with this status. What it wrote to stdout.
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
