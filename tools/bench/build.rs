//! Compiles the shims around rivals that are C libraries, where they are installed.
//!
//! Some need only a header, since they consist of inline functions. Without the header the crate
//! still builds, and the rival is listed as unavailable. Headers in an unusual folder are found by
//! the compiler's own variable `CPATH`.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-env-changed=CPATH");
    // A missing header may be installed later, so the script runs again when packages change.
    for packages in [
        "/var/lib/dpkg/status",
        "/var/lib/rpm/rpmdb.sqlite",
        "/lib/apk/db/installed",
    ] {
        watch(Path::new(packages));
    }

    let [locks, invalidation] = ["locks/contenders", "invalidation"];
    rival(locks, "ck_mcs", "ck_spinlock.h", None);
    rival(locks, "vsync_cna", "vsync/spinlock/cnalock.h", None);
    rival(invalidation, "ck_epoch", "ck_epoch.h", Some("ck"));
    rival(invalidation, "urcu", "urcu/urcu-memb.h", Some("urcu-memb"));
}

/// Compiles the shim of a rival that is a C library, if its header is installed, and links the
/// library if there is one. Only for the host's own architecture: a compiler for another one would
/// find the same headers, which have this machine's memory ordering, and not the libraries.
fn rival(folder: &str, name: &str, header: &str, library: Option<&str>) {
    let source = format!("src/{folder}/{name}.c");
    println!("cargo::rustc-check-cfg=cfg(have_{name})");
    println!("cargo::rerun-if-changed={source}");
    watch_header(header);
    if std::env::var_os("HOST") != std::env::var_os("TARGET") {
        return;
    }
    let mut shim = cc::Build::new();
    // No warning if the header is missing.
    shim.file(&source).opt_level(3).cargo_warnings(false);
    if shim.try_compile(&format!("kinlock_{name}")).is_ok() {
        if let Some(library) = library {
            println!("cargo::rustc-link-lib={library}");
        }
        println!("cargo::rustc-cfg=have_{name}");
    }
}

fn watch_header(header: &str) {
    for folder in ["/usr/include", "/usr/local/include"] {
        watch(&Path::new(folder).join(header));
    }
}

/// Builds the crate again when `file` changes. Not if it is missing: cargo would take that for a
/// change in every build.
fn watch(file: &Path) {
    if file.exists() {
        println!("cargo::rerun-if-changed={}", file.display());
    }
}
