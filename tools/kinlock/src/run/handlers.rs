//! Programs that the kernel gives to another one to run, as `binfmt_misc` is told: those of Wine,
//! Java's archives.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

const FOLDER: &str = "/proc/sys/fs/binfmt_misc";

/// What runs a file that begins like this.
pub fn of(path: &Path, begin: &[u8]) -> Option<PathBuf> {
    let handlers = fs::read_dir(FOLDER).ok()?.flatten();
    handlers
        .filter_map(|entry| fs::read(entry.path()).ok())
        .find_map(|description| handler(&description, path, begin))
}

/// What a description names as the interpreter, if it is of such files.
fn handler(description: &[u8], path: &Path, begin: &[u8]) -> Option<PathBuf> {
    let lines = || description.split(|&byte| byte == b'\n');
    let value = |name: &str| {
        let mut found = lines().filter_map(|line| line.strip_prefix(name.as_bytes()));
        found.find_map(|rest| rest.strip_prefix(b" "))
    };
    if !lines().any(|line| line == b"enabled") {
        return None;
    }
    let is_its = match (value("extension"), value("magic")) {
        (Some(extension), _) => {
            let extension = extension.strip_prefix(b".").unwrap_or(extension);
            path.extension().map(OsStrExt::as_bytes) == Some(extension)
        }
        (None, Some(magic)) => {
            let magic = bytes(magic)?;
            let mask = value("mask").map_or(Some(vec![0xff; magic.len()]), bytes)?;
            let offset: usize = std::str::from_utf8(value("offset")?).ok()?.parse().ok()?;
            let here = begin.get(offset..)?.get(..magic.len())?;
            let mut each = here.iter().zip(&magic).zip(&mask);
            each.all(|((here, magic), mask)| (here ^ magic) & mask == 0)
        }
        (None, None) => false,
    };
    let interpreter = OsString::from_vec(value("interpreter")?.to_vec());
    is_its.then(|| interpreter.into())
}

/// Bytes that are written as hexadecimal digits.
fn bytes(text: &[u8]) -> Option<Vec<u8>> {
    let pairs = std::str::from_utf8(text).ok()?.as_bytes().chunks(2);
    let parsed = pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    parsed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: &str =
        "enabled\ninterpreter /usr/bin/wine\nflags: \noffset 0\nmagic 4d5a00\nmask ffff00\n";
    const EXTENSION: &str = "enabled\ninterpreter /usr/bin/jexec\nflags: P\nextension .jar\n";

    fn found(description: &str, path: &str, begin: &[u8]) -> Option<PathBuf> {
        handler(description.as_bytes(), path.as_ref(), begin)
    }

    #[test]
    fn files_are_known_by_their_beginning_or_their_name() {
        let wine = Some(PathBuf::from("/usr/bin/wine"));
        assert_eq!(found(MAGIC, "a.exe", b"MZ\x90\0"), wine);
        assert_eq!(found(MAGIC, "a.exe", b"MX\x90\0"), None);
        assert_eq!(found(MAGIC, "a.exe", b"M"), None);
        let disabled = MAGIC.replace("enabled", "disabled");
        assert_eq!(found(&disabled, "a.exe", b"MZ\x90\0"), None);
        let jexec = Some(PathBuf::from("/usr/bin/jexec"));
        assert_eq!(found(EXTENSION, "b/a.jar", b"PK\0"), jexec);
        assert_eq!(found(EXTENSION, "b/jar", b"PK\0"), None);
        assert_eq!(found("enabled\n", "a", b"PK\0"), None);
    }
}
