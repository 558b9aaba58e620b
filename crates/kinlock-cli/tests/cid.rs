//! Policies for concurrency IDs in `kinlock sim` and `kinlock reproduce`.

mod sim_support;

use serde_json::Value;
use sim_support::{done, json, refused, without_host};

const SIM: [&str; 11] = [
    "sim",
    "--workload",
    "cid-intermittent",
    "--machine",
    "epyc-9654-2s",
    "--threads",
    "8",
    "--seeds",
    "1",
    "--band",
    "0",
];

fn entry<'a>(report: &'a Value, policy: &str) -> &'a Value {
    let results = report["results"].as_array().unwrap();
    results.iter().find(|e| e["lock"] == policy).unwrap()
}

#[test]
fn policies_are_what_the_workload_takes() {
    let report = json(&SIM);
    assert_eq!(report["results"].as_array().unwrap().len(), 4);
    let ns = |policy| {
        entry(&report, policy)["ns_per_op"]["median"]
            .as_f64()
            .unwrap()
    };
    assert!(ns("recent-first") <= 1.15 * ns("per-cpu"));
    assert!(ns("lowest-free") > 5.0 * ns("recent-first"));
    for policy in ["recent-first", "lowest-free", "task-owned"] {
        let ids = &entry(&report, policy)["ids"];
        assert!(ids["max_id"].as_u64().unwrap() < 8, "{ids}");
        assert_eq!(ids["bursts"], 5 * 5 * 8, "{ids}");
        // The first run of five counts, too: in it lines come from memory, ten per burst.
        let traffic = &entry(&report, policy)["traffic"];
        assert!(traffic["memory"].as_f64() > Some(5.0), "{traffic}");
    }
    assert_eq!(entry(&report, "per-cpu")["suite"], "ids");
    assert!(done(&SIM).contains("ns/burst"));
}

#[test]
fn the_same_seed_gives_the_same_report() {
    let one = json(&[&SIM[..], &["--host-threads", "1"]].concat());
    let two = json(&[&SIM[..], &["--host-threads", "2"]].concat());
    assert_eq!(without_host(one), without_host(two));
}

#[test]
fn locks_and_policies_do_not_mix() {
    let with = |more: &[&'static str]| [&["sim", "--machine", "epyc-9654-2s"], more].concat();
    let refuse = |more: &[&'static str], expected| refused(&with(more), expected);
    refuse(
        &["--workload", "cid-intermittent", "--locks", "tas"],
        "tas is a lock",
    );
    refuse(
        &["--locks", "per-cpu"],
        "per-cpu is a policy for concurrency IDs",
    );
    refuse(&["--workload", "cid-changing,lock2"], "lock2 takes locks");
    refuse(
        &["--workload", "cid-intermittent", "--threads", "385"],
        "the machine has 384",
    );
    refuse(&["--workload", "cid"], "cid-intermittent");
}

#[test]
fn published_bursts_stand_beside_simulated_ones() {
    let one_seed = ["--seeds", "1", "--band", "0", "--threads", "8,24"];
    let report = json(&[&["reproduce", "cid-200ms", "cid-10ms"], &one_seed[..]].concat());
    let tables = report["tables"].as_array().unwrap();
    let rows = tables[0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 6);
    let row = |column| {
        rows.iter()
            .find(|r| r["column"] == column && r["key"] == 24)
            .unwrap()
    };
    assert_eq!(row("mm_cid")["published"], 26721.0);
    assert_eq!(row("speedup")["published"], 16.7);
    assert_eq!(row("slowdown")["pass"], true);
    assert!(row("task_owned")["published"].is_null());
    let rows = tables[1]["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["pass"].is_null()));
    let text = done(&[&["reproduce", "cid-200ms"], &one_seed[..]].concat());
    for expected in [
        "24-core/24-L3",
        "fitted",
        "cache_local_mm_cid",
        "targets met",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    refused(&["reproduce", "cid-200ms", "--threads", "9"], "no row");
    refused(
        &["reproduce", "cid-200ms", "--machine", "laptop"],
        "cid-intermittent pins",
    );
}

#[test]
fn each_table_has_its_picture() {
    let to = concat!(env!("CARGO_TARGET_TMPDIR"), "/ids.svg");
    let rows = ["--threads", "8", "--seeds", "1", "--band", "0"];
    let tables = ["reproduce", "cid-200ms", "cid-10ms", "--plot", to];
    done(&[&tables[..], &rows[..]].concat());
    for (table, published) in [("cid-200ms", true), ("cid-10ms", false)] {
        let path = to.replace("ids.svg", &format!("ids-{table}.svg"));
        let picture = std::fs::read_to_string(path).unwrap();
        for expected in [table, "lowest-free", "8-core/1-L3", "ns per burst"] {
            assert!(picture.contains(expected), "{expected}");
        }
        assert_eq!(picture.contains("published"), published);
    }
}

#[test]
fn density_is_shown_by_phase() {
    let report = json(&["reproduce", "cid-density", "--seeds", "1", "--band", "0"]);
    let rows = report["tables"][0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6 * 6);
    for row in rows.iter().filter(|row| row["label"] == "64/24") {
        if ["mm_cid", "cache_local_mm_cid"].contains(&row["column"].as_str().unwrap()) {
            assert!(row["ids"]["max_id"].as_u64().unwrap() < 24, "{row}");
        }
    }
    let text = done(&["reproduce", "cid-density", "--seeds", "1", "--band", "0"]);
    assert!(text.contains("mean, max ID"), "{text}");
}
