//! Compiling and running the programs in `tests/c`.
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

/// The library under test, which cargo builds before the tests.
pub fn library() -> PathBuf {
    let this = std::env::current_exe().expect("a test has a path");
    let library = this.with_file_name("libkinlock_preload.so");
    assert!(library.exists(), "{} is missing", library.display());
    library
}

/// A path that no other test uses.
pub fn scratch(name: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Relaxed);
    let name = format!("{}-{number}-{name}", std::process::id());
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Builds a shared library into which the crate `kinlock` is linked. It works on locks in the
/// memory of its caller.
pub fn plugin_with_the_crate() -> PathBuf {
    let this = std::env::current_exe().expect("a test has a path");
    let target = this.ancestors().nth(3).expect("it is in target/debug/deps");
    let mut cargo = Command::new(env!("CARGO"));
    // `cargo test` has built it already if all default members are tested.
    cargo.args(["build", "--quiet", "--profile", "test"]);
    cargo.args(["--example", "copy", "--target-dir"]);
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let built = cargo.arg(target).current_dir(root).status();
    assert!(built.expect("cargo starts").success());
    target.join("debug/examples/libcopy.so")
}

/// The program or library that a source in `tests/c` becomes with these flags. The tests of a
/// binary share it.
pub fn compile(source: &str, flags: &[&str]) -> PathBuf {
    type Once = Arc<OnceLock<PathBuf>>;
    static ALL: Mutex<BTreeMap<String, Once>> = Mutex::new(BTreeMap::new());
    let key = [&[source], flags].concat().join(" ");
    let once = ALL
        .lock()
        .expect("no panic")
        .entry(key)
        .or_default()
        .clone();
    once.get_or_init(|| compile_anew(source, flags)).clone()
}

fn compile_anew(source: &str, flags: &[&str]) -> PathBuf {
    let compiler = if source.ends_with(".cc") { "c++" } else { "cc" };
    let to = scratch(source.split('.').next().unwrap_or(source));
    let from = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/c")
        .join(source);
    let mut command = Command::new(compiler);
    command.args(["-O1", "-w", "-pthread"]).args(flags);
    let status = command.arg(from).arg("-o").arg(&to).arg("-ldl").status();
    let status = status.unwrap_or_else(|error| panic!("{compiler} does not start: {error}"));
    assert!(status.success(), "{source} does not compile");
    to
}

/// Runs a command with the library preloaded.
pub fn run(command: &mut Command) -> Output {
    let command = command.env("LD_PRELOAD", library());
    command.output().expect("it starts")
}

pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// A compiled program and its arguments.
pub struct Program {
    path: PathBuf,
    arguments: Vec<String>,
}

impl Program {
    pub fn of(source: &str) -> Self {
        let path = compile(source, &[]);
        Program {
            path,
            arguments: Vec::new(),
        }
    }

    pub fn with(mut self, arguments: &[&str]) -> Self {
        self.arguments = arguments.iter().map(|&a| a.to_owned()).collect();
        self
    }

    /// A command that runs the program for five minutes at most, since a lost wake-up would make it
    /// hang.
    pub fn command(&self) -> Command {
        let mut command = Command::new("timeout");
        command
            .arg("--kill-after=5")
            .arg("300")
            .arg(&self.path)
            .args(&self.arguments);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("KINLOCK_") || name == "LD_PRELOAD" {
                command.env_remove(name);
            }
        }
        command
    }

    /// Runs the program on each of the locks under a report, without and with lock order.
    pub fn prints_under_reports(&self, locks: &[&str], expected: &str) {
        for (lock, order) in locks.iter().flat_map(|lock| [(lock, "0"), (lock, "1")]) {
            let mut command = self.command();
            command
                .env("KINLOCK_LOCK", lock)
                .env("KINLOCK_ORDER", order);
            let output = run(command.env("KINLOCK_REPORT", scratch("report")));
            assert!(output.status.success(), "{lock}, {order}: {output:?}");
            let said = [&output.stdout, &output.stderr].map(|bytes| text(bytes));
            assert_eq!(said, [expected, ""], "{lock}, {order}");
        }
    }

    /// Runs the program on the C library's locks and on each of `locks`, and compares what it
    /// prints.
    pub fn answers_the_same(&self, locks: &[&str]) {
        let ways = locks.iter().map(|lock| {
            let mut command = self.command();
            command.env("KINLOCK_LOCK", lock);
            ((*lock).to_owned(), command)
        });
        self.answers_the_same_as(ways);
    }

    /// The same for these commands of the program.
    pub fn answers_the_same_as(&self, ways: impl Iterator<Item = (String, Command)>) {
        // They all run at the same time, since most of these programs sleep more than they compute.
        let start =
            |mut command: Command| std::thread::spawn(move || command.output().expect("it starts"));
        let expected = start(self.command());
        let ours = ways.map(|(way, mut command)| {
            command.env("LD_PRELOAD", library());
            (way, start(command))
        });
        let ours: Vec<_> = ours.collect();
        let expected = expected.join().expect("a result");
        let text = String::from_utf8_lossy(&expected.stdout);
        assert!(
            expected.status.success(),
            "without the library: {}\n{text}",
            expected.status
        );
        assert!(!text.is_empty());
        for (lock, output) in ours {
            let output = output.join().expect("a result");
            let answer = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            let differs = text.lines().zip(answer.lines()).find(|(a, b)| a != b);
            assert!(
                output.status.success(),
                "{lock}: {}\n{differs:?}\n{errors}",
                output.status
            );
            assert_eq!(errors, "", "{lock}");
            assert_eq!(differs, None, "{lock}");
            assert_eq!(text, answer, "{lock}");
        }
    }
}
