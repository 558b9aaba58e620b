//! Compiles what has to be C, and makes the stand-in with which this library is linked in place of
//! the machine's C library.
//!
//! One library file has to load into processes with any glibc from 2.17 on, also where libgcc_s is
//! missing. A linker records the version that each function has in the C library of the machine
//! that builds, and a process whose C library lacks that version does not start. The stand-in is a
//! shared object that is called `libc.so.6` and has the functions below, without versions: then the
//! loader takes the ones of the process. Functions that some of these C libraries lack, or have in
//! another library, are defined in `src/libc/missing.c`.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// The functions that the library takes from the C library or the loader. In all supported versions
/// of glibc each of them is in `libc.so.6` or in the loader itself. Other preloaded libraries may
/// define functions of these names, too: what a lock may call is in `src/libc/direct.c` instead.
const FUNCTIONS: &[&str] = &[
    "__cxa_at_quick_exit",
    "__cxa_finalize",
    "__errno_location",
    "__getauxval",
    "__register_atfork",
    "__sigsetjmp",
    "__tls_get_addr",
    "abort",
    "bcmp",
    "calloc",
    "dl_iterate_phdr",
    "free",
    "getauxval",
    "getcwd",
    "getenv",
    "gnu_get_libc_version",
    "malloc",
    "memcmp",
    "memcpy",
    "memmove",
    "memset",
    "posix_memalign",
    "pthread_self",
    "pthread_setcancelstate",
    "pthread_setcanceltype",
    "realloc",
    "realpath",
    "sigaction",
    "sigfillset",
    "strlen",
];
/// The variables that the library takes from them.
const VARIABLES: &[&str] = &[
    "_r_debug",
    "environ",
    "program_invocation_name",
    "program_invocation_short_name",
];

/// The sources in C.
const SOURCES: &[&str] = &[
    "src/libc/direct.c",
    "src/libc/layout.c",
    "src/libc/missing.c",
    "src/posix/cancel.c",
    "src/thread.c",
];

/// Libraries on the linker's command line from which nothing may be taken: they are made empty.
const EMPTY: &[&str] = &["gcc_s", "dl", "m", "pthread", "rt", "util"];

#[path = "build/versions.rs"]
mod versions;

fn main() {
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    assert!(
        ["x86_64", "aarch64"].contains(&&*architecture),
        "this library replaces functions of the GNU C library on x86-64 and aarch64"
    );
    versions::add();
    println!("cargo::rerun-if-changed=build.rs");
    for file in SOURCES {
        println!("cargo::rerun-if-changed={file}");
    }
    cc::Build::new()
        .files(SOURCES)
        .opt_level(2)
        // A cancelled thread unwinds the frames of `cancel.c`. In some of them cancellation is
        // possible at any instruction.
        .flag("-fasynchronous-unwind-tables")
        // A distribution's compiler may add these by default. They need more of the C library.
        .flag("-fno-stack-protector")
        .flag("-U_FORTIFY_SOURCE")
        .compile("kinlock_c");
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("stand-in");
    stand_in(&folder);
    // The linker searches this folder before the machine's. Only for the library, not for its
    // tests.
    println!("cargo::rustc-cdylib-link-arg=-L{}", folder.display());
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,defs");
    // Threads call into the library when they end.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}

fn stand_in(folder: &Path) {
    fs::create_dir_all(folder).expect("a folder of our own");
    for name in EMPTY {
        fs::write(folder.join(format!("lib{name}.a")), "!<arch>\n").expect("an empty library");
    }
    let functions = FUNCTIONS
        .iter()
        .map(|name| format!("void {name}(void) {{}}\n"));
    let variables = VARIABLES.iter().map(|name| format!("void *{name};\n"));
    let source = folder.join("libc.c");
    let text: String = functions.chain(variables).collect();
    fs::write(&source, text).expect("a source of our own");
    let mut compiler = cc::Build::new().get_compiler().to_command();
    let status = compiler
        .args(["-shared", "-nostdlib", "-fno-builtin", "-fPIC", "-w"])
        .args(["-Wl,-soname,libc.so.6", "-o"])
        .arg(folder.join("libc.so"))
        .arg(source)
        .status();
    let status = status.expect("the C compiler starts");
    assert!(status.success(), "the C compiler ended with {status}");
}
