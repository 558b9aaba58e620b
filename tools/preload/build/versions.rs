//! Gives each exported function a second symbol for each version that it has in the C library.
//!
//! The loader takes a symbol without a version for references with any version. But `dlvsym` does
//! not find it, and wrappers such as libfaketime use that to find the function that they wrap. The
//! second symbols are one jump each, in an object of assembly.
//!
//! Versions have to be declared by a version script. rustc passes one of its own, which declares
//! none, and of the linkers that rustc uses only LLVM's takes two. With other linkers there are no
//! second symbols: `dlvsym` then finds the C library's functions.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fmt::Write, fs};

const CONDVARS: &[&str] = &[
    "pthread_cond_broadcast",
    "pthread_cond_destroy",
    "pthread_cond_init",
    "pthread_cond_signal",
    "pthread_cond_timedwait",
    "pthread_cond_wait",
];

/// Functions that were in the C library itself, and not in libpthread, before glibc 2.34.
const IN_LIBC: &[&str] = &[
    "_Exit",
    "__pthread_mutex_destroy",
    "__pthread_mutex_init",
    "__pthread_mutex_lock",
    "__pthread_mutex_trylock",
    "__pthread_mutex_unlock",
    "__pthread_rwlock_destroy",
    "__pthread_rwlock_init",
    "__pthread_rwlock_rdlock",
    "__pthread_rwlock_tryrdlock",
    "__pthread_rwlock_trywrlock",
    "__pthread_rwlock_unlock",
    "__pthread_rwlock_wrlock",
    "_exit",
    "pthread_mutex_destroy",
    "pthread_mutex_init",
    "pthread_mutex_lock",
    "pthread_mutex_unlock",
];

/// Functions that were in libpthread before glibc 2.34. When libpthread became a part of the C
/// library, they got a second version, as did those of the lists that follow.
const MOVED: &[&str] = &[
    "pthread_barrier_destroy",
    "pthread_barrier_init",
    "pthread_barrier_wait",
    "pthread_join",
    "pthread_key_create",
    "pthread_mutex_timedlock",
    "pthread_mutex_trylock",
    "pthread_rwlock_destroy",
    "pthread_rwlock_init",
    "pthread_rwlock_rdlock",
    "pthread_rwlock_timedrdlock",
    "pthread_rwlock_timedwrlock",
    "pthread_rwlock_tryrdlock",
    "pthread_rwlock_trywrlock",
    "pthread_rwlock_unlock",
    "pthread_rwlock_wrlock",
    "pthread_spin_destroy",
    "pthread_spin_init",
    "pthread_spin_lock",
    "pthread_spin_trylock",
    "pthread_spin_unlock",
    "sem_destroy",
    "sem_init",
    "sem_timedwait",
    "sem_wait",
];

const TIMED_JOIN: &[&str] = &["pthread_timedjoin_np"];
const CLOCK_JOIN: &[&str] = &["pthread_clockjoin_np"];

const OF_C11: &[&str] = &[
    "cnd_broadcast",
    "cnd_destroy",
    "cnd_init",
    "cnd_signal",
    "cnd_timedwait",
    "cnd_wait",
    "mtx_destroy",
    "mtx_init",
    "mtx_lock",
    "mtx_timedlock",
    "mtx_trylock",
    "mtx_unlock",
    "thrd_join",
    "tss_create",
];

const CLOCKS: &[&str] = &[
    "pthread_cond_clockwait",
    "pthread_mutex_clocklock",
    "pthread_rwlock_clockrdlock",
    "pthread_rwlock_clockwrlock",
    "sem_clockwait",
];

/// Functions, and the versions that they have on x86-64 and on aarch64.
type Functions = (&'static [&'static str], [&'static [&'static str]; 2]);

const TABLE: [Functions; 7] = [
    (IN_LIBC, [&["2.2.5"], &["2.17"]]),
    (CONDVARS, [&["2.2.5", "2.3.2"], &["2.17"]]),
    (MOVED, [&["2.2.5", "2.34"], &["2.17", "2.34"]]),
    (TIMED_JOIN, [&["2.3.3", "2.34"], &["2.17", "2.34"]]),
    (CLOCK_JOIN, [&["2.31", "2.34"]; 2]),
    (OF_C11, [&["2.28", "2.34"]; 2]),
    (CLOCKS, [&["2.30", "2.34"]; 2]),
];

