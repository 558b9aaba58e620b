//! `kinlock torture` as people and programs see it.

mod support;

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};
use support::kinlock;

#[test]
fn a_sound_lock_passes() {
    let output = torture("--locks kinlock-spin-cna --seconds 0.5 --threads 3,6 --hang 20");
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");

    let lines: Vec<_> = text.lines().collect();
    let echo = lines[0];
    assert!(
        echo.starts_with("kinlock torture locks --locks kinlock-spin-cna --threads 3,6"),
        "{text}"
    );
    assert_eq!(
        lines.iter().filter(|line| **line == echo).count(),
        2,
        "echoed first and last: {text}"
    );
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("Per thread: min ")),
        "{text}"
    );
    assert_eq!(lines.last(), Some(&"End of test: SUCCESS"), "{text}");
}

#[test]
fn locks_work_where_membarrier_is_refused() {
    let output = torture(
        "--locks kinlock-spin,kinlock-mutex --scenarios basics,relay,timed,condvar,condvar-relay --without-membarrier --seconds 0.6 --threads 4 --hang 20 --json -",
    );
    let report: Value = serde_json::from_slice(&output.stdout).expect("stdout is JSON");
    assert_eq!(report["passed"], true, "{report:#}");
    assert_eq!(report["parameters"]["without_membarrier"], true);
}

#[test]
fn scenarios_that_are_not_for_a_lock_are_left_out() {
    let output = torture(
        "--locks kinlock-spin,kinlock-mutex --scenarios basics,condvar-relay --seconds 0.3 --hang 20 --json -",
    );
    let report: Value = serde_json::from_slice(&output.stdout).expect("stdout is JSON");
    assert_eq!(report["passed"], true, "{report:#}");
    let checks = report["checks"].as_array().expect("a list of checks");
    let relays: Vec<_> = checks
        .iter()
        .filter_map(|check| check["name"].as_str())
        .filter(|name| name.contains("/condvar-relay/"))
        .collect();
    assert!(relays.contains(&"kinlock-mutex/condvar-relay/reach"));
    assert!(relays.iter().all(|name| name.starts_with("kinlock-mutex/")));
}

#[test]
fn json_has_the_promised_fields_and_nothing_else_beside_it() {
    let output = torture(
        "--locks kinlock-spin,kinlock-spin-fifo --scenarios preemption,timed --seconds 0.3 --threads 4 --hang 20 --json -",
    );
    let report: Value = serde_json::from_slice(&output.stdout).expect("stdout is JSON");
    assert_eq!(report["passed"], true, "{report:#}");
    let checks = report["checks"].as_array().expect("a list of checks");
    let names: Vec<_> = checks
        .iter()
        .map(|check| check["name"].as_str().unwrap())
        .collect();
    assert!(
        names.contains(&"kinlock-spin/preemption-4/exclusion"),
        "{names:?}"
    );
    assert!(
        names.contains(&"kinlock-spin-fifo/timed/contract"),
        "{names:?}"
    );
    assert!(
        checks
            .iter()
            .all(|check| check["passed"] == true && check["detail"].is_string())
    );
    assert!(report["per_thread"]["min"].as_u64() <= report["per_thread"]["max"].as_u64());
    assert!(report["per_thread"]["mean"].as_f64() > Some(0.0));
    assert_eq!(report["parameters"]["seed"], 1);
}

#[test]
fn broken_locks_are_caught_by_the_checks_meant_for_them() {
    let output = torture("--locks busted --seconds 2 --hang 2");
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for (lock, property) in [
        ("busted-exclusion", "exclusion"),
        ("busted-splice", "completion"),
        ("busted-wakeup", "completion"),
        ("busted-sleeper", "completion"),
        ("busted-starvation", "progress"),
        ("busted-mutex-wake", "completion"),
        ("busted-mutex-pickup", "exclusion"),
        ("busted-condvar-sleep", "completion"),
        ("busted-condvar-chain", "completion"),
        ("busted-condvar-spinner", "completion"),
    ] {
        let caught = text
            .lines()
            .find(|line| line.contains(&format!("{lock}/catch")));
        assert!(
            caught.is_some_and(|line| line.starts_with("ok") && line.ends_with(property)),
            "{text}"
        );
    }
    assert_eq!(text.lines().last(), Some("End of test: FAILURE"));
}

#[test]
fn a_broken_lock_that_gets_away_is_no_success() {
    let output = torture("--locks busted-starvation --scenarios basics --seconds 0.1");
    assert_eq!(output.status.code(), Some(3));
    assert!(stdout(&output).contains("NOT CAUGHT"));
}

#[test]
fn a_report_goes_to_a_file_beside_the_text() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report.json");
    let flags = format!(
        "--locks kinlock-spin --scenarios basics --seconds 0.1 --json {}",
        file.display()
    );
    assert!(stdout(&torture(&flags)).contains("End of test: SUCCESS"));
    let report: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(report["passed"], true);
}

#[test]
fn a_run_that_is_killed_leaves_the_last_report() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report.json");
    std::fs::write(&file, "the last one").unwrap();
    for primitive in ["locks", "invalidation"] {
        let mut child = kinlock()
            .args(["torture", primitive, "--seconds", "60", "--in-process"])
            .arg("--json")
            .arg(&file)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // It says what it is going to do when it has looked at the file.
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(line.starts_with("kinlock torture "), "{line}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "the last one");
    }
}

#[test]
fn bad_input_is_one_line_and_status_2() {
    for (flags, named) in [
        ("--locks no-such-lock", "kinlock-spin-cna"),
        ("--threads 0", "threads"),
        ("--threads 100000", "4096"),
        ("--seconds 0", "--seconds"),
        ("--seconds nan", "--seconds"),
        ("--hang -1", "--hang"),
        ("--topology 0", "--topology"),
        ("--scenarios no-such-scenario", "churn"),
        ("--locks kinlock-spin --scenarios condvar", "kinlock-spin"),
        ("--preemption some", "heavy"),
        (
            "--json /no/such/directory/report.json",
            "/no/such/directory",
        ),
        ("mutexes", "locks"),
    ] {
        let output = torture(flags);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags}: {complaint}");
        assert_eq!(complaint.lines().count(), 1, "{flags}: {complaint}");
        assert!(complaint.contains(named), "{flags}: {complaint}");
        assert!(output.stdout.is_empty(), "{flags}");
    }
}

fn torture(flags: &str) -> Output {
    kinlock()
        .arg("torture")
        .args(flags.split(' '))
        .output()
        .expect("the command can be started")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}
