//! The process, and its files: how they are named, made and mapped.

use super::environment;
use super::memory::system_call;
use core::fmt::{self, Write};
use core::ptr;
use core::sync::atomic::{AtomicU8, Ordering::*};

pub(super) fn process() -> libc::pid_t {
    // SAFETY: invariant 9.
    unsafe { system_call!(libc::SYS_getpid) }.map_or(0, |process| process as libc::pid_t)
}

/// The limit on the size of a file: making a file larger ends in a signal.
pub(super) fn largest_file() -> u64 {
    let mut limit = [u64::MAX; 2];
    let none = ptr::null::<[u64; 2]>();
    // SAFETY: invariant 2.
    _ = unsafe {
        system_call!(
            libc::SYS_prlimit64,
            0,
            libc::RLIMIT_FSIZE,
            none,
            &raw mut limit,
        )
    };
    limit[0]
}

pub(super) fn open(name: &Name, flags: libc::c_int) -> Result<libc::c_int, libc::c_int> {
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: invariant 2; the name ends with a zero byte.
    let file = unsafe {
        system_call!(
            libc::SYS_openat,
            libc::AT_FDCWD,
            name.address(),
            flags,
            0o600
        )
    };
    file.map(|file| file as libc::c_int)
}

pub(super) fn close(file: libc::c_int) {
    // SAFETY: invariant 9; the file is ours.
    _ = unsafe { system_call!(libc::SYS_close, file) };
}

/// Maps a file, or private memory if `file` is -1, at the address `place`, or anywhere if that is
/// 0. The error is an `errno`.
pub(super) fn map(file: libc::c_int, size: usize, place: usize) -> Result<usize, libc::c_int> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let mut flags = match file {
        -1 => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        _ => libc::MAP_SHARED,
    };
    if place != 0 {
        flags |= libc::MAP_FIXED;
    }
    // SAFETY: invariant 3: a new mapping, or one in the place of a table that no thread uses, since
    // this is the child of a fork and has no table, or one of the same contents.
    let at = unsafe { system_call!(libc::SYS_mmap, place, size, protection, flags, file, 0) };
    at.map(|at| at as usize)
}

/// The name of a file. Names are static, since the stack may be as small as the C library permits.
/// Only the thread that makes the file changes its name.
pub(super) struct Name([AtomicU8; environment::ROOM + 32]);

impl Name {
    pub(super) const fn new() -> Self {
        Name([const { AtomicU8::new(0) }; environment::ROOM + 32])
    }

    fn address(&self) -> *const u8 {
        self.0.as_ptr().cast()
    }

    /// Sets the name to the path of the report with `suffix` appended. `None` if it is too long.
    pub(super) fn set(&self, suffix: fmt::Arguments<'_>) -> Option<()> {
        let mut end = End { of: self, at: 0 };
        for byte in environment::REPORT_PATH.bytes() {
            end.push(byte).ok()?;
        }
        end.write_fmt(suffix).ok()?;
        end.push(0).ok()
    }

    /// Makes a file of this name. If a process of the same number made one before an `exec`, a
    /// number is appended. The error is an `errno`.
    pub(super) fn new_file(&self, suffix: fmt::Arguments<'_>) -> Result<libc::c_int, libc::c_int> {
        let mut number = 0;
        loop {
            let set = match number {
                0 => self.set(format_args!("{suffix}")),
                n => self.set(format_args!("{suffix}.{n}")),
            };
            set.ok_or(libc::ENAMETOOLONG)?;
            match open(self, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL) {
                Err(libc::EEXIST) if number < 1000 => number += 1,
                other => return other,
            }
        }
    }

    /// Removes the file, if one was made.
    pub(super) fn unlink(&self) {
        if self.0[0].load(Relaxed) != 0 {
            // SAFETY: invariant 2; the name ends with a zero byte.
            _ = unsafe { system_call!(libc::SYS_unlinkat, libc::AT_FDCWD, self.address(), 0) };
        }
    }
}

/// The end of a name so far.
struct End<'a> {
    of: &'a Name,
    at: usize,
}

impl End<'_> {
    fn push(&mut self, byte: u8) -> fmt::Result {
        self.of
            .0
            .get(self.at)
            .ok_or(fmt::Error)?
            .store(byte, Relaxed);
        self.at += 1;
        Ok(())
    }
}

impl Write for End<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().try_for_each(|byte| self.push(byte))
    }
}
