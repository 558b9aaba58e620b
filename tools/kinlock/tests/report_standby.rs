//! `kinlock run --standby` and `kinlock report`: measuring is switched on and off while a program
//! runs, and neither its locks nor the numbers are affected.

mod support;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use kinlock_report::{REPORTS, Switch};
use serde_json::Value;
use support::{
    ALL, Place, Running, heeding_ctrl_c, is_refusal, kinlock, list, number, pipe_at, says, send,
    until,
};

const SOURCE: &str = include_str!("programs/server.c");

/// A running server.
struct Server {
    running: Running,
    /// The number of the command, which becomes the server or the shell that starts the server.
    pid: u32,
    /// The first line that it prints: its own number, or that of its child.
    said: u32,
}

impl Place {
    fn new() -> Self {
        Place::of("server", "-O1 -g -w -pthread", SOURCE)
    }

    fn start(&self, flags: &[&str], mode: &str) -> Server {
        Server::start(self.command(flags, &[mode]))
    }

    fn standby(&self) -> Server {
        self.start(&["--standby"], "obeys")
    }
}

/// `kinlock run --standby -- PROGRAM`.
fn standby(program: &Path) -> Command {
    let mut command = kinlock();
    command.args(["run", "--standby", "--"]).arg(program);
    command
}

impl Server {
    fn start(mut command: Command) -> Self {
        let (running, first) = Running::start(&mut command);
        Server {
            pid: running.child.id(),
            said: first.parse().unwrap(),
            running,
        }
    }

    /// Starts a server below a shell, which stays. `pid` is the shell, and `said` the server.
    fn start_below_shell(server: &Path) -> Self {
        let mut command = standby(Path::new("sh"));
        command.args(["-c", "\"$0\" obeys; true"]).arg(server);
        Server::start(command)
    }

    fn does(&mut self, line: &str) {
        let input = self.running.child.stdin.as_mut();
        writeln!(input.unwrap(), "{line}").unwrap();
        assert_eq!(self.running.output.next().unwrap().unwrap(), "done");
    }

    /// Ends the server. Returns the last line that it prints.
    fn end(self) -> Option<String> {
        self.running.end()
    }

    /// The file that the process has mapped as its switch.
    fn switch(&self) -> PathBuf {
        switch_of(self.pid)
    }

    fn until_it_is_measured(&self) {
        let switch = self.switch();
        until("measuring is on", || is_on(&switch));
    }

    /// Begins a measurement that ends when it is told to.
    fn measure(&self) -> Measurement {
        self.measure_with(&[])
    }

    fn measure_with(&self, flags: &[&str]) -> Measurement {
        let all = [&["--seconds", "300"], flags].concat();
        let mut command = report(self.pid, &all);
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        self.until_it_is_measured();
        Measurement(child)
    }

