//! `kinlock run --report` stays behind: the program must not notice, and nothing may be lost.

mod support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

use support::{
    Place, Running, kinlock, kinlock_of_nobody, list, number, says, says_wrapped, silent_library,
    sum, text, until,
};

const SOURCE: &str = include_str!("programs/staying.c");

impl Place {
    fn new() -> Self {
        Place::of("staying", "-O1 -g -w -pthread", SOURCE)
    }

    fn run(&self, words: &[&str]) -> Output {
        let output = self.reported(&[], words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        output
    }

    /// How often each process took locks.
    fn locked(&self) -> Vec<u64> {
        let report = self.json();
        let processes = list(&report["processes"]).iter();
        let mut all: Vec<_> = processes
            .map(|process| sum(list(&process["locks"]), "locked"))
            .collect();
        all.sort_unstable();
        all
    }
}

#[test]
fn threads_that_lock_first_together_are_all_counted() {
    let place = Place::new();
    for (threads, locked) in [(2, 2000), (4, 4000), (16, 16_000)] {
        for _ in 0..5 {
            let output = place.run(&["together", &threads.to_string()]);
            assert_eq!(text(&output.stdout), format!("{locked}\n"));
            assert_eq!(place.locked(), [locked]);
            let report = place.json();
            let process = &report["processes"][0];
            // One more thread waits for their ends.
            assert_eq!(process["threads_seen"], threads + 1);
            // The waits of callers are estimated, but together are at most the known sum.
            let lock = &process["locks"][0];
            let callers = list(&lock["callers"]);
            assert!(sum(callers, "wait_ns") <= number(&lock["wait"]["total_ns"]));
            assert!(sum(callers, "contended") <= number(&lock["contended"]));
        }
    }
}

#[test]
fn a_child_without_fork_handlers_counts_for_itself() {
    let place = Place::new();
    place.run(&["cloned"]);
    assert_eq!(place.locked(), [1000, 1001]);
    let report = place.json();
    let processes = list(&report["processes"]);
    let parents = [&processes[0]["parent"], &processes[1]["parent"]];
    let pids = [&processes[0]["pid"], &processes[1]["pid"]];
    assert!(
        parents[0] == pids[1] || parents[1] == pids[0],
        "{parents:?}"
    );
}

#[test]
fn what_threads_did_that_ended_is_kept() {
    let place = Place::new();
    let mut command = place.reported(&["--by", "thread"], &["churn", "3000"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report = place.json();
    let process = &report["processes"][0];
    assert_eq!(process["threads_seen"], 3001);
    let ended = &process["ended_threads"];
    let threads = list(&process["threads"]);
    let contended = sum(threads, "contended") + number(&ended["contended"]);
    assert_eq!(contended, 3000);
    assert_eq!(threads.len() as u64 + number(&ended["count"]), 3001);
    let expected = [
        " that ended)",
        "3,001 threads took 1 lock 1 time in",
        // All acquisitions but the first waited, and timed out.
        "; 100 % were found taken",
    ];
    says_wrapped(text(&output.stderr), &expected);
}

/// Two hundred threads wait for half a second each; all others live for a shorter time.
#[test]
fn threads_that_ended_count_in_a_limit() {
    let place = Place::new();
    let limit = ["--report=/dev/null", "--fail-if", "wait > 10 %"];
    let output = place.command(&limit, &["waited-before"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stderr);
    says(said, &["kinlock: --fail-if 'wait > 10 %': it is "]);
}

/// A program may forbid everybody but root to look at it.
#[test]
fn alarms_that_cannot_be_are_told() {
    let place = Place::new();
    let library = silent_library(place.0.path());
    let mut command = kinlock_of_nobody(&place);
    command.args(["run", "--report=/dev/null", "--alarm-wait", "1s", "--"]);
    command.arg(place.file("staying")).arg("hidden");
    command.env("KINLOCK_PRELOAD", library);
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = said.next().unwrap().unwrap();
    assert!(
        line.starts_with("kinlock: no alarms: cannot look at process "),
        "{line}"
    );
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(said.next().is_none());
}

/// If something was not measured, each limit on it counts as exceeded.
#[test]
fn what_was_not_measured_exceeds_each_limit() {
    let place = Place::new();
    let program = place.file("staying").display().to_string();
    let run = |line: &str, words: &[&str]| {
        let mut command = support::without_knobs(Command::new("sh"));
        command.args(["-c", line]).arg(kinlock().get_program());
        command.args(["run", "--report=/dev/null", "--fail-if", "hold > 1000 s"]);
        let output = command.arg("--").args(words).output().unwrap();
        (output.status.code(), text(&output.stderr).to_owned())
    };
    const EXEC: &str = "exec \"$0\" \"$@\"";
    let begin = "kinlock: --fail-if 'hold > 1000 s': not measured: ";
    for (line, words, expected) in [
        (
            EXEC,
            &["env", "-i", &program, "once"][..],
            "the program: it ended without",
        ),
        (
            EXEC,
            &["sh", "-c", "rm -r \"${KINLOCK_REPORT%/*}\""],
            "nothing: the report could not be made\n",
        ),
        (
            EXEC,
            &["sh", "-c", "rm \"${KINLOCK_REPORT%/*}\"/*"],
            "all processes: No such file or directory",
        ),
        (
            "ulimit -f 1; exec \"$0\" \"$@\"",
            &[&program, "once"],
            "all processes: File too large",
        ),
        (
            EXEC,
            &["sh", "-c", "ulimit -f 1; exec \"$0\" once", &program],
            "1 process: File too large",
        ),
    ] {
        let (status, said) = run(line, words);
        assert_eq!(status, Some(1), "{words:?}: {said}");
        let expected = format!("{begin}{expected}");
        assert!(said.contains(&expected), "{words:?}: {said}");
    }
    // A program that takes no lock has been measured.
    for words in [&["true"][..], &["sh", "-c", "exit 0"], &[&program, "none"]] {
        assert_eq!(run(EXEC, words), (Some(0), String::new()), "{words:?}");
    }
}

#[test]
fn a_process_without_locks_is_a_line() {
    let place = Place::new();
    let table = text(&place.run(&["none"]).stderr).to_owned();
    let unseen = " took no pthread lock; not seen are locks that do not go through pthread: those \
                  of Rust's std, of Go, of libraries on futexes, and those of the crate kinlock \
                  without its feature report\n";
    assert!(table.ends_with(unseen), "{table}");
    assert_eq!(table.trim().lines().count(), 1, "{table}");
}

/// Servers end their processes by signals. Then the title is the one at the last new lock.
#[test]
fn a_process_is_called_by_its_last_title() {
    let place = Place::new();
    for (mode, signal) in [("renamed", None), ("killed", Some(libc::SIGKILL))] {
        let output = place.reported(&[], &[mode]).output().unwrap();
        assert_eq!(output.status.signal(), signal, "{output:?}");
        let program = place.json()["processes"][0]["program"].clone();
        says(program.as_str().unwrap(), &["title"]);
    }
}

#[test]
fn a_program_that_was_replaced_has_ended() {
    let place = Place::new();
    let begin = Instant::now();
    place.run(&["replaced"]);
    let all = begin.elapsed().as_secs_f64();
    let report = place.json();
    let processes = list(&report["processes"]);
    let seconds = |locked: u64| {
        let mut found = processes
            .iter()
            .filter(|p| sum(list(&p["locks"]), "locked") == locked);
        found.next().unwrap()["seconds"].as_f64().unwrap()
    };
    // The second program slept for three seconds, in which the first one did not exist.
    assert!(
        seconds(2) >= 3.0 && seconds(1) + seconds(2) <= all,
        "{report:#}"
    );
}

/// A command that runs in a file system for tables of that size. `None` if that is not permitted.
fn in_memory_of(size: &str, command: &Command) -> Option<Command> {
    let script = format!("mount -t tmpfs -o size={size} tmpfs /dev/shm && exec \"$@\"");
    let mut inner = Command::new("unshare");
    inner.args(["-m", "sh", "-c"]);
    let may = inner.arg(format!("mount -t tmpfs -o size={size} tmpfs /dev/shm"));
    if !may.output().is_ok_and(|output| output.status.success()) {
        eprintln!("WARNING: no mount is permitted: a small /dev/shm is NOT tested");
        return None;
    }
    let mut outer = support::with_library(Command::new("unshare"));
    outer.args(["-m", "sh", "-c"]).arg(script).arg("sh");
    outer.arg(command.get_program()).args(command.get_args());
    Some(outer)
}

/// The stderr of a program that succeeds with a file system for tables of that size.
fn said_in(size: &str, place: &Place, words: &[&str]) -> Option<String> {
    let output = in_memory_of(size, &place.reported(&[], words))?.output();
    let output = output.unwrap();
    assert!(output.status.success(), "{size}: {output:?}");
    assert_eq!(text(&output.stdout), "over\n", "{size}: {output:?}");
    Some(text(&output.stderr).to_owned())
}

/// All processes are there, or the report says how many are not.
fn counts_processes(place: &Place, expected: u64) {
    let report = place.json();
    let processes = list(&report["processes"]).len() as u64;
    let without = number(&report["without_table"]);
    assert_eq!(processes + without, expected, "{without} without a table");
}

#[test]
fn two_hundred_children_fit_in_64_mib() {
    let place = Place::new();
    if said_in("64m", &place, &["at-once", "200"]).is_none() {
        return;
    }
    let locked = place.locked();
    assert_eq!((locked.len(), locked.iter().sum()), (201, 2001));
    assert_eq!(place.json()["without_table"], 0);
}

/// Another file has filled the memory before the command starts.
#[test]
fn a_file_system_that_is_full_already_is_not_used() {
    let place = Place::new();
    let command = place.reported(&[], &["together", "2"]);
    let mut full = Command::new("sh");
    let fill = "head -c 100000 /dev/zero >/dev/shm/fill 2>&1; exec \"$0\" \"$@\"";
    full.args(["-c", fill]).arg(command.get_program());
    full.args(command.get_args());
    let Some(mut command) = in_memory_of("64k", &full) else {
        return;
    };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(place.locked(), [2000]);
}

/// There may be no /proc in a build root.
#[test]
fn there_may_be_no_proc() {
    let place = Place::new();
    let without = |words: &[&str]| {
        let script = "mount -t tmpfs tmpfs /proc && exec \"$@\"";
        let mut command = support::without_knobs(Command::new("unshare"));
        command.args(["-m", "sh", "-c", script, "sh"]);
        command.args(words).output().unwrap()
    };
    if !without(&["true"]).status.success() {
        eprintln!("WARNING: no mount is permitted: a system without /proc is NOT tested");
        return;
    }
    // The command has to find its library as an installed command does.
    let tree = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let [command, library] =
        ["bin/kinlock", "lib/kinlock/libkinlock_preload.so"].map(|name| tree.path().join(name));
    for (from, to) in [
        (Path::new(env!("CARGO_BIN_EXE_kinlock")), &command),
        (&support::library(), &library),
    ] {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::hard_link(from, to).unwrap();
    }
    let command = command.to_str().unwrap();
    let program = place.file("staying");
    let json = place.file("json");
    let (program, file) = (program.to_str().unwrap(), json.to_str().unwrap());
    for words in [
        &["run"][..],
        &["run", "--standby"],
        &["run", "--counts", "/dev/stdout"],
        &["record", "-o", "/dev/null"],
        &["run", "--report", "--json", file],
    ] {
        let all = [&[command][..], words, &["--", program, "together", "2"]].concat();
        let output = without(&all);
        assert!(output.status.success(), "{words:?}: {output:?}");
        assert_eq!(text(&output.stdout), "2000\n", "{words:?}: {output:?}");
    }
    assert_eq!(place.locked(), [2000]);
    // There are names, too: the program's file is found.
    let name = &place.json()["processes"][0]["locks"][0]["name"];
    assert!(!name.as_str().unwrap().contains("0x"), "{name}");
    let output = without(&[command, "report", "1"]);
    says(text(&output.stderr), &["there is no /proc"]);
}

/// As in a container without `/dev/shm`: in an overlay a mapping does not count as a use of the
/// file.
#[test]
fn tables_in_an_overlay_are_kept_until_the_report() {
    let place = Place::new();
    let command = place.reported(&[], &["renamed"]);
    let script =
        "mount -t tmpfs tmpfs \"$TMPDIR\" && cd \"$TMPDIR\" && mkdir below above work all &&
        mount -t overlay -o lowerdir=below,upperdir=above,workdir=work overlay all &&
        cd / && exec \"$@\"";
    let folder = place.file("folder");
    fs::create_dir(&folder).unwrap();
    let mut outer = support::with_library(Command::new("unshare"));
    outer
        .args(["-m", "sh", "-c", script, "sh"])
        .env("TMPDIR", &folder);
    let Some(mut outer) = in_memory_of("0,ro", &outer) else {
        return;
    };
    outer.args([
        "env".as_ref(),
        "-C".as_ref(),
        folder.join("all").as_os_str(),
    ]);
    outer.arg(format!("TMPDIR={}", folder.join("all").display()));
    outer.arg(command.get_program()).args(command.get_args());
    let output = outer.env("TMPDIR", &folder).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(list(&place.json()["processes"]).len(), 1, "{output:?}");
}

#[test]
fn a_full_file_system_is_a_line_in_the_report() {
    let place = Place::new();
    for size in ["4k", "64k", "200k"] {
        let Some(said) = said_in(size, &place, &["at-once", "20"]) else {
            return;
        };
        let lines = said.matches("no table could be made").count();
        assert_eq!(lines, 1, "{said}");
        if size != "4k" {
            counts_processes(&place, 21);
        }
    }
}

/// Memory may run out anywhere: in a thread's tallies, in a lock, in a path.
#[test]
fn a_full_file_system_ends_no_process() {
    let place = Place::new();
    for size in ["8m", "16m", "24m"] {
        if said_in(size, &place, &["crowded", "80"]).is_some() {
            counts_processes(&place, 80);
        }
    }
}

/// The folder with the tables of a running program.
fn folder_of(program: u32) -> Option<PathBuf> {
    let environment = fs::read(format!("/proc/{program}/environ")).ok()?;
    let mut entries = environment.split(|&byte| byte == 0);
    let prefix = entries.find_map(|entry| entry.strip_prefix(b"KINLOCK_REPORT="))?;
    Some(Path::new(text(prefix)).parent()?.to_owned())
}

/// A command whose program has written a line, and the folder of its tables.
fn ready(place: &Place, children: &str) -> (Running, PathBuf) {
    let mut command = place.reported(&[], &["in-turn", children]);
    let (running, first) = Running::start(command.stderr(Stdio::null()));
    assert_eq!(first, "ready");
    let children = format!("/proc/{0}/task/{0}/children", running.child.id());
    let program = fs::read_to_string(children).unwrap();
    // One of the children is the command's witness.
    let mut children = program.split_whitespace().map(|pid| pid.parse().unwrap());
    let folder = children.find_map(folder_of).unwrap();
    (running, folder)
}

#[test]
fn tables_go_when_their_processes_end() {
    let place = Place::new();
    let (running, folder) = ready(&place, "50");
    let names = || support::files(&folder);
    // The parent's table, and the file that all share.
    until("50 tables stay", || names().len() == 2);
    running.end();
    assert!(!folder.exists());
    let locked = place.locked();
    assert_eq!((locked.len(), locked.iter().sum()), (51, 501));
}

#[test]
fn what_a_killed_command_left_is_removed_by_the_next() {
    let place = Place::new();
    let (mut killed, left) = ready(&place, "1");
    let (running, kept) = ready(&place, "1");
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    assert!(left.exists() && kept.exists());
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    for folder in [&left, &kept] {
        File::open(folder).unwrap().set_modified(long_ago).unwrap();
    }
    let output = kinlock().args(["run", "--report", "true"]).output();
    assert!(output.unwrap().status.success());
    assert!(!left.exists() && kept.exists());
    running.end();
}

#[test]
fn a_daemon_is_named_and_left_in_peace() {
    let place = Place::new();
    // A child that has taken locks, and one that has not.
    for (locks, expected) in [("600", vec![1, 600]), ("0", vec![1])] {
        let errors = place.file("errors");
        let mut command = place.reported(&[], &["daemon", locks]);
        let mut child = command
            .stdin(Stdio::piped())
            .stderr(File::create(&errors).unwrap())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        assert!(child.wait().unwrap().success());
        let said = fs::read_to_string(&errors).unwrap();
        let line = "(staying) still runs: what it does from now on is not in this report";
        says(&said, &[line]);
        assert_eq!(place.locked(), expected);
        assert_eq!(list(&place.json()["still_running"]).len(), 1);
        drop(input);
        let read = || fs::read_to_string(&errors).unwrap();
        until("the daemon stays", || read().contains("the daemon ends"));
        assert_eq!(read(), said + "the daemon ends\n");
    }
}
