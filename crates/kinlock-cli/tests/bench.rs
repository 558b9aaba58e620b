//! What `kinlock bench` reports. Nothing here depends on how fast anything is.

mod bench_support;

use std::fs;

use bench_support::{json, kinlock, short};
use serde_json::Value;
use tempfile::TempDir;

const WORKLOADS: [&str; 7] = [
    "empty",
    "counter",
    "long",
    "saturated",
    "kv",
    "lru",
    "readrandom",
];

#[test]
fn every_lock_does_every_workload() {
    for workload in WORKLOADS {
        let report = json(&["--workload", workload, "--threads", "1,3"]);
        let results = report["results"].as_array().unwrap();
        let missing = report["unavailable"].as_array().unwrap().len();
        assert_eq!(results.len(), 2 * (12 - missing), "{workload}");
        for result in results {
            assert_eq!(result["workload"], workload);
            let ops = &result["rounds"][0]["ops_per_thread"];
            assert_eq!(
                ops.as_array().unwrap().len() as u64,
                result["threads"].as_u64().unwrap()
            );
            assert!(
                result["acquire_ns"]["max"].as_u64().unwrap() > 0,
                "{result}"
            );
        }
    }
}

#[test]
fn json_has_the_promised_fields() {
    let report = json(&[
        "--workload",
        "counter",
        "--threads",
        "2",
        "--locks",
        "tas,kinlock-spin",
    ]);
    assert_eq!(report["kind"], "measured");
    assert_eq!(report["command"][1], "bench");
    for field in [
        "cpu",
        "cpus",
        "usable_cpus",
        "sockets",
        "nodes",
        "domains",
        "virtual",
        "kernel",
        "libc",
        "timer_resolution_ns",
        "timer_cost_ns",
        "load_average",
        "version",
    ] {
        assert!(!report["machine"][field].is_null(), "{field}");
    }
    let results = report["results"].as_array().unwrap();
    let locks: Vec<_> = results
        .iter()
        .map(|result| result["lock"].as_str().unwrap())
        .collect();
    // The baseline comes along.
    assert_eq!(locks, ["tas", "kinlock-spin", "std-mutex"]);
    for result in results {
        assert_eq!(result["suite"], "locks");
        assert_eq!(result["threads"], 2);
        assert_eq!(result["ratio"]["to"], "std-mutex");
        for summary in ["ops_per_s", "ns_per_op", "ratio", "cpu_ns_per_op"] {
            for field in ["median", "min", "max"] {
                assert!(result[summary][field].is_number(), "{summary}.{field}");
            }
        }
        for (object, fields) in [
            ("fairness", &["jain", "min_over_mean"][..]),
            ("acquire_ns", &["p50", "p99", "p999", "max"]),
            (
                "handoffs",
                &[
                    "local",
                    "remote",
                    "retaken",
                    "longest_remote_wait_ns",
                    "longest_local_run_ns",
                ],
            ),
        ] {
            for field in fields {
                assert!(result[object][field].is_number(), "{object}.{field}");
            }
        }
        let rounds = result["rounds"].as_array().unwrap();
        assert_eq!(rounds.len(), 2);
        for round in rounds {
            for field in [
                "place",
                "seconds",
                "ops_per_s",
                "ratio",
                "cpu_ns_per_op",
                "acquire_p999_ns",
                "acquire_p999_ratio",
                "acquire_max_ns",
            ] {
                assert!(round[field].is_number(), "{field}");
            }
        }
        let has_events = !result["events"].as_object().unwrap().is_empty();
        assert_eq!(has_events, result["lock"] == "kinlock-spin");
    }
    let baseline = &results[2];
    for ratio in ["ratio", "acquire_p999_ratio"] {
        assert_eq!(baseline[ratio]["median"], 1.0);
        assert!(
            results
                .iter()
                .all(|result| result[ratio]["to"] == "std-mutex")
        );
    }
    // Tails are compared round by round.
    let rounds = |result: &Value| result["rounds"].as_array().unwrap().clone();
    for result in results {
        for (round, baseline) in rounds(result).iter().zip(rounds(baseline)) {
            let number = |round: &Value, field: &str| round[field].as_f64().unwrap();
            let tail = |round| number(round, "acquire_p999_ns").max(1.0);
            let ratio = tail(round) / tail(&baseline);
            assert!((number(round, "acquire_p999_ratio") - ratio).abs() < 1e-9);
        }
    }
    // All locks of a round have a place of their own.
    for round in 0..2 {
        let mut places: Vec<_> = results
            .iter()
            .map(|r| r["rounds"][round]["place"].as_u64().unwrap())
            .collect();
        places.sort_unstable();
        assert_eq!(places, [0, 1, 2]);
    }
}

