//! Compiles the shims around rivals that are C libraries, where they are installed.
//!
//! Some need only a header: they are made of inline functions. Without it the crate builds all
//! the same, and the rival is listed as unavailable. Headers that are not in a usual folder are
//! found by way of the compiler's own variable `CPATH`.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-env-changed=CPATH");
    // Headers that are missing may be installed one day.
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

/// A rival that is a C library: its shim in a folder of the suites, if the header is installed, and
/// the library if it needs one. Both are for this machine: compilers for another architecture find
/// the headers, too, which say how this one orders memory, and not the libraries.
fn rival(folder: &str, name: &str, header: &str, library: Option<&str>) {
    let source = format!("src/{folder}/{name}.c");
    println!("cargo::rustc-check-cfg=cfg(have_{name})");
    println!("cargo::rerun-if-changed={source}");
    watch_header(header);
    if std::env::var_os("HOST") != std::env::var_os("TARGET") {
        return;
    }
    let mut shim = cc::Build::new();
    // A missing header is nothing to warn of.
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

/// Has a change of `file` build the crate again. Not if it is missing: cargo takes that for a
/// change, every time.
fn watch(file: &Path) {
    if file.exists() {
        println!("cargo::rerun-if-changed={}", file.display());
    }
}
