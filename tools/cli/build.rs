//! Notes the commit that the commands are built from.

use std::path::Path;
use std::process::Command;

fn main() {
    // A linked worktree keeps its log elsewhere, so git is asked where. A missing file would make
    // cargo run this script in every build.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]);
    if let Some(log) = log.filter(|log| Path::new(log).exists()) {
        println!("cargo::rerun-if-changed={log}");
    }
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        println!("cargo::rustc-env=KINLOCK_COMMIT={commit}");
    }
}

/// What git answers, if there is git and a checkout.
fn git(arguments: &[&str]) -> Option<String> {
    let answer = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&answer.stdout);
    answer.status.success().then(|| text.trim().to_owned())
}
