//! Delayed invalidation, tortured and simulated.

mod support;

use support::{json, list, refused};

#[test]
fn bad_input_is_one_line() {
    refused("torture invalidation --backends packed", "slots");
    refused("torture invalidation --seconds 0", "--seconds");
    let mixed = "sim --workload invalidation --locks tas";
    refused(mixed, "takes backends of delayed invalidation");
    let mixed = "sim --workload lock2 --locks invalidation-slots";
    refused(mixed, "invalidation-slots");
    let gone = "sim --workload invalidation --locks invalidation-packed";
    refused(gone, "invalidation-slots");
}

#[test]
fn torture_passes_ours() {
    let report = json("torture invalidation --threads 8 --quiet --seconds 0.5");
    assert_eq!(report["passed"], true, "{report}");
    assert_eq!(report["parameters"]["backends"][0], "locked");
    assert!(report["per_thread"]["mean"].as_f64() > Some(0.0));
}

#[test]
fn backends_are_what_the_workload_takes() {
    let report = json(
        "sim --workload invalidation --machine ivybridge-2s --threads 1,8 --seconds 0.001 --seeds 1",
    );
    let results = list(&report["results"]);
    assert_eq!(results.len(), 10);
    assert_eq!(results[0]["ratio"]["to"], "invalidation-locked");
}
