//! Names of open files, as `/dev/fd/3`. What they lead to belongs to whoever opened it: it is written from where the last one stopped, and never replaced.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. `fcntl` with these commands takes no pointers, and says so where a number is no open file.
//! 2. A descriptor that `F_DUPFD_CLOEXEC` has just made is nobody else's.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{FromRawFd, RawFd};
use std::path::Path;

/// Where a name leads.
pub enum Leads {
    /// To stdout.
    Stdout,
    /// To a file that is open already.
    Open(File),
    /// It is no such name.
    Elsewhere,
}

/// Where `path` leads, by its words alone: other links are not followed.
///
/// # Errors
/// If it is the name of an open file, but there is none, or not for writing.
pub fn leads(path: &Path) -> io::Result<Leads> {
    let Some((process, number)) = parts(path) else {
        return Ok(Leads::Elsewhere);
    };
    let own = process.is_none_or(|process| process == std::process::id().to_string());
    match number {
        1 if own => Ok(Leads::Stdout),
        _ if own => Ok(Leads::Open(duplicate(number)?)),
        // Its place in the file is the other process's own.
        _ => Ok(Leads::Open(OpenOptions::new().append(true).open(path)?)),
    }
}

/// The process, unless it is this one, and the number.
fn parts(path: &Path) -> Option<(Option<&str>, RawFd)> {
    if path == Path::new("/dev/stdout") {
        return Some((None, libc::STDOUT_FILENO));
    }
    if path == Path::new("/dev/stderr") {
        return Some((None, libc::STDERR_FILENO));
    }
    if let Ok(number) = path.strip_prefix("/dev/fd") {
        return Some((None, number.to_str()?.parse().ok()?));
    }
    let mut words = path.strip_prefix("/proc").ok()?.iter();
    let (process, folder) = (words.next()?.to_str()?, words.next()?);
    let number = words.next()?.to_str()?.parse().ok()?;
    let is_this = ["self", "thread-self"].contains(&process);
    let process = (!is_this).then_some(process);
    (folder == "fd" && words.next().is_none()).then_some((process, number))
}

/// The same open file, with the same place in it.
fn duplicate(number: RawFd) -> io::Result<File> {
    // SAFETY: invariant 1.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFL) };
    if flags == -1 {
        return Err(io::Error::last_os_error());
    }
    if flags & libc::O_ACCMODE == libc::O_RDONLY {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: invariants 1 and 2.
    unsafe {
        match libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) {
            -1 => Err(io::Error::last_os_error()),
            copy => Ok(File::from_raw_fd(copy)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        let of = |path: &'static str| parts(Path::new(path));
        assert_eq!(of("/dev/stderr"), Some((None, 2)));
        assert_eq!(of("/dev/./fd//7"), Some((None, 7)));
        assert_eq!(of("/proc/self/fd/7"), Some((None, 7)));
        assert_eq!(of("/proc/12/fd/7"), Some((Some("12"), 7)));
        for other in ["/dev/null", "/dev/fd", "/dev/fd/x", "/proc/12/fd", "r.json"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_not_open_for_writing_is_refused() {
        assert!(leads(Path::new("/dev/fd/999999")).is_err());
        use std::os::fd::AsRawFd;
        let reading = File::open("/dev/null").unwrap();
        let path = format!("/dev/fd/{}", reading.as_raw_fd());
        assert!(leads(Path::new(&path)).is_err());
    }
}
