//! What the verbs for delayed invalidation report, and what they refuse.

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

fn kinlock(args: &[&str]) -> Output {
    support::kinlock().args(args).output().unwrap()
}

fn json(args: &[&str]) -> (Value, i32) {
    let output = kinlock(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    (value, output.status.code().unwrap())
}

fn refused(args: &[&str], word: &str) {
    let output = kinlock(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains(word), "{stderr}");
}

const SHORT: [&str; 8] = [
    "bench",
    "invalidation",
    "--seconds",
    "0.02",
    "--rounds",
    "2",
    "--threads",
    "2",
];

#[test]
fn bench_has_the_promised_fields() {
    let (report, status) = json(&[&SHORT[..], &["--json", "-"]].concat());
    assert_eq!(status, 0);
    assert_eq!(report["kind"], "measured");
    let results = report["results"].as_array().unwrap();
    for workload in ["section", "passed", "pages"] {
        for name in ["packed", "slots", "crossbeam-epoch", "seize"] {
            let entry = results
                .iter()
                .find(|entry| entry["workload"] == workload && entry["lock"] == name)
                .unwrap_or_else(|| panic!("{workload} {name}"));
            assert_eq!(entry["suite"], "invalidation");
            assert_eq!(entry["threads"], 2);
            for field in ["ops_per_s", "ns_per_op", "ratio"] {
                for value in ["median", "min", "max"] {
                    assert!(entry[field][value].as_f64().unwrap() > 0.0, "{entry}");
                }
            }
            assert_eq!(entry["rounds"].as_array().unwrap().len(), 2);
            assert_eq!(entry["lost"], 0);
            assert_eq!(
                entry["sections"].is_object(),
                name == "packed" || name == "slots"
            );
            assert_eq!(entry["verified"].as_u64().unwrap() > 0, workload == "pages");
        }
    }
    let other = results.iter().find(|entry| entry["lock"] == "lock-held");
    assert_eq!(other.unwrap()["ratio"]["to"], "packed");
}

#[test]
fn bench_draws_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let draw = |name: &str, more: &[&str]| {
        let picture = path(name);
        let asked = ["--backends", "slots,busy-flag", "--plot", &picture];
        let output = kinlock(&[&SHORT[..], &asked, more].concat());
        assert_eq!(output.status.code(), Some(0));
        std::fs::read(picture).unwrap()
    };
    assert!(draw("a.png", &["--workload", "section"]).starts_with(b"\x89PNG"));

    let size = |svg: &str| -> Vec<u32> {
        let numbers = ["width", "height"].map(|name| {
            let start = svg.split_once(&format!("{name}=\"")).unwrap().1;
            start.split_once('"').unwrap().0.parse().unwrap()
        });
        numbers.to_vec()
    };
    let curves = "thousands of operations per second";
    let one = String::from_utf8(draw("b.svg", &[])).unwrap();
    // All bars, once per contender and workload; the flag has no sections.
    for (text, times) in [("slots", 3), ("packed", 3), ("busy-flag", 2), (curves, 0)] {
        let found = one.lines().filter(|line| line.trim() == text).count();
        assert_eq!(found, times, "{text}");
    }
    // The options given last count.
    let workload = ["--workload", "pages"];
    let several: Vec<&str> = SHORT[..6].iter().copied().chain(workload).collect();
    let picture = path("c.svg");
    let asked = [
        "--threads",
        "1,3",
        "--backends",
        "slots",
        "--plot",
        &picture,
    ];
    assert_eq!(
        kinlock(&[&several[..], &asked].concat()).status.code(),
        Some(0)
    );
    let several = std::fs::read_to_string(picture).unwrap();
    for text in ["slots", "packed", "operations per second", "threads"] {
        assert!(several.contains(text), "{text}");
    }
    assert!(!several.contains("busy-flag") && !several.contains("shorter is better"));
    assert_eq!(size(&one)[0], size(&several)[0]);
    refused(&[&SHORT[..], &["--plot", "x.gif"]].concat(), ".svg");
}

