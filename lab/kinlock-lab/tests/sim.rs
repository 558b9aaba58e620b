//! The reports of `kinlock-lab sim`, and its refusals.

mod support;

use std::fs;

use serde_json::Value;
use support::{done, ends, has_numbers, json, list, refused, refused_words, without_host};
use tempfile::TempDir;

/// A short run.
const SHORT: &str = "sim --seconds 0.0005 --locks tas,cna --threads 1,20";

fn short(more: &str) -> String {
    format!("{SHORT} {more}")
}

#[test]
fn json_has_the_promised_fields() {
    let report = json(&short("--workload lock2,locktorture"));
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
    let cell = |result: &Value| {
        let text = |field: &str| result[field].as_str().unwrap().to_owned();
        let threads = result["threads"].as_u64().unwrap();
        (text("workload"), threads, text("lock"))
    };
    let mut expected = Vec::new();
    for workload in ["lock2", "locktorture"] {
        for threads in [1, 20] {
            // The baseline is added to the locks that were asked for.
            for lock in ["tas", "cna", "qspinlock"] {
                expected.push((workload.to_owned(), threads, lock.to_owned()));
            }
        }
    }
    assert_eq!(results.iter().map(cell).collect::<Vec<_>>(), expected);
    results.iter().for_each(check_result);
}

