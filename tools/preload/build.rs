//! Compiles the part that has to be C, and makes what the library is linked with instead of the
//! libraries of this machine.
//!
//! One library file has to load into processes of any C library from glibc 2.17 on, also where
//! libgcc_s is missing. The linker notes the newest version of each function in the C library of
//! the machine that builds, and a process whose C library lacks such a version does not start. So
//! this library is linked with a stand-in: a shared object that is called `libc.so.6` and has the
//! functions below, without versions. Then the loader takes what the process has. Functions that
//! some of these C libraries lack, or have in another library, are defined in `src/libc/missing.c`.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// What the library takes from the C library, or the loader. Each is in `libc.so.6` or in the
/// loader itself in all versions of glibc that it loads into.
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
    "clock_gettime",
    "close",
    "dl_iterate_phdr",
    "fallocate",
    "free",
    "getauxval",
    "getcwd",
    "getenv",
    "getpid",
    "gnu_get_libc_version",
    "lseek64",
    "malloc",
    "memcmp",
    "memcpy",
    "memmove",
    "memset",
    "mmap",
    "mmap64",
    "munmap",
    "open",
    "open64",
    "posix_memalign",
    "pthread_self",
    "pthread_setcancelstate",
    "pthread_setcanceltype",
    "read",
    "readlink",
    "realloc",
    "realpath",
    "sched_getcpu",
    "sched_getscheduler",
    "sched_yield",
    "sigaction",
    "sigfillset",
    "sigprocmask",
    "strlen",
    "syscall",
    "write",
    "writev",
];
const VARIABLES: &[&str] = &[
    "environ",
    "program_invocation_name",
    "program_invocation_short_name",
];

/// What has to be C.
const SOURCES: &[&str] = &[
    "src/libc/layout.c",
    "src/libc/missing.c",
    "src/posix/cancel.c",
    "src/thread.c",
];

/// Libraries that are on the linker's command line and that nothing may be taken from.
const EMPTY: &[&str] = &["gcc_s", "dl", "m", "pthread", "rt", "util"];

#[path = "build/versions.rs"]
mod versions;

fn main() {
    versions::add();
    println!("cargo::rerun-if-changed=build.rs");
    for file in SOURCES {
        println!("cargo::rerun-if-changed={file}");
    }
    cc::Build::new()
        .files(SOURCES)
        .opt_level(2)
        // A cancelled thread unwinds the frames of `cancel.c`, from any instruction of some.
        .flag("-fasynchronous-unwind-tables")
        // What a distribution's compiler may add would need more of the C library.
        .flag("-fno-stack-protector")
        .flag("-U_FORTIFY_SOURCE")
        .compile("kinlock_c");
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("stand-in");
    stand_in(&folder);
    // Found before the machine's libraries. For the library alone, not for its tests.
    println!("cargo::rustc-cdylib-link-arg=-L{}", folder.display());
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,defs");
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
