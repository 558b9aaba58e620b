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

/// What the program is called: its name without the path, or the title that it has given itself by
/// overwriting its arguments, of which the name is a part.
pub(crate) fn program() -> &'static [u8] {
    // SAFETY: the C library sets them to strings before any constructor runs.
    let (long, short) = unsafe {
        (
            CStr::from_ptr(program_invocation_name).to_bytes(),
            CStr::from_ptr(program_invocation_short_name).to_bytes(),
        )
    };
    let offset = short.as_ptr().addr().wrapping_sub(long.as_ptr().addr());
    match offset.checked_sub(1).map(|before| long.get(before)) {
        // A path that is as it was has a slash before the name.
        None | Some(Some(b'/')) => short,
        // The program may have set the names to others.
        _ if offset > ROOM => short,
        _ => long,
    }
}

/// Once per process, though several threads may decide.
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

pub(crate) const ROOM: usize = 4096;

/// A copy of a path: a program may overwrite its environment.
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

    /// Its bytes.
    pub(crate) fn bytes(&self) -> impl Iterator<Item = u8> {
        let length = self.length.load(Acquire);
        self.bytes
            .iter()
            .take(length)
            .map(|byte| byte.load(Relaxed))
    }

    /// Itself, ending with a zero byte.
    pub(crate) fn get(&self) -> [u8; ROOM] {
        let mut path = [0; ROOM];
        let length = self.length.load(Acquire);
        for (to, from) in path.iter_mut().zip(&self.bytes).take(length) {
            *to = from.load(Relaxed);
        }
        path
    }
}

/// Where the counts go.
pub(crate) static COUNTS_PATH: KeptPath = KeptPath::new();
/// What the names of the report's files begin with.
pub(crate) static REPORT_PATH: KeptPath = KeptPath::new();

pub(crate) fn keep_path(kept: &KeptPath, path: &[u8]) -> bool {
    if path.len() >= ROOM {
        return false;
    }
    // Threads that do this at the same time store the same.
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

/// The entries of the environment, with their places.
fn entries() -> impl Iterator<Item = (*mut *mut c_char, &'static [u8])> {
    // SAFETY: `environ` is null or an array of strings that ends with a null pointer, for all that
    // this reads. The program changes it, if ever, when no other thread reads it.
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

/// Takes this library out of `LD_PRELOAD`, for the programs that this one starts. Before the
/// program has threads.
pub(crate) fn leave_children_alone() {
    const NAME: &[u8] = b"LD_PRELOAD=";
    const OURS: &[u8] = b"libkinlock_preload.so";
    let Some((place, length)) = entries()
        .find(|(_, entry)| entry.starts_with(NAME))
        .map(|(place, entry)| (place, entry.len()))
    else {
        return;
    };
    // The name that it was found by, or that and a folder in which it was found.
    let path = lookup::own_path();
    let file = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    // SAFETY: the entry is writable memory of the process. Cells, since others may point to it.
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
