//! Variables that another `kinlock` left in the environment, when this command runs in its program:
//! in a shell under `kinlock run`, or in one that has evaluated `--print-env`.
//!
//! A program gets the locks that its own command names, and is measured as its own command says. So
//! the library and the variables by which commands talk to it are removed from the environment
//! before anything else. The knobs stay: they do not choose a lock, and users set them by hand.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. It is called at the beginning of `main`, when this process has one thread.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::OnceLock;

use super::library;

const PRELOAD: &str = "LD_PRELOAD";

/// The variables of the library that commands set.
const OF_COMMANDS: [&str; 9] = [
    "KINLOCK_LOCK",
    "KINLOCK_RWLOCK",
    "KINLOCK_COUNTS",
    "KINLOCK_REPORT",
    "KINLOCK_RECORD",
    "KINLOCK_ORDER",
    "KINLOCK_STANDBY",
    "KINLOCK_WARN",
    "KINLOCK_NO_CHILDREN",
];

/// The changed variables of the environment with their new values; `None` if they were removed.
static CHANGES: OnceLock<Vec<(&str, Option<OsString>)>> = OnceLock::new();

/// Removes the library and these variables from the environment of this process.
pub fn forget() {
    let set = OF_COMMANDS.into_iter();
    let set = set.filter(|name| env::var_os(name).is_some());
    let mut changes: Vec<_> = set.map(|name| (name, None)).collect();
    let preloaded = env::var_os(PRELOAD).unwrap_or_default();
    changes.extend(without_ours(&preloaded).map(|others| {
        let others = (!others.is_empty()).then_some(others);
        (PRELOAD, others)
    }));
    for (name, value) in &changes {
        // SAFETY: invariant 1.
        unsafe {
            match value {
                Some(value) => env::set_var(name, value),
                None => env::remove_var(name),
            }
        }
    }
    CHANGES.get_or_init(|| changes);
}

/// The changes by [`forget`]. The shell that started this command still has the old values.
pub fn changes() -> &'static [(&'static str, Option<OsString>)] {
    CHANGES.get().map_or(&[], |changes| changes)
}

/// Executes this command again if the library is loaded in it: `bench` has to measure the C
/// library's own locks.
#[cfg(feature = "bench")]
pub fn leave() {
    use std::os::unix::process::CommandExt;

    let is_preloaded = changes().iter().any(|(name, _)| *name == PRELOAD);
    let Some(this) = env::current_exe().ok().filter(|_| is_preloaded) else {
        return;
    };
    let mut words = env::args_os();
    let mut command = std::process::Command::new(this);
    command.arg0(words.next().unwrap_or_default()).args(words);
    crate::inherited::restore();
    let error = command.exec();
    kinlock_cli::outcome::tell(&format!(
        "kinlock: the preloaded library stays in this process: {error}"
    ));
}

/// `LD_PRELOAD` without any copy of the library; `None` if it names no copy.
fn without_ours(preloaded: &OsStr) -> Option<OsString> {
    // glibc's separators.
    let all = preloaded.as_bytes().split(|byte| b" :".contains(byte));
    let all: Vec<_> = all.filter(|name| !name.is_empty()).collect();
    let is_other = |name: &&[u8]| !is_ours(Path::new(OsStr::from_bytes(name)));
    let others: Vec<_> = all.iter().copied().filter(is_other).collect();
    (others.len() < all.len()).then(|| OsString::from_vec(others.join(&b':')))
}

/// Whether the file has the library's name, in any folder, even one that only the loader can find;
/// or contains the name of the variable for counts, which nothing else reads.
fn is_ours(file: &Path) -> bool {
    let reads_counts = || {
        let text = file.is_file().then(|| fs::read(file).ok()).flatten()?;
        let name = b"KINLOCK_COUNTS";
        Some(text.windows(name.len()).any(|part| part == name))
    };
    file.file_name() == Some(library::FILE.as_ref()) || reads_counts() == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_copy_of_the_library_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let renamed = file("locks.so", "\0KINLOCK_COUNTS\0");
        let other = file("other.so", "\0COUNTS\0");
        let link = folder.path().join("link.so").display().to_string();
        std::os::unix::fs::symlink(&renamed, &link).unwrap();
        let of = |preloaded: &str| without_ours(preloaded.as_ref());
        for ours in [
            "libkinlock_preload.so",
            "/usr/$LIB/libkinlock_preload.so",
            "/a/libkinlock_preload.so-for/${PLATFORM}/libkinlock_preload.so",
            &renamed,
            &link,
        ] {
            assert_eq!(of(ours).unwrap(), "", "{ours}");
            let among = format!("libc.so.6 {ours}::{other}:{ours}");
            let rest = format!("libc.so.6:{other}");
            assert_eq!(of(&among).unwrap(), rest.as_str(), "{ours}");
        }
        for others in [
            "",
            "libc.so.6",
            &other,
            "/no/such.so",
            "/a/libkinlock.so.1",
            "/dev",
        ] {
            assert_eq!(of(others), None, "{others}");
        }
    }
}
