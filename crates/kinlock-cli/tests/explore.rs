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
fn sound_ids_and_sections_pass() {
    for (what, flags) in [
        ("ids", "--policies per-cpu,task-owned-impatient"),
        ("invalidation", "--backends slots,packed"),
    ] {
        let output = explore(&format!("{what} {flags} --schedules 300 --threads 5"));
        let text = stdout(&output);
        assert_eq!(output.status.code(), Some(0), "{text}");
        let echo = format!("kinlock explore {what} {flags} --schedules 300 --seed 1 --threads 5");
        assert!(text.starts_with(&echo), "{text}");
        assert_eq!(text.lines().last(), Some("End of test: SUCCESS"), "{text}");
    }
}

#[test]
fn broken_locks_are_caught_and_can_be_replayed() {
    broken_ones_are_caught("locks", "--locks", 18);
}

#[test]
fn broken_ids_are_caught_and_can_be_replayed() {
    broken_ones_are_caught("ids", "--policies", 6);
}

#[test]
fn broken_sections_are_caught_and_can_be_replayed() {
    broken_ones_are_caught("invalidation", "--backends", 3);
}

fn broken_ones_are_caught(what: &str, flag: &str, count: usize) {
    let output = explore(&format!("{what} {flag} busted --json -"));
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).expect("stdout is JSON");
    assert_eq!(report["parameters"]["primitive"], what);
    let found = report["found"].as_object().expect("by name");
    let checks = report["checks"].as_array().expect("checks");
    let catches = || {
        checks.iter().filter(|check| {
            check["name"]
                .as_str()
                .is_some_and(|name| name.ends_with("/catch"))
        })
    };
    assert!(catches().all(|check| check["passed"] == true), "{report:#}");
    assert_eq!(
        (found.len(), catches().count()),
        (count, count),
        "{report:#}"
    );
    for (name, found) in found {
        assert!(found["schedules"].as_u64() >= Some(1), "{name}: {found}");
        // Too many restarts show in many schedules together only.
        let Some(word) = found["shrunk"].as_str() else {
            assert_eq!(name, "busted-mark");
            continue;
        };
        let again = explore(&format!("{what} --replay {word}"));
        assert_eq!(again.status.code(), Some(1), "{}", stdout(&again));
        assert!(stdout(&again).contains(&format!("{}: ", found["property"].as_str().unwrap())));
    }
}

#[test]
fn what_is_broken_is_hunted_for_longer_than_asked_for() {
    // Two in its critical section are not what the first schedule shows.
    let first = explore("--replay busted-exclusion:plain:*:1:*");
    assert!(
        !stdout(&first).contains("exclusion: "),
        "{}",
        stdout(&first)
    );
    let output = explore("--locks busted-exclusion --schedules 1");
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("caught by busted-exclusion/"), "{text}");
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
        ("mutexes", "mutexes"),
        ("ids --policies no-such-policy", "task-owned"),
        ("ids --replay cna:timed:*:1:*", "no such policy"),
        ("ids --replay per-cpu:timed:*:1:*", "mixed"),
        ("invalidation --backends wide", "packed"),
        (
            "invalidation --backends packed --replay packed:mixed:*:1:*",
            "--backends",
        ),
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
