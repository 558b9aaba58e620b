//! Compiles the shims around rivals that are C libraries, where they are installed, and notes the
//! commit.
//!
//! For Concurrency Kit's MCS lock the header is all that is needed: it is made of inline functions.
//! Without it the command builds all the same, and `ck-mcs` is listed as unavailable; and so it is
//! with the others.

use std::path::Path;
use std::process::{Command, Stdio};

fn main() {
    println!("cargo::rustc-check-cfg=cfg(have_ck)");
    println!("cargo::rerun-if-changed=src/bench/locks/contenders/ck_mcs.c");
    watch_header("ck_spinlock.h");
    // Headers that are missing may be installed one day.
    for packages in [
        "/var/lib/dpkg/status",
        "/var/lib/rpm/rpmdb.sqlite",
        "/lib/apk/db/installed",
    ] {
        watch(Path::new(packages));
    }

    let mut shim = cc::Build::new();
    shim.file("src/bench/locks/contenders/ck_mcs.c")
        .opt_level(3);
    if header_found(&shim, "ck_spinlock.h") && shim.try_compile("kinlock_ck_mcs").is_ok() {
        println!("cargo::rustc-cfg=have_ck");
    }
    rival("ck_epoch", "ck_epoch.h", "ck");
    rival("urcu", "urcu/urcu-memb.h", "urcu-memb");
    note_commit();
}

/// A rival of the suite `invalidation` that is a C library: its shim, if header and library are
/// installed.
fn rival(name: &str, header: &str, library: &str) {
    let source = format!("src/bench/invalidation/{name}.c");
    println!("cargo::rustc-check-cfg=cfg(have_{name})");
    println!("cargo::rerun-if-changed={source}");
    watch_header(header);
    let mut shim = cc::Build::new();
    shim.file(&source).opt_level(3);
    if header_found(&shim, header) && shim.try_compile(&format!("kinlock_{name}")).is_ok() {
        println!("cargo::rustc-link-lib={library}");
        println!("cargo::rustc-cfg=have_{name}");
    }
}

fn watch_header(header: &str) {
    for folder in ["/usr/include", "/usr/local/include"] {
        watch(&Path::new(folder).join(header));
    }
}

/// Has a change of `file` build the command again. Not if it is missing: cargo takes that for a
/// change, every time.
fn watch(file: &Path) {
    if file.exists() {
        println!("cargo::rerun-if-changed={}", file.display());
    }
}

/// Results say which source they came from, where the source is a checkout.
fn note_commit() {
    watch(Path::new("../../.git/logs/HEAD"));
    let git = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output();
    if let Some(commit) = git.ok().filter(|git| git.status.success()) {
        let commit = String::from_utf8_lossy(&commit.stdout);
        println!("cargo::rustc-env=KINLOCK_COMMIT={}", commit.trim());
    }
}

/// Whether the compiler finds the header: asked first, because a failed compilation would fill the
/// screen.
fn header_found(shim: &cc::Build, header: &str) -> bool {
    let Ok(compiler) = shim.try_get_compiler() else {
        return false;
    };
    Command::new(compiler.path())
        .args(["-E", "-include", header, "-x", "c", "/dev/null"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
