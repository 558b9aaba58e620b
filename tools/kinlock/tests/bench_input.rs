//! What `kinlock bench` refuses, and what it leaves alone.

#![cfg(feature = "bench")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use support::{json, run};
use tempfile::TempDir;

fn refused(line: &str, expected: &str) {
    support::refused(&format!("bench {line}"), expected);
}

/// The C library's locks are measured as they are, also in a shell under `kinlock run`.
#[test]
fn the_preloaded_library_is_left() {
    let folder = tempfile::tempdir().unwrap();
    // Mistaken for the library because of the variable that it reads.
    let source = r#"
        #include <stdio.h>
        #include <stdlib.h>
        __attribute__((destructor)) static void end(void) {
            getenv("KINLOCK_COUNTS");
            fputs("still here\n", stderr);
        }
    "#;
    let library = support::compiled(folder.path(), "ours.so", "-shared -fPIC", source);
    let words = "bench --locks pthread-mutex,tas --workload empty --threads 1 --seconds 0.002 \
                 --rounds 1 --json -";
    let mut command = support::kinlock();
    command.args(words.split_whitespace());
    let output = command.env("LD_PRELOAD", library).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && message.is_empty(), "{message}");
}

#[test]
fn bad_input_is_one_line() {
    for (line, expected) in [
        ("mutexes", "known: invalidation, locks, ids"),
        ("frobs", "frobs"),
        ("--workload pingpong --baseline tas", "condition variable"),
        ("--locks foo", "kinlock-spin, "),
        ("--locks tas,", "no such lock"),
        ("--baseline foo", "std-mutex"),
        ("--workload foo", "readrandom"),
        ("--threads 100000", "4096"),
        ("--threads=", "--threads"),
        ("--rounds 0", "--rounds"),
        ("--seed=-1", "--seed"),
        ("--hogs x", "--hogs"),
        ("--hogs=-1", "--hogs"),
        ("--hogs 5000", "1024"),
        ("ids --hogs 1.5", "--hogs"),
        ("--background foo", "busy, nice, idle"),
        ("--background busy --hogs 2", "--hogs 1"),
        (
            "--background idle --workload pingpong",
            "name others by --workload",
        ),
        ("invalidation --hogs=", "--hogs"),
        ("--quota 0", "--quota"),
        ("--quota 101", "1..=100"),
        ("ids --quota x", "--quota"),
        ("--quick", "grid"),
        ("--workload grid:0/0/2 --quick", "grid-wide"),
        ("--workload grid:1/2/3", "no such workload"),
        ("--workload grid:50us-exp/0/16", "grid-core, grid-wide"),
        ("--plot x.png", "pictures are SVG"),
        ("--plot -", "pictures are SVG"),
        ("--frob", "--frob"),
        ("ids --workload locks", "intermittent"),
        ("invalidation --backends packed", "slots"),
        ("invalidation --workload foo", "pages"),
        ("invalidation --threads 0", "4096"),
        (
            "invalidation --backends busy-flag --baseline busy-flag --workload section",
            "none of",
        ),
        ("invalidation --plot x.gif", ".svg"),
    ] {
        refused(line, expected);
    }
    for threads in ["0", "1,0", "x", "4..2", "1..100000"] {
        refused(&format!("--threads {threads}"), "--threads");
    }
    for seconds in ["0", "-1", "nan", "inf", "1e9", "x"] {
        refused(&format!("--seconds={seconds}"), "--seconds");
    }
}

#[test]
fn a_lock_whose_library_is_missing_is_refused_with_what_to_install() {
    let folder = TempDir::new().unwrap();
    for (lock, file, expected) in [
        ("nsync", "libnsync.so.1", "Debian: libnsync1"),
        (
            "abseil",
            "libabsl_synchronization.so",
            "Debian: libabsl-dev",
        ),
    ] {
        // Even if the library is installed, it is not found: this file comes first, and is no
        // library.
        fs::write(folder.path().join(file), "no library").unwrap();
        for option in ["--locks", "--baseline"] {
            let mut command = support::kinlock();
            command.env("LD_LIBRARY_PATH", folder.path());
            let output = command.args(["bench", option, lock]).output().unwrap();
            let message = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{message}");
            assert_eq!(message.lines().count(), 1, "{message}");
            let named = message.contains(&format!("{lock} is not there: install"));
            assert!(named && message.contains(expected), "{message}");
        }
    }
}

#[test]
fn unwritable_outputs_are_refused_before_the_run() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path().display();
    for output in ["--json", "--csv", "--markdown"] {
        refused(&format!("{output} {folder}/missing/x"), "cannot write");
    }
    refused(&format!("--plot {folder}/missing/x.svg"), "cannot write");
    refused(&format!("--json {folder}"), "cannot write");
    refused("--json=", "--json");
    // A write that fails at the end is an error, too.
    let full = "--workload empty --threads 1 --locks tas --seconds 0.002 --rounds 1 --quiet --json \
        /dev/full";
    let output = run(&format!("bench {full}"));
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("cannot write /dev/full"), "{message}");
    assert!(
        !output.stdout.is_empty(),
        "other forms are written nevertheless"
    );
}

#[test]
fn a_folder_without_a_database_is_refused_and_left_alone() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    let db = |name: &str| format!("--db {}", path(name).display());
    let refuse = |name: &str, expected| refused(&db(name), expected);
    refuse("missing", "no LevelDB database");
    assert!(!path("missing").exists());

    fs::create_dir(path("empty")).unwrap();
    refuse("empty", "no LevelDB database");
    assert!(contents(&path("empty")).is_empty());

    fs::create_dir(path("broken")).unwrap();
    for current in ["junk", "MANIFEST-000001\n"] {
        fs::write(path("broken/CURRENT"), current).unwrap();
        refuse("broken", "no LevelDB database");
    }
    fs::write(path("broken/MANIFEST-000001"), "junk").unwrap();
    let before = contents(&path("broken"));
    refuse("broken", "cannot read the database");
    assert_eq!(contents(&path("broken")), before);

    refused(&format!("{} --workload empty", db("empty")), "--db is for");
}

#[test]
fn a_database_is_read_and_not_changed() {
    let line = "bench --seconds 0.002 --rounds 2 --workload readrandom";
    // Uses the command's own database.
    json(&format!("{line} --threads 1 --locks std-mutex"));
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kinlock");
    let folders = support::files(&cache)
        .into_iter()
        .map(|name| cache.join(name));
    let mut databases = folders.filter(|path| path.join("CURRENT").exists());
    let own = databases.next_back().unwrap();

    let before = contents(&own);
    // Tables with the old names are found, too.
    let old = TempDir::new().unwrap();
    for path in before.keys() {
        let name = path
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .replace(".ldb", ".sst");
        fs::copy(path, old.path().join(name)).unwrap();
    }
    for folder in [&own, old.path()] {
        let before = contents(folder);
        let more = format!("--db {} --threads 2 --locks kinlock-spin", folder.display());
        let report = json(&format!("{line} {more}"));
        assert!(report["results"][0]["ops_per_s"]["median"].as_f64() > Some(0.0));
        assert_eq!(contents(folder), before);
    }
}

/// Every file of a folder with its contents and its time of change.
fn contents(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let file = |name: String| {
        let path = folder.join(name);
        let changed = fs::metadata(&path).unwrap().modified().unwrap();
        let text = fs::read(&path).unwrap();
        (path, (text, changed))
    };
    support::files(folder).into_iter().map(file).collect()
}
