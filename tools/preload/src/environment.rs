//! The environment and the standard streams of the process. Nothing here allocates.

use crate::libc::lookup;
use core::cell::Cell;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering::*};

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
    static program_invocation_name: *const c_char;
    static program_invocation_short_name: *const c_char;
}

/// What the program is called: its name without the path, or the title that it has given itself.
/// Programs set a title by overwriting their arguments, and the C library's name of the program
/// points into these.
pub(crate) fn program() -> &'static [u8] {
    // SAFETY: invariant 12: the C library sets both before any constructor runs.
    let (long, short) = unsafe {
        (
            CStr::from_ptr(program_invocation_name).to_bytes(),
            CStr::from_ptr(program_invocation_short_name).to_bytes(),
        )
    };
    let offset = short.as_ptr().addr().wrapping_sub(long.as_ptr().addr());
    match offset.checked_sub(1).map(|before| long.get(before)) {
        // There is no path, or it is unchanged: a slash comes before the name.
        None | Some(Some(b'/')) => short,
        // The program may have set the two variables to unrelated strings.
        _ if offset > ROOM => short,
        // No slash comes before the name: the path has been overwritten by a title.
        _ => long,
    }
}

/// Writes a line to stderr, once per process: several threads may choose the mode at the same time.
/// Each complaint has a bit of its own.
pub(crate) fn complain(bit: u8, line: &[u8]) {
    static DONE: AtomicU8 = AtomicU8::new(0);
    if DONE.fetch_or(bit, Relaxed) & bit == 0 {
        write_stderr(line);
    }
}

pub(crate) fn write_stderr(line: &[u8]) {
    // SAFETY: invariant 4.
    unsafe {
        libc::syscall(
            libc::SYS_write,
            libc::STDERR_FILENO,
            line.as_ptr(),
            line.len(),
        )
    };
}

/// The longest path that is kept, including its zero byte.
pub(crate) const ROOM: usize = 4096;

/// A copy of a path from the environment, which the program may overwrite.
pub(crate) struct KeptPath {
    bytes: [AtomicU8; ROOM],
    length: AtomicUsize,
}

impl KeptPath {
    const fn new() -> Self {
        KeptPath {
            bytes: [const { AtomicU8::new(0) }; ROOM],
            length: AtomicUsize::new(0),
        }
    }

    /// The bytes of the path.
    pub(crate) fn bytes(&self) -> impl Iterator<Item = u8> {
        let length = self.length.load(Acquire);
        self.bytes
            .iter()
            .take(length)
            .map(|byte| byte.load(Relaxed))
    }

    /// The path, followed by zero bytes.
    pub(crate) fn get(&self) -> [u8; ROOM] {
        let mut path = [0; ROOM];
        let length = self.length.load(Acquire);
        for (to, from) in path.iter_mut().zip(&self.bytes).take(length) {
            *to = from.load(Relaxed);
        }
        path
    }
}

/// The file to which the counts are appended (`KINLOCK_COUNTS`).
pub(crate) static COUNTS_PATH: KeptPath = KeptPath::new();
/// What the names of the report's files begin with (`KINLOCK_REPORT`).
pub(crate) static REPORT_PATH: KeptPath = KeptPath::new();

/// Stores a path; `false` if it is too long.
pub(crate) fn keep_path(kept: &KeptPath, path: &[u8]) -> bool {
    if path.len() >= ROOM {
        return false;
    }
    // Several threads may do this at the same time: they store the same bytes.
    for (place, &byte) in kept.bytes.iter().zip(path) {
        place.store(byte, Relaxed);
    }
    kept.length.store(path.len(), Release);
    true
}

/// The value of a variable, unless it is unset or empty.
pub(crate) fn variable(name: &[u8]) -> Option<&'static [u8]> {
    let value = entries().find_map(|(_, entry)| entry.strip_prefix(name)?.strip_prefix(b"="));
    value.filter(|value| !value.is_empty())
}

/// The entries of the environment: the place of each in the array, and its text.
fn entries() -> impl Iterator<Item = (*mut *mut c_char, &'static [u8])> {
    // SAFETY: invariant 12: it is null, or an array of strings up to a null pointer.
    let mut at = unsafe { environ };
    core::iter::from_fn(move || {
        // SAFETY: as above.
        unsafe {
            if at.is_null() || (*at).is_null() {
                return None;
            }
            let entry = (at, CStr::from_ptr(*at).to_bytes());
            at = at.add(1);
            Some(entry)
        }
    })
}

/// Takes this library out of `LD_PRELOAD`, so that programs that this one starts run without it.
/// Called before the program has threads.
pub(crate) fn leave_children_alone() {
    const NAME: &[u8] = b"LD_PRELOAD=";
    const OURS: &[u8] = b"libkinlock_preload.so";
    let Some((place, length)) = entries()
        .find(|(_, entry)| entry.starts_with(NAME))
        .map(|(place, entry)| (place, entry.len()))
    else {
        return;
    };
    // LD_PRELOAD names this library by its path, or by the file's name alone if the loader searched
    // folders for it.
    let path = lookup::own_path();
    let file = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    // SAFETY: invariant 12; the entry is writable memory of the process. Cells, since other
    // pointers to it exist.
    let bytes = unsafe { core::slice::from_raw_parts(*place as *const Cell<u8>, length + 1) };
    let is_end = |byte: u8| byte == b':' || byte == b' ' || byte == 0;
    let (mut kept, mut from) = (NAME.len(), NAME.len());
    while from < length {
        let rest = &bytes[from..];
        let part = rest.iter().position(|b| is_end(b.get())).unwrap_or(0);
        let is_or_ends_like = |name: &[u8]| {
            let name = name.iter().copied();
            let from = part.checked_sub(name.len());
            from.is_some_and(|from| rest[from..part].iter().map(Cell::get).eq(name))
        };
        let is = |name: &[u8]| part == name.len() && is_or_ends_like(name);
        let ours = is_or_ends_like(OURS) || is(path) || is(file);
        if part > 0 && !ours {
            if kept > NAME.len() {
                bytes[kept].set(b':');
                kept += 1;
            }
            for n in 0..part {
                bytes[kept + n].set(rest[n].get());
            }
            kept += part;
        }
        from += part + 1;
    }
    bytes[kept].set(0);
}