#[test]
fn bench_measures_what_is_asked_for() {
    let asked = [
        "--backends",
        "slots",
        "--workload",
        "section",
        "--baseline",
        "locked",
    ];
    let (report, _) = json(&[&SHORT[..], &asked, &["--json", "-"]].concat());
    let results = report["results"].as_array().unwrap();
    let names: Vec<_> = results.iter().map(|entry| entry["lock"].as_str()).collect();
    assert_eq!(names, [Some("slots"), Some("locked")]);
    assert_eq!(results[0]["ratio"]["to"], "locked");
    assert_eq!(results[1]["ratio"]["median"], 1.0);
}

#[test]
fn bad_input_is_one_line() {
    refused(&["bench", "invalidation", "--backends", "foo"], "busy-flag");
    refused(&["bench", "invalidation", "--workload", "foo"], "pages");
    refused(&["bench", "invalidation", "--threads", "0"], "4096");
    refused(&["torture", "invalidation", "--backends", "foo"], "packed");
    refused(&["torture", "invalidation", "--seconds", "0"], "--seconds");
    let mixed = ["sim", "--workload", "invalidation", "--locks", "tas"];
    refused(&mixed, "takes backends of delayed invalidation");
    let mixed = [
        "sim",
        "--workload",
        "lock2",
        "--locks",
        "invalidation-packed",
    ];
    refused(&mixed, "invalidation-packed");
}

#[test]
fn torture_passes_ours_and_catches_broken_ones() {
    let short = ["--threads", "8", "--json", "-", "--quiet"];
    let sound = ["torture", "invalidation", "--seconds", "0.5"];
    let (report, status) = json(&[&sound[..], &short].concat());
    assert_eq!(
        (status, &report["passed"]),
        (0, &Value::Bool(true)),
        "{report}"
    );
    assert_eq!(report["parameters"]["backends"][0], "packed");
    assert!(report["per_thread"]["mean"].as_f64().unwrap() > 0.0);

    let busted = [
        "torture",
        "invalidation",
        "--backends",
        "busted-wait,busted-wakeup",
        "--seconds",
        "4",
        "--hang",
        "2",
    ];
    let (report, status) = json(&[&busted[..], &short].concat());
    assert_eq!(status, 1, "{report}");
    let checks = report["checks"].as_array().unwrap();
    let caught = checks.iter().filter(|check| check["property"] == "catch");
    assert!(caught.clone().count() == 2 && caught.clone().all(|check| check["passed"] == true));
}

#[test]
fn simulated_sections_are_repeatable() {
    let args = [
        "sim",
        "--workload",
        "invalidation",
        "--machine",
        "ivybridge-2s",
        "--threads",
        "1,8",
        "--seconds",
        "0.001",
        "--seeds",
        "1",
        "--json",
        "-",
    ];
    let (report, status) = json(&args);
    assert_eq!(status, 0);
    let results = report["results"].as_array().unwrap();
    assert_eq!(results.len(), 10);
    assert_eq!(results[0]["ratio"]["to"], "invalidation-locked");
    let (again, _) = json(&args);
    assert_eq!(results[7]["ops_per_us"], again["results"][7]["ops_per_us"]);
}

#[test]
fn a_signal_shows_what_is_open() {
    // Ignored until the command has its handler: it takes a moment to start.
    let mut child = support::without_knobs(Command::new("sh"))
        .args(["-c", "trap '' USR1; echo trapped >&2; exec \"$@\"", "sh"])
        .arg(env!("CARGO_BIN_EXE_kinlock"))
        .args([
            "bench",
            "invalidation",
            "--backends",
            "packed",
            "--workload",
            "pages",
            "--threads",
            "16",
        ])
        .args(["--rounds", "1", "--seconds", "2"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    stderr.read_line(&mut String::new()).unwrap();
    let reader = std::thread::spawn(move || -> Vec<String> {
        stderr.lines().map_while(Result::ok).collect()
    });
    let pid = child.id().to_string();
    while child.try_wait().unwrap().is_none() {
        let sent = Command::new("kill").args(["-USR1", &pid]).status().unwrap();
        assert!(sent.success());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(child.wait().unwrap().success());
    let lines = reader.join().unwrap();
    assert!(
        lines.iter().any(|line| line.contains("open sections")),
        "{lines:?}"
    );
    let open = lines.iter().find(|line| line.contains("generation "));
    let open = open.unwrap_or_else(|| panic!("{lines:?}"));
    assert!(
        open.contains("open for") && open.contains("thread "),
        "{open}"
    );
}