    /// Starts a command that writes the server's counters to a file.
    fn follow(&self, file: &Path) -> Child {
        let mut command = kinlock();
        command.arg("report").arg(self.pid.to_string());
        command.args(["--follow", "--openmetrics"]).arg(file);
        let command = heeding_ctrl_c(&mut command).stderr(Stdio::piped());
        let follower = command.spawn().unwrap();
        self.until_it_is_measured();
        follower
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
    /// Ends the measurement. Returns the only process of the report, if there is one.
    fn end(self) -> Option<Value> {
        send(&self.0, libc::SIGINT);
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

/// The names of the locks of a process, and how often each was taken.
fn locked(process: &Value) -> Vec<(&str, u64)> {
    let locks = list(&process["locks"]).iter();
    let all = locks.map(|lock| (lock["name"].as_str().unwrap(), number(&lock["locked"])));
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
            assert_eq!(process["lock"], lock);
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
fn a_measurement_can_be_a_page_and_counters() {
    let place = Place::new();
    let mut server = place.standby();
    let [html, prom] = ["page.html", "server.prom"].map(|name| place.file(name));
    let [to_html, to_prom] = [&html, &prom].map(|file| file.to_str().unwrap());
    let page = |server: &mut Server, takes: &str| {
        let measurement = server.measure_with(&["--html", to_html, "--openmetrics", to_prom]);
        server.does(takes);
        measurement.end();
        fs::read_to_string(&html).unwrap()
    };
    let text = page(&mut server, "5");
    let expected = [
        "<h1>Locks of server</h1>",
        "in a program that ran already",
        "1 accounts</th><td class=\"n\">5</td>",
    ];
    says(&text, &expected);
    assert!(has_five(&prom));
    says(&page(&mut server, "0"), &["<h1>Locks of a process</h1>"]);
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
        // Taken before the measurement, and released in it.
        server.does("take");
        let measurement = server.measure();
        server.does("2");
        server.does("release");
        let process = measurement.end().unwrap();
        no_alarm(&process);
        assert_eq!(locked(&process), [("accounts", 2)], "{lock}");
        // Taken in the measurement, and released after it.
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
        // Taken in one measurement, released in the next, and taken again.
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
            let output = report(server.pid, &["--seconds", "0.03"]).output();
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
        // Measured until each of them has taken a lock in the meantime.
        until("all are there", || {
            let output = report(server.pid, flags).output().unwrap();
            let report = json(&output);
            let processes = list(&report["processes"]).iter();
            pids = processes.map(|p| number(&p["pid"])).collect();
            pids.sort_unstable();
            pids.len() == count
        });
        pids
    };
    let (parent, child) = (u64::from(server.pid), u64::from(server.said));
    assert_eq!(pids(&["--seconds", "0.3"], 1), [parent]);
    let mut both = vec![parent, child];
    both.sort_unstable();
    assert_eq!(pids(&["--all", "--seconds", "0.3"], 2), both);
    assert_eq!(server.end().as_deref(), Some("right"));
}

/// The kernel cuts the name of a process after 15 bytes, here inside a character.
#[test]
fn names_need_not_be_utf_8() {
    let place = Place::new();
    let folder = place.0.path().join(OsStr::from_bytes(b"caf\xe9"));
    fs::create_dir(&folder).unwrap();
    let program = folder.join("аналитика-сервер");
    fs::rename(place.file("server"), &program).unwrap();
    let mut command = standby(&program);
    command.arg("obeys");
    let mut server = Server::start(command);
    let measurement = server.measure();
    server.does("5");
    assert_eq!(locked(&measurement.end().unwrap()), [("accounts", 5)]);
    server.end();
    let mut shell = Server::start_below_shell(&program);
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
    let mut shell = Server::start_below_shell(&place.file("server"));
    // As if the process had ended after it was found.
    fs::remove_file(switch_of(shell.said)).unwrap();
    let output = report(shell.pid, &["--all", "--seconds", "0.01"]).output();
    let report = json(&output.unwrap());
    assert!(list(&report["processes"]).is_empty());
    shell.does("1");
    shell.end();
}

/// Whether a file of counters has this number for the lock.
fn has_counter(file: &Path, family: &str, value: &str) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    assert!(text.is_empty() || text.ends_with("# EOF\n"), "{text}");
    text.lines().any(|line| {
        line.starts_with(&format!("{family}{{"))
            && line.contains("lock_name=\"accounts\"")
            && line.ends_with(&format!("}} {value}"))
    })
}

/// Whether a file of counters says that the lock was taken five times.
fn has_five(file: &Path) -> bool {
    has_counter(file, "kinlock_lock_acquisitions_total", "5")
}

#[test]
fn counters_are_replaced_while_a_process_is_followed() {
    let place = Place::new();
    let mut server = place.standby();
    let file = place.file("server.prom");
    let mut follower = server.follow(&file);
    let has = |family: &str, value: &str| has_counter(&file, family, value);
    for (times, sum) in [("5", "5"), ("7", "12")] {
        server.does(times);
        until("the number is there", || {
            has("kinlock_lock_acquisitions_total", sum)
        });
    }
    assert!(has("kinlock_lock_contended_total", "0"));
    assert!(has("kinlock_lock_wait_seconds_total", "0.0"));
    assert!(has("kinlock_lock_waiting_threads", "0"));
    // The follower ends with the process.
    server.end();
    assert!(follower.wait().unwrap().success());
    let left = fs::read_dir(place.0.path()).unwrap().flatten();
    let hidden = left.filter(|file| file.file_name().as_bytes().starts_with(b"."));
    assert_eq!(hidden.count(), 0);
}

/// The target of a link is replaced. While that fails, following goes on.
#[test]
fn following_outlasts_a_failed_write() {
    let place = Place::new();
    let mut server = place.standby();
    let (folder, aside) = (place.file("folder"), place.file("aside"));
    fs::create_dir(&folder).unwrap();
    let link = place.file("link");
    symlink("folder/server.prom", &link).unwrap();
    let mut follower = server.follow(&link);
    let mut said = BufReader::new(follower.stderr.take().unwrap()).lines();
    fs::rename(&folder, &aside).unwrap();
    let line = said.next().unwrap().unwrap();
    assert!(line.starts_with("kinlock: cannot write "), "{line}");
    fs::rename(&aside, &folder).unwrap();
    server.does("5");
    let file = folder.join("server.prom");
    until("the file is there", || has_five(&file));
    assert!(link.is_symlink());
    server.end();
    assert!(follower.wait().unwrap().success());
    assert!(said.next().is_none());
}

/// The signals of a closed connection and a closed terminal end the command, too.
#[test]
fn what_ends_the_command_ends_measuring() {
    let place = Place::new();
    let mut server = place.standby();
    let file = place.file("server.prom");
    for signal in [libc::SIGHUP, libc::SIGQUIT, libc::SIGTERM] {
        let Measurement(child) = server.measure();
        server.does("5");
        send(&child, signal);
        let report = json(&child.wait_with_output().unwrap());
        assert_eq!(
            locked(&report["processes"][0]),
            [("accounts", 5)],
            "{signal}"
        );
        assert!(!is_on(&server.switch()), "{signal}");
        let mut follower = server.follow(&file);
        send(&follower, signal);
        assert!(follower.wait().unwrap().success(), "{signal}");
        assert!(!is_on(&server.switch()), "{signal}");
    }
    server.end();
}

/// The measurement of the program that the process ran before is reported.
#[test]
fn a_process_may_become_another_program_while_it_is_measured() {
    let place = Place::new();
    let becomes = |server: &mut Server| {
        server.does("5");
        let switch = server.switch();
        server.does("become");
        until("it is another program", || {
            let maps = fs::read(format!("/proc/{}/maps", server.pid)).unwrap();
            let maps = String::from_utf8_lossy(&maps);
            // The switch of the other program has a longer name.
            let is_it = |line: &str| line.ends_with(switch.to_str().unwrap());
            !maps.is_empty() && !maps.lines().any(is_it)
        });
    };
    let mut server = place.standby();
    let measurement = server.measure();
    becomes(&mut server);
    assert_eq!(locked(&measurement.end().unwrap()), [("accounts", 5)]);
    server.end();
    let mut server = place.standby();
    let file = place.file("server.prom");
    let follower = server.follow(&file);
    becomes(&mut server);
    let output = follower.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    let expected = format!(
        "kinlock: process {} runs another program now, which is not followed\n",
        server.pid
    );
    assert_eq!(said, expected);
    assert!(has_five(&file));
    server.end();
}

/// The owner of a file may shorten it while the command has it open.
#[test]
fn a_switch_may_become_shorter() {
    let place = Place::new();
    let server = place.standby();
    let measurement = server.measure();
    let file = fs::File::options().write(true).open(server.switch());
    file.unwrap().set_len(0).unwrap();
    assert!(measurement.end().is_none());
    // The command has nothing to measure any more.
    let mut running = server.running;
    running.child.kill().unwrap();
}

#[test]
fn bad_input_is_refused() {
    let place = Place::new();
    let refused = |output: Output, expected: &str| drop(is_refusal(&output, 2, expected));
    let bare = place.start(&[], "obeys");
    let own = bare.pid;
    let measured = |pid: u32, flags: &[&str]| {
        let all = [&["--seconds", "1"], flags].concat();
        report(pid, &all).output().unwrap()
    };
    let none = "does not stand by: start the program with `kinlock run --standby";
    refused(measured(own, &[]), none);
    refused(measured(own, &["--all"]), "nor any that it started");
    let server = place.standby();
    let parent = std::process::id();
    refused(measured(parent, &[]), "which it started, does");
    drop(server);
    refused(measured(u32::MAX, &[]), "there is no process");
    for seconds in ["0", "-1", "x", "inf"] {
        let flag = format!("--seconds={seconds}");
        refused(report(own, &[&flag]).output().unwrap(), "it has to be");
    }
    let server = place.standby();
    let measurement = server.measure();
    let follow = |flags: &[&str]| {
        let mut command = kinlock();
        command.arg("report").arg(server.pid.to_string());
        command.args(flags).output().unwrap()
    };
    for (flags, expected) in [
        (&["--openmetrics", "x"][..], "needs --follow or --seconds"),
        (&["--follow"], "--openmetrics"),
        (
            &["--follow", "--openmetrics", "-"],
            "replaces a file: - is none",
        ),
    ] {
        refused(follow(flags), expected);
    }
    let follow_to = |path: &Path| follow(&["--follow", "--openmetrics", path.to_str().unwrap()]);
    // Devices, links to them and pipes are left unchanged, and so is a file if the command is
    // refused later.
    let pipe = place.file("pipe");
    pipe_at(&pipe);
    symlink("/dev/null", place.file("null")).unwrap();
    for name in ["pipe", "null", "."] {
        refused(follow_to(&place.file(name)), "--follow replaces a file: ");
    }
    assert!(pipe.metadata().unwrap().file_type().is_fifo());
    let old = place.file("old");
    fs::write(&old, "before").unwrap();
    let other = "another `kinlock report` measures this process";
    refused(follow_to(&old), other);
    assert_eq!(fs::read_to_string(&old).unwrap(), "before");
    refused(
        follow_to(Path::new("/nowhere/x")),
        "cannot write /nowhere/x",
    );
    refused(measured(server.pid, &[]), other);
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
