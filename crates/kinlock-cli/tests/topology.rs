//! `kinlock topology` as people and programs call it.

mod support;

use std::process::Output;

use serde_json::Value;
use support::kinlock;

fn topology(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    kinlock()
        .arg("topology")
        .args(arguments)
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn json(variables: &[(&str, &str)]) -> Value {
    let output = topology(&["--json", "-"], variables);
    assert_eq!(output.status.code(), Some(0));
    // Fails if anything else is on standard output.
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn people_get_tables() {
    let output = topology(&[], &[]);
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
    let text = String::from_utf8(output.stdout).unwrap();
    for expected in [
        "CPUs",
        "node",
        "llc",
        "socket",
        "auto",
        "rseq",
        "membarrier",
        "futex",
    ] {
        assert!(text.contains(expected), "no {expected} in {text}");
    }
}

#[test]
fn every_cpu_that_is_online_is_in_one_domain_of_each_kind() {
    let report = json(&[]);
    let online: Vec<u64> = report["cpus"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|cpu| cpu["online"] == true)
        .map(|cpu| cpu["cpu"].as_u64().unwrap())
        .collect();
    assert!(!online.is_empty());
    let kinds = report["kinds"].as_array().unwrap();
    let names: Vec<_> = kinds
        .iter()
        .map(|kind| kind["kind"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["node", "llc", "socket"]);
    for kind in kinds {
        let domains = kind["domains"].as_array().unwrap();
        let cpus = domains.iter().flat_map(|cpus| cpus.as_array().unwrap());
        let mut cpus: Vec<u64> = cpus.map(|cpu| cpu.as_u64().unwrap()).collect();
        cpus.sort_unstable();
        assert_eq!(cpus, online);
    }
}

#[test]
fn the_environment_is_heeded_and_explained() {
    let report = json(&[
        ("KINLOCK_TOPOLOGY", "0;1;2"),
        ("KINLOCK_SCAN", "incremental"),
        ("KINLOCK_STEALING", "off"),
        ("KINLOCK_QUANTUM", "25us"),
    ]);
    let in_use = &report["in_use"];
    assert_eq!(in_use["domains_by"], "KINLOCK_TOPOLOGY");
    assert_eq!(in_use["domain_count"], 3);
    assert_eq!(in_use["decision"]["reorder"], true);
    assert_eq!(in_use["scan"], "incremental");
    assert_eq!(in_use["stealing"], false);
    assert_eq!(in_use["quantum"], "25us");

    let off = json(&[("KINLOCK_TOPOLOGY", "0;1;2"), ("KINLOCK_NUMA", "off")]);
    assert_eq!(off["in_use"]["auto"]["reorder"], true);
    assert_eq!(off["in_use"]["decision"]["reorder"], false);
}

#[test]
fn refused_membarrier_is_said() {
    use std::os::unix::process::CommandExt;
    let run = |json: bool| {
        let mut command = kinlock();
        command
            .arg("topology")
            .args(json.then_some(["--json", "-"]).into_iter().flatten());
        // SAFETY: what runs between fork and exec is async-signal-safe unless it fails, which fails the test.
        unsafe {
            command.pre_exec(|| {
                kinlock_verify::sandbox::refuse_membarrier().map_err(std::io::Error::other)
            });
        }
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let report: serde_json::Value = serde_json::from_str(&run(true)).unwrap();
    assert_eq!(report["features"]["membarrier_private_expedited"], false);
    assert_eq!(report["features"]["futex"], true);
    let text = run(false);
    let line = text
        .lines()
        .find(|line| line.contains("membarrier"))
        .unwrap();
    assert!(line.contains("no") && line.contains("refused"), "{line}");
}

#[test]
fn a_bad_variable_is_a_note() {
    let output = topology(&["--json", "-"], &[("KINLOCK_TOPOLOGY", "0;0")]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "kinlock: ignoring KINLOCK_TOPOLOGY='0;0': expected every CPU in one domain only\n"
    );
}

#[test]
fn bad_input_is_one_line_and_status_2() {
    for arguments in [
        &["--json", "/nonexistent/folder/file"][..],
        &["--bogus"],
        &["extra"],
    ] {
        let output = topology(arguments, &[]);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        let note = String::from_utf8(output.stderr).unwrap();
        assert!(
            note.starts_with("kinlock: ") && note.lines().count() == 1,
            "{note}"
        );
    }
}
