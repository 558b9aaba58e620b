//! The library that is preloaded: where it is, and building it in a checkout.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. What the kernel says about the execution is null or a zero-terminated string that is never
//!    freed.

use std::env;
use std::ffi::{CStr, OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use anyhow::{Context, bail};
use kinlock_cli::outcome::tell;

use super::platforms;
use super::variables::is_preloadable;

pub const FILE: &str = "libkinlock_preload.so";
const PACKAGE: &str = "kinlock-preload";
/// The folders of the library's crate, and of the crates that it depends on.
const CRATES: [&str; 5] = [
    "tools/preload",
    "lib/core",
    "lib/linux",
    "lib/recorder",
    "lib/report",
];

/// Finds the library to preload, and returns its [path](platforms). It is the one that
/// `KINLOCK_PRELOAD` names, the installed one, or the one of the checkout in which this command was
/// built. A library with another name than ours is preloaded as it is.
///
/// # Errors
/// If there is none, if it cannot be built, or if it cannot be preloaded from where it is.
pub fn find() -> anyhow::Result<PathBuf> {
    let library = is_preloadable(locate()?)?;
    Ok(match library.file_name() == Some(FILE.as_ref()) {
        true => platforms::path(&library),
        false => library,
    })
}

fn locate() -> anyhow::Result<PathBuf> {
    if let Some(named) = env::var_os("KINLOCK_PRELOAD").filter(|named| !named.is_empty()) {
        let path = PathBuf::from(&named);
        let found = path.canonicalize();
        return found.with_context(|| format!("KINLOCK_PRELOAD={}", path.display()));
    }
    let this = env::current_exe().or_else(|_| executed());
    let this =
        this.context("cannot find the command itself; KINLOCK_PRELOAD=FILE names the library")?;
    let folder = this.parent().unwrap_or(Path::new("/"));
    let prefix = folder.parent().unwrap_or(folder);
    let installed = prefix.join("lib/kinlock").join(FILE);
    let beside = folder.join(FILE);
    if installed.is_file() {
        return Ok(installed);
    }
    if is_in_checkout(folder) && is_outdated(&beside) {
        build(folder, &beside)?;
    }
    if !beside.is_file() {
        bail!(
            "cannot find the library to preload: neither {} nor {} is there; in a checkout of \
             kinlock `make install-preload PREFIX={}` installs it, and KINLOCK_PRELOAD=FILE names \
             another place",
            installed.display(),
            beside.display(),
            prefix.display()
        );
    }
    Ok(beside)
}

/// The path by which the command was executed, for systems without `/proc`.
fn executed() -> io::Result<PathBuf> {
    // SAFETY: invariant 1.
    let path = unsafe {
        let path = libc::getauxval(libc::AT_EXECFN) as *const libc::c_char;
        (!path.is_null()).then(|| CStr::from_ptr(path))
    };
    let path = path.ok_or(io::ErrorKind::NotFound)?;
    Path::new(OsStr::from_bytes(path.to_bytes())).canonicalize()
}

fn root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap_or(own)
}

/// Whether the command lies where cargo puts it, and its sources still exist.
fn is_in_checkout(folder: &Path) -> bool {
    let target = folder.parent();
    let is_target = target.is_some_and(|target| target.join("CACHEDIR.TAG").is_file());
    is_target && root().join(CRATES[0]).is_dir()
}

/// Whether the library is missing or older than a source.
fn is_outdated(library: &Path) -> bool {
    let Ok(built) = fs::metadata(library).and_then(|data| data.modified()) else {
        return true;
    };
    let sources = CRATES.map(|name| root().join(name).join("src"));
    sources.iter().any(|folder| newest(folder) > Some(built))
}

/// The time of the latest change in a folder.
fn newest(folder: &Path) -> Option<SystemTime> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let changed = entries.filter_map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => newest(&entry.path()),
        _ => entry.metadata().ok()?.modified().ok(),
    });
    changed.max()
}

/// Has cargo build the library with the command's profile, next to the command.
fn build(folder: &Path, library: &Path) -> anyhow::Result<()> {
    tell(&format!("kinlock: building {}", library.display()));
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let profile = match folder.file_name() {
        Some(name) if name == "debug" => "dev".into(),
        other => other.unwrap_or_default().to_owned(),
    };
    let mut command = Command::new(&cargo);
    command
        .args(["build", "--quiet", "--package", PACKAGE, "--profile"])
        .arg(profile)
        .arg("--target-dir")
        .arg(folder.parent().unwrap_or(folder))
        .current_dir(root())
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let status = command.status();
    let status = status.with_context(|| format!("cannot start {}", cargo.display()))?;
    if !status.success() {
        bail!("cannot build the library to preload: cargo ended with {status}");
    }
    Ok(())
}
