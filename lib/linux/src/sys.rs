//! System calls for code that may run on a lock's slow path or in a signal handler.
//!
//! Nothing here allocates, takes a lock or panics. Callers hold a [`KeepErrno`]. The calls go
//! through `syscall`, not through the C library's `open` and `read`, for two reasons:
//! `pthread_cancel` may end the thread in those functions, and a program may have replaced them by
//! its own.
//!
//! # Invariants
//!
//! 1. Buffers handed to the kernel live across the call and are as long as the length passed
//!    with them.
//! 2. A descriptor is closed once, by the function or `RawFile` that opened it.
//! 3. `__errno_location` returns a pointer to the calling thread's `errno`, valid while the thread
//!    lives.

use core::fmt;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Text in a fixed buffer. Excess text is cut off; `is_cut` tells whether any was.
#[derive(Debug)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
    cut: bool,
}

impl<const N: usize> Text<N> {
    /// An empty text.
    pub fn empty() -> Self {
        Text {
            bytes: [0; N],
            len: 0,
            cut: false,
        }
    }

    /// The text so far.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }

    /// Whether text was cut off.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut
    }

    /// Appends a byte, if there is room.
    pub(crate) fn push(&mut self, byte: u8) {
        match self.bytes.get_mut(self.len) {
            Some(place) => {
                *place = byte;
                self.len += 1;
            }
            None => self.cut = true,
        }
    }
}

impl<const N: usize> fmt::Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(|byte| self.push(byte));
        Ok(())
    }
}

/// Which file stderr was at the start: its device plus 1, and its inode. 0 and 0: not known.
static STDERR: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The file that stderr is now; `None`: it is closed.
fn stderr_file() -> Option<[u64; 2]> {
    let mut file = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: invariant 1; all zeros are a value of the type.
    let (result, file) = unsafe {
        let result = libc::syscall(libc::SYS_fstat, libc::STDERR_FILENO, file.as_mut_ptr());
        (result, file.assume_init())
    };
    (result == 0).then(|| [file.st_dev.wrapping_add(1), file.st_ino])
}

/// Remembers which file stderr is. Later the program may have closed it, and its descriptor may be
/// a file of the program, in which no line of ours belongs.
pub fn remember_stderr() {
    let file = stderr_file().unwrap_or([u64::MAX; 2]);
    for (to, part) in STDERR.iter().zip(file) {
        to.store(part, Relaxed);
    }
}

/// Writes `text` to standard error in one call, unless that is no longer the remembered file.
/// Ignores errors, since it could report them nowhere.
pub fn write_stderr(text: &[u8]) {
    let known = [0, 1].map(|at| STDERR[at].load(Relaxed));
    if known != [0; 2] && stderr_file() != Some(known) {
        return;
    }
    // SAFETY: invariant 1.
    unsafe {
        libc::syscall(
            libc::SYS_write,
            libc::STDERR_FILENO,
            text.as_ptr(),
            text.len(),
        )
    };
}

/// Sleeps for about `nanos` nanoseconds, less than a second.
pub(crate) fn nap(nanos: u32) {
    #[cfg(miri)]
    std::thread::sleep(std::time::Duration::from_nanos(nanos.into()));
    #[cfg(not(miri))]
    {
        let _errno = KeepErrno::hold();
        let time = libc::timespec {
            tv_sec: 0,
            tv_nsec: nanos as libc::c_long,
        };
        let rest = core::ptr::null_mut::<libc::timespec>();
        // SAFETY: invariant 1.
        unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, rest) };
    }
}

/// Restores `errno` when dropped: locking must not change the caller's `errno`.
#[derive(Debug)]
pub struct KeepErrno(libc::c_int);

impl KeepErrno {
    /// Remembers `errno`.
    pub fn hold() -> Self {
        KeepErrno(system_call_error())
    }
}

