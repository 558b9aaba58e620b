//! What `kinlock sim` reports, and what it refuses.

mod sim_support;

use std::fs;

use serde_json::Value;
use sim_support::{done, json, kinlock, refused, without_host};
use tempfile::TempDir;

/// A run that takes a moment.
const SHORT: [&str; 7] = [
    "sim",
    "--seconds",
    "0.0005",
    "--locks",
    "tas,cna",
    "--threads",
    "1,20",
];

fn short<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SHORT[..], more].concat()
}

#[test]
fn json_has_the_promised_fields() {
    let report = json(&short(&["--workload", "lock2,locktorture"]));
    assert_eq!(report["kind"], "simulated");
    assert_eq!(report["command"][1], "sim");
    assert_eq!(report["seeds"], serde_json::json!([1, 2, 3]));
    assert_eq!(report["machine"]["name"], "haswell-ex-4s");
    let constants = &report["parameters"]["workloads"][1]["parameters"];
    for parameters in [&report["machine"]["parameters"], constants] {
        for parameter in parameters.as_array().unwrap() {
            for field in ["name", "value", "origin", "source"] {
                assert!(parameter[field].is_string(), "{parameter}");
            }
        }
    }
    let results = report["results"].as_array().unwrap();
    let cells: Vec<_> = results
        .iter()
        .map(|result| {
            let name = |field: &str| result[field].as_str().unwrap().to_owned();
            (
                name("workload"),
                result["threads"].as_u64().unwrap(),
                name("lock"),
            )
        })
        .collect();
    let mut expected = Vec::new();
    for workload in ["lock2", "locktorture"] {
        for threads in [1, 20] {
            // The baseline comes along.
            for lock in ["tas", "cna", "qspinlock"] {
                expected.push((workload.to_owned(), threads, lock.to_owned()));
            }
        }
    }
    assert_eq!(cells, expected);
    for result in results {
        assert_eq!(result["suite"], "locks");
        assert_eq!(result["ratio"]["to"], "qspinlock");
        for (object, fields) in [
            ("ops_per_us", &["median", "low", "high"][..]),
            ("ops_per_s", &["median", "min", "max"]),
            ("ns_per_op", &["median", "min", "max"]),
            ("ratio", &["median", "min", "max"]),
            ("fairness", &["jain", "min_over_mean"]),
            ("acquire_ns", &["p50", "p99", "p999", "max"]),
            ("handoffs", &["local", "remote"]),
            (
                "traffic",
                &["own_cache", "last_level", "local", "remote", "memory"],
            ),
            ("counters", &["slow_path", "handoff_local", "park"]),
        ] {
            for field in fields {
                assert!(result[object][field].is_number(), "{object}.{field}");
            }
        }
        assert!(result["events"].as_u64().unwrap() > 0);
        assert!(result["events_per_host_second"].as_f64().unwrap() > 0.0);
        assert_eq!(result["runs"].as_array().unwrap().len(), 5);
        for summary in [
            &result["ops_per_us"],
            &result["ns_per_op"],
            &result["ratio"],
        ] {
            let number = |a: &str, b: &str| summary[a].as_f64().or(summary[b].as_f64()).unwrap();
            let (low, high) = (number("low", "min"), number("high", "max"));
            let median = number("median", "median");
            assert!(0.0 < low && low <= median && median <= high, "{summary}");
        }
        if result["lock"] == "qspinlock" {
            assert_eq!(result["ratio"]["min"], 1.0);
            assert_eq!(result["ratio"]["max"], 1.0);
        }
    }
}

#[test]
fn results_depend_on_neither_host_threads_nor_time() {
    let one = json(&short(&["--host-threads", "1"]));
    let three = json(&short(&["--host-threads", "3"]));
    assert_ne!(one["host_threads"], three["host_threads"]);
    assert_eq!(without_host(one), without_host(three));
}

#[test]
fn another_seed_gives_other_results() {
    let one = json(&short(&["--seeds", "1"]));
    let two = json(&short(&["--seeds", "1", "--seed", "2"]));
    assert_ne!(
        one["results"][5]["runs"][0]["ops"],
        two["results"][5]["runs"][0]["ops"]
    );
}

#[test]
fn the_command_in_the_report_repeats_it() {
    let report = json(&short(&[
        "--local-limit",
        "2^10",
        "--placement",
        "spread",
        "--band",
        "0",
    ]));
    let command: Vec<&str> = report["command"]
        .as_array()
        .unwrap()
        .iter()
        .skip(1)
        .map(|argument| argument.as_str().unwrap())
        .collect();
    assert_eq!(without_host(json(&command)), without_host(report));
}

