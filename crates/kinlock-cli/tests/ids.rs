//! `kinlock bench ids` and `kinlock torture ids` as a user runs them.

mod support;

use assert_cmd::Command;
use serde_json::Value;

fn kinlock(arguments: &[&str]) -> Command {
    let mut command = Command::from_std(support::kinlock());
    command.args(arguments);
    command
}

fn json(arguments: &[&str], code: i32) -> Value {
    let output = kinlock(arguments)
        .assert()
        .code(code)
        .get_output()
        .stdout
        .clone();
    serde_json::from_slice(&output).unwrap()
}

fn complains(arguments: &[&str], about: &str) {
    let output = kinlock(arguments)
        .assert()
        .code(2)
        .get_output()
        .stderr
        .clone();
    let text = String::from_utf8(output).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains(about), "{text}");
}

#[test]
fn bench_measures_everything_against_the_baseline() {
    let report = json(
        &[
            "bench",
            "ids",
            "--seconds",
            "0.005",
            "--rounds",
            "2",
            "--delay",
            "0.001",
            "--threads",
            "1,3",
            "--quiet",
            "--json",
            "-",
        ],
        0,
    );
    assert_eq!(report["kind"], "measured");
    let results = report["results"].as_array().unwrap();
    for workload in ["counter", "lease", "stack", "pool", "intermittent"] {
        let of: Vec<_> = results
            .iter()
            .filter(|entry| entry["workload"] == workload)
            .collect();
        assert!(
            of.iter()
                .any(|entry| entry["lock"].as_str().unwrap().starts_with("kinlock-"))
        );
        let baseline = of[0]["ratio"]["to"].as_str().unwrap();
        let own = of.iter().find(|entry| entry["lock"] == baseline).unwrap();
        assert_eq!(own["ratio"]["median"], 1.0);
        assert!(
            of.iter()
                .all(|entry| entry["ns_per_op"]["median"].as_f64().unwrap() > 0.0)
        );
        assert!(
            of.iter()
                .all(|entry| entry["rounds"].as_array().unwrap().len() == 2)
        );
    }
    let policies = results
        .iter()
        .filter(|entry| entry["workload"] == "intermittent");
    let policies: Vec<_> = policies
        .filter_map(|entry| entry["policy"].as_str())
        .collect();
    assert_eq!(
        policies,
        ["recent-first", "per-cpu", "lowest-free", "task-owned"]
    );
}

#[test]
fn every_form_of_the_report_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (csv, markdown, plot) = (file("r.csv"), file("r.md"), file("r.svg"));
    kinlock(&[
        "bench",
        "ids",
        "--workload",
        "counter",
        "--backend",
        "lease",
        "--policy",
        "task-owned",
    ])
    .args([
        "--seconds",
        "0.002",
        "--rounds",
        "1",
        "--threads",
        "1",
        "--quiet",
    ])
    .args(["--csv", &csv, "--markdown", &markdown, "--plot", &plot])
    .assert()
    .success();
    for name in [csv, markdown, plot] {
        let text = std::fs::read_to_string(&name).unwrap();
        assert!(text.contains("kinlock-lease-task-owned"), "{name}");
        assert!(!text.contains("rseq,"), "{name}");
    }
}

#[test]
fn bad_input_is_named_in_one_line() {
    complains(&["bench", "ids", "--policy", "fifo"], "recent-first");
    complains(&["bench", "ids", "--workload", "locks"], "intermittent");
    complains(&["bench", "ids", "--backend", "kernel"], "lease");
    complains(&["torture", "ids", "--ids", "fine"], "busted-shared");
    complains(&["torture", "ids", "--seconds", "-1"], "--seconds");
    complains(&["torture", "ids", "--scenarios", "x"], "fork");
}

#[test]
fn torture_passes_what_works_and_catches_what_does_not() {
    let report = json(
        &[
            "torture",
            "ids",
            "--policy",
            "recent-first",
            "--backend",
            "lease",
            "--seconds",
            "1.5",
            "--threads",
            "4",
            "--json",
            "-",
        ],
        0,
    );
    assert_eq!(report["passed"], true);
    let report = json(
        &[
            "torture",
            "ids",
            "--ids",
            "busted-bound,busted-leaked",
            "--seconds",
            "3",
            "--json",
            "-",
        ],
        1,
    );
    let caught = report["checks"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|check| check["property"] == "catch");
    assert!(
        caught
            .map(|check| check["passed"].as_bool())
            .all(|passed| passed == Some(true))
    );
}

/// Without registration by the C library and with `rseq` refused there is nothing to be had; the command has no such sandbox, but an unavailable backend is the same as bad input.
#[test]
fn policies_are_not_for_the_kernels_ids() {
    if kinlock_ids::Backend::Restartable.available().is_ok() {
        complains(
            &["bench", "ids", "--backend", "rseq", "--policy", "per-cpu"],
            "--policy",
        );
    } else {
        complains(
            &["bench", "ids", "--backend", "rseq"],
            "restartable sequences",
        );
        complains(
            &["torture", "ids", "--backend", "rseq"],
            "restartable sequences",
        );
    }
}
