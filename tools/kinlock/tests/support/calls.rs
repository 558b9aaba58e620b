//! Calls of a command: no variable of the tests' environment that it reads reaches it. The tests of
//! both commands use them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::command;

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
    let mut command = command();
    // The database of readrandom is filled once for all tests.
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.args(line.split_whitespace()).output().unwrap()
}

/// Runs it; it has to end with this status. What it wrote to stdout.
pub fn ends(status: i32, line: &str) -> String {
    checked(line, status, false)
}

fn checked(line: &str, status: i32, silent: bool) -> String {
    let output = run(line);
    let text = String::from_utf8(output.stdout).unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(status),
        "{line}: {message}\n{text}"
    );
    assert!(!silent || message.is_empty(), "{line}: {message}");
    text
}

/// Runs it; it has to succeed and to write nothing to stderr. What it wrote to stdout.
pub fn done(line: &str) -> String {
    checked(line, 0, true)
}

/// Runs it with `--json -`; it has to succeed, and nothing else may be on stdout.
pub fn json(line: &str) -> Value {
    serde_json::from_str(&done(&format!("{line} --json -"))).expect("stdout is JSON")
}

/// The same with an exit status.
pub fn json_with(line: &str, status: i32) -> Value {
    serde_json::from_str(&ends(status, &format!("{line} --json -"))).expect("stdout is JSON")
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

/// A report without what depends on the machine that simulates.
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

/// The elements of an array.
pub fn list(value: &Value) -> &[Value] {
    let array = value.as_array();
    array.unwrap_or_else(|| panic!("no array: {value}"))
}

/// A string of each result.
pub fn names<'a>(report: &'a Value, field: &str) -> Vec<&'a str> {
    let fields = list(&report["results"]).iter().map(|result| &result[field]);
    fields.map(|name| name.as_str().unwrap()).collect()
}

/// Asserts that `value` has numbers, or things that are not null, at these dotted paths.
pub fn has_numbers(value: &Value, paths: &str) {
    for path in paths.split_whitespace() {
        let found = path.split('.').fold(value, |value, field| &value[field]);
        assert!(found.is_number(), "{path}: {value}");
    }
}

/// The names of what is in a folder, sorted.
pub fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    names
}

/// The C program of this source, compiled with these flags.
pub fn compiled(folder: &Path, name: &str, flags: &str, source: &str) -> PathBuf {
    let (text, program) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&text, source).unwrap();
    let mut compiler = Command::new("cc");
    let compiler = compiler.arg(text).arg("-o").arg(&program);
    let status = compiler.args(flags.split_whitespace()).status().unwrap();
    assert!(status.success(), "{name} does not compile");
    program
}

/// An executable script, or whatever else `text` is.
///
/// Another process writes it. A child that another test forks meanwhile has this process's open
/// files until it executes its program, and nobody can execute a file that is open for writing.
pub fn script(folder: &Path, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    let mut install = Command::new("install");
    let install = install.args(["-m", "755", "/dev/stdin"]).arg(&path);
    let mut child = install.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(text.as_ref()).unwrap();
    drop(input);
    assert!(child.wait().unwrap().success());
    path
}
