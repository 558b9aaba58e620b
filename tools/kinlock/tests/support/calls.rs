//! Calls of a command, without the variables of the tests' environment that the command reads. The
//! tests of both commands use them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::{command, kinlock};

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

/// Runs the command, which has to end with this status. Returns its stdout.
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

/// Runs the command, which has to succeed and to write nothing to stderr. Returns its stdout.
pub fn done(line: &str) -> String {
    checked(line, 0, true)
}

/// Runs the command with `--json -`. It has to succeed, and to write nothing else to stdout.
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
    is_refusal(&command().args(words).output().unwrap(), 2, expected);
}

/// Asserts that a command has ended with this status and one line that says `expected`. Returns the
/// line.
pub fn is_refusal(output: &Output, status: i32, expected: &str) -> String {
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{message}");
    assert!(output.stdout.is_empty(), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.contains(expected), "{message}");
    message.into_owned()
}

/// A report without the fields that depend on the machine that runs the simulation.
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

/// The names of the entries of a folder, sorted.
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

/// Makes an executable script, or whatever else `text` is.
///
/// Another process writes it. A child that another test forks at that time has this process's open
/// files until it executes its program, and a file that is open for writing cannot be executed.
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

/// The recording by `kinlock record` of a program whose times are known, with these flags and
/// arguments of the program.
pub fn recorded(flags: &[&str], words: &[&str]) -> (TempDir, PathBuf, Value) {
    let source = include_str!("../programs/recorded.c");
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "program", "-O1 -g -pthread", source);
    let file = folder.path().join("recorded.json");
    let mut command = kinlock();
    command.arg("record").args(flags).arg("-o").arg(&file);
    let output = command.arg("--").arg(program).args(words).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{message}");
    // Stdout is the program's.
    assert!(output.stdout.starts_with(b"ops/s: "));
    assert!(message.contains("recorded 3 locks"), "{message}");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.len() < 10_000_000);
    (folder, file, serde_json::from_str(&text).unwrap())
}

/// A lock of a recording.
pub fn recorded_lock<'a>(recording: &'a Value, name: &str) -> &'a Value {
    named(&recording["locks"], name)
}

/// The first object of that name.
pub fn named<'a>(all: &'a Value, name: &str) -> &'a Value {
    let found = list(all).iter().find(|one| one["name"] == name);
    found.unwrap_or_else(|| panic!("no {name}: {all:#}"))
}

/// The share of the times that lies in a range, and the number of acquisitions that all times stand
/// for.
pub fn within(times: &Value, from: u64, to: u64) -> (f64, u64) {
    let classes: Vec<(u64, u64, u64)> = serde_json::from_value(times.clone()).unwrap();
    assert!(classes.iter().all(|class| class.0 < class.1));
    let of_range = classes
        .iter()
        .filter(|class| class.1 > from && class.0 <= to);
    let count: u64 = of_range.map(|class| class.2).sum();
    let all: u64 = classes.iter().map(|class| class.2).sum();
    (count as f64 / all as f64, all)
}
