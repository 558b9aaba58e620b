//! `kinlock validate`: measured beside simulated.

mod support;

use support::{json, list, refused};

#[test]
fn every_shared_workload_is_measured_and_simulated() {
    let report = json("validate --quiet --seconds 0.005 --rounds 1");
    assert_eq!(report["kind"], "validated");
    let results = list(&report["results"]);
    // The counter and a fifth of the grid, 3 locks, 1 and 2 threads.
    assert_eq!(results.len(), 13 * 3 * 2);
    for result in results {
        let [measured, simulated] =
            ["measured_ns", "simulated_ns"].map(|name| result[name]["median"].as_f64().unwrap());
        let error = 100.0 * (simulated / measured - 1.0);
        assert!(
            (result["error_pct"].as_f64().unwrap() - error).abs() < 1e-6,
            "{result}"
        );
        // Both are of one workload: work under the lock is at least as long as its name says.
        if result["workload"] == "grid:20us/0/128" {
            assert!(measured > 10_000.0 && simulated > 19_000.0, "{result}");
        }
    }
    assert!(report["error_median_pct"].is_number());
    assert_eq!(report["simulated_machine"]["name"], "this");
}

#[test]
fn bad_input_is_refused() {
    refused(
        "validate --json /nowhere/file",
        "cannot write /nowhere/file",
    );
}
