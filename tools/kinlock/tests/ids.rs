//! `kinlock bench ids` as a user runs it.

#![cfg(feature = "bench")]

mod support;

use support::{ends, json, list, refused};

#[test]
fn bench_measures_everything_against_the_baseline() {
    let report = json("bench ids --seconds 0.005 --rounds 2 --delay 0.001 --threads 1,3 --quiet");
    assert_eq!(report["kind"], "measured");
    assert!(report["restartable"].is_string());
    assert_eq!(report["parameters"]["delay_seconds"], 0.001);
    let results = list(&report["results"]);
    for workload in [
        "counter",
        "histogram",
        "lease",
        "stack",
        "pool",
        "cache",
        "intermittent",
    ] {
        let of = results.iter().filter(|entry| entry["workload"] == workload);
        let of: Vec<_> = of.collect();
        let mut locks = of.iter().map(|entry| entry["lock"].as_str().unwrap());
        assert!(locks.any(|lock| lock.starts_with("kinlock-")));
        let baseline = of[0]["ratio"]["to"].as_str().unwrap();
        let own = of.iter().find(|entry| entry["lock"] == baseline).unwrap();
        assert_eq!(own["ratio"]["median"], 1.0);
        for entry in of {
            assert_eq!(entry["suite"], "ids");
            assert!(entry["ns_per_op"]["median"].as_f64() > Some(0.0));
            assert!(entry["cpu_ns_per_op"]["median"].is_number() && entry["noisy"].is_boolean());
            assert_eq!(list(&entry["rounds"]).len(), 2);
        }
    }
}

#[test]
fn every_form_of_the_report_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [csv, markdown, plot] = ["r.csv", "r.md", "r.svg"].map(path);
    let asked = "--workload counter --threads 1 --quiet";
    let short = "--seconds 0.002 --rounds 1";
    let files = format!("--csv {csv} --markdown {markdown} --plot {plot}");
    ends(0, &format!("bench ids {asked} {short} {files}"));
    for name in [csv, markdown, plot] {
        let text = std::fs::read_to_string(&name).unwrap();
        assert!(text.contains("kinlock-lease"), "{name}");
    }
}

#[test]
fn bad_input_is_named_in_one_line() {
    refused("bench ids --workload locks", "intermittent");
}
