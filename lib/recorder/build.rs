//! Compiles the thread-locals that have to be C.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/thread.c");
    #[cfg(feature = "initial-exec")]
    cc::Build::new()
        .file("src/thread.c")
        .opt_level(2)
        // A distribution's compiler may add these by default. They need more of the C library.
        .flag("-fno-stack-protector")
        .flag("-U_FORTIFY_SOURCE")
        .compile("kinlock_recorder_c");
}
