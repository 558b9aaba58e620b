//! Plain system calls for code that may run on a lock's slow path or in a signal handler.
//!
//! None of it allocates, takes a lock, panics, or lets `errno` escape changed (see [`KeepErrno`]). The calls go through
//! `syscall`, not through the C library's `open` and `read`: those are points where `pthread_cancel` may end the thread,
//! and a program may have put its own versions in their place.
//!
//! # Invariants
//!
//! 1. Buffers handed to the kernel live across the call and are as long as the length passed with them.
//! 2. A [`RawFile`] owns its descriptor: no one else closes it.
//! 3. `__errno_location` returns a pointer to the calling thread's `errno`, valid while the thread lives.

use core::fmt;

/// Text in a fixed buffer. What does not fit is cut off and reported by [`Text::is_cut`].
pub(crate) struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
    cut: bool,
}

impl<const N: usize> Text<N> {
    pub(crate) fn new() -> Self {
        Text {
            bytes: [0; N],
            len: 0,
            cut: false,
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.cut
    }

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

/// Writes `text` to standard error in one piece. Failure is ignored: there is nobody to tell.
pub(crate) fn write_stderr(text: &[u8]) {
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

/// Restores `errno` to what it was when dropped: locking must not disturb the caller's.
pub(crate) struct KeepErrno(libc::c_int);

impl KeepErrno {
    pub(crate) fn new() -> Self {
        KeepErrno(system_call_error())
    }
}

impl Drop for KeepErrno {
    fn drop(&mut self) {
        // SAFETY: invariant 3.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// Why the last system call of this thread failed.
pub(crate) fn system_call_error() -> libc::c_int {
    // SAFETY: invariant 3.
    unsafe { *libc::__errno_location() }
}

/// A file that is read byte by byte through a small buffer. A read error looks like the end of the file.
pub(crate) struct RawFile {
    descriptor: libc::c_int,
    buffer: [u8; 256],
    at: usize,
    filled: usize,
}

impl RawFile {
    /// Opens the file at `path`; `None` if that fails or the path is absurdly long.
    pub(crate) fn open(path: fmt::Arguments<'_>) -> Option<Self> {
        let descriptor = open(path, libc::O_RDONLY)?;
        Some(RawFile {
            descriptor,
            buffer: [0; 256],
            at: 0,
            filled: 0,
        })
    }
}

impl Iterator for RawFile {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        if self.at == self.filled {
            self.at = 0;
            self.filled = read(self.descriptor, &mut self.buffer);
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

fn open(path: fmt::Arguments<'_>, flags: libc::c_int) -> Option<libc::c_int> {
    let mut text = Text::<192>::new();
    fmt::write(&mut text, path).ok()?;
    text.push(0);
    if text.is_cut() {
        return None;
    }
    // SAFETY: invariant 1; the path ends with a zero byte.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_openat,
            libc::AT_FDCWD,
            text.as_bytes().as_ptr(),
            flags | libc::O_CLOEXEC,
            0,
        )
    };
    libc::c_int::try_from(descriptor)
        .ok()
        .filter(|&descriptor| descriptor >= 0)
}

/// How many bytes were read; 0 at the end and after an error.
fn read(descriptor: libc::c_int, buffer: &mut [u8]) -> usize {
    loop {
        // SAFETY: invariant 1.
        let read = unsafe {
            libc::syscall(
                libc::SYS_read,
                descriptor,
                buffer.as_mut_ptr(),
                buffer.len(),
            )
        };
        match usize::try_from(read) {
            Ok(read) => return read.min(buffer.len()),
            Err(_) if system_call_error() == libc::EINTR => {}
            Err(_) => return 0,
        }
    }
}

fn close(descriptor: libc::c_int) {
    // SAFETY: invariant 2.
    unsafe { libc::syscall(libc::SYS_close, descriptor) };
}
