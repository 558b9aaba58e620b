//! `kinlock record`: its recording of a program whose times are known.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use support::{
    ALL, ends, kinlock, list, number, recorded, recorded_lock as lock, refused, says, text, within,
};

#[test]
fn times_and_threads_are_those_of_the_program() {
    for name in ALL {
        let (_folder, _, recording) = recorded(&["--lock", name], &["2", "4000", "5", "40"]);
        assert_eq!(
            (&recording["kind"], &recording["lock"]),
            (&"recorded".into(), &name.into())
        );
        let hot = lock(&recording, "hot");
        assert_eq!(hot["locked"], 8000, "{name}");
        // Other programs may use the CPUs, so any time may be longer, but none is shorter.
        let (part, count) = within(&hot["hold"], 5_000, u64::MAX);
        assert!(part > 0.999, "{name}: {hot}");
        // Each measured acquisition stands for some that are not measured.
        assert!((6_000..10_000).contains(&count), "{name}: {count}");
        let (part, count) = within(&hot["think"], 40_000, u64::MAX);
        assert!(part > 0.99, "{name}: {hot}");
        assert!((6_000..10_000).contains(&count), "{name}: {count}");
        let (part, _) = within(&lock(&recording, "rare")["think"], 160_000, u64::MAX);
        assert!(part > 0.99, "{name}: {recording}");
        assert_eq!(list(&hot["rates"]).len(), 2, "{name}");
        let follows = list(&hot["follows"]);
        assert!(
            follows.iter().any(|follow| follow[0] != follow[1]),
            "{name}: {hot}"
        );
        let count: u64 = follows.iter().map(|follow| number(&follow[2])).sum();
        assert!((6_000..10_000).contains(&count), "{name}: {count}");
    }
}

/// A recording contains the program's command line, which may contain passwords.
#[test]
fn only_the_user_can_read_a_recording() {
    let (_folder, file, recording) = recorded(&[], &["2", "100", "1", "5", "--password=secret"]);
    assert!(recording["command"].to_string().contains("--password"));
    let mode = fs::metadata(file).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0);
}

#[test]
fn bad_input_is_refused() {
    refused("record -o - -- true", "stdout is the program's");
    let nowhere = "record -o /nowhere/file -- true";
    refused(nowhere, "cannot write /nowhere/file");
    ends(127, "record -- no-such-program");
}

#[test]
fn a_program_without_locks_leaves_no_recording_and_keeps_its_status() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recorded.json");
    let record = |program: &str| {
        let mut command = kinlock();
        command.arg("record").arg("-o").arg(&file).arg(program);
        command.output().unwrap()
    };
    let output = record("false");
    assert_eq!(output.status.code(), Some(1));
    says(text(&output.stderr), &["nothing recorded"]);
    assert!(!file.exists());
    // An earlier recording is kept if the program takes no lock or does not exist.
    fs::write(&file, "before").unwrap();
    for program in ["false", "no-such-program"] {
        assert!(!record(program).status.success());
        assert_eq!(fs::read_to_string(&file).unwrap(), "before", "{program}");
    }
}
