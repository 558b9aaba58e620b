//! Policies for concurrency IDs in `kinlock-lab sim` and `kinlock-lab reproduce`.

mod support;

use serde_json::Value;
use support::{done, json, refused};

const SIM: &str =
    "sim --workload cid-intermittent --machine epyc-9654-2s --threads 8 --seeds 1 --band 0";

fn entry<'a>(report: &'a Value, policy: &str) -> &'a Value {
    let results = report["results"].as_array().unwrap();
    results.iter().find(|e| e["lock"] == policy).unwrap()
}

#[test]
fn policies_are_what_the_workload_takes() {
    let report = json(SIM);
    assert_eq!(report["results"].as_array().unwrap().len(), 4);
    let ns = |policy| {
        let median = &entry(&report, policy)["ns_per_op"]["median"];
        median.as_f64().unwrap()
    };
    assert!(ns("recent-first") <= 1.15 * ns("per-cpu"));
    assert!(ns("lowest-free") > 5.0 * ns("recent-first"));
    // With one policy, all areas were written in the warm-up; with the other, only those of the few
    // IDs that were left by scans.
    let first_touches = |policy| entry(&report, policy)["ids"]["first_touches"].as_f64();
    assert_eq!(first_touches("recent-first"), Some(0.0));
    assert!(first_touches("lowest-free") > Some(0.05));
    for policy in ["recent-first", "lowest-free", "task-owned"] {
        let ids = &entry(&report, policy)["ids"];
        assert!(ids["max_id"].as_u64().unwrap() < 8, "{ids}");
        assert_eq!(ids["bursts"], 5 * 5 * 8, "{ids}");
        // The first of the five runs counts, too, and in it lines come from memory: ten per burst.
        let traffic = &entry(&report, policy)["traffic"];
        assert!(traffic["memory"].as_f64() > Some(5.0), "{traffic}");
    }
    assert_eq!(entry(&report, "per-cpu")["suite"], "ids");
    let table = done(SIM);
    assert!(table.contains("ns/burst") && table.contains("max ID"));
}

#[test]
fn published_bursts_stand_beside_simulated_ones() {
    let two_rows = "reproduce cid-200ms --seeds 1 --band 0 --threads 8,24";
    let report = json(two_rows);
    let table = &report["tables"][0];
    assert_eq!(table["policies"][1][1]["name"], "lowest-free");
    let rows = table["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 6);
    let row = |column| {
        let mut rows = rows.iter();
        rows.find(|r| r["column"] == column && r["key"] == 24)
            .unwrap()
    };
    assert_eq!(row("mm_cid")["published"], 26721.0);
    assert_eq!(row("speedup")["published"], 16.7);
    // The slowdown is one and a half times the published one, and a target has two sides.
    assert_eq!(row("slowdown")["pass"], false);
    assert!(row("mm_cid")["ids"]["max_id"].as_u64().unwrap() < 24);
    assert!(row("task_owned")["published"].is_null());
    assert!(row("task_owned")["pass"].is_null());
    let text = done(two_rows);
    for expected in [
        "24-core/24-L3",
        "fitted",
        "cache_local_mm_cid",
        "targets met",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    refused("reproduce cid-200ms --threads 9", "no row");
    refused(
        "reproduce cid-200ms --machine laptop",
        "cid-intermittent pins",
    );
}

#[test]
fn the_picture_has_policies_over_rows() {
    let to = concat!(env!("CARGO_TARGET_TMPDIR"), "/ids.svg");
    let line = "reproduce cid-200ms --threads 8 --seeds 1 --band 0";
    done(&format!("{line} --plot {to}"));
    let picture = std::fs::read_to_string(to).unwrap();
    for expected in ["cid-200ms", "lowest-free", "8-core/1-L3", "ns per burst"] {
        assert!(picture.contains(expected), "{expected}");
    }
    assert!(picture.contains("published"));
}