impl Drop for KeepErrno {
    fn drop(&mut self) {
        // SAFETY: invariant 3.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// The `errno` of this thread: why its last failed system call failed.
pub fn system_call_error() -> libc::c_int {
    // SAFETY: invariant 3.
    unsafe { *libc::__errno_location() }
}

/// A file, read byte by byte through a small buffer. A read error looks like the end of the file.
pub(crate) struct RawFile {
    descriptor: libc::c_int,
    buffer: [u8; 256],
    at: usize,
    filled: usize,
}

impl RawFile {
    /// Opens the file at `path`; `None` if that fails or the path has 512 bytes or more.
    pub(crate) fn open(path: fmt::Arguments<'_>) -> Option<Self> {
        open(path, libc::O_RDONLY).map(RawFile::new)
    }

    fn new(descriptor: libc::c_int) -> Self {
        RawFile {
            descriptor,
            buffer: [0; 256],
            at: 0,
            filled: 0,
        }
    }
}

impl Iterator for RawFile {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        if self.at == self.filled {
            self.at = 0;
            self.filled = transfer(libc::SYS_read, self.descriptor, &mut self.buffer);
        }
        let byte = *self.buffer.get(..self.filled)?.get(self.at)?;
        self.at += 1;
        Some(byte)
    }
}

impl Drop for RawFile {
    fn drop(&mut self) {
        close(self.descriptor);
    }
}

/// A folder, from which its files and folders are opened by name: a path may be too long for a
/// buffer.
pub(crate) struct Folder(libc::c_int);

impl Folder {
    /// Opens the folder at `path`; `None` if that fails or the path has 512 bytes or more.
    pub(crate) fn open(path: fmt::Arguments<'_>) -> Option<Self> {
        open(path, libc::O_PATH | libc::O_DIRECTORY).map(Folder)
    }

    /// Opens a folder in this one; `None` if that fails or the name has 512 bytes or more.
    pub(crate) fn folder(&self, name: &[u8]) -> Option<Self> {
        self.open_in(name, libc::O_PATH | libc::O_DIRECTORY)
            .map(Folder)
    }

    /// Opens a file in this folder; `None` if that fails or the name has 512 bytes or more.
    pub(crate) fn file(&self, name: &[u8]) -> Option<RawFile> {
        self.open_in(name, libc::O_RDONLY).map(RawFile::new)
    }

    fn open_in(&self, name: &[u8], flags: libc::c_int) -> Option<libc::c_int> {
        let mut path = Text::empty();
        name.iter().for_each(|&byte| path.push(byte));
        open_at(self.0, path, flags)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        close(self.0);
    }
}

/// Calls `action` with the name of each entry of the folder at `path`, until `action` returns
/// `false`.
pub(crate) fn for_each_name(path: fmt::Arguments<'_>, mut action: impl FnMut(&[u8]) -> bool) {
    let Some(descriptor) = open(path, libc::O_RDONLY | libc::O_DIRECTORY) else {
        return;
    };
    let mut buffer = [0; 512];
    let mut wanted = true;
    while wanted {
        let filled = transfer(libc::SYS_getdents64, descriptor, &mut buffer);
        let mut entries = buffer.get(..filled).unwrap_or(&[]);
        wanted = !entries.is_empty();
        while let Some((name, rest)) = split_entry(entries).filter(|_| wanted) {
            wanted = action(name);
            entries = rest;
        }
    }
    close(descriptor);
}

/// Splits directory entries into the name of the first entry and the entries after it.
///
/// An entry consists of the inode (8 bytes), a cookie (8), its length (2), its type (1), and the
/// name, which ends with a zero byte.
fn split_entry(entries: &[u8]) -> Option<(&[u8], &[u8])> {
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let length = u16::from_ne_bytes([*entries.get(LENGTH)?, *entries.get(LENGTH + 1)?]);
    let name = entries.get(NAME..usize::from(length))?;
    let end = name.iter().position(|&byte| byte == 0)?;
    Some((name.get(..end)?, entries.get(usize::from(length)..)?))
}

fn open(path: fmt::Arguments<'_>, flags: libc::c_int) -> Option<libc::c_int> {
    let mut text = Text::empty();
    fmt::write(&mut text, path).ok()?;
    open_at(libc::AT_FDCWD, text, flags)
}

/// Opens what is at `path`, from the folder `at`.
fn open_at(at: libc::c_int, mut path: Text<512>, flags: libc::c_int) -> Option<libc::c_int> {
    path.push(0);
    if path.is_cut() {
        return None;
    }
    // SAFETY: invariant 1; the path ends with a zero byte.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_openat,
            at,
            path.as_bytes().as_ptr(),
            flags | libc::O_CLOEXEC,
            0,
        )
    };
    libc::c_int::try_from(descriptor)
        .ok()
        .filter(|&descriptor| descriptor >= 0)
}

