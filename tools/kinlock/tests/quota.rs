//! `kinlock bench --quota`: the run is in a control group of its own, which is removed at the end.
//! If the system has no such groups, or this user may not make any, the command says so in one
//! line, and there is nothing else to test.

#![cfg(feature = "bench")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use support::{heeding_ctrl_c, kinlock, list, run, send, until};

/// Runs with a quota. Returns stdout, if there can be a quota.
fn limited(line: &str) -> Option<String> {
    let output = run(&format!("bench {line}"));
    let message = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(2) {
        assert_eq!(message.lines().count(), 1, "{message}");
        let told = message.contains("--quota: cannot make a control group");
        assert!(told && message.contains("systemd-run"), "{message}");
        return None;
    }
    assert_eq!(output.status.code(), Some(0), "{message}");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// The group that a command has made, wherever that group is.
fn group_of(maker: u32) -> Option<PathBuf> {
    fn below(folder: &Path, name: &str) -> Option<PathBuf> {
        let entries = fs::read_dir(folder).ok()?.flatten();
        let mut folders = entries.filter(|entry| entry.file_type().is_ok_and(|t| t.is_dir()));
        folders.find_map(|entry| match entry.file_name().to_str() == Some(name) {
            true => Some(entry.path()),
            false => below(&entry.path(), name),
        })
    }
    below(
        Path::new("/sys/fs/cgroup"),
        &format!("kinlock-quota-{maker}"),
    )
}

#[test]
fn a_run_has_no_more_cpu_time_than_its_quota() {
    let line = "--workload counter --threads 4 --locks pthread-mutex --baseline pthread-mutex \
                --seconds 1 --rounds 1 --hogs 1 --quota 25 --json -";
    let Some(text) = limited(line) else {
        return;
    };
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["parameters"]["quota_percent"], 25);
    let result = &list(&report["results"])[0];
    let number = |name: &str| result[name]["median"].as_f64().unwrap();
    let used = number("ops_per_s") * number("cpu_ns_per_op") / 1e9;
    let cpus = std::thread::available_parallelism().unwrap().get() as f64;
    // The limit also allows for the rest of the period before, and for what each CPU takes in
    // advance.
    assert!(used < 0.25 * cpus * 1.3 + 0.1, "{used} of {cpus} CPUs");
}

#[test]
fn people_read_of_it() {
    let line = "--workload empty --threads 1 --locks tas --seconds 0.01 --rounds 1 --quota 50";
    if let Some(text) = limited(line) {
        assert!(
            text.contains("in a control group that may use 50 % of"),
            "{text}"
        );
    }
}

/// Starts a long run. Returns it and its group, if there can be one.
fn start() -> Option<(Child, PathBuf)> {
    let line = "bench --workload empty --threads 1 --locks tas --seconds 3600 --hogs 1 --quota 50";
    let mut command = kinlock();
    command.args(line.split_whitespace());
    let command = heeding_ctrl_c(&mut command).stdout(Stdio::null());
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let mut found = None;
    until("there is a group", || {
        // The run's busy process is outside of the group, as is the one that keeps the outer group
        // from being empty.
        found = group_of(child.id()).filter(|group| {
            let members = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            members.lines().count() == 1 && children_of(members.trim()) == 2
        });
        found.is_some() || child.try_wait().unwrap().is_some()
    });
    Some((child, found?))
}

/// How many children a process has.
fn children_of(parent: &str) -> usize {
    let children = format!("/proc/{parent}/task/{parent}/children");
    fs::read_to_string(children).map_or(2, |text| text.split_whitespace().count())
}

#[test]
fn the_group_is_gone_after_a_signal() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let Some((mut child, group)) = start() else {
            return;
        };
        send(&child, signal);
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(128 + signal));
        assert!(!group.exists());
    }
}

#[test]
fn the_next_run_removes_the_group_of_one_that_was_killed() {
    let Some((mut child, group)) = start() else {
        return;
    };
    child.kill().unwrap();
    child.wait().unwrap();
    let line = "--workload empty --threads 1 --locks tas --seconds 0.01 --rounds 1 --quota 100";
    limited(line).unwrap();
    assert!(!group.exists());
}
