//! `kinlock run --standby` and `kinlock report`: measuring is switched on and off while a program
//! runs, and neither its locks nor the numbers suffer from that.

mod support;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use kinlock_report::{REPORTS, Switch};
use serde_json::Value;
use support::{Place, heeding_ctrl_c, is_refusal, kinlock, list, until};

const SOURCE: &str = include_str!("programs/server.c");
const ALL: &[&str] = &["kinlock-mutex", "kinlock-spin", "pthread"];

/// A server that runs.
struct Server {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    /// What it says first: the number of itself or of its child.
    said: u32,
}

impl Place {
    fn new() -> Self {
        Place::of("server", "-O1 -g -w -pthread", SOURCE)
    }

    fn start(&self, flags: &[&str], mode: &str) -> Server {
        self.start_program(&self.file("server"), flags, &[mode.as_ref()])
    }

    /// Below a shell, which stays. The shell is the child, and the server what is said.
    fn start_below_shell(&self, server: &Path) -> Server {
        let line = "\"$0\" obeys; true";
        let words = ["-c".as_ref(), line.as_ref(), server.as_os_str()];
        self.start_program(Path::new("sh"), &["--standby"], &words)
    }

    fn start_program(&self, program: &Path, flags: &[&str], words: &[&OsStr]) -> Server {
        let mut command = kinlock();
        command.arg("run").args(flags).arg("--");
        command.arg(program).args(words);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = output.next().unwrap().unwrap().parse().unwrap();
        Server {
            input: child.stdin.take(),
            child,
            output,
            said,
        }
    }
}

impl Server {
    fn does(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
        assert_eq!(self.output.next().unwrap().unwrap(), "done");
    }

    /// Ends it. Returns what it says at last.
    fn end(mut self) -> Option<String> {
        drop(self.input.take());
        let last = self.output.next().map(|line| line.unwrap());
        assert!(self.child.wait().unwrap().success());
        last
    }

    /// The file that the process has mapped as its switch.
    fn switch(&self) -> PathBuf {
        switch_of(self.child.id())
    }

    /// Begins a measurement that ends when it is told to.
    fn measure(&self) -> Measurement {
        self.measure_with(&[])
    }

    fn measure_with(&self, flags: &[&str]) -> Measurement {
        let all = [&["--seconds", "300"], flags].concat();
        let mut command = report(self.child.id(), &all);
        let command = command.stdout(Stdio::piped());
        let child = command.spawn().unwrap();
        let switch = self.switch();
        until("measuring is on", || is_on(&switch));
        Measurement(child)
    }
}

fn switch_of(pid: u32) -> PathBuf {
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap();
    let maps = String::from_utf8_lossy(&maps);
    let line = maps.lines().find(|line| line.contains("process.switch."));
    let line = line.unwrap_or_else(|| panic!("it does not stand by: {maps}"));
    PathBuf::from(&line[line.find('/').unwrap()..])
}

struct Measurement(Child);

impl Measurement {
    /// Ends it. Returns the only process of the report, if there is one.
    fn end(self) -> Option<Value> {
        // SAFETY: it is our child, which has not been waited for.
        unsafe { libc::kill(self.0.id() as libc::pid_t, libc::SIGINT) };
        let output = self.0.wait_with_output().unwrap();
        let report = json(&output);
        let processes = list(&report["processes"]);
        assert!(processes.len() < 2, "{report:#}");
        processes.first().cloned()
    }
}