#[test]
fn parts_make_the_whole() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let parts = [1, 2, 3].map(|part| {
        let file = path(&format!("{part}.json"));
        let shard = format!("{part}/3");
        assert_eq!(done(&short(&["--shard", &shard, "--json", &file])), "");
        file
    });
    let [a, b, c] = parts.each_ref().map(String::as_str);

    let whole = without_host(json(&SHORT));
    assert_eq!(without_host(json(&["sim", "--merge", c, a, b])), whole);
    let plot = |name: &str, arguments: &[&str]| {
        let file = path(name);
        done(&[arguments, &["--plot", &file]].concat());
        fs::read(file).unwrap()
    };
    let merged = plot("merged.svg", &["sim", "--merge", a, b, c]);
    assert!(merged == plot("whole.svg", &SHORT));
    assert!(String::from_utf8(merged).unwrap().contains("cna"));
    assert!(plot("whole.png", &SHORT).starts_with(b"\x89PNG"));

    refused(&["sim", "--merge", a, c], "part 2/3 is missing");
    refused(&["sim", "--merge", a, b, c, b], "twice");
    let other = path("other.json");
    done(&short(&["--seed", "9", "--shard", "2/3", "--json", &other]));
    refused(&["sim", "--merge", a, &other, c], "different runs");
    let whole = path("whole.json");
    done(&short(&["--json", &whole]));
    refused(&["sim", "--merge", &whole], "not a part");
    refused(&["sim", "--merge", &path("none")], "cannot read");
    let mut damaged: Value = serde_json::from_str(&fs::read_to_string(b).unwrap()).unwrap();
    damaged["samples"].as_array_mut().unwrap().pop();
    let short_of_one = path("damaged.json");
    fs::write(&short_of_one, damaged.to_string()).unwrap();
    refused(
        &["sim", "--merge", a, &short_of_one, c],
        "damaged.json is damaged",
    );
    refused(&["sim", "--merge", a, b, c, "--threads", "2"], "--threads");
}

#[test]
fn tables_show_every_lock() {
    let table = done(&SHORT);
    assert!(
        table.contains("Haswell") && table.contains("lock2, 20 threads"),
        "{table}"
    );
    for lock in ["tas", "cna", "qspinlock"] {
        assert!(table.contains(&format!("\n {lock} ")), "{table}");
    }
    assert!(done(&short(&["--markdown", "-"])).contains("| --- | ---: |"));
    let csv = done(&short(&["--csv", "-"]));
    assert_eq!(csv.lines().count(), 1 + 2 * 3);
    let fields: Vec<_> = csv.lines().map(|line| line.split(',').count()).collect();
    assert!(fields.iter().all(|&count| count == fields[0]), "{csv}");
}

#[test]
fn knobs_reach_the_lock() {
    let local = |knobs: &[&str]| -> Value {
        let quick = ["--seeds", "1", "--band", "0", "--threads", "40"];
        let all = ["sim", "--seconds", "0.0005", "--locks", "cna"];
        let report = json(&[&all[..], &quick, knobs].concat());
        report["results"][0].clone()
    };
    let scans = |result: &Value| result["counters"]["scan"].as_u64().unwrap();
    let auto = local(&[]);
    assert!(scans(&auto) > 0);
    assert_eq!(scans(&local(&["--numa", "off"])), 0);
    assert_ne!(
        auto["runs"][0]["ops"],
        local(&["--scan", "incremental"])["runs"][0]["ops"]
    );
    assert_ne!(
        auto["runs"][0]["ops"],
        local(&["--local-limit", "2^1"])["runs"][0]["ops"]
    );
    assert_ne!(
        auto["runs"][0]["ops"],
        local(&["--placement", "spread"])["runs"][0]["ops"]
    );
}

#[test]
fn bad_input_is_one_line() {
    let bad = |arguments: &[&str], expected: &str| {
        refused(&[&["sim"], arguments].concat(), expected);
    };
    bad(&["--machine", "pdp-11"], "haswell-ex-4s");
    bad(&["--workload", "foo"], "lock2");
    bad(&["--locks", "tas,foo"], "qspinlock");
    bad(&["--baseline", "foo"], "qspinlock");
    for threads in ["0", "100000", "1,0", "x", "4..2", ""] {
        bad(&["--threads", threads], "--threads");
    }
    for seconds in ["0", "-1", "nan", "inf", "1000"] {
        bad(&["--seconds", seconds], "--seconds");
    }
    for shard in ["0/3", "4/3", "1", "1/0", "a/b", "-1/3", "1/3/3"] {
        bad(&[&format!("--shard={shard}"), "--json", "-"], "--shard");
    }
    bad(&["--shard", "1/3"], "--json");
    bad(&["--shard", "1/3", "--json", "-", "--csv", "x"], "--csv");
    bad(&["--seeds", "0"], "--seeds");
    bad(&["--seed=-1"], "--seed");
    bad(&["--band", "-1"], "--band");
    bad(&["--band", "100"], "--band");
    bad(&["--placement", "foo"], "compact");
    bad(&["--numa", "maybe"], "auto, on or off");
    bad(&["--scan", "foo"], "incremental");
    bad(&["--local-limit", "10"], "2^31");
    bad(&["--domain", "die"], "llc");
    bad(&["--host-threads", "0"], "--host-threads");
    bad(&["--plot", "x.gif"], ".svg or .png");
    bad(&["--merge"], "--merge");
    bad(&["--frob"], "--frob");
}

#[test]
fn unwritable_outputs_are_refused_before_the_run() {
    let folder = TempDir::new().unwrap();
    let missing = folder.path().join("missing/x");
    let missing = missing.to_str().unwrap();
    for output in ["--json", "--csv", "--markdown"] {
        refused(&["sim", output, missing], "cannot write");
    }
    refused(
        &["sim", "--plot", &format!("{missing}.svg")],
        "cannot write",
    );
    refused(
        &["sim", "--shard", "1/2", "--json", missing],
        "cannot write",
    );
    refused(&["sim", "--json", "-", "--csv", "-"], "stdout");
}

#[test]
fn a_broken_machine_file_is_named() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("my.toml");
    fs::write(&file, "name = 3").unwrap();
    refused(&["sim", "--machine", file.to_str().unwrap()], "my.toml");
}

#[test]
fn help_has_an_example() {
    let output = kinlock(&["sim", "--help"]);
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(help.contains("kinlock sim --"), "{help}");
}
