//! `kinlock topology` in tests that need the laboratory: in a sandbox, and for a simulation.

mod support;

use std::process::Command;

use serde_json::Value;
use support::kinlock;

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