#[test]
fn pretended_domains_are_told_apart() {
    let mut command = kinlock();
    command.env("KINLOCK_TOPOLOGY", "0;1");
    command.args([
        "bench",
        "--locks",
        "kinlock-spin-fifo",
        "--workload",
        "counter",
        "--threads",
        "4",
        "--seconds",
        "0.1",
        "--rounds",
        "1",
        "--pin",
        "spread",
        "--json",
        "-",
    ]);
    let report: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    let machine = &report["machine"];
    assert_eq!(machine["domains"], 2);
    if machine["usable_cpus"].as_u64().unwrap() > 1 {
        assert!(
            report["results"][0]["handoffs"]["remote"].as_u64().unwrap() > 0,
            "{report}"
        );
    }
}

#[test]
fn people_get_tables_with_the_best_first() {
    let output = short(&["--workload", "empty", "--threads", "1,2", "--locks", "tas"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        output.stderr.is_empty(),
        "notes hide when stderr is no terminal"
    );
    let text = String::from_utf8(output.stdout).unwrap();
    for expected in [
        "empty, 1 thread\n",
        "empty, 2 threads\n",
        "x std-mutex",
        "p99.9",
        "tas",
        "CPU",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(
        !text.contains('\u{1b}'),
        "no colours where stdout is no terminal"
    );
}

#[test]
fn files_of_all_kinds() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let png = path("f.png");
    let arguments = |plot: &str| {
        let mut all = vec![
            "--workload",
            "empty,counter",
            "--threads",
            "1,2",
            "--locks",
            "tas",
        ];
        all.extend(["--plot", plot]);
        all.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut all = arguments(&png);
    all.extend(
        [
            "--json",
            &path("f.json"),
            "--csv",
            &path("f.csv"),
            "--markdown",
            &path("f.md"),
        ]
        .map(str::to_owned),
    );
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    // An old, longer file must not shine through.
    fs::write(path("f.csv"), "x".repeat(100_000)).unwrap();
    let output = short(&all);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(!output.stdout.is_empty(), "the tables still go to stdout");

    let report: Value = serde_json::from_slice(&fs::read(path("f.json")).unwrap()).unwrap();
    assert_eq!(report["results"].as_array().unwrap().len(), 8);
    let csv = fs::read_to_string(path("f.csv")).unwrap();
    let widths: Vec<_> = csv.lines().map(|line| line.split(',').count()).collect();
    assert_eq!(widths.len(), 9);
    assert!(widths.iter().all(|&width| width == widths[0]), "{csv}");
    let markdown = fs::read_to_string(path("f.md")).unwrap();
    assert_eq!(markdown.matches("| tas |").count(), 4);
    assert!(fs::read(&png).unwrap().starts_with(b"\x89PNG"));

    let svg = path("f.svg");
    let all = arguments(&svg);
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    assert_eq!(short(&all).status.code(), Some(0));
    let svg = fs::read_to_string(svg).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("counter") && svg.contains("std-mutex"));
}

#[test]
fn more_threads_than_cpus_come_to_an_end() {
    let report = json(&[
        "--locks",
        "kinlock-spin,mcslock",
        "--workload",
        "counter",
        "--threads",
        "24",
    ]);
    assert_eq!(report["results"].as_array().unwrap().len(), 3);
}

#[test]
fn meetings_have_their_own_threads_and_need_a_condition_variable() {
    let arguments = ["--workload", "pingpong,broadcast", "--threads", "3"];
    // Long enough for some operations beside other tests.
    let long = ["--seconds", "0.1", "--rounds", "2", "--json", "-"];
    let output = bench_support::bench(&[&arguments[..], &long].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let results = report["results"].as_array().unwrap();
    for (workload, threads) in [("pingpong", 2), ("broadcast", 17)] {
        let of_it = results.iter().filter(|r| r["workload"] == workload);
        let of_it: Vec<_> = of_it.collect();
        for lock in ["std-mutex", "parking-lot"] {
            assert!(of_it.iter().any(|r| r["lock"] == lock), "{lock}");
        }
        for result in of_it {
            assert_eq!(result["threads"], threads);
            assert!(result["ops_per_s"]["median"].as_f64().unwrap() > 0.0);
            assert!(result["acquire_ns"]["p50"].as_u64().unwrap() > 0);
        }
    }

    let report = json(&[&arguments[..], &["--locks", "tas,parking-lot"]].concat());
    let notes: Vec<_> = report["warnings"].as_array().unwrap().iter().collect();
    let note = notes
        .iter()
        .find(|note| note.as_str().unwrap().contains("condition variable"));
    assert_eq!(
        note.unwrap().as_str().unwrap(),
        "not measured in pingpong and broadcast, for want of a condition variable: tas"
    );
    let locks: Vec<_> = report["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["lock"].as_str().unwrap().to_owned())
        .collect();
    assert!(!locks.contains(&"tas".to_owned()), "{locks:?}");
}
