//! The part of the process's environment that only this library needs.

use crate::libc::lookup;
use core::cell::Cell;
use kinlock_recorder::environment::entries;
pub(crate) use kinlock_recorder::environment::{
    KeptPath, REPORT_PATH, complain, keep_path, program, remember_stderr, variable, write_stderr,
};

/// The file to which the counts are appended (`KINLOCK_COUNTS`).
pub(crate) static COUNTS_PATH: KeptPath = KeptPath::new();

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
    // SAFETY: invariant 7; the entry is writable memory of the process. It is accessed as cells,
    // since other pointers to it exist.
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
