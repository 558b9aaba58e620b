//! The command as tests call it: whatever the environment of the tests says, it does not reach it.

// Each test program uses a part of this.
#![allow(dead_code)]

use std::process::Command;

/// The command, without arguments.
pub fn kinlock() -> Command {
    without_knobs(Command::new(env!("CARGO_BIN_EXE_kinlock")))
}

/// `command`, without the variables that the library reads.
pub fn without_knobs(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("KINLOCK_") {
            command.env_remove(name);
        }
    }
    command
}
