//! Busy processes end with the run that started them, in whatever way it ends.

#![cfg(feature = "bench")]

mod support;

use std::fs;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::Duration;

use support::{heeding_ctrl_c, kinlock, send, until};

/// The fields of `/proc/PID/stat` after the name, unless the process has ended.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<_> = fields.split_whitespace().map(str::to_owned).collect();
    (fields[0] != "Z").then_some(fields)
}

fn children(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| stat(pid).is_some_and(|fields| fields[1] == parent.to_string()))
        .collect()
}

/// Starts a long run, and returns it and its two busy processes when both have used some CPU time.
fn start() -> (Child, Vec<u32>) {
    let mut command = kinlock();
    let line = "bench --workload empty --threads 1 --locks tas --seconds 3600 --hogs 2";
    let command = command.args(line.split_whitespace());
    let command = heeding_ctrl_c(command).stdout(Stdio::null());
    let child = command.stderr(Stdio::null()).spawn().unwrap();
    let busy = |&pid: &u32| stat(pid).is_some_and(|fields| fields[11] != "0");
    until("two busy processes", || {
        children(child.id()).iter().filter(|pid| busy(pid)).count() == 2
    });
    let hogs = children(child.id());
    (child, hogs)
}

#[test]
fn they_end_when_the_run_is_killed() {
    let (mut child, hogs) = start();
    child.kill().unwrap();
    child.wait().unwrap();
    until("all ended", || hogs.iter().all(|&pid| stat(pid).is_none()));
}

#[test]
fn they_stay_until_a_run_that_was_told_to_end_has_ended() {
    let (mut child, hogs) = start();
    for &pid in &hogs {
        // Ctrl-C signals the whole group, and they must ignore that.
        // SAFETY: numbers only. The run waits for them only at its end.
        unsafe { libc::kill(pid as i32, libc::SIGINT) };
    }
    sleep(Duration::from_millis(100));
    assert!(hogs.iter().all(|&pid| stat(pid).is_some()));
    send(&child, libc::SIGINT);
    child.wait().unwrap();
    assert!(hogs.iter().all(|&pid| stat(pid).is_none()));
}
