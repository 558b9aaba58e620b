//! Shared objects: which one an address lies in, and what the command has to know of them.

use super::frames::{self, OWN};
use crate::lookup;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::{self, MaybeUninit};
use core::sync::atomic::{AtomicPtr, Ordering::*};
use core::{ptr, slice};
use kinlock_report::{MODULES, Module, Table};

/// A shared object, as the loader knows it.
pub(super) struct Found {
    pub(super) start: u64,
    pub(super) end: u64,
    bias: u64,
    /// The index of what it says of its frames, or null.
    pub(super) unwinding: *const u8,
    name: *const c_char,
}

/// As the C library defines it.
#[repr(C)]
struct Answer {
    flags: u64,
    start: *const u8,
    end: *const u8,
    link: *const Link,
    unwinding: *const u8,
    reserved: [u64; 8],
}

/// The public beginning of the loader's `struct link_map`.
#[repr(C)]
struct Link {
    bias: u64,
    name: *const c_char,
}

type Finder = unsafe extern "C" fn(*const c_void, *mut Answer) -> c_int;

/// The C library's function that finds them, which takes no lock. Null before glibc 2.35: then
/// there are no callers.
static FINDER: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

pub(super) fn begin() {
    let found = lookup::anywhere(c"_dl_find_object", c"GLIBC_2.35");
    FINDER.store(found, Relaxed);
    frames::find_own();
}

pub(super) fn is_own(pc: u64) -> bool {
    (OWN[0].load(Relaxed)..OWN[1].load(Relaxed)).contains(&pc)
}

/// The shared object that an address lies in.
pub(super) fn find(address: u64) -> Option<Found> {
    let finder = FINDER.load(Relaxed);
    if finder.is_null() {
        return None;
    }
    let mut answer = MaybeUninit::<Answer>::zeroed();
    // SAFETY: invariant 3: it is that function. It fills the answer when it returns 0.
    let answer = unsafe {
        let finder = mem::transmute::<*mut c_void, Finder>(finder);
        if finder(address as *const c_void, answer.as_mut_ptr()) != 0 {
            return None;
        }
        answer.assume_init()
    };
    // SAFETY: the loader's own description of an object that is loaded.
    let (bias, name) = unsafe { ((*answer.link).bias, (*answer.link).name) };
    Some(Found {
        start: answer.start as u64,
        end: answer.end as u64,
        bias,
        unwinding: answer.unwinding,
        name,
    })
}

/// Notes the shared object that an address lies in, if any.
pub(super) fn note(table: &Table, address: u64) {
    let count = (table.header.modules.load(Relaxed) as usize).min(MODULES);
    let knows =
        |module: &Module| (module.start.load(Relaxed)..module.end.load(Relaxed)).contains(&address);
    if table.modules[..count].iter().any(knows) {
        return;
    }
    let Some(found) = find(address) else { return };
    let at = table.header.modules.fetch_add(1, Relaxed) as usize;
    let Some(module) = table.modules.get(at) else {
        return;
    };
    module.start.store(found.start, Relaxed);
    module.bias.store(found.bias, Relaxed);
    note_path(module, &found);
    note_build_id(module, &found);
    module.end.store(found.end, Release);
}

fn note_path(module: &Module, found: &Found) {
    let mut own = [0_u8; 512];
    // SAFETY: the loader's own text; invariant 4.
    let path = unsafe {
        match found.name.is_null() || *found.name == 0 {
            false => CStr::from_ptr(found.name).to_bytes(),
            // The program itself.
            true => {
                let path = c"/proc/self/exe".as_ptr();
                let here = libc::AT_FDCWD;
                let (to, room) = (own.as_mut_ptr(), own.len());
                let length = libc::syscall(libc::SYS_readlinkat, here, path, to, room);
                own.get(..length.max(0) as usize).unwrap_or(&[])
            }
        }
    };
    for (to, from) in module.path.iter().zip(path) {
        to.store(*from, Relaxed);
    }
    let length = path.len().min(module.path.len());
    module.path_length.store(length as u32, Relaxed);
}

const BUILD_ID: u32 = 3;

/// The build ID, where the file's header is in memory, as usual.
fn note_build_id(module: &Module, found: &Found) {
    // SAFETY: a loaded object begins with a page of its file, as a rule with the header, and its
    // notes are loaded where the header says.
    unsafe {
        let header = found.start as *const libc::Elf64_Ehdr;
        if !(*header).e_ident.starts_with(b"\x7fELF\x02") {
            return;
        }
        let first = (found.start + (*header).e_phoff) as *const libc::Elf64_Phdr;
        for segment in slice::from_raw_parts(first, (*header).e_phnum.into()) {
            let start = found.bias.wrapping_add(segment.p_vaddr);
            let end = start.saturating_add(segment.p_memsz);
            if segment.p_type != libc::PT_NOTE || start < found.start || end > found.end {
                continue;
            }
            let size = segment.p_memsz as usize;
            note_id_in(module, slice::from_raw_parts(start as *const u8, size));
        }
    }
}

fn note_id_in(module: &Module, mut notes: &[u8]) {
    let word = |notes: &[u8], at: usize| {
        let bytes = notes.get(4 * at..4 * at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    while let (Some(name), Some(size), Some(kind)) =
        (word(notes, 0), word(notes, 1), word(notes, 2))
    {
        let from = 12 + (name as usize).next_multiple_of(4);
        let Some(id) = notes.get(from..from + size as usize) else {
            return;
        };
        if kind == BUILD_ID && notes[12..].starts_with(b"GNU\0") {
            for (to, from) in module.build_id.iter().zip(id) {
                to.store(*from, Relaxed);
            }
            let length = id.len().min(module.build_id.len());
            return module.build_id_length.store(length as u32, Relaxed);
        }
        let next = from + (size as usize).next_multiple_of(4);
        notes = notes.get(next..).unwrap_or(&[]);
    }
}
