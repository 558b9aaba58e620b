//! Keeping the library out of processes that it cannot work in.
//!
//! All processes that a program starts inherit `LD_PRELOAD`. If that had the library's own path, a
//! process linked with musl would not start, and for each 32-bit process the loader would print a
//! line. So the path contains `$PLATFORM`, which glibc's loader replaces by the name of its
//! processor: the file is a link to the library for 64-bit processes, and an empty library for
//! 32-bit ones. musl's loader takes the path literally, finds nothing there, and prints nothing.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. The kernel's name of the platform is null or a zero-terminated string that is never freed.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The names that glibc may give the processor in a process in which the library works.
const WIDE: &[&str] = match () {
    // The last two: glibc 2.26 to 2.36, on processors with AVX2 or AVX-512.
    #[cfg(target_arch = "x86_64")]
    () => &["x86_64", "haswell", "xeon_phi"],
    #[cfg(target_arch = "aarch64")]
    () => &["aarch64"],
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    () => &[],
};

/// The same for processes that get the empty library.
const NARROW: &[&str] = match cfg!(target_arch = "x86_64") {
    true => &["i386", "i486", "i586", "i686"],
    false => &[],
};

/// A path for `LD_PRELOAD` that leads to the library in processes in which it works. It is the
/// library's own path if these files are missing and its folder cannot be written to.
pub fn path(library: &Path) -> PathBuf {
    let Some(file) = library.file_name() else {
        return library.to_owned();
    };
    let folder = library.with_file_name([file, "-for".as_ref()].join("".as_ref()));
    if !knows_platform() || prepare(&folder, library).is_err() {
        return library.to_owned();
    }
    folder.join("$PLATFORM").join(file)
}

/// Whether the kernel tells programs one of the names above. Some emulated kernels tell none.
fn knows_platform() -> bool {
    // SAFETY: invariant 1.
    let name = unsafe {
        let name = libc::getauxval(libc::AT_PLATFORM) as *const libc::c_char;
        (!name.is_null()).then(|| CStr::from_ptr(name))
    };
    let name = name.and_then(|name| name.to_str().ok());
    name.is_some_and(|name| WIDE.contains(&name))
}

/// Makes the missing files. Other commands may do the same at the same time.
fn prepare(folder: &Path, library: &Path) -> io::Result<()> {
    let file = Path::new(library.file_name().unwrap_or_default());
    let target = Path::new("../..").join(file);
    for name in WIDE {
        let place = folder.join(name).join(file);
        if fs::read_link(&place).ok().as_deref() != Some(&target) {
            replace(&place, |path| symlink(&target, path))?;
        }
    }
    let empty = empty_library();
    for name in NARROW {
        let place = folder.join(name).join(file);
        if fs::read(&place).ok().as_deref() != Some(&empty) {
            replace(&place, |path| fs::write(path, &empty))?;
        }
    }
    Ok(())
}

/// Makes a file next to `place`, and renames it to `place`.
fn replace(place: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    fs::create_dir_all(place.parent().unwrap_or(place))?;
    let new = place.with_extension(std::process::id().to_string());
    let _ = fs::remove_file(&new);
    make(&new)?;
    fs::rename(&new, place)
}

/// A shared object for 32-bit x86 that has no symbols and needs no other object.
fn empty_library() -> Vec<u8> {
    const HEADER: u32 = 52;
    const SEGMENT: u32 = 32;
    const SEGMENTS: u32 = 3;
    const HASH: u32 = HEADER + SEGMENTS * SEGMENT;
    const SYMBOLS: u32 = HASH + 16;
    const SYMBOL: u32 = 16;
    const NAMES: u32 = SYMBOLS + SYMBOL;
    const DYNAMIC: u32 = NAMES + 4;
    const DYNAMIC_SIZE: u32 = 6 * 8;
    const SIZE: u32 = DYNAMIC + DYNAMIC_SIZE;
    const READ_WRITE: u32 = 6;
    const SHARED: u32 = 3;
    const INTEL_386: u32 = 3;

    let mut file = b"\x7fELF\x01\x01\x01".to_vec();
    file.resize(16, 0);
    // The sizes of the header and of a segment's entry, their number, and no sections.
    let words = [
        [SHARED | INTEL_386 << 16, 1, 0, HEADER, 0, 0],
        [HEADER | SEGMENT << 16, SEGMENTS, 0, 0, 0, 0],
    ];
    file.extend(
        words.concat()[..9]
            .iter()
            .flat_map(|word| word.to_le_bytes()),
    );
    let segments = [
        [libc::PT_LOAD, 0, 0, 0, SIZE, SIZE, READ_WRITE, 0x1000],
        [
            libc::PT_DYNAMIC,
            DYNAMIC,
            DYNAMIC,
            DYNAMIC,
            DYNAMIC_SIZE,
            DYNAMIC_SIZE,
            READ_WRITE,
            4,
        ],
        // Without this entry the loader would make the stack executable.
        [libc::PT_GNU_STACK, 0, 0, 0, 0, 0, READ_WRITE, 16],
    ];
    // One bucket and one symbol, which are empty; no names.
    let rest = [1, 1, 0, 0, 0, 0, 0, 0, 0];
    let [hash, names, symbols, names_size, symbol_size] = [4, 5, 6, 10, 11];
    let dynamic = [
        [hash, HASH],
        [names, NAMES],
        [symbols, SYMBOLS],
        [names_size, 1],
        [symbol_size, SYMBOL],
        [0, 0],
    ];
    let words = [&segments.concat()[..], &rest, &dynamic.concat()].concat();
    file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_made_once_and_mended() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("library.so");
        fs::write(&library, "new").unwrap();
        let found = path(&library);
        if !knows_platform() {
            assert_eq!(found, library);
            return;
        }
        let all = folder.path().join("library.so-for");
        assert_eq!(found, all.join("$PLATFORM/library.so"));
        let own = all.join(WIDE[0]).join("library.so");
        assert_eq!(fs::read_to_string(&own).unwrap(), "new");
        let changed = |path: &Path| fs::symlink_metadata(path).unwrap().modified().unwrap();
        let before = changed(&own);
        path(&library);
        assert_eq!(changed(&own), before);
        fs::remove_file(&own).unwrap();
        fs::write(&own, "old").unwrap();
        path(&library);
        assert_eq!(fs::read_to_string(&own).unwrap(), "new");
    }

    #[test]
    fn a_folder_that_cannot_be_written_to_has_the_library_alone() {
        let library = Path::new("/proc/library.so");
        assert_eq!(path(library), library);
    }
}
