//! What `kinlock-lab sim` makes of a recording by `kinlock record`.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use support::{done, json, list, recorded, recorded_lock as lock, refused, script, within};
use tempfile::TempDir;

/// The text and the report of a simulation with 1, 8 and 16 threads.
fn simulated(file: &Path) -> (String, Value) {
    let line = format!(
        "sim --quiet --machine laptop --threads 1,8,16 --seconds 0.02 --seeds 2 --workload {}",
        file.display()
    );
    (done(&line), json(&line))
}

/// The share of their time that threads wait for the lock called hot.
fn shares_of_waiting(report: &Value) -> [f64; 3] {
    let workload = &report["parameters"]["workloads"][0];
    let names = list(&workload["program_locks"]);
    let hot = names.iter().position(|name| name == "hot").unwrap();
    let share = |threads: u64| {
        let mut results = list(&report["results"]).iter();
        let of_mutex = |result: &&Value| result["threads"] == threads && result["lock"] == "mutex";
        let run = &results.find(of_mutex).unwrap()["runs"][0];
        let all = threads as f64 * run["seconds"].as_f64().unwrap() * 1e9;
        // A lock that no thread took has no waits.
        run["waited"][hot]["wait_ns"].as_f64().unwrap_or(0.0) / all
    };
    [1, 8, 16].map(share)
}

#[test]
fn a_simulation_tells_how_long_more_threads_would_wait() {
    let (_folder, file, _) = recorded(&[], &["2", "4000", "5", "40"]);
    let (text, report) = simulated(&file);
    let said = "on laptop with 16 threads your program would spend ";
    let sentence = text.lines().find(|line| line.contains(said)).unwrap();
    assert!(
        sentence.contains("waiting for lock hot under futex; under mutex "),
        "{sentence}"
    );
    assert!(text.contains("A replay knows how long"), "{text}");
    // The exact shares depend on what else ran during the recording.
    let shares = shares_of_waiting(&report);
    assert!(
        shares.iter().all(|share| (0.0..1.0).contains(share)),
        "{shares:?}"
    );
}

mod deep {
    use super::*;

    /// A recording in which few times are long because other programs used the CPUs: one measured
    /// time stands for hundreds, and a think time of 20 ms would fill a short simulation.
    fn recorded_undisturbed() -> (TempDir, PathBuf) {
        let mut long = Vec::new();
        for _ in 0..6 {
            let (folder, file, recording) = recorded(&[], &["2", "4000", "5", "40"]);
            let hot = lock(&recording, "hot");
            let parts = (
                within(&hot["hold"], 25_000, u64::MAX).0,
                within(&hot["think"], 200_000, u64::MAX).0,
            );
            if parts.0 < 0.01 && parts.1 < 0.005 {
                return (folder, file);
            }
            long.push(parts);
        }
        panic!("the machine is too busy: parts of the holds and thinks that are long: {long:?}");
    }

    /// This test needs a machine that does nothing else.
    #[test]
    #[ignore = "deep: needs a quiet machine"]
    fn more_threads_wait_as_much_as_the_times_say() {
        let (_folder, file) = recorded_undisturbed();
        let shares = shares_of_waiting(&simulated(&file).1);
        let told = || format!("{shares:?}: {}", fs::read_to_string(&file).unwrap());
        // A thread holds the lock for a ninth of its time: eight threads can work, but of sixteen
        // nearly half have to wait.
        assert!(shares[2] > 0.25, "{}", told());
        assert!(shares[1] < shares[2], "{}", told());
        // A single thread does not wait.
        assert!(shares[0] < shares[2] / 10.0, "{}", told());
    }
}

#[test]
fn what_is_no_recording_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let other = script(folder.path(), "other.json", "{}");
    let line = format!("sim --workload {}", other.display());
    refused(&line, "is no recording of `kinlock record`");
}
