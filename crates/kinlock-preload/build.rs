//! Compiles the part that has to be C.

#[path = "build/versions.rs"]
mod versions;

fn main() {
    versions::add();
    println!("cargo::rerun-if-changed=src/frames.c");
    cc::Build::new()
        .file("src/frames.c")
        .opt_level(2)
        // A cancelled thread unwinds these frames, from any instruction of some of them.
        .flag("-fexceptions")
        .flag("-fasynchronous-unwind-tables")
        .compile("kinlock_frames");
}
