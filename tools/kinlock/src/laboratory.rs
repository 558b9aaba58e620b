//! The verbs of the laboratory belong to another command, `kinlock-lab`. This process becomes that
//! command, if it lies in the same folder.

use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use kinlock_cli::outcome::tell;

use crate::inherited;

const NAME: &str = "kinlock-lab";
const VERBS: [&str; 5] = ["explore", "reproduce", "sim", "torture", "validate"];

/// The verb of the laboratory with which these words begin, if it is one. They do not include the
/// command's name.
pub fn verb(words: &[OsString]) -> Option<&'static str> {
    let word = named(words)?;
    VERBS.into_iter().find(|verb| word == verb)
}

/// The verb that these words ask for, or whose help they ask for.
pub fn named(words: &[OsString]) -> Option<&OsString> {
    let asked_for_help = words.first().is_some_and(|word| word == "help");
    words.get(usize::from(asked_for_help))
}

/// Executes the laboratory with the same words. Returns only if that is not possible.
pub fn become_it(verb: &str, words: &[OsString]) -> ExitCode {
    let execute = |this: PathBuf| {
        inherited::restore();
        let beside = this.with_file_name(NAME);
        Command::new(beside).args(words).exec()
    };
    let error = env::current_exe().map_or_else(|error| error, execute);
    tell(&match error.kind() {
        ErrorKind::NotFound => format!(
            "kinlock: {verb} is a verb of {NAME}, which does not lie beside this command: \
             cargo build --release -p {NAME}"
        ),
        _ => format!("kinlock: cannot execute {NAME}: {error}"),
    });
    ExitCode::from(2)
}
