//! The laboratory's verbs: `kinlock` becomes `kinlock-lab` if that is in the same folder.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{done, is_refusal, script, without_knobs};

/// A copy of the command in another folder.
fn copied(folder: &Path) -> PathBuf {
    let program = fs::read(env!("CARGO_BIN_EXE_kinlock")).unwrap();
    script(folder, "kinlock", program)
}

#[test]
fn the_command_beside_is_executed_with_the_same_words() {
    let folder = tempfile::tempdir().unwrap();
    let command = copied(folder.path());
    let text = "#!/bin/sh\nprintf '%s|' \"$@\"\necho $$\nexit 3\n";
    script(folder.path(), "kinlock-lab", text);
    for verb in ["explore", "reproduce", "sim", "torture", "validate"] {
        let mut command = without_knobs(Command::new(&command));
        let child = command.args([verb, "--locks", "a b", ""]);
        let child = child.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{verb}");
        // It is the same process.
        let expected = format!("{verb}|--locks|a b||{pid}\n");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    }
}

#[test]
fn without_it_one_line_says_how_to_build_it() {
    let folder = tempfile::tempdir().unwrap();
    let command = copied(folder.path());
    for words in [&["sim", "--locks", "cna"][..], &["help", "torture"]] {
        let output = without_knobs(Command::new(&command)).args(words).output();
        let remedy = "cargo build --release -p kinlock-lab";
        is_refusal(&output.unwrap(), 2, remedy);
    }
}

#[test]
fn help_names_its_verbs() {
    let help = done("--help");
    assert!(help.contains("kinlock-lab"), "{help}");
    for verb in ["explore", "reproduce", "sim", "torture", "validate"] {
        assert!(help.contains(verb), "{help}");
    }
}