/// Makes the object and the version script, and passes them to the linker. Sets the cfg
/// `kinlock_versions`, for tests.
pub fn add() {
    println!("cargo::rerun-if-changed=build/versions.rs");
    println!("cargo::rerun-if-env-changed=PATH");
    println!("cargo::rustc-check-cfg=cfg(kinlock_versions)");
    let (architecture, jump) = match variable("CARGO_CFG_TARGET_ARCH").as_str() {
        "x86_64" => (0, "jmp"),
        _ => (1, "b"),
    };
    let Some(arguments) = arguments_for_lld() else {
        println!(
            "cargo::warning=linked without lld: functions that a program looks up by dlvsym are \
             the C library's"
        );
        return;
    };
    let folder = PathBuf::from(variable("OUT_DIR"));
    let script = folder.join("versions.map");
    fs::write(&script, declarations(architecture)).expect("a file of our own");
    let object = assemble(&folder, &symbols(architecture, jump));
    for argument in arguments {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    println!("cargo::rustc-cdylib-link-arg={}", object.display());
    println!(
        "cargo::rustc-cdylib-link-arg=-Wl,--version-script={}",
        script.display()
    );
    // The jumps have to reach this library's functions even if another preloaded library exports
    // functions of the same names.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo::rustc-cfg=kinlock_versions");
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

fn declarations(architecture: usize) -> String {
    let all = TABLE
        .iter()
        .flat_map(|(_, versions)| versions[architecture]);
    let mut versions: Vec<_> = all.collect();
    versions.sort();
    versions.dedup();
    let declare = |version| format!("GLIBC_{version} {{ }};\n");
    versions.into_iter().map(declare).collect()
}

fn symbols(architecture: usize, jump: &str) -> String {
    let mut text = String::from(".text\n");
    let mut number = 0;
    for (functions, versions) in TABLE {
        for function in functions {
            for version in versions[architecture] {
                write!(
                    text,
                    ".globl kinlock_version_{number}\n\
                     .type kinlock_version_{number}, %function\n\
                     kinlock_version_{number}:\n\
                     .cfi_startproc\n\
                     {jump} {function}\n\
                     .cfi_endproc\n\
                     .size kinlock_version_{number}, . - kinlock_version_{number}\n\
                     .symver kinlock_version_{number}, {function}@GLIBC_{version}\n"
                )
                .expect("it writes to a string");
                number += 1;
            }
        }
    }
    text + ".section .note.GNU-stack, \"\", %progbits\n"
}

fn assemble(folder: &Path, text: &str) -> PathBuf {
    let source = folder.join("versions.s");
    fs::write(&source, text).expect("a file of our own");
    let objects = cc::Build::new().file(source).compile_intermediates();
    objects.into_iter().next().expect("one object")
}

/// The arguments that make rustc link with lld; empty if that is the default. `None`: it cannot.
fn arguments_for_lld() -> Option<Vec<&'static str>> {
    let flags = variable("CARGO_ENCODED_RUSTFLAGS");
    if flags.contains("fuse-ld=") {
        return flags.contains("fuse-ld=lld").then(Vec::new);
    }
    let is_usual = env::var_os("RUSTC_LINKER").is_none() && !flags.contains("linker-features=");
    if is_usual && variable("TARGET") == "x86_64-unknown-linux-gnu" && rust_minor() >= 90 {
        return Some(Vec::new());
    }
    let path = env::var_os("PATH")?;
    let mut folders = env::split_paths(&path);
    let has_lld = folders.any(|folder| folder.join("ld.lld").exists());
    has_lld.then(|| vec!["-fuse-ld=lld"])
}

/// The minor version of rustc: 95 of 1.95.
fn rust_minor() -> u32 {
    let output = Command::new(variable("RUSTC")).arg("--version").output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let minor = text.split('.').nth(1);
    minor.and_then(|minor| minor.parse().ok()).unwrap_or(0)
}
