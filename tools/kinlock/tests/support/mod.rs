//! The command as tests call it, and programs for it to run.

// Each test program uses a part of this.
#![allow(dead_code)]

mod calls;

use std::io::{BufRead, BufReader, Lines};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub use calls::*;
use serde_json::Value;
use tempfile::TempDir;

/// The locks that a program can run on.
pub const ALL: [&str; 3] = ["kinlock-mutex", "kinlock-spin", "pthread"];

/// The command, without arguments.
pub fn kinlock() -> Command {
    with_library(Command::new(env!("CARGO_BIN_EXE_kinlock")))
}

/// `command`, with the library to preload. Otherwise, in a checkout, it would have another one
/// built.
pub fn with_library(command: Command) -> Command {
    let mut command = without_knobs(command);
    command.env("KINLOCK_PRELOAD", library());
    command
}

/// The library that cargo builds before the tests.
pub fn library() -> PathBuf {
    let this = std::env::current_exe().unwrap();
    let library = this.with_file_name("libkinlock_preload.so");
    if let Err(error) = library.metadata() {
        panic!("{}: {error}", library.display());
    }
    library
}

/// The command that [`calls`] calls.
fn command() -> Command {
    kinlock()
}

/// Makes a command heed Ctrl-C and other signals that end it: jobs in the background may ignore
/// them, and their children inherit that.
pub fn heeding_ctrl_c(command: &mut Command) -> &mut Command {
    let heed = || {
        for signal in [libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
            // SAFETY: it may be called between fork and exec, and gets no pointer.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: the function only makes system calls, and uses nothing of the parent.
    unsafe { command.pre_exec(heed) }
}

/// Sends a signal to a child that has not been waited for: until then its number is not reused.
pub fn send(child: &Child, signal: i32) {
    // SAFETY: numbers only.
    unsafe { libc::kill(child.id() as libc::pid_t, signal) };
}

/// Makes a named pipe.
pub fn pipe_at(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}

/// Waits until something happens, and fails after a while.
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < Duration::from_secs(300), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a process has written.
pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Asserts that a text has all of these.
pub fn says(text: &str, expected: &[&str]) {
    for expected in expected {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

/// The same for a text whose lines may be broken anywhere.
pub fn says_wrapped(text: &str, expected: &[&str]) {
    let words: Vec<_> = text.split_whitespace().collect();
    says(&words.join(" "), expected);
}

pub fn number(value: &Value) -> u64 {
    let number = value.as_u64();
    number.unwrap_or_else(|| panic!("no number: {value}"))
}

/// The sum of a field over some objects.
pub fn sum(all: &[Value], field: &str) -> u64 {
    all.iter().map(|one| number(&one[field])).sum()
}

/// Asserts that fields of an object are these numbers.
pub fn has(of: &Value, expected: &[(&str, u64)], about: &str) {
    for (field, number) in expected {
        assert_eq!(of[field], *number, "{about}: {field} of {of:#}");
    }
}

/// A command that writes lines, and ends when its stdin does, at the latest when this is dropped.
pub struct Running {
    pub child: Child,
    pub output: Lines<BufReader<ChildStdout>>,
}

impl Running {
    /// Starts the command. Returns its first line, too.
    pub fn start(command: &mut Command) -> (Self, String) {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = output.next().expect("it writes a line").unwrap();
        (Running { child, output }, first)
    }

    /// Ends the command, which has to succeed. Returns the next line, if there is one.
    pub fn end(mut self) -> Option<String> {
        drop(self.child.stdin.take());
        let last = self.output.next().map(|line| line.unwrap());
        assert!(self.child.wait().unwrap().success());
        last
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// A folder with a program of that name, in which a report is written to `json`.
pub struct Place(pub TempDir, &'static str);

impl Place {
    /// The program is compiled once; each test of a binary has a copy.
    pub fn of(name: &'static str, flags: &str, source: &str) -> Self {
        static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
        let program = PROGRAM.get_or_init(|| {
            let all = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
            std::fs::create_dir_all(&all).unwrap();
            // Compiled elsewhere and renamed, since another run of the tests may copy the file.
            let folder = tempfile::tempdir_in(&all).unwrap();
            let program = all.join(name);
            std::fs::rename(compiled(folder.path(), name, flags, source), &program).unwrap();
            program
        });
        assert!(program.ends_with(name), "a binary has one program");
        let folder = tempfile::tempdir().unwrap();
        // Another process writes the copy, for the reason given at `script`.
        let copied = Command::new("cp").arg(program).arg(folder.path()).status();
        assert!(copied.unwrap().success());
        Place(folder, name)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// `kinlock run FLAGS -- PROGRAM WORDS`.
    pub fn command(&self, flags: &[&str], words: &[&str]) -> Command {
        let mut command = kinlock();
        command.arg("run").args(flags).arg("--");
        command.arg(self.file(self.1)).args(words);
        command
    }

    /// The same with a report, also as JSON.
    pub fn reported(&self, flags: &[&str], words: &[&str]) -> Command {
        let json = self.file("json");
        let report = ["--report", "--json", json.to_str().unwrap()];
        self.command(&[&report, flags].concat(), words)
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&std::fs::read_to_string(self.file("json")).unwrap()).unwrap()
    }
}

/// The counts that [`silent_library`] leaves: the locks are hardly ever found taken.
pub const LINE: &str = r#"{"calls":20000,"locked":10000,"contended":3,"wait_ns":500}"#;

/// A folder in which a verb of the command runs, with a library to preload that does nothing.
pub struct Bare {
    pub folder: TempDir,
    pub library: PathBuf,
    pub verb: &'static str,
}

impl Bare {
    pub fn of(verb: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let library = silent_library(folder.path());
        Bare {
            folder,
            library,
            verb,
        }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = kinlock();
        command.arg(self.verb).args(words).current_dir(self.path());
        command.env("KINLOCK_PRELOAD", &self.library);
        // Files that are kept stay in the folder.
        command.env("TMPDIR", self.path()).env("LINE", LINE);
        command
    }

    pub fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Asserts that the command ends with this status and one line that says `expected`. Returns
    /// the line.
    pub fn refuses(&self, status: i32, words: &[&str], expected: &str) -> String {
        is_refusal(&self.run(words), status, expected)
    }
}

/// The command in a place where all users can execute it, run by a user without rights if possible.
pub fn kinlock_of_nobody(place: &Place) -> Command {
    let command = place.file("kinlock");
    std::fs::copy(env!("CARGO_BIN_EXE_kinlock"), &command).unwrap();
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.0.path(), all).unwrap();
    let mut command = without_knobs(Command::new(command));
    // SAFETY: it has no preconditions.
    if unsafe { libc::getuid() } == 0 {
        command.uid(65534).gid(65534);
    }
    command
}

/// A library to preload that only leaves the line `$LINE` as its counts.
pub fn silent_library(folder: &Path) -> PathBuf {
    let source = r#"
        #include <stdio.h>
        #include <stdlib.h>
        __attribute__((destructor)) static void end(void) {
            const char *path = getenv("KINLOCK_COUNTS"), *line = getenv("LINE");
            FILE *file = path && line ? fopen(path, "a") : NULL;
            if (file) fprintf(file, "%s\n", line), fclose(file);
        }
    "#;
    compiled(folder, "silent.so", "-shared -fPIC", source)
}
