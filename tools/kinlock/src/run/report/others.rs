//! Files that other processes made or name, and the kernel's information about other processes.
//!
//! The command may run as root and look at another user's process, and anybody may write to the
//! folders in which it finds files. So a path cannot be trusted: opening a pipe waits for its
//! writer, opening a device may have effects, and a file may be shortened while it is read.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. Structures and sets are live locals for which all zeros is a valid value, or null.
//! 2. A page that cannot be read, since the file that was mapped there has become shorter, is
//!    replaced by zeros of the same length. Nothing but a map of a file raises that signal there,
//!    and what reads such a map accepts all values.
//! 3. A map of a file is private and only read; nothing of it is kept as a reference for longer
//!    than the map itself.
//! 4. A handler of signals only makes calls that are safe there.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr;

use anyhow::{Context, anyhow, bail};
use memmap2::Mmap;

use crate::inherited::{set_blocked, set_of};
use crate::run::witness;

/// Opens a regular file, and nothing else. `is_link_followed`: whether the path may be a symbolic
/// link.
pub fn open(path: &Path, options: &OpenOptions, is_link_followed: bool) -> io::Result<File> {
    // O_PATH gives a file without opening it, so its type is known before opening has an effect.
    let mut flags = libc::O_PATH;
    if !is_link_followed {
        flags |= libc::O_NOFOLLOW;
    }
    let found = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    if !found.metadata()?.is_file() {
        return Err(io::Error::new(
            ErrorKind::InvalidInput,
            "it is no regular file",
        ));
    }
    match options.open(format!("/proc/self/fd/{}", found.as_raw_fd())) {
        // There is no /proc. The path is opened again, which is safe unless the file has been
        // replaced since.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
            options.clone().custom_flags(flags).open(path)
        }
        result => result,
    }
}

/// Opens a regular file that another process made, to read it.
pub fn made(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().read(true), false)
}

/// Opens a folder that belongs to this user and that nobody else can write to, and returns its
/// metadata, too.
pub fn own_folder(path: &Path) -> Option<(File, fs::Metadata)> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let folder = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .ok()?;
    let data = folder.metadata().ok()?;
    let is_own = data.uid() == rustix::process::geteuid().as_raw();
    (is_own && data.mode() & 0o022 == 0).then_some((folder, data))
}

/// Maps a regular file that another process named.
pub fn mapped(path: &Path) -> Option<Mmap> {
    let file = open(path, OpenOptions::new().read(true), true).ok()?;
    // SAFETY: invariant 3.
    unsafe { Mmap::map(&file) }.ok()
}

/// The content of a process's file in `/proc`. Names in it need not be UTF-8.
pub fn of_process(pid: u32, file: &str) -> io::Result<Vec<u8>> {
    fs::read(format!("/proc/{pid}/{file}"))
}

/// The parent of a process that exists.
pub fn parent(pid: u32) -> Option<u32> {
    const FIELD: usize = 4;
    stat(pid, "stat", FIELD)?.try_into().ok()
}

/// Whether a process exists and has not ended.
pub fn runs(pid: u32) -> bool {
    !matches!(witness::state(pid as libc::pid_t), 0 | b'Z' | b'X')
}

/// A field of a process's file `stat`, by its number in the kernel's manual.
pub fn stat(pid: u32, file: &str, field: usize) -> Option<u64> {
    let stat = of_process(pid, file).ok()?;
    // The second field, the name, may contain anything.
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
    rest.split_whitespace().nth(field - 3)?.parse().ok()
}

/// While this exists, a mapped file that has become shorter reads as zeros, instead of ending the
/// process by SIGBUS.
pub struct Shortening {
    before: libc::sigaction,
    mask: libc::sigset_t,
}

impl Shortening {
    pub fn survived() -> Self {
        // SAFETY: invariant 1.
        unsafe {
            let mut survived = Shortening {
                before: std::mem::zeroed(),
                mask: std::mem::zeroed(),
            };
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = read_zeros as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGBUS, &action, &mut survived.before);
            // A blocked SIGBUS would end the process.
            let bus = set_of([libc::SIGBUS]);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &bus, &mut survived.mask);
            survived
        }
    }
}

impl Drop for Shortening {
    fn drop(&mut self) {
        set_blocked(&self.mask);
        // SAFETY: invariant 1.
        unsafe { libc::sigaction(libc::SIGBUS, &self.before, ptr::null_mut()) };
    }
}

extern "C" fn read_zeros(_: libc::c_int, info: *const libc::siginfo_t, _: *const libc::c_void) {
    // SAFETY: invariants 2 and 4; the kernel passes a description of the signal.
    unsafe {
        if (*info).si_code != libc::BUS_ADRERR {
            // The signal was sent by a process.
            return;
        }
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let at = ((*info).si_addr() as usize & !(page - 1)) as *mut libc::c_void;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        if libc::mmap(at, page, libc::PROT_READ, flags, -1, 0) == libc::MAP_FAILED {
            libc::signal(libc::SIGBUS, libc::SIG_DFL);
        }
    }
}

/// The paths by which this command can open all files that a process has mapped.
pub fn paths(pid: u32) -> anyhow::Result<Vec<PathBuf>> {
    let mappings = mappings(pid)?.into_iter();
    let mut files: Vec<_> = mappings.filter_map(|m| Some((m.path?, m.file))).collect();
    files.dedup();
    let paths = files
        .iter()
        .map(|(path, file)| seen_from_here(pid, path, *file));
    Ok(paths.collect())
}

pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// The rights, in the form `rwxp`.
    pub rights: [u8; 4],
    /// The offset in the file at which it begins.
    pub offset: u64,
    /// The device and the inode of its file.
    pub file: (u64, u64),
    /// `None` if it has no file.
    pub path: Option<PathBuf>,
}

pub fn mappings(pid: u32) -> anyhow::Result<Vec<Mapping>> {
    let lines = maps(pid)?;
    let lines = lines.split(|&byte| byte == b'\n');
    Ok(lines.filter_map(mapping).collect())
}

/// Parses a line of the kernel's list.
fn mapping(line: &[u8]) -> Option<Mapping> {
    let text = String::from_utf8_lossy(line);
    let mut words = text.split_whitespace();
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?.as_bytes().try_into().ok()?;
    let offset = hexadecimal(words.next()?)?;
    let (major, minor) = words.next()?.split_once(':')?;
    let (major, minor) = (hexadecimal(major)?, hexadecimal(minor)?);
    let device = libc::makedev(major as libc::c_uint, minor as libc::c_uint);
    let path = line.iter().position(|&byte| byte == b'/');
    let path = path.map(|at| OsStr::from_bytes(&line[at..]).into());
    Some(Mapping {
        start: hexadecimal(start)?,
        end: hexadecimal(end)?,
        rights,
        offset,
        file: (device, words.next()?.parse().ok()?),
        path,
    })
}

fn maps(pid: u32) -> anyhow::Result<Vec<u8>> {
    match of_process(pid, "maps") {
        Err(error) if error.kind() == ErrorKind::NotFound => match Path::new("/proc/self").exists()
        {
            true => bail!("there is no process {pid}"),
            false => bail!("cannot look at process {pid}: there is no /proc"),
        },
        other => other.with_context(|| format!("cannot look at process {pid}")),
    }
}

/// The path by which this command can open a file that another process has mapped. The kernel gives
/// its path from the root of the process that asks. For a file in a container, which that root
/// cannot reach, it gives the path from the container's root.
pub fn seen_from_here(pid: u32, path: &Path, file: (u64, u64)) -> PathBuf {
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let inside = root.join(path.strip_prefix("/").unwrap_or(path));
    let at = |path: &Path| Some(fs::metadata(path).ok()?).map(|data| (data.dev(), data.ino()));
    // On some file systems the list of mappings has other numbers than the file's metadata.
    match (at(path), at(&inside)) {
        (here, there) if there.is_none() || here == there || here == Some(file) => path.to_owned(),
        _ => inside,
    }
}

/// The numbers of all processes.
pub fn all_processes() -> impl Iterator<Item = u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The descendants of a process.
pub fn descendants(of: u32) -> Vec<u32> {
    let all = all_processes().filter_map(|pid| Some((pid, parent(pid)?)));
    let parents: Vec<(u32, u32)> = all.collect();
    let mut found = vec![of];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        let children = parents.iter().filter(|(_, of)| *of == parent);
        let new: Vec<u32> = children.map(|(pid, _)| *pid).collect();
        found.extend(new.into_iter().filter(|pid| *pid != of));
        at += 1;
    }
    found.split_off(1)
}

/// The error that neither a process nor, if they were asked for, any of its descendants can be
/// reported on. The three texts say that this process cannot, that another one can, and that none
/// can.
pub fn none_of(
    pid: u32,
    with_descendants: bool,
    is_one: impl Fn(u32) -> bool,
    [is_none, is, any_is]: [&str; 3],
    how: &str,
) -> anyhow::Error {
    if with_descendants {
        return anyhow!("neither process {pid} nor any that it started {any_is}: {how}");
    }
    match descendants(pid).into_iter().find(|&pid| is_one(pid)) {
        Some(below) => {
            anyhow!("process {pid} {is_none}, but process {below}, which it started, {is}")
        }
        None => anyhow!("process {pid} {is_none}: {how}"),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn pipe_at(path: &Path) {
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: a zero-terminated string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    }

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "text").unwrap();
        symlink("file", path("link")).unwrap();
        symlink("/dev/zero", path("device")).unwrap();
        pipe_at(&path("pipe"));
        assert!(made(&path("file")).is_ok() && made(&path("link")).is_err());
        assert_eq!(&mapped(&path("link")).unwrap()[..], b"text");
        for name in ["pipe", "device", ".", "nothing"] {
            assert!(made(&path(name)).is_err(), "{name}");
            assert!(mapped(&path(name)).is_none(), "{name}");
        }
    }

    #[test]
    fn only_folders_of_this_user_alone_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("own")).unwrap();
        fs::set_permissions(path("own"), fs::Permissions::from_mode(0o700)).unwrap();
        symlink("own", path("link")).unwrap();
        fs::create_dir(path("open")).unwrap();
        fs::set_permissions(path("open"), fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(path("file"), "").unwrap();
        pipe_at(&path("pipe"));
        assert!(own_folder(&path("own")).is_some());
        for name in ["link", "open", "file", "pipe", "nothing"] {
            assert!(own_folder(&path(name)).is_none(), "{name}");
        }
    }

    #[test]
    fn a_mapped_file_may_become_shorter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, vec![7; 3 * 4096]).unwrap();
        let data = mapped(&path).unwrap();
        OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(4096)
            .unwrap();
        let _survived = Shortening::survived();
        assert_eq!([data[0], data[4096], data[3 * 4096 - 1]], [7, 0, 0]);
    }
}
