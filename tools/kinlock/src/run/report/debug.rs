//! Debugging information in a file of its own: distributions strip the programs that they package,
//! and offer what they stripped in separate packages.
//!
//! It is looked for where debuggers look for it, in this order:
//!
//! 1. below `/usr/lib/debug/.build-id`, by the build ID;
//! 2. by the name in the file's section `.gnu_debuglink`: in the file's folder, in the folder
//!    `.debug` there, and below `/usr/lib/debug` in a folder named like the file's;
//! 3. in the cache of debuginfod, by the build ID. Nothing is fetched: a report is made at once,
//!    also without a network.
//!
//! A file that is found by its name may belong to another build. So its build ID must be the same,
//! or, if there is none, its checksum must be the one in the link.

use std::env;
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::Object;
use object::read::elf::ElfFile64;

use super::others::mapped;

const ROOT: &str = "/usr/lib/debug";

/// The cache of debuginfod.
fn cache() -> Option<PathBuf> {
    let set = |name: &str| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    set("DEBUGINFOD_CACHE_PATH").or_else(|| {
        let home = || Some(set("HOME")?.join(".cache"));
        let caches = set("XDG_CACHE_HOME").or_else(home)?;
        Some(caches.join("debuginfod_client"))
    })
}

/// The file with the debugging information that was stripped from the file at `path`.
pub fn apart(path: &Path, file: &ElfFile64<'_>) -> Option<PathBuf> {
    let id = build_id(file);
    let is_elf = |path: &PathBuf| with(path, |_| ()).is_some();
    by_id(id).filter(is_elf).or_else(|| {
        let (name, checksum) = file.gnu_debuglink().ok()??;
        let is_its = |other: &PathBuf| is_of(other, id, checksum);
        by_name(path, name).into_iter().find(is_its)
    })
}

fn by_id(id: &[u8]) -> Option<PathBuf> {
    let installed = installed(id)?;
    let cached = cache().map(|cache| cache.join(hex(id)).join("debuginfo"));
    // An empty file in the cache means that no server has the information.
    let is_there = |path: &PathBuf| fs::metadata(path).is_ok_and(|data| data.len() > 0);
    [installed].into_iter().chain(cached).find(is_there)
}

/// Where packages of distributions put the debugging information for this build ID.
fn installed(id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = id.split_first()?;
    let below = format!(".build-id/{}/{}.debug", hex(&[*first]), hex(rest));
    Some(Path::new(ROOT).join(below))
}

fn by_name(path: &Path, name: &[u8]) -> Vec<PathBuf> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let (Some(folder), name) = (path.parent(), OsStr::from_bytes(name)) else {
        return Vec::new();
    };
    let below = folder.strip_prefix("/").unwrap_or(folder);
    let folders = [
        folder.to_owned(),
        folder.join(".debug"),
        Path::new(ROOT).join(below),
    ];
    let all = folders.into_iter().map(|folder| folder.join(name));
    // The link of a file may have the name of the file itself.
    all.filter(|found| *found != path).collect()
}

/// The file to which the debugging information in `path` refers for parts that it shares with other
/// files.
pub fn common(path: &Path, file: &ElfFile64<'_>) -> Option<PathBuf> {
    let (name, id) = file.gnu_debugaltlink().ok()??;
    let named = path.parent()?.join(OsStr::from_bytes(name));
    let is_its = |path: &PathBuf| with(path, |file| build_id(file) == id) == Some(true);
    Some(named).filter(is_its).or_else(|| by_id(id))
}

fn build_id<'a>(file: &ElfFile64<'a>) -> &'a [u8] {
    file.build_id().ok().flatten().unwrap_or_default()
}

/// Whether a file has the debugging information for this build ID or this checksum of a link.
fn is_of(path: &Path, id: &[u8], checksum: u32) -> bool {
    let has_id = with(path, |file| !id.is_empty() && build_id(file) == id);
    match has_id {
        Some(false) if id.is_empty() => {
            mapped(path).is_some_and(|data| crc32fast::hash(&data) == checksum)
        }
        known => known == Some(true),
    }
}

/// Calls `with` with the ELF file at a path, if there is one.
fn with<T>(path: &Path, with: impl FnOnce(&ElfFile64<'_>) -> T) -> Option<T> {
    let data = mapped(path)?;
    Some(with(&ElfFile64::parse(&data[..]).ok()?))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

// ---- what to install ------------------------------------

/// Where Debian's package manager lists the files of each package.
pub const LISTS: &str = "/var/lib/dpkg/info";

/// For each file, the package with its debugging information, if the package lists in the folder
/// have one.
pub fn packages(lists: &Path, files: &[String]) -> Vec<Option<String>> {
    let mut found = vec![None; files.len()];
    // With merged folders, the list may call a folder `/lib` or `/usr/lib`.
    let names: Vec<Vec<String>> = files.iter().map(|file| names_of(Path::new(file))).collect();
    for list in fs::read_dir(lists).into_iter().flatten().flatten() {
        let name = list.file_name();
        let Some(package) = name.to_str().and_then(|name| name.strip_suffix(".list")) else {
            continue;
        };
        let package = package.split(':').next().unwrap_or(package);
        let Ok(text) = fs::read(list.path()) else {
            continue;
        };
        // Names of files in packages need not be UTF-8.
        for line in String::from_utf8_lossy(&text).lines() {
            let at = names
                .iter()
                .position(|names| names.iter().any(|name| name == line));
            if let Some(at) = at {
                found[at] = Some(debug_package(package));
            }
        }
    }
    found
}

fn names_of(path: &Path) -> Vec<String> {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut names = vec![path.display().to_string(), real.display().to_string()];
    let short = names.iter().filter_map(|name| name.strip_prefix("/usr"));
    let short: Vec<_> = short.map(str::to_owned).collect();
    names.extend(short);
    names
}

/// The name of the package with debugging information. The C library's still ends in `-dbg`, as all
/// such packages did once.
fn debug_package(package: &str) -> String {
    match package {
        "libc6" => "libc6-dbg".to_owned(),
        package => format!("{package}-dbgsym"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_sort_files_by_the_first_byte_of_their_ids() {
        let path = installed(&[0xab, 0xcd, 0x0e]).unwrap();
        assert_eq!(path, Path::new("/usr/lib/debug/.build-id/ab/cd0e.debug"));
        assert_eq!(installed(&[]), None);
    }

    #[test]
    fn the_package_of_a_file_is_that_whose_list_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let list = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        list("some.list", "/.\n/usr/bin/some-more\n/usr/bin/some\n");
        list("libc6:amd64.list", "/lib/libc-of-a-test.so.6\n");
        list("other.md5sums", "/usr/bin/other\n");
        let files = [
            "/usr/bin/some",
            "/usr/lib/libc-of-a-test.so.6",
            "/usr/bin/other",
        ];
        let packages = packages(folder.path(), &files.map(str::to_owned));
        let packages: Vec<_> = packages.iter().map(Option::as_deref).collect();
        assert_eq!(packages, [Some("some-dbgsym"), Some("libc6-dbg"), None]);
    }
}
