//! Delayed invalidation, tortured and simulated.

mod support;

use support::{json, json_with, list, refused};

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
fn torture_catches_a_broken_one() {
    let line =
        "torture invalidation --threads 8 --quiet --backends busted-wait --seconds 4 --hang 2";
    let report = json_with(line, 1);
    let checks = list(&report["checks"]).iter();
    let mut caught = checks.filter(|check| check["property"] == "catch");
    assert!(caught.next().is_some_and(|check| check["passed"] == true));
}

#[test]
fn simulated_invalidation_is_repeatable() {
    let line = "sim --workload invalidation --machine ivybridge-2s --threads 1,8 --seconds 0.001 \
        --seeds 1";
    let report = json(line);
    let results = list(&report["results"]);
    assert_eq!(results.len(), 10);
    assert_eq!(results[0]["ratio"]["to"], "invalidation-locked");
    let again = json(line);
    assert_eq!(results[5]["ops_per_us"], again["results"][5]["ops_per_us"]);
}