fn check_result(result: &Value) {
    assert_eq!(result["suite"], "locks");
    assert_eq!(result["ratio"]["to"], "qspinlock");
    for (object, fields) in [
        ("ops_per_us", "median low high"),
        ("ops_per_s", "median min max"),
        ("ns_per_op", "median min max"),
        ("ratio", "median min max"),
        ("fairness", "jain min_over_mean"),
        ("acquire_ns", "p50 p99 p999 max"),
        ("unended_ns", "read write"),
        ("handoffs", "local remote"),
        ("traffic", "own_cache last_level local remote memory"),
        ("counters", "slow_path handoff_local park"),
    ] {
        for field in fields.split(' ') {
            assert!(result[object][field].is_number(), "{object}.{field}");
        }
    }
    assert!(result["events"].as_u64().unwrap() > 0);
    assert!(result["events_per_host_second"].as_f64().unwrap() > 0.0);
    assert_eq!(result["runs"].as_array().unwrap().len(), 5);
    for name in ["ops_per_us", "ns_per_op", "ratio"] {
        let summary = &result[name];
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

#[test]
fn results_depend_on_neither_host_threads_nor_time() {
    let one = json(&short("--host-threads 1"));
    let three = json(&short("--host-threads 3"));
    assert_ne!(one["host_threads"], three["host_threads"]);
    assert_eq!(without_host(one), without_host(three));
}

#[test]
fn another_seed_gives_other_results() {
    let ops = |more: &str| json(&short(more))["results"][5]["runs"][0]["ops"].clone();
    assert_ne!(ops("--seeds 1"), ops("--seeds 1 --seed 2"));
}

#[test]
fn a_longest_wait_that_ended_only_after_the_run_is_marked() {
    let one = |seconds: &str, threads: u32| {
        let of = format!("--locks cna-v10 --threads {threads} --seeds 1 --seconds {seconds}");
        done(&format!("sim --workload lock2 {of}"))
    };
    // With one thread there is no wait.
    let alone = one("0.0005", 1);
    assert!(!alone.contains('>'), "{alone}");
    let starved = one("0.0005", 72);
    assert!(
        starved.contains(" >") && starved.contains("; >: a wait"),
        "{starved}"
    );
}

#[test]
fn the_command_in_the_report_repeats_it() {
    let report = json(&short(
        "--local-limit 2^10 --placement spread --band 0 --bands 2",
    ));
    let command: Vec<String> = serde_json::from_value(report["command"].clone()).unwrap();
    let again = json(&command[1..].join(" "));
    assert_eq!(without_host(again), without_host(report));
}

#[test]
fn tables_show_every_lock() {
    let table = done(SHORT);
    for expected in [
        "Haswell",
        "lock2, 20 threads",
        "\n tas ",
        "\n cna ",
        "\n qspinlock ",
    ] {
        assert!(table.contains(expected), "{expected}: {table}");
    }
    assert!(done(&short("--markdown -")).contains("| --- | ---: |"));
    let csv = done(&short("--csv -"));
    assert_eq!(csv.lines().count(), 1 + 2 * 3);
    let fields: Vec<_> = csv.lines().map(|line| line.split(',').count()).collect();
    assert!(fields.iter().all(|&count| count == fields[0]), "{csv}");
}

#[test]
fn knobs_reach_the_lock() {
    let with = |knobs: &str| -> Value {
        let all = "sim --seconds 0.0005 --locks cna --seeds 1 --band 0 --threads 40";
        json(&format!("{all} {knobs}"))["results"][0].clone()
    };
    let scans = |result: &Value| result["counters"]["scan"].as_u64().unwrap();
    let auto = with("");
    assert!(scans(&auto) > 0);
    assert_eq!(scans(&with("--numa off")), 0);
    for knob in ["--local-limit 2^1", "--placement spread"] {
        let ops = |result: &Value| result["runs"][0]["ops"].clone();
        assert_ne!(ops(&auto), ops(&with(knob)), "{knob}");
    }
}

#[test]
fn invalidation_is_put_to_all_backends() {
    let line = "sim --workload invalidation --machine ivybridge-2s --seconds 0.001 --seeds 1";
    let report = json(&format!("{line} --threads 1,8"));
    let results = list(&report["results"]);
    assert_eq!(results.len(), 10);
    assert_eq!(results[0]["ratio"]["to"], "invalidation-locked");
}

/// A short traced run.
const TRACED: &str = "sim --seconds 0.0005 --locks tas,cna --threads 20 --trace-handoffs";

#[test]
fn a_trace_comes_in_every_form() {
    let folder = TempDir::new().unwrap();
    let trace = |name: &str| {
        let file = folder.path().join(name);
        let table = done(&format!("{TRACED} {}", file.display()));
        (table, fs::read(file).unwrap())
    };
    let (table, csv) = trace("t.csv");
    for expected in [
        "lock2, 20 threads, seed 1",
        "handed over",
        "lock word from other socket",
        "queue node written from same cache",
    ] {
        assert!(table.contains(expected), "{expected}: {table}");
    }
    // The baseline is not added.
    assert!(!table.contains("qspinlock"), "{table}");
    let csv = String::from_utf8(csv).unwrap();
    let fields: Vec<_> = csv.lines().map(|line| line.split(',').count()).collect();
    assert!(
        fields.len() > 200 && fields.iter().all(|&count| count == 11),
        "{csv}"
    );

    let (again, json) = trace("t.json");
    assert_eq!(again, table);
    let report: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(report["kind"], "traced");
    for (lock, name) in list(&report["locks"]).iter().zip(["tas", "cna"]) {
        assert_eq!(lock["lock"], name);
        has_numbers(lock, "ops_per_us cycles ns");
        let handoff = &lock["handoffs"][0];
        has_numbers(
            handoff,
            "acquired_ns released_ns asked_ns handed_ns from.thread to.socket",
        );
        for step in list(&handoff["handed"]) {
            has_numbers(step, "thread socket from_ns to_ns");
            assert!(step["cause"].is_string(), "{step}");
        }
        assert_eq!(lock["lines"][0]["line"], "lock word 0");
        assert_eq!(list(&lock["lines"][0]["written"]).len(), 4);
    }
    // The command in the report gives the same report.
    let mut command: Vec<String> = serde_json::from_value(report["command"].clone()).unwrap();
    *command.last_mut().unwrap() = "-".to_owned();
    let mut again: Value = serde_json::from_str(&done(&command[1..].join(" "))).unwrap();
    again["command"] = report["command"].clone();
    assert_eq!(again, report);

    let (_, svg) = trace("t.svg");
    assert!(String::from_utf8(svg).unwrap().contains("queue node"));
}

#[test]
fn what_cannot_be_traced_is_refused() {
    for (arguments, expected) in [
        ("--threads 2 --trace-handoffs t.png", ".csv, .json or .svg"),
        ("--threads 2 --trace-handoffs t", "has to end in"),
        ("--trace-handoffs t.csv", "one number of threads"),
        (
            "--threads 2 --workload lock2,open1 --trace-handoffs t.csv",
            "one workload",
        ),
        (
            "--threads 2 --workload readers-99 --trace-handoffs t.csv",
            "reader-writer",
        ),
        (
            "--threads 2 --workload cid-intermittent --trace-handoffs t.csv",
            "policies",
        ),
        ("--threads 2 --trace-handoffs t.csv --seeds 2", "--seeds"),
        ("--threads 2 --trace-handoffs t.csv --json -", "--json"),
        (
            "--threads 2 --trace-handoffs /nonexistent/t.csv",
            "cannot write",
        ),
    ] {
        refused(&format!("sim {arguments}"), expected);
    }
}

#[test]
fn bad_input_is_one_line() {
    for (arguments, expected) in [
        ("--machine pdp-11", "haswell-ex-4s"),
        ("--workload foo", "lock2"),
        ("--locks tas,foo", "qspinlock"),
        ("--baseline foo", "qspinlock"),
        ("--seeds 0", "--seeds"),
        ("--seed=-1", "--seed"),
        ("--band -1", "--band"),
        ("--band 100", "--band"),
        ("--placement foo", "compact"),
        ("--numa maybe", "auto, on or off"),
        ("--local-limit 10", "2^31"),
        ("--domain die", "llc"),
        ("--host-threads 0", "--host-threads"),
        ("--plot x.png", "pictures are SVG"),
        ("--frob", "--frob"),
        // Unwritable outputs are refused before the run.
        ("--json /nonexistent/x", "cannot write"),
        ("--csv /nonexistent/x", "cannot write"),
        ("--markdown /nonexistent/x", "cannot write"),
        ("--plot /nonexistent/x.svg", "cannot write"),
        ("--json - --csv -", "stdout"),
        (
            "--workload invalidation --locks tas",
            "takes backends of delayed invalidation",
        ),
        (
            "--workload lock2 --locks invalidation-slots",
            "invalidation-slots",
        ),
        (
            "--workload invalidation --locks invalidation-packed",
            "invalidation-slots",
        ),
        ("--workload cid-intermittent --locks tas", "tas is a lock"),
        ("--locks per-cpu", "per-cpu is a policy for concurrency IDs"),
        ("--workload cid-intermittent,lock2", "lock2 takes locks"),
        (
            "--machine epyc-9654-2s --workload cid-intermittent --threads 385",
            "the machine has 384",
        ),
        ("--workload cid", "cid-intermittent"),
    ] {
        refused(&format!("sim {arguments}"), expected);
    }
    for threads in ["0", "100000", "1,0", "x", "4..2", ""] {
        refused_words(&["sim", "--threads", threads], "--threads");
    }
    for seconds in ["0", "-1", "nan", "inf", "1000"] {
        refused(&format!("sim --seconds {seconds}"), "--seconds");
    }
}

#[test]
fn a_broken_machine_file_is_named() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("my.toml");
    fs::write(&file, "name = 3").unwrap();
    refused(&format!("sim --machine {}", file.display()), "my.toml");
}

#[test]
fn help_has_an_example() {
    for verb in ["explore", "reproduce", "sim", "torture", "validate"] {
        let help = ends(0, &format!("{verb} --help"));
        assert!(help.contains(&format!("kinlock-lab {verb} ")), "{help}");
    }
}

#[test]
fn the_grid_says_how_locks_stand_in_its_cells() {
    let report =
        json("sim --workload grid-core --quick --threads 2,3 --seconds 0.0005 --seeds 1 --band 0");
    assert_eq!(report["parameters"]["baseline"], "futex");
    let ratios = |threads: u64| {
        let results = report["results"].as_array().unwrap().iter();
        let own = results.filter(move |r| r["lock"] == "mutex" && r["threads"] == threads);
        own.map(|r| r["ratio"]["median"].as_f64().unwrap())
    };
    let standings = report["grid"].as_array().unwrap();
    let of = |s: &Value| {
        (
            s["threads"].as_u64().unwrap(),
            s["lock"].as_str().unwrap().to_owned(),
        )
    };
    let expected = [
        (2, "mutex"),
        (2, "mutex-cna"),
        (3, "mutex"),
        (3, "mutex-cna"),
    ];
    assert_eq!(
        standings.iter().map(of).collect::<Vec<_>>(),
        expected.map(|(n, l)| (n, l.to_owned()))
    );
    for (standing, threads) in [(&standings[0], 2), (&standings[2], 3)] {
        assert_eq!(standing["cells"], 12);
        let least = ratios(threads).fold(f64::INFINITY, f64::min);
        assert_eq!(standing["least"].as_f64().unwrap(), least);
        let below = ratios(threads).filter(|&ratio| ratio < 0.9).count();
        assert_eq!(standing["cells_below"], below);
        assert!(
            standing["least_cell"]
                .as_str()
                .unwrap()
                .starts_with("grid:")
        );
    }
    let text = done("sim --workload grid:0/0/2 --seconds 0.0005 --seeds 1");
    assert!(text.contains("grid: throughput over that of futex") && text.contains("grid:0/0/2"));
    refused(
        "sim --quick",
        "--quick is for the workloads grid, grid-core and grid-wide",
    );
}

#[test]
fn the_wide_grid_is_simulated_under_the_same_names() {
    let folder = TempDir::new().unwrap();
    let svg = folder.path().join("wide.svg");
    let line = "sim --workload grid-wide --quick --seconds 0.004 --seeds 1 --band 0";
    let report = json(&format!("{line} --locks mutex --plot {}", svg.display()));
    let threads = &report["parameters"]["threads"];
    assert_eq!(*threads, serde_json::json!([2, 4, 16]));
    let results = report["results"].as_array().unwrap();
    assert_eq!(results.len(), 6 * 3 * 2);
    assert!(
        results
            .iter()
            .all(|r| r["ops_per_s"]["median"].as_f64() > Some(0.0))
    );
    for standing in report["grid"].as_array().unwrap() {
        has_numbers(standing, "ratio p99_ratio cpu_ratio");
    }
    let svg = fs::read_to_string(svg).unwrap();
    assert!(svg.contains("wide grid, 16 threads") && !svg.contains("core grid"));
}

#[test]
fn a_machine_may_have_fewer_cpus_and_a_cell_more_locks() {
    let line = "sim --machine laptop --threads 8 --seconds 0.005 --seeds 1 --band 0 --locks futex";
    let used = |more: &str| {
        let report = json(&format!("{line} {more}"));
        let result = &report["results"][0];
        let number = |name: &str| result[name]["median"].as_f64().unwrap();
        number("ops_per_s") * number("cpu_ns_per_op") / 1e9
    };
    let (two, all) = (
        used("--workload grid:20us/0/2@16 --cpus 2"),
        used("--workload grid:20us/0/2@16"),
    );
    assert!(two < 2.1 && all > 4.0, "{two} {all}");
    refused(&format!("{line} --cpus 1000"), "the machine has");
    refused("sim --cpus 0", "--cpus");
    refused("sim --workload grid:20us/0/2@1", "no such workload");
    let traced = "--trace-handoffs - --workload grid:20us/0/2@16";
    refused(
        &format!("sim --machine laptop --threads 8 {traced}"),
        "takes several",
    );
}
