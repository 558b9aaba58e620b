//! What `kinlock bench` refuses, and what it leaves alone.

mod bench_support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bench_support::{bench, json};
use tempfile::TempDir;

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
    refused(&["mutexes"], "known: invalidation, locks, ids");
    refused(&["frobs"], "frobs");
    refused(
        &["--workload", "pingpong", "--baseline", "tas"],
        "condition variable",
    );
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
