//! The command of the laboratory as tests call it, and the user's command in the same folder.

// Each test program uses a part of this.
#![allow(dead_code)]

#[path = "../../../../tools/kinlock/tests/support/calls.rs"]
mod calls;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub use calls::*;

/// The command, without arguments.
pub fn lab() -> Command {
    without_knobs(Command::new(env!("CARGO_BIN_EXE_kinlock-lab")))
}

/// The command that [`calls`] calls.
fn command() -> Command {
    lab()
}

/// The user's command, without arguments.
pub fn kinlock() -> Command {
    without_knobs(Command::new(beside()))
}

/// The path of the user's command. It is built with the tests of the workspace; tests of this
/// package alone may have to build it.
pub fn beside() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let path = Path::new(env!("CARGO_BIN_EXE_kinlock-lab")).with_file_name("kinlock");
        if !path.exists() {
            let mut cargo = Command::new(env!("CARGO"));
            let profile = if cfg!(debug_assertions) {
                "test"
            } else {
                "bench"
            };
            cargo.args(["build", "--quiet", "--profile", profile]);
            cargo.args(["-p", "kinlock-command", "--bin", "kinlock"]);
            assert!(cargo.status().unwrap().success());
        }
        path
    })
}
