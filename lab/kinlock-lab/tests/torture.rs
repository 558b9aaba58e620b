//! `kinlock-lab torture` as people and programs see it.

mod support;

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use support::{done, ends, json, lab, refused};

#[test]
fn a_sound_lock_passes() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report.json");
    let text = done(&format!(
        "torture --locks kinlock-spin-cna --scenarios basics,preemption,domains --seconds 0.5 \
         --threads 3,6 --hang 60 --json {}",
        file.display()
    ));
    let lines: Vec<_> = text.lines().collect();
    let echo = lines[0];
    let expected = "kinlock-lab torture locks --locks kinlock-spin-cna --threads 3,6";
    assert!(echo.starts_with(expected), "{text}");
    // The command is echoed at the beginning and at the end.
    let echoes = lines.iter().filter(|line| **line == echo);
    assert_eq!(echoes.count(), 2, "{text}");
    let is_summary = |line: &&str| line.starts_with("Per thread: min ");
    assert!(lines.iter().any(is_summary), "{text}");
    assert_eq!(lines.last(), Some(&"End of test: SUCCESS"), "{text}");
    // The report goes to a file, in addition to the text.
    let report: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(report["passed"], true);
}

#[test]
fn what_is_no_lock_passes() {
    let leases = "torture ids --backend lease --seconds 1 --threads 4";
    assert_eq!(json(leases)["passed"], true);
    let report = json("torture invalidation --threads 8 --quiet --seconds 0.5");
    assert_eq!(report["passed"], true, "{report}");
    assert_eq!(report["parameters"]["backends"][0], "locked");
    assert!(report["per_thread"]["mean"].as_f64() > Some(0.0));
}

#[test]
fn locks_work_where_membarrier_is_refused() {
    let report = json(
        "torture --locks kinlock-spin,kinlock-mutex --scenarios \
         basics,relay,timed,condvar,condvar-relay --without-membarrier --seconds 0.6 --threads 4 \
         --hang 60",
    );
    assert_eq!(report["passed"], true, "{report:#}");
    assert_eq!(report["parameters"]["without_membarrier"], true);
    // Scenarios that are not for a lock are left out.
    let mut relays = names(&report);
    relays.retain(|name| name.contains("/condvar-relay/"));
    assert!(relays.contains(&"kinlock-mutex/condvar-relay/reach"));
    assert!(relays.iter().all(|name| name.starts_with("kinlock-mutex/")));
}

/// The names of all checks.
fn names(report: &Value) -> Vec<&str> {
    let checks = report["checks"].as_array().expect("a list of checks");
    checks
        .iter()
        .filter_map(|check| check["name"].as_str())
        .collect()
}

#[test]
fn json_has_the_promised_fields_and_nothing_else_beside_it() {
    let report = json(
        "torture --locks kinlock-spin,kinlock-spin-fifo --scenarios preemption,timed --seconds 0.3 \
         --threads 4 --hang 60",
    );
    assert_eq!(report["passed"], true, "{report:#}");
    let names = names(&report);
    for expected in [
        "kinlock-spin/preemption-4/exclusion",
        "kinlock-spin-fifo/timed/contract",
    ] {
        assert!(names.contains(&expected), "{names:?}");
    }
    for check in report["checks"].as_array().unwrap() {
        assert!(check["passed"] == true && check["detail"].is_string());
    }
    assert!(report["per_thread"]["min"].as_u64() <= report["per_thread"]["max"].as_u64());
    assert!(report["per_thread"]["mean"].as_f64() > Some(0.0));
    assert_eq!(report["parameters"]["seed"], 1);
}

#[test]
fn what_is_broken_is_caught() {
    let text = ends(
        1,
        "torture invalidation --backends busted-wait --threads 8 --seconds 4 --hang 2",
    );
    let caught = text.lines().find(|line| line.contains("/catch"));
    let caught = caught.unwrap_or_else(|| panic!("{text}"));
    assert!(
        caught.starts_with("ok") && caught.contains("caught by"),
        "{text}"
    );
    assert_eq!(text.lines().last(), Some("End of test: FAILURE"));
}

#[test]
fn what_is_broken_and_gets_away_is_no_success() {
    // A single thread waits for no other.
    let line = "torture invalidation --backends busted-wakeup --threads 1 --seconds 0.1";
    assert!(ends(3, line).contains("NOT CAUGHT"));
}

#[test]
fn a_run_that_is_killed_leaves_the_last_report() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report.json");
    std::fs::write(&file, "the last one").unwrap();
    for primitive in ["locks", "invalidation"] {
        let mut child = lab()
            .args(["torture", primitive, "--seconds", "60", "--in-process"])
            .arg("--json")
            .arg(&file)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The command prints what it is going to do after it has opened the file.
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(line.starts_with("kinlock-lab torture "), "{line}");
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
        ("invalidation --backends packed", "slots"),
        ("invalidation --seconds 0", "--seconds"),
        ("ids --ids fine", "busted-restart"),
        ("ids --seconds -1", "--seconds"),
        ("ids --scenarios x", "fork"),
    ] {
        refused(&format!("torture {flags}"), named);
    }
    if kinlock_ids::Backend::Restartable.available().is_err() {
        refused("torture ids --backend rseq", "restartable sequences");
    }
}
