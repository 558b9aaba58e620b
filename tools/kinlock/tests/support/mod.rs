//! The command as tests call it, and programs for it to run.

// Each test program uses a part of this.
#![allow(dead_code)]

mod calls;

use std::path::{Path, PathBuf};
use std::process::Command;

pub use calls::*;

/// The command, without arguments.
pub fn kinlock() -> Command {
    without_knobs(Command::new(env!("CARGO_BIN_EXE_kinlock")))
}

/// The command that [`calls`] calls.
fn command() -> Command {
    kinlock()
}

/// A library to preload that does nothing but leave the line `$LINE` as its counts.
pub fn silent_library(folder: &Path) -> PathBuf {
    let source = r#"
        #include <stdio.h>
        #include <stdlib.h>
        __attribute__((destructor)) static void end(void) {
            const char *path = getenv("KINLOCK_COUNTS"), *line = getenv("LINE");
            FILE *file = path && line ? fopen(path, "a") : NULL;
            if (file) fprintf(file, "%s\n", line), fclose(file);
        }
    "#;
    compiled(folder, "silent.so", "-shared -fPIC", source)
}
