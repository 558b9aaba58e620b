//! What `kinlock bench` leaves when it is told to end. Nothing here depends on how fast anything
//! is: the tests read the progress bar to know how far a run has come.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. The C library writes only through the pointers it is given, which point to live locals; those
//!    that may be null are.
//! 2. The descriptors are open and used by nothing else.
//! 3. Between fork and exec only `signal` is called, which POSIX allows there.
//! 4. The child has not been waited for, so its number has not been reused.

#![cfg(feature = "bench")]

mod support;

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::ptr::null_mut;
use std::time::Duration;

use libc::{SIGCONT, SIGINT, SIGSTOP, SIGTERM};
use serde_json::Value;
use support::{files, kinlock, list};
use tempfile::TempDir;

/// A run with a terminal for its progress bar. It does not outlive a test that fails.
struct Bench {
    child: Child,
    terminal: File,
    /// The output on the terminal so far.
    seen: String,
    folder: TempDir,
    /// The status of a run that has ended.
    status: ExitStatus,
    stdout: String,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A pipe whose reader has ended, as `tee` has after Ctrl-C.
fn dead_pipe() -> Stdio {
    std::io::pipe().unwrap().1.into()
}

/// Makes the command start with this disposition of these signals.
fn dispose(command: &mut Command, signals: &'static [i32], disposition: usize) {
    let set = move || {
        for &signal in signals {
            // SAFETY: invariant 3.
            unsafe { libc::signal(signal, disposition) };
        }
        Ok(())
    };
    // SAFETY: invariant 3.
    unsafe { command.pre_exec(set) };
}

/// The most rounds that a run may have: without a signal they would take minutes.
const ROUNDS: usize = 10_000;
/// After this time without output, in milliseconds, the run counts as hung.
const PATIENCE: i32 = 300_000;
/// How often a test is tried that a busy machine may spoil.
const ATTEMPTS: usize = 10;
/// The notice of a signal, after the signal's name.
const NOTICE: &str = ": ending within about a second; again: at once";

impl Bench {
    /// Starts `kinlock bench` with the words of `line`; all reports go to a folder of its own.
    fn start(line: &str) -> Self {
        Self::start_with(line, |_| {})
    }

