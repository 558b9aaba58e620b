//! `kinlock bench` as people and programs call it. Nothing here depends on how fast anything is.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

const WORKLOADS: [&str; 6] = ["empty", "counter", "long", "kv", "lru", "readrandom"];

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::cargo_bin("kinlock").unwrap();
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("KINLOCK_") {
            command.env_remove(name);
        }
    }
    // The database of readrandom is filled once for all tests.
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.arg("bench").args(arguments).output().unwrap()
}

/// The shortest run of two rounds, with more arguments.
fn short(arguments: &[&str]) -> Output {
    let mut all = vec!["--seconds", "0.002", "--rounds", "2"];
    all.extend(arguments);
    bench(&all)
}

fn json(arguments: &[&str]) -> Value {
    let mut all = vec!["--json", "-"];
    all.extend(arguments);
    let output = short(&all);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // Fails if anything else is on stdout.
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Asserts that the input is refused with one line that says `expected`.
fn refused(arguments: &[&str], expected: &str) {
    let output = bench(arguments);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert_eq!(message.lines().count(), 1, "{arguments:?}: {message}");
    assert!(message.contains(expected), "{arguments:?}: {message}");
}

#[test]
fn bad_input_is_one_line() {
    refused(&["ids"], "ids");
    refused(&["frobs"], "frobs");
    refused(&["--locks", "foo"], "kinlock-spin, ");
    refused(&["--locks", "tas,"], "no such lock");
    refused(&["--baseline", "foo"], "std-mutex");
    refused(&["--workload", "foo"], "readrandom");
    for threads in ["0", "100000", "1,0", "x", "4..2", "", "1..100000"] {
        refused(&["--threads", threads], "--threads");
    }
    refused(&["--threads", "100000"], "4096");
    for seconds in ["0", "-1", "nan", "inf", "1e9", "x"] {
        refused(&[&format!("--seconds={seconds}")], "--seconds");
    }
    refused(&["--rounds", "0"], "--rounds");
    refused(&["--seed=-1"], "--seed");
    refused(&["--pin", "foo"], "compact");
    refused(&["--plot", "x.gif"], ".svg or .png");
    refused(&["--plot", "-"], ".svg or .png");
    refused(&["--frob"], "--frob");
}

#[test]
fn unwritable_outputs_are_refused_before_the_run() {
    let folder = TempDir::new().unwrap();
    let missing = folder.path().join("missing/x");
    let missing = missing.to_str().unwrap();
    for output in ["--json", "--csv", "--markdown"] {
        refused(&[output, missing], "cannot write");
    }
    refused(&["--plot", &format!("{missing}.svg")], "cannot write");
    refused(&["--json", folder.path().to_str().unwrap()], "cannot write");
    refused(&["--json", ""], "--json");
}

#[test]
fn one_file_cannot_take_two_outputs() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("out");
    let other_name = folder.path().join(".").join("out");
    let (file, other_name) = (file.to_str().unwrap(), other_name.to_str().unwrap());
    refused(
        &["--json", file, "--csv", other_name],
        "two kinds of output",
    );
    refused(&["--json", "-", "--markdown", "-"], "stdout");
    // What was opened for nothing is gone again.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_refused_run_leaves_old_results_alone() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("old.json");
    fs::write(&file, "old").unwrap();
    refused(
        &["--json", file.to_str().unwrap(), "--csv", "/nonexistent/x"],
        "cannot write",
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "old");
}

#[test]
fn no_database_is_refused_and_stays_none() {
    let folder = TempDir::new().unwrap();
    let missing = folder.path().join("missing");
    refused(&["--db", missing.to_str().unwrap()], "no LevelDB database");
    assert!(!missing.exists());

    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    refused(&["--db", empty.to_str().unwrap()], "no LevelDB database");
    assert_eq!(fs::read_dir(&empty).unwrap().count(), 0);

    let broken = folder.path().join("broken");
    fs::create_dir(&broken).unwrap();
    for current in ["junk", "MANIFEST-000001\n"] {
        fs::write(broken.join("CURRENT"), current).unwrap();
        refused(&["--db", broken.to_str().unwrap()], "no LevelDB database");
    }
    fs::write(broken.join("MANIFEST-000001"), "junk").unwrap();
    let before = contents(&broken);
    refused(
        &["--db", broken.to_str().unwrap()],
        "cannot read the database",
    );
    assert_eq!(contents(&broken), before);

    refused(
        &["--db", empty.to_str().unwrap(), "--workload", "empty"],
        "--db is for",
    );
}

#[test]
fn a_database_is_read_and_not_changed() {
    // The command's own database is as good as anybody's.
    json(&[
        "--workload",
        "readrandom",
        "--threads",
        "1",
        "--locks",
        "std-mutex",
    ]);
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kinlock");
    let own = fs::read_dir(cache)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let own = own
        .filter(|path| path.join("CURRENT").exists())
        .last()
        .unwrap();

    let before = contents(&own);
    let report = json(&[
        "--db",
        own.to_str().unwrap(),
        "--workload",
        "readrandom",
        "--threads",
        "2",
        "--locks",
        "kinlock-spin",
    ]);
    assert!(
        report["results"][0]["ops_per_s"]["median"]
            .as_f64()
            .unwrap()
            > 0.0
    );
    assert_eq!(contents(&own), before);
}

#[test]
fn every_lock_does_every_workload() {
    for workload in WORKLOADS {
        let report = json(&["--workload", workload, "--threads", "1,3"]);
        let results = report["results"].as_array().unwrap();
        let missing = report["unavailable"].as_array().unwrap().len();
        assert_eq!(results.len(), 2 * (11 - missing), "{workload}");
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
                "acquire_max_ns",
            ] {
                assert!(round[field].is_number(), "{field}");
            }
        }
        let has_events = !result["events"].as_object().unwrap().is_empty();
        assert_eq!(has_events, result["lock"] == "kinlock-spin");
    }
    let baseline = &results[2];
    assert_eq!(baseline["ratio"]["median"], 1.0);
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
    let mut command = Command::cargo_bin("kinlock").unwrap();
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

/// Every file of a folder with its contents and its time of change.
fn contents(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .map(|path| {
            let changed = fs::metadata(&path).unwrap().modified().unwrap();
            (path.clone(), (fs::read(&path).unwrap(), changed))
        })
        .collect()
}
