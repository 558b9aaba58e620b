//! What `kinlock bench invalidation` reports, and what it refuses.

#![cfg(feature = "bench")]

mod support;

use support::{has_numbers, json, list, names, refused, run};

const SHORT: &str = "bench invalidation --seconds 0.02 --rounds 2";

#[test]
fn bench_has_the_promised_fields() {
    let report = json(&format!("{SHORT} --threads 2"));
    assert_eq!(report["kind"], "measured");
    let results = list(&report["results"]);
    for workload in ["section", "passed", "pages"] {
        for name in ["locked", "slots", "crossbeam-epoch", "seize"] {
            let mut of_it = results.iter().filter(|entry| entry["workload"] == workload);
            let entry = of_it.find(|entry| entry["lock"] == name);
            let entry = entry.unwrap_or_else(|| panic!("{workload} {name}"));
            assert_eq!(entry["suite"], "invalidation");
            assert_eq!(entry["threads"], 2);
            for field in ["ops_per_s", "ns_per_op", "ratio"] {
                for value in ["median", "min", "max"] {
                    assert!(entry[field][value].as_f64() > Some(0.0), "{entry}");
                }
            }
            assert_eq!(list(&entry["rounds"]).len(), 2);
            assert_eq!(entry["lost"], 0);
            let sections = &entry["sections"];
            assert_eq!(sections.is_object(), name == "locked" || name == "slots");
            if sections.is_object() {
                has_numbers(sections, "waits slow_waits longest_queue");
            }
            assert_eq!(entry["verified"].as_u64() > Some(0), workload == "pages");
        }
    }
    let other = results.iter().find(|entry| entry["lock"] == "lock-held");
    assert_eq!(other.unwrap()["ratio"]["to"], "locked");
}

#[test]
fn bench_draws_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let drawn = |name: &str, more: &str| {
        let picture = folder.path().join(name);
        let output = run(&format!("{SHORT} --plot {} {more}", picture.display()));
        assert_eq!(output.status.code(), Some(0));
        std::fs::read_to_string(picture).unwrap()
    };
    let both = "--backends slots,busy-flag --threads 2";

    let width = |svg: &str| {
        let start = svg.split_once("width=\"").unwrap().1;
        start.split_once('"').unwrap().0.to_owned()
    };
    let one = drawn("b.svg", both);
    let curves = "thousands of operations per second";
    // All bars, once per contender and workload; the flag has no sections.
    for (text, times) in [("slots", 3), ("locked", 3), ("busy-flag", 2), (curves, 0)] {
        let found = one.lines().filter(|line| line.trim() == text).count();
        assert_eq!(found, times, "{text}");
    }
    let several = drawn("c.svg", "--workload pages --threads 1,3 --backends slots");
    for text in ["slots", "locked", "operations per second", "threads"] {
        assert!(several.contains(text), "{text}");
    }
    assert!(!several.contains("busy-flag") && !several.contains("shorter is better"));
    assert_eq!(width(&one), width(&several));
    refused(&format!("{SHORT} --plot x.gif"), ".svg");
}

#[test]
fn bench_measures_what_is_asked_for() {
    let asked = "--threads 2 --backends slots --workload section --baseline locked";
    let report = json(&format!("{SHORT} {asked}"));
    assert_eq!(names(&report, "lock"), ["slots", "locked"]);
    assert_eq!(report["results"][0]["ratio"]["to"], "locked");
    assert_eq!(report["results"][1]["ratio"]["median"], 1.0);
}

#[test]
fn bad_input_is_one_line() {
    refused("bench invalidation --backends packed", "slots");
    refused("bench invalidation --workload foo", "pages");
    refused("bench invalidation --threads 0", "4096");
    let nothing = "--backends busy-flag --baseline busy-flag --workload section";
    refused(&format!("bench invalidation {nothing}"), "none of");
}
