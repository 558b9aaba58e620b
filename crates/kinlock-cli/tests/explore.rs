//! `kinlock explore` as people and programs see it.

mod support;

use serde_json::Value;
use std::process::Output;
use support::kinlock;

#[test]
fn sound_locks_pass() {
    let output = explore("--locks cna,fifo --schedules 300");
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let lines: Vec<_> = text.lines().collect();
    let echo = lines[0];
    assert!(
        echo.starts_with("kinlock explore locks --locks cna,fifo --schedules 300 --seed 1"),
        "{text}"
    );
    assert_eq!(
        lines.iter().filter(|line| **line == echo).count(),
        2,
        "echoed first and last: {text}"
    );
    assert_eq!(lines.last(), Some(&"End of test: SUCCESS"), "{text}");
}

#[test]
fn broken_locks_are_caught_and_can_be_replayed() {
    let output = explore("--locks busted --json -");
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).expect("stdout is JSON");
    let found = report["found"].as_object().expect("by lock");
    let checks = report["checks"].as_array().expect("checks");
    let catches = || {
        checks.iter().filter(|check| {
            check["name"]
                .as_str()
                .is_some_and(|name| name.ends_with("/catch"))
        })
    };
    assert!(catches().all(|check| check["passed"] == true), "{report:#}");
    assert!(
        found.len() > 9 && found.len() == catches().count(),
        "{report:#}"
    );
    for (lock, found) in found {
        assert!(found["schedules"].as_u64() >= Some(1), "{lock}: {found}");
        let word = found["shrunk"].as_str().expect("a word");
        let again = explore(&format!("--replay {word}"));
        assert_eq!(again.status.code(), Some(1), "{}", stdout(&again));
        assert!(stdout(&again).contains(&format!("{}: ", found["property"].as_str().unwrap())));
    }
}

#[test]
fn a_broken_lock_that_gets_away_is_no_success() {
    // Two threads are too few to starve one.
    let output = explore("--locks busted-starvation --schedules 6 --threads 2");
    assert_eq!(output.status.code(), Some(3), "{}", stdout(&output));
    assert!(stdout(&output).contains("NOT CAUGHT"));
}

#[test]
fn a_schedule_that_passes_can_be_replayed() {
    let output = explore("--replay cna:timed:*:5:*");
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
}

#[test]
fn bad_input_is_one_line_and_status_2() {
    for (flags, named) in [
        ("--locks no-such-lock", "cna-count"),
        ("--schedules 0", "--schedules"),
        ("--threads 1", "--threads"),
        ("--host-threads 0", "--host-threads"),
        ("--replay cna:timed", "DISRUPTIONS"),
        ("--replay cna:timed:*:1:* --seed 2", "--seed"),
        (
            "--json /no/such/directory/report.json",
            "/no/such/directory",
        ),
        ("mutexes", "locks"),
    ] {
        let output = explore(flags);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags}: {complaint}");
        assert_eq!(complaint.lines().count(), 1, "{flags}: {complaint}");
        assert!(complaint.contains(named), "{flags}: {complaint}");
        assert!(output.stdout.is_empty(), "{flags}");
    }
}

fn explore(flags: &str) -> Output {
    kinlock()
        .arg("explore")
        .args(flags.split(' '))
        .output()
        .expect("the command can be started")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}
