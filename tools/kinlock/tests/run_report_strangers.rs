//! `kinlock run --report` and `kinlock report` among hostile programs: their files may be meant to
//! block the command, and their names to act on a terminal.

mod support;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use serde_json::Value;
use support::{compiled, kinlock, list, pipe_at, send, until};

/// Takes a lock in a thread whose name has control characters, says so, and waits for the end of
/// stdin.
const SOURCE: &str = r#"
    #define _GNU_SOURCE
    #include <pthread.h>
    #include <stdio.h>
    #include <unistd.h>
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static void takes(void) { pthread_mutex_lock(&lock), pthread_mutex_unlock(&lock); }
    int main(int count, char **words) {
        pthread_setname_np(pthread_self(), "\033[2J\nforged:");
        char byte;
        for (takes(); count > 1; takes()) {
            puts("locked"), fflush(stdout);
            if (read(0, &byte, 1) < 1) break;
        }
        return 0;
    }
"#;

fn program(folder: &Path, name: &OsStr) -> PathBuf {
    let made = compiled(folder, "program", "-O1 -s -w -pthread", SOURCE);
    let program = folder.join(name);
    fs::rename(made, &program).unwrap();
    program
}

/// Kills a command that has not ended of its own accord.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn names_that_would_act_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let name = OsStr::from_bytes(b"\x1b]0;title\x07\nforged: \xc2\x9b \xe2\x80\xae \xff");
    let program = program(folder.path(), name);
    let file = |name: &str| folder.path().join(name);
    for by in ["lock", "caller", "thread"] {
        let mut command = kinlock();
        command.args(["run", "--report", "--by", by]);
        let forms = ["folded", "json", "html"];
        for form in forms {
            command.arg(format!("--{form}")).arg(file(form));
        }
        let output = command.arg("--").arg(&program).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let mut all = vec![output.stderr];
        all.extend(forms.map(|form| fs::read(file(form)).unwrap()));
        for (n, text) in all.into_iter().enumerate() {
            let text = String::from_utf8(text).unwrap();
            let acts = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
            assert!(!text.contains(acts), "{by}: {text:?}");
            // A page has the command line with its line breaks.
            let is_forged = |line: &str| n < 3 && line.trim_start().starts_with("forged:");
            assert!(!text.lines().any(is_forged), "{by}: {text}");
        }
    }
    let report: Value = serde_json::from_slice(&fs::read(file("json")).unwrap()).unwrap();
    let process = &report["processes"][0];
    assert!(process["program"].as_str().unwrap().contains("]0;title"));
    let thread = &process["threads"][0]["name"];
    assert!(thread.as_str().unwrap().contains("forged"), "{thread}");
}

#[test]
fn what_others_left_where_folders_are_holds_nothing_up() {
    let folder = tempfile::tempdir().unwrap();
    let folders = folder.path().join("folders");
    fs::create_dir(&folders).unwrap();
    pipe_at(&folders.join("kinlock-report-pipe"));
    pipe_at(&folders.join("kinlock-standby-pipe"));
    std::os::unix::fs::symlink(folder.path(), folders.join("kinlock-report-link")).unwrap();
    let recording = folder.path().join("recording");
    let output = format!("--output={}", recording.display());
    for words in [
        &["run", "--report"][..],
        &["run", "--standby"],
        &["record", &output],
    ] {
        let mut command = kinlock();
        command.args(words).arg("true").env("TMPDIR", &folders);
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = Ended(command.spawn().unwrap());
        until("it ends", || child.0.try_wait().unwrap().is_some());
    }
    assert!(folder.path().is_dir());
}

#[test]
fn an_output_that_is_a_pipe_stays_open_until_the_report_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path(), "program".as_ref());
    let pipe = folder.path().join("pipe");
    pipe_at(&pipe);
    let path = pipe.clone();
    let reader = std::thread::spawn(move || fs::read(path).unwrap());
    let mut command = kinlock();
    command.args(["run", "--report", "--json"]).arg(&pipe);
    let command = command.arg("--").arg(program).stderr(Stdio::null());
    let mut child = Ended(command.spawn().unwrap());
    until("it ends", || child.0.try_wait().unwrap().is_some());
    let report: Value = serde_json::from_slice(&reader.join().unwrap()).unwrap();
    assert_eq!(list(&report["processes"]).len(), 1);
}

/// A reader that reads nothing: the pipe is full before the report is in it.
#[test]
fn an_output_that_nobody_reads_leaves_the_command_to_its_signals() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path(), "program".as_ref());
    let pipe = folder.path().join("pipe");
    pipe_at(&pipe);
    let options = |write: bool| {
        let mut options = File::options();
        options.read(true).write(write).open(&pipe).unwrap()
    };
    // Opening it for reading and writing does not block.
    let mut full = options(true);
    fill(&full);
    let mut command = kinlock();
    command.args(["run", "--report", "--html"]).arg(&pipe);
    command.arg("--").arg(program).arg("waits");
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = Ended(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut said = BufReader::new(child.0.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "locked");
    // A report blocks while the program runs, and the command still passes signals on.
    send(&child.0, libc::SIGUSR1);
    let mut stderr = BufReader::new(child.0.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("locks of program") {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "no report");
    }
    send(&child.0, libc::SIGTERM);
    // Its stdout closes when it ends.
    let ended = std::thread::spawn(move || said.next().is_none());
    until("the program ends", || ended.is_finished());
    assert!(ended.join().unwrap());
    // The report at the end blocks, too. The first signals may have been meant for the program.
    let mut status = None;
    until("a signal ends it", || {
        send(&child.0, libc::SIGTERM);
        status = child.0.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().signal(), Some(libc::SIGTERM));
    let mut byte = [0];
    full.read_exact(&mut byte).unwrap();
}

/// Fills a pipe.
fn fill(pipe: &File) {
    // SAFETY: numbers only.
    unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    let mut pipe = pipe;
    for part in [&[0; 4096][..], &[0]] {
        while pipe.write(part).is_ok() {}
    }
    // SAFETY: numbers only.
    unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, 0) };
}