fn report(pid: u32, flags: &[&str]) -> Command {
    let mut command = kinlock();
    command.arg("report").arg(pid.to_string()).args(flags);
    command.args(["--json", "-"]);
    heeding_ctrl_c(&mut command);
    command
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

fn is_on(switch: &Path) -> bool {
    let page = fs::read(switch).unwrap();
    let word = |at: usize| u32::from_ne_bytes(page[at..at + 4].try_into().unwrap());
    let modes = [offset_of!(Switch, mode), offset_of!(Switch, rwlock_mode)];
    modes.iter().all(|&at| word(at) & REPORTS != 0)
}

/// The names of the locks of a process that were taken, with how often.
fn locked(process: &Value) -> Vec<(&str, u64)> {
    let locks = list(&process["locks"]).iter();
    let all = locks.map(|lock| {
        (
            lock["name"].as_str().unwrap(),
            lock["locked"].as_u64().unwrap(),
        )
    });
    all.filter(|lock| lock.1 > 0).collect()
}

#[test]
fn each_measurement_has_what_was_done_in_it() {
    let place = Place::new();
    for lock in ALL {
        let mut server = place.start(&["--standby", "--lock", lock], "obeys");
        server.does("3");
        for times in [5, 7] {
            let measurement = server.measure();
            server.does(&times.to_string());
            let process = measurement.end().unwrap();
            assert_eq!(locked(&process), [("accounts", times)], "{lock}");
            assert_eq!(process["lock"], *lock);
            assert!(!is_on(&server.switch()), "{lock}");
            server.does("11");
        }
        // Nothing was done.
        let measurement = server.measure();
        assert!(measurement.end().is_none(), "{lock}");
        let folder = server.switch().parent().unwrap().to_owned();
        server.end();
        let left: Vec<_> = fs::read_dir(&folder).unwrap().collect();
        assert!(left.is_empty(), "{lock}: {left:?}");
        fs::remove_dir(folder).unwrap();
    }
}

#[test]
fn a_measurement_can_be_a_page() {
    let place = Place::new();
    let mut server = place.start(&["--standby"], "obeys");
    let file = place.file("page.html");
    let page = |server: &mut Server, takes: &str| {
        let measurement = server.measure_with(&["--html", file.to_str().unwrap()]);
        server.does(takes);
        measurement.end();
        fs::read_to_string(&file).unwrap()
    };
    let text = page(&mut server, "5");
    for expected in [
        "<h1>Locks of server</h1>",
        "in a program that ran already",
        "1 accounts</th><td class=\"n\">5</td>",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let text = page(&mut server, "0");
    assert!(text.contains("<h1>Locks of a process</h1>"), "{text}");
    server.end();
}

#[test]
fn locks_may_be_held_across_the_switch() {
    let place = Place::new();
    for lock in ["kinlock-mutex", "pthread"] {
        let mut server = place.start(&["--standby", "--lock", lock], "obeys");
        let no_alarm = |process: &Value| {
            assert!(list(&process["misuses"]).is_empty(), "{lock}: {process:#}");
        };
        // Taken before, released in it.
        server.does("take");
        let measurement = server.measure();
        server.does("2");
        server.does("release");
        let process = measurement.end().unwrap();
        no_alarm(&process);
        assert_eq!(locked(&process), [("accounts", 2)], "{lock}");
        // Taken in it, released after it.
        let measurement = server.measure();
        server.does("take");
        let process = measurement.end().unwrap();
        no_alarm(&process);
        let mut taken = locked(&process);
        taken.sort_unstable();
        let names = ["across", "checked", "nested", "read_across", "spin"];
        let times = [1, 1, 1, 2, 1];
        let expected: Vec<_> = names.into_iter().zip(times).collect();
        let statics: Vec<_> = taken
            .iter()
            .filter(|l| !l.0.starts_with("written"))
            .collect();
        assert_eq!(statics, expected.iter().collect::<Vec<_>>(), "{lock}");
        let held = list(&process["locks"]).iter();
        assert!(
            held.clone().all(|lock| lock["held_by"] == server.said),
            "{lock}"
        );
        server.does("release");
        // Taken in one, released in the next, and taken again.
        let measurement = server.measure();
        server.does("take");
        no_alarm(&measurement.end().unwrap());
        let measurement = server.measure();
        server.does("release");
        server.does("take");
        server.does("release");
        let process = measurement.end().unwrap();
        no_alarm(&process);
        let held = list(&process["locks"]).iter();
        assert!(
            held.clone().all(|lock| lock["held_by"].is_null()),
            "{process:#}"
        );
        assert_eq!(locked(&process).len(), 6, "{lock}: {process:#}");
        server.end();
    }
}

#[test]
fn switching_under_load_loses_nothing() {
    let place = Place::new();
    for lock in ALL {
        let server = place.start(&["--standby", "--lock", lock], "");
        for _ in 0..4 {
            let output = report(server.child.id(), &["--seconds", "0.03"]).output();
            let report = json(&output.unwrap());
            for process in list(&report["processes"]) {
                assert!(list(&process["misuses"]).is_empty(), "{lock}: {process:#}");
                assert_eq!(process["dropped"]["locks"], 0, "{lock}: {process:#}");
            }
        }
        assert_eq!(server.end().as_deref(), Some("right"), "{lock}");
    }
}

#[test]
fn forked_processes_are_told_apart() {
    let place = Place::new();
    let server = place.start(&["--standby"], "forks");
    let pids = |flags: &[&str], count: usize| {
        let mut pids = Vec::new();
        // Until each of them has taken a lock meanwhile.
        until("all are there", || {
            let output = report(server.child.id(), flags).output().unwrap();
            let report = json(&output);
            let processes = list(&report["processes"]).iter();
            pids = processes.map(|p| p["pid"].as_u64().unwrap()).collect();
            pids.sort_unstable();
            pids.len() == count
        });
        pids
    };
    let (parent, child) = (u64::from(server.child.id()), u64::from(server.said));
    assert_eq!(pids(&["--seconds", "0.3"], 1), [parent]);
    let mut both = vec![parent, child];
    both.sort_unstable();
    assert_eq!(pids(&["--all", "--seconds", "0.3"], 2), both);
    assert_eq!(server.end().as_deref(), Some("right"));
}

/// The kernel cuts the name of a process after 15 bytes, here within a character.
#[test]
fn names_need_not_be_utf_8() {
    let place = Place::new();
    let folder = place.0.path().join(OsStr::from_bytes(b"caf\xe9"));
    fs::create_dir(&folder).unwrap();
    let program = folder.join("аналитика-сервер");
    fs::rename(place.file("server"), &program).unwrap();
    let mut server = place.start_program(&program, &["--standby"], &["obeys".as_ref()]);
    let measurement = server.measure();
    server.does("5");
    assert_eq!(locked(&measurement.end().unwrap()), [("accounts", 5)]);
    server.end();
    let mut shell = place.start_below_shell(&program);
    let measurement = shell.measure_with(&["--all"]);
    let switch = switch_of(shell.said);
    until("the server is measured", || is_on(&switch));
    shell.does("7");
    assert_eq!(locked(&measurement.end().unwrap()), [("accounts", 7)]);
    shell.end();
}

#[test]
fn a_descendant_that_ends_is_none_to_be_measured() {
    let place = Place::new();
    let mut shell = place.start_below_shell(&place.file("server"));
    // As if it ended after it was seen.
    fs::remove_file(switch_of(shell.said)).unwrap();
    let output = report(shell.child.id(), &["--all", "--seconds", "0.01"]).output();
    let report = json(&output.unwrap());
    assert!(list(&report["processes"]).is_empty());
    shell.does("1");
    shell.end();
}

/// The numbers of a file of counters, by family and lock.
fn counters(file: &Path) -> Vec<(String, String, String)> {
    let text = fs::read_to_string(file).unwrap_or_default();
    assert!(text.is_empty() || text.ends_with("# EOF\n"), "{text}");
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let parts = samples.map(|line| {
        let (family, rest) = line.split_once('{').unwrap();
        let (labels, value) = rest.split_once("} ").unwrap();
        let name = labels
            .split(',')
            .find(|label| label.starts_with("lock_name="));
        let name = name
            .unwrap()
            .trim_start_matches("lock_name=")
            .trim_matches('"');
        (family.to_owned(), name.to_owned(), value.to_owned())
    });
    parts.collect()
}

#[test]
fn counters_are_replaced_while_a_process_is_followed() {
    let place = Place::new();
    let mut server = place.start(&["--standby"], "obeys");
    let file = place.file("server.prom");
    let flags = ["--follow", "--openmetrics", file.to_str().unwrap()];
    let mut command = kinlock();
    command.arg("report").arg(server.child.id().to_string());
    let mut follower = command.args(flags).stdout(Stdio::null()).spawn().unwrap();
    let switch = server.switch();
    until("measuring is on", || is_on(&switch));
    let says = |family: &str, value: &str| {
        let expected = (family.to_owned(), "accounts".to_owned(), value.to_owned());
        counters(&file).contains(&expected)
    };
    for (times, sum) in [("5", "5"), ("7", "12")] {
        server.does(times);
        until("the number is there", || {
            says("kinlock_lock_acquisitions_total", sum)
        });
    }
    assert!(says("kinlock_lock_contended_total", "0"));
    assert!(says("kinlock_lock_wait_seconds_total", "0.0"));
    assert!(says("kinlock_lock_waiting_threads", "0"));
    // It ends with the process.
    server.end();
    assert!(follower.wait().unwrap().success());
    let left = fs::read_dir(place.0.path()).unwrap().flatten();
    let hidden = left.filter(|file| file.file_name().as_bytes().starts_with(b"."));
    assert_eq!(hidden.count(), 0);
}

/// What the file is a link to is replaced. While that cannot be done, following goes on.
#[test]
fn following_outlasts_a_failed_write() {
    let place = Place::new();
    let mut server = place.start(&["--standby"], "obeys");
    let (folder, aside) = (place.file("folder"), place.file("aside"));
    fs::create_dir(&folder).unwrap();
    let link = place.file("link");
    symlink("folder/server.prom", &link).unwrap();
    let mut command = kinlock();
    command.arg("report").arg(server.child.id().to_string());
    command.args(["--follow", "--openmetrics"]).arg(&link);
    command.stderr(Stdio::piped());
    let mut follower = command.spawn().unwrap();
    let mut said = BufReader::new(follower.stderr.take().unwrap()).lines();
    let switch = server.switch();
    until("measuring is on", || is_on(&switch));
    fs::rename(&folder, &aside).unwrap();
    let line = said.next().unwrap().unwrap();
    assert!(line.starts_with("kinlock: cannot write "), "{line}");
    fs::rename(&aside, &folder).unwrap();
    server.does("5");
    let file = folder.join("server.prom");
    until("the file is there", || {
        let all = counters(&file);
        all.iter()
            .any(|(_, name, value)| name == "accounts" && value == "5")
    });
    assert!(link.is_symlink());
    server.end();
    assert!(follower.wait().unwrap().success());
    assert!(said.next().is_none());
}

#[test]
fn counters_of_a_measurement() {
    let place = Place::new();
    let mut server = place.start(&["--standby"], "obeys");
    let file = place.file("server.prom");
    let measurement = server.measure_with(&["--openmetrics", file.to_str().unwrap()]);
    server.does("5");
    measurement.end();
    let taken = counters(&file).into_iter();
    let mut taken = taken.filter(|(family, ..)| family == "kinlock_lock_acquisitions_total");
    let (_, name, value) = taken.next().unwrap();
    assert_eq!((name.as_str(), value.as_str()), ("accounts", "5"));
    server.end();
}

/// A closed connection and a closed terminal end the command, too.
#[test]
fn what_ends_the_command_ends_measuring() {
    let place = Place::new();
    let mut server = place.start(&["--standby"], "obeys");
    let file = place.file("server.prom");
    for signal in [libc::SIGHUP, libc::SIGQUIT, libc::SIGTERM] {
        let Measurement(child) = server.measure();
        server.does("5");
        // SAFETY: it is our child, which has not been waited for.
        unsafe { libc::kill(child.id() as libc::pid_t, signal) };
        let report = json(&child.wait_with_output().unwrap());
        assert_eq!(
            locked(&report["processes"][0]),
            [("accounts", 5)],
            "{signal}"
        );
        assert!(!is_on(&server.switch()), "{signal}");
        let mut command = kinlock();
        command.arg("report").arg(server.child.id().to_string());
        command.args(["--follow", "--openmetrics"]).arg(&file);
        let mut follower = heeding_ctrl_c(&mut command).spawn().unwrap();
        let switch = server.switch();
        until("measuring is on", || is_on(&switch));
        // SAFETY: as above.
        unsafe { libc::kill(follower.id() as libc::pid_t, signal) };
        assert!(follower.wait().unwrap().success(), "{signal}");
        assert!(!is_on(&switch), "{signal}");
    }
    // What is ignored, as by nohup, stays so.
    let mut command = report(server.child.id(), &["--seconds", "300"]);
    let ignore = || {
        // SAFETY: it may be called between fork and exec, and gets no pointer.
        unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
        Ok(())
    };
    // SAFETY: the function makes one system call, and uses nothing of the parent.
    unsafe { command.pre_exec(ignore) };
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    let switch = server.switch();
    until("measuring is on", || is_on(&switch));
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.unwrap().trim(), 16).unwrap();
    assert!(ignored & 1 << (libc::SIGHUP - 1) != 0, "{status}");
    assert!(Measurement(child).end().is_none());
    server.end();
}

/// What was measured of the program that the process was before is told.
#[test]
fn a_process_may_become_another_program_while_it_is_measured() {
    let place = Place::new();
    let becomes = |server: &mut Server| {
        server.does("5");
        let switch = server.switch();
        server.does("become");
        until("it is another program", || {
            let maps = fs::read(format!("/proc/{}/maps", server.child.id())).unwrap();
            let maps = String::from_utf8_lossy(&maps);
            // That of the other program has a longer name.
            let is_it = |line: &str| line.ends_with(switch.to_str().unwrap());
            !maps.is_empty() && !maps.lines().any(is_it)
        });
    };
    let mut server = place.start(&["--standby"], "obeys");
    let measurement = server.measure();
    becomes(&mut server);
    assert_eq!(locked(&measurement.end().unwrap()), [("accounts", 5)]);
    server.end();
    let mut server = place.start(&["--standby"], "obeys");
    let file = place.file("server.prom");
    let mut command = kinlock();
    command.arg("report").arg(server.child.id().to_string());
    command.args(["--follow", "--openmetrics"]).arg(&file);
    let follower = command.stderr(Stdio::piped()).spawn().unwrap();
    let switch = server.switch();
    until("measuring is on", || is_on(&switch));
    becomes(&mut server);
    let output = follower.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    let expected = format!(
        "kinlock: process {} runs another program now, which is not followed\n",
        server.child.id()
    );
    assert_eq!(said, expected);
    let all = counters(&file);
    let is_taken = |(family, name, value): &(String, String, String)| {
        family == "kinlock_lock_acquisitions_total" && name == "accounts" && value == "5"
    };
    assert!(all.iter().any(is_taken), "{all:?}");
    server.end();
}

/// Its owner may shorten a file that this command has open.
#[test]
fn a_switch_may_become_shorter() {
    let place = Place::new();
    let server = place.start(&["--standby"], "obeys");
    let measurement = server.measure();
    let file = fs::File::options().write(true).open(server.switch());
    file.unwrap().set_len(0).unwrap();
    assert!(measurement.end().is_none());
    // It has nothing to look at any more.
    let Server { mut child, .. } = server;
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn bad_input_is_refused() {
    let place = Place::new();
    let refused = |output: Output, expected: &str| is_refusal(&output, 2, expected);
    let bare = place.start(&[], "obeys");
    let own = bare.child.id();
    let measured = |pid: u32, flags: &[&str]| {
        let all = [&["--seconds", "1"], flags].concat();
        report(pid, &all).output().unwrap()
    };
    refused(
        measured(own, &[]),
        "does not stand by: start the program with `kinlock run --standby",
    );
    refused(measured(own, &["--all"]), "nor any that it started");
    let server = place.start(&["--standby"], "obeys");
    let parent = std::process::id();
    refused(measured(parent, &[]), "which it started, does");
    drop(server);
    refused(measured(u32::MAX, &[]), "there is no process");
    for seconds in ["0", "-1", "x", "inf"] {
        let flag = format!("--seconds={seconds}");
        refused(report(own, &[&flag]).output().unwrap(), "it has to be");
    }
    let server = place.start(&["--standby"], "obeys");
    let measurement = server.measure();
    let follow = |flags: &[&str]| {
        let mut command = kinlock();
        command.arg("report").arg(server.child.id().to_string());
        command.args(flags).output().unwrap()
    };
    refused(
        follow(&["--openmetrics", "x"]),
        "needs --follow or --seconds",
    );
    refused(follow(&["--follow"]), "--openmetrics");
    refused(
        follow(&["--follow", "--openmetrics", "-"]),
        "replaces a file: - is none",
    );
    // Devices, links to them and pipes are left as they are, and so is a file on a later refusal.
    let pipe = place.file("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    symlink("/dev/null", place.file("null")).unwrap();
    for name in ["pipe", "null", "."] {
        let path = place.file(name);
        refused(
            follow(&["--follow", "--openmetrics", path.to_str().unwrap()]),
            "--follow replaces a file: ",
        );
    }
    assert!(pipe.metadata().unwrap().file_type().is_fifo());
    let old = place.file("old");
    fs::write(&old, "before").unwrap();
    refused(
        follow(&["--follow", "--openmetrics", old.to_str().unwrap()]),
        "another `kinlock report` measures this process",
    );
    assert_eq!(fs::read_to_string(&old).unwrap(), "before");
    refused(
        follow(&["--follow", "--openmetrics", "/nowhere/x"]),
        "cannot write /nowhere/x",
    );
    refused(
        measured(server.child.id(), &[]),
        "another `kinlock report` measures this process",
    );
    assert!(measurement.end().is_none());
    bare.end();
    // Measuring from the beginning, and standing by.
    let mut command = kinlock();
    let output = command
        .args(["run", "--standby", "--report", "--", "true"])
        .output();
    refused(output.unwrap(), "cannot be used with");
    server.end();
}
