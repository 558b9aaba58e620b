//! `kinlock-lab validate`: compares measured with simulated workloads.

mod support;

use serde_json::Value;
use support::{list, refused, run};

#[test]
fn every_shared_workload_is_measured_and_simulated() {
    support::beside();
    let output = run("validate --quiet --seconds 0.005 --rounds 1 --json -");
    let message = String::from_utf8_lossy(&output.stderr);
    if message.contains("nothing was measured: the host moves the CPUs within every round") {
        return eprintln!("WARNING: {message}: the comparison is NOT tested");
    }
    assert!(output.status.success() && message.is_empty(), "{message}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("stdout is JSON");
    assert_eq!(report["kind"], "validated");
    let results = list(&report["results"]);
    // The counter and a fifth of the grid, 3 locks, 1 and 2 threads, without workloads in whose
    // rounds the host moved the CPUs.
    let unsteady = list(&report["unsteady"]).len();
    assert_eq!(results.len(), (13 - unsteady) * 3 * 2);
    assert!(unsteady < 13);
    let same = |result: &Value, lock: &str| {
        let mut all = results.iter();
        let key = |of: &Value| [of["workload"].clone(), of["threads"].clone()];
        all.find(|other| key(other) == key(result) && other["lock"] == lock)
            .unwrap()
    };
    for result in results {
        let [measured, simulated] =
            ["measured_ns", "simulated_ns"].map(|name| result[name]["median"].as_f64().unwrap());
        let error = 100.0 * (simulated / measured - 1.0);
        assert!(
            (result["error_pct"].as_f64().unwrap() - error).abs() < 1e-6,
            "{result}"
        );
        let transfer = result["transfer_ns"]["median"].as_f64().unwrap();
        assert!(transfer > 1.0, "{result}");
        let baseline = same(result, "std-mutex");
        let of = |name: &str| {
            result[name]["median"].as_f64().unwrap() / baseline[name]["median"].as_f64().unwrap()
        };
        let ratio_error = 100.0 * (of("measured_ns") / of("simulated_ns") - 1.0);
        assert!(
            (result["ratio_error_pct"].as_f64().unwrap() - ratio_error).abs() < 1e-6,
            "{result}"
        );
        // Both run the same workload: the work under the lock takes at least the time in its name.
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
