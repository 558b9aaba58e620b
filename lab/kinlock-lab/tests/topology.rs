//! `kinlock topology` where the laboratory is needed: in a sandbox, and for a simulation.

mod support;

use std::process::Command;

use serde_json::Value;
use support::{done, kinlock};

#[test]
fn refused_membarrier_is_said() {
    use std::os::unix::process::CommandExt;
    let run = |command: &mut Command| {
        // SAFETY: only async-signal-safe calls run between fork and exec, unless one fails.
        unsafe {
            command.pre_exec(|| {
                kinlock_verify::sandbox::refuse_membarrier().map_err(std::io::Error::other)
            });
        }
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let report = run(kinlock().args(["topology", "--json", "-"]));
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["features"]["membarrier_private_expedited"], false);
    assert_eq!(report["features"]["futex"], true);
    let text = run(kinlock().arg("topology"));
    let mut lines = text.lines();
    let line = lines
        .find(|line| line.trim().starts_with("membarrier"))
        .unwrap();
    assert!(line.contains("no") && line.contains("refused"), "{line}");
}

#[test]
fn a_measured_machine_can_be_simulated() {
    if kinlock_measure::cpus::allowed_cpus().len() < 2 {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("my-server.toml");
    let mut command = kinlock();
    command
        .args(["topology", "--measure", "--machine-file"])
        .arg(&file);
    assert!(command.output().unwrap().status.success());
    let file = file.display();
    let line = format!("sim --machine {file} --threads 2 --seconds 0.0005 --locks mcs --json -");
    let report: Value = serde_json::from_str(&done(&line)).unwrap();
    assert_eq!(report["machine"]["name"], "my-server");
}
