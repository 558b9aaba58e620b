//! The environment and the standard streams of the process. Nothing here allocates.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering::*};
pub use kinlock_linux::sys::{remember_stderr, write_stderr};

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
    static program_invocation_name: *const c_char;
    static program_invocation_short_name: *const c_char;
}

/// What the program is called: its name without the path, or the title that it has given itself.
/// Programs set a title by overwriting their arguments, and the C library's name of the program
/// points into these.
pub fn program() -> &'static [u8] {
    // SAFETY: invariant 8: the C library sets both before any constructor runs.
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
pub fn complain(bit: u8, line: &[u8]) {
    static DONE: AtomicU8 = AtomicU8::new(0);
    if DONE.fetch_or(bit, Relaxed) & bit == 0 {
        write_stderr(line);
    }
}

/// The longest path that is kept, including its zero byte.
pub const ROOM: usize = 4096;

/// A copy of a path from the environment, which the program may overwrite.
pub struct KeptPath {
    bytes: [AtomicU8; ROOM],
    length: AtomicUsize,
}

impl KeptPath {
    /// No path.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        KeptPath {
            bytes: [const { AtomicU8::new(0) }; ROOM],
            length: AtomicUsize::new(0),
        }
    }

    /// The bytes of the path.
    pub fn bytes(&self) -> impl Iterator<Item = u8> {
        let length = self.length.load(Acquire);
        self.bytes
            .iter()
            .take(length)
            .map(|byte| byte.load(Relaxed))
    }

    /// Where the path is, with a zero byte at its end.
    pub fn address(&self) -> *const u8 {
        self.bytes.as_ptr().cast()
    }
}

/// What the names of the report's files begin with (`KINLOCK_REPORT`).
pub static REPORT_PATH: KeptPath = KeptPath::new();

/// Stores a path; `false` if it is too long.
pub fn keep_path(kept: &KeptPath, path: &[u8]) -> bool {
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

/// Whether the program has rights that its user does not have: by set-user-ID, or capabilities of
/// its file.
fn is_privileged() -> bool {
    // SAFETY: invariant 9.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// The value of a variable, unless it is unset or empty. A privileged program has none: its user
/// must not choose which files it makes.
pub fn variable(name: &[u8]) -> Option<&'static [u8]> {
    if is_privileged() {
        return None;
    }
    let value = entries().find_map(|(_, entry)| entry.strip_prefix(name)?.strip_prefix(b"="));
    value.filter(|value| !value.is_empty())
}

/// The entries of the environment: the place of each in the array, and its text.
pub fn entries() -> impl Iterator<Item = (*mut *mut c_char, &'static [u8])> {
    // SAFETY: invariant 8: it is null, or an array of strings up to a null pointer.
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