    /// The same with a command that `change` has changed.
    fn start_with(line: &str, change: impl FnOnce(&mut Command)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (mut leader, mut follower) = (0, 0);
        let size = libc::winsize {
            ws_row: 24,
            ws_col: 120,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        // SAFETY: invariants 1 and 2.
        let (terminal, stderr) = unsafe {
            let opened = libc::openpty(&mut leader, &mut follower, null_mut(), null_mut(), &size);
            assert_eq!(opened, 0);
            libc::fcntl(leader, libc::F_SETFD, libc::FD_CLOEXEC);
            libc::fcntl(follower, libc::F_SETFD, libc::FD_CLOEXEC);
            (File::from_raw_fd(leader), OwnedFd::from_raw_fd(follower))
        };
        let mut command = kinlock();
        command
            .arg("bench")
            .args(line.split_whitespace())
            .args("--json r.json --csv r.csv --markdown r.md --plot r.svg --details".split(' '))
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(File::create(folder.path().join("stdout")).unwrap())
            .stderr(stderr);
        // The tests may run with these signals ignored, as in the background of a script.
        dispose(&mut command, &[SIGINT, SIGTERM], libc::SIG_DFL);
        change(&mut command);
        Bench {
            // The command, dropped here, has a copy of the terminal's end, which would keep the
            // terminal open.
            child: { command }.spawn().unwrap(),
            terminal,
            seen: String::new(),
            folder,
            status: ExitStatus::default(),
            stdout: String::new(),
        }
    }

    /// Starts a run, sends it `signal` when more than `rounds` of `of` have begun, and waits for
    /// its end.
    fn interrupted(line: &str, (rounds, of): (usize, usize), signal: i32) -> Self {
        let mut bench = Self::start(line);
        bench.wait_for(rounds, of);
        bench.signal(signal);
        bench.end()
    }

    /// Reads more output; false at the end.
    fn read(&mut self) -> bool {
        let mut ready = libc::pollfd {
            fd: self.terminal.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: invariants 1 and 2.
        let count = unsafe { libc::poll(&mut ready, 1, PATIENCE) };
        assert_eq!(count, 1, "it hangs: {}", self.seen);
        let mut bytes = [0; 4096];
        // The end of a terminal is an error.
        let count = self.terminal.read(&mut bytes).unwrap_or(0);
        self.seen += &String::from_utf8_lossy(&bytes[..count]);
        count > 0
    }

    /// Waits until more slices have begun than `rounds` rounds have, in a run of one cell with `of`
    /// rounds.
    fn wait_for(&mut self, rounds: usize, of: usize) {
        loop {
            let progress = progress(&self.seen);
            if progress.is_some_and(|(begun, slices)| begun > rounds * slices / of) {
                return;
            }
            assert!(self.read(), "it ended: {}", self.seen);
        }
    }

    fn signal(&self, signal: i32) {
        // SAFETY: invariant 4.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Stops the run, and waits until it has stopped.
    fn stop(&self) {
        self.signal(SIGSTOP);
        let mut status = 0;
        // SAFETY: invariants 1 and 4. The child has not ended, so this does not reap it.
        let waited = unsafe { libc::waitpid(self.child.id() as i32, &mut status, libc::WUNTRACED) };
        assert!(waited > 0 && libc::WIFSTOPPED(status));
    }

    /// Waits until the run has a handler for SIGINT.
    fn wait_until_it_listens(&mut self) {
        let status = format!("/proc/{}/status", self.child.id());
        loop {
            let status = fs::read_to_string(&status).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
            if caught & (1 << (SIGINT - 1)) != 0 {
                return;
            }
            assert!(self.child.try_wait().unwrap().is_none(), "it ended");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until the signal has been noticed.
    fn wait_for_notice(&mut self) {
        while !self.seen.contains(NOTICE) {
            assert!(self.read(), "it ended: {}", self.seen);
        }
    }

    /// Waits for the end of the run.
    fn end(mut self) -> Self {
        while self.read() {}
        self.status = self.child.wait().unwrap();
        self.stdout = self.text("stdout");
        self
    }

    /// Asserts that the run has ended with this status.
    fn ended(&self, status: i32) {
        assert_eq!(
            self.status.code(),
            Some(status),
            "{:?}: {}",
            self.status,
            self.seen
        );
    }

    /// The lines of the command itself, without the progress bar.
    fn lines(&self) -> Vec<&str> {
        let lines = self.seen.split(['\r', '\n']);
        let own = lines.filter_map(|line| line.find("kinlock: ").map(|at| &line[at..]));
        own.collect()
    }

    /// Asserts that the run has printed the notice of this signal, and `told`.
    fn told(&self, signal: &str, told: &str) {
        let notice = format!("kinlock: {signal}{NOTICE}");
        assert_eq!(self.lines(), [notice, format!("kinlock: {told}")]);
    }

    fn files(&self) -> Vec<String> {
        files(self.folder.path())
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap()
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.text("r.json")).unwrap()
    }
}

/// The last `5/20000` that has been drawn.
fn progress(seen: &str) -> Option<(usize, usize)> {
    let words = seen.rsplit(|c: char| c != '/' && !c.is_ascii_digit());
    // The last number may be incomplete.
    let mut pairs = words.skip(1).filter_map(|word| {
        let (done, all) = word.split_once('/')?;
        Some((done.parse().ok()?, all.parse().ok()?))
    });
    pairs.next()
}

const LOCKS: &str = "locks --locks kinlock-spin --workload counter --threads 2";
const IDS: &str = "ids --workload counter --threads 2";
const INVALIDATION: &str = "invalidation --backends slots --workload pages --threads 2";
/// Rounds that complete quickly, but too many of them to wait for.
const MANY: &str = "--seconds 0.01 --rounds 10000";
/// Rounds that never complete.
const LONG: &str = "--seconds 3600 --rounds 2";
const ALL_FILES: [&str; 5] = ["r.csv", "r.json", "r.md", "r.svg", "stdout"];

#[test]
fn complete_rounds_are_reported() {
    for (suite, signal, name, status) in [
        (LOCKS, SIGINT, "SIGINT", 130),
        (IDS, SIGTERM, "SIGTERM", 143),
        (INVALIDATION, SIGINT, "SIGINT", 130),
    ] {
        let left = Bench::interrupted(&format!("{suite} {MANY}"), (1, ROUNDS), signal);
        left.ended(status);
        let report = left.json();
        let extent = &report["extent"];
        let done = extent["rounds_done"].as_u64().unwrap();
        assert!((1..ROUNDS as u64).contains(&done), "{extent}");
        assert_eq!(extent["rounds_asked"], ROUNDS);
        assert_eq!(extent["interrupted_by"], name);
        let results = list(&report["results"]);
        assert!(results.len() > 1);
        for entry in results {
            let rounds = list(&entry["rounds"]);
            assert_eq!(rounds.len() as u64, done);
            let mut ratios = rounds.iter().map(|round| round["ratio"].as_f64());
            assert!(ratios.all(|ratio| ratio > Some(0.0)));
        }

        let told = format!("interrupted by {name} after {done} of {ROUNDS} rounds");
        left.told(name, &told);
        assert_eq!(left.files(), ALL_FILES);
        let csv = left.text("r.csv");
        let mut lines = csv.lines();
        let mut columns = lines.next().unwrap().split(',');
        let rounds = columns.position(|name| name == "rounds").unwrap();
        assert_eq!(lines.clone().count(), results.len());
        assert!(lines.all(|line| line.split(',').nth(rounds) == Some(&done.to_string())));
        let (markdown, svg) = (left.text("r.md"), left.text("r.svg"));
        assert!(markdown.contains(&told) && markdown.contains("up to 10000 rounds"));
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert!(
            left.stdout.contains(&format!("note: {told}")),
            "{}",
            left.stdout
        );
        let fewer = format!("({done} of {ROUNDS} rounds)");
        assert!(left.stdout.contains(&fewer) && markdown.contains(&fewer));
    }
}

#[test]
fn without_a_complete_round_there_is_a_line_and_nothing_else() {
    for suite in [LOCKS, IDS, INVALIDATION] {
        let left = Bench::interrupted(&format!("{suite} {LONG}"), (0, 2), SIGTERM);
        left.ended(143);
        left.told(
            "SIGTERM",
            "interrupted by SIGTERM after 0 of 2 rounds: nothing to report",
        );
        assert_eq!(left.files(), ["stdout"]);
        assert_eq!(left.stdout, "");
    }
}

#[test]
fn a_later_signal_ends_it_at_once() {
    let is_ended_at_once = |_| {
        let mut bench = Bench::start(&format!("{LOCKS} {LONG}"));
        bench.wait_for(0, 2);
        bench.signal(SIGTERM);
        bench.wait_for_notice();
        while bench.child.try_wait().unwrap().is_none() {
            bench.signal(SIGINT);
            std::thread::sleep(Duration::from_millis(20));
        }
        let left = bench.end();
        // The round was over before another signal could come.
        if left.status.code() == Some(143) {
            return false;
        }
        assert_eq!(left.status.signal(), Some(SIGINT), "{}", left.seen);
        assert_eq!(left.lines(), [format!("kinlock: SIGTERM{NOTICE}")]);
        assert_eq!(left.files(), ["stdout"]);
        true
    };
    assert!(
        (0..ATTEMPTS).any(is_ended_at_once),
        "it never ended before its time"
    );
}

#[test]
fn two_signals_at_once_are_one() {
    let is_reported = |_| {
        let mut bench = Bench::start(&format!("{LOCKS} {MANY}"));
        bench.wait_for(1, ROUNDS);
        // Both signals have come before the run can do anything.
        bench.stop();
        for signal in [SIGINT, SIGTERM, SIGCONT] {
            bench.signal(signal);
        }
        let left = bench.end();
        // A thread was delayed between the two signals.
        if left.status.signal().is_some() {
            return false;
        }
        let (name, status) = match left.json()["extent"]["interrupted_by"].as_str() {
            Some("SIGINT") => ("SIGINT", 130),
            _ => ("SIGTERM", 143),
        };
        left.ended(status);
        let lines = left.lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[1].contains(&format!("interrupted by {name} after ")));
        assert_eq!(left.files(), ALL_FILES);
        true
    };
    assert!(
        (0..ATTEMPTS).any(is_reported),
        "it never ended with a report"
    );
}

#[test]
fn the_reader_of_stdout_may_end_first() {
    let mut bench = Bench::start_with(&format!("{LOCKS} {MANY}"), |command| {
        command.stdout(dead_pipe());
    });
    bench.wait_for(1, ROUNDS);
    bench.signal(SIGINT);
    let left = bench.end();
    left.ended(130);
    let done = &left.json()["extent"]["rounds_done"];
    left.told(
        "SIGINT",
        &format!("interrupted by SIGINT after {done} of {ROUNDS} rounds"),
    );
    assert_eq!(left.files(), ALL_FILES);
}

#[test]
fn stderr_need_not_be_read() {
    let mut bench = Bench::start_with(&format!("{LOCKS} {MANY}"), |command| {
        command.stdout(dead_pipe()).stderr(dead_pipe());
    });
    bench.wait_until_it_listens();
    bench.signal(SIGINT);
    bench.end().ended(130);
}

#[test]
fn a_signal_during_preparation_leaves_nothing_unfinished() {
    let cache = tempfile::tempdir().unwrap();
    let line = format!("{} {LONG}", LOCKS.replace("counter", "readrandom"));
    let mut bench = Bench::start_with(&line, |command| {
        command.env("XDG_CACHE_HOME", cache.path());
    });
    bench.wait_until_it_listens();
    bench.signal(SIGINT);
    let left = bench.end();
    left.ended(130);
    left.told(
        "SIGINT",
        "interrupted by SIGINT after 0 of 2 rounds: nothing to report",
    );
    assert_eq!(left.files(), ["stdout"]);
    let inside = cache.path().join("kinlock");
    let databases = if inside.exists() {
        files(&inside)
    } else {
        vec![]
    };
    // A database that was complete in time is kept for the next run.
    let are_finished = databases.iter().all(|name| !name.contains('.'));
    assert!(databases.len() <= 1 && are_finished, "{databases:?}");
}

#[test]
fn a_signal_that_is_ignored_stays_so() {
    let mut bench = Bench::start_with(&format!("{LOCKS} {MANY}"), |command| {
        dispose(command, &[SIGINT], libc::SIG_IGN);
    });
    bench.wait_for(1, ROUNDS);
    bench.signal(SIGINT);
    bench.signal(SIGTERM);
    let left = bench.end();
    left.ended(143);
    assert_eq!(left.json()["extent"]["interrupted_by"], "SIGTERM");
}