/// Makes a system call that fills `buffer` from a descriptor. Returns the number of bytes; 0 at the
/// end and after an error.
fn transfer(call: libc::c_long, descriptor: libc::c_int, buffer: &mut [u8]) -> usize {
    loop {
        // SAFETY: invariant 1; callers pass calls that have these three parameters.
        let filled = unsafe { libc::syscall(call, descriptor, buffer.as_mut_ptr(), buffer.len()) };
        match usize::try_from(filled) {
            Ok(filled) => return filled.min(buffer.len()),
            Err(_) if system_call_error() == libc::EINTR => {}
            Err(_) => return 0,
        }
    }
}

fn close(descriptor: libc::c_int) {
    // SAFETY: invariant 2.
    unsafe { libc::syscall(libc::SYS_close, descriptor) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fmt::Write;

    #[test]
    fn text_is_cut_where_the_buffer_ends() {
        let mut text = Text::<4>::empty();
        write!(text, "abc").unwrap();
        assert_eq!((text.as_bytes(), text.is_cut()), (&b"abc"[..], false));
        write!(text, "de").unwrap();
        assert_eq!((text.as_bytes(), text.is_cut()), (&b"abcd"[..], true));
    }

    #[test]
    fn malformed_directory_entries_end_the_listing() {
        let mut entry = [0; 24];
        entry[16] = 24;
        entry[19..22].copy_from_slice(b"abc");
        assert_eq!(split_entry(&entry), Some((&b"abc"[..], &[][..])));
        for length in [0, 18, 19, 25, 255] {
            entry[16] = length;
            assert_eq!(split_entry(&entry), None);
        }
        assert_eq!(split_entry(&entry[..17]), None);
        assert_eq!(split_entry(&[]), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls that Miri lacks")]
    fn reads_the_files_and_folders_that_std_reads() {
        let folder = std::env::temp_dir().join(format!("kinlock-syscalls-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let mut expected = BTreeSet::new();
        for number in 0..100 {
            let name = format!("a-rather-long-name-to-need-several-buffers-{number}");
            let contents: Vec<u8> = (0..number * 7).map(|byte| byte as u8).collect();
            std::fs::write(folder.join(&name), &contents).unwrap();
            let path = folder.join(&name);
            let file = RawFile::open(format_args!("{}", path.display())).unwrap();
            assert!(file.eq(contents));
            expected.insert(name);
        }
        let mut found = BTreeSet::new();
        for_each_name(format_args!("{}", folder.display()), |name| {
            found.insert(String::from_utf8(name.to_vec()).unwrap());
            true
        });
        assert!(found.remove(".") && found.remove(".."));
        assert_eq!(found, expected);

        let above = Folder::open(format_args!("{}", std::env::temp_dir().display())).unwrap();
        let name = folder.file_name().unwrap().as_encoded_bytes();
        let opened = above.folder(name).unwrap();
        for name in &expected {
            let contents = std::fs::read(folder.join(name)).unwrap();
            assert!(opened.file(name.as_bytes()).unwrap().eq(contents));
            assert!(opened.folder(name.as_bytes()).is_none());
        }
        assert!(above.folder(b"gone").is_none() && opened.file(&[b'x'; 600]).is_none());

        let mut calls = 0;
        for_each_name(format_args!("{}", folder.display()), |_| {
            calls += 1;
            calls < 5
        });
        assert_eq!(calls, 5);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(RawFile::open(format_args!("{}/gone", folder.display())).is_none());
        assert!(Folder::open(format_args!("{}", folder.display())).is_none());
        assert!(RawFile::open(format_args!("{:600}", "too long")).is_none());
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls that Miri lacks")]
    fn errno_survives() {
        // SAFETY: invariant 3.
        unsafe { *libc::__errno_location() = libc::EXDEV };
        {
            let _errno = KeepErrno::hold();
            assert!(RawFile::open(format_args!("/nonexistent")).is_none());
            assert_eq!(system_call_error(), libc::ENOENT);
        }
        assert_eq!(system_call_error(), libc::EXDEV);
    }
}
