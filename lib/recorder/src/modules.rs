//! Shared objects: which one an address lies in, and what the command needs to name addresses.

use super::memory::{is_present, provide, system_call};
use super::stack::{here, is_readable};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::{self, MaybeUninit};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::*};
use core::{ptr, slice};
use kinlock_report::{MODULES, Module, Table};

/// A shared object, as the loader describes it.
pub(super) struct Found {
    pub(super) start: u64,
    pub(super) end: u64,
    bias: u64,
    /// The index of its call frame information (`.eh_frame_hdr`), or null.
    pub(super) unwinding: *const u8,
    name: *const c_char,
}

/// The C library's `struct dl_find_object`.
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

/// The C library's `_dl_find_object`, which takes no lock. Null before glibc 2.35: then the report
/// has no callers.
static FINDER: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// Whether objects are found by [`FINDER`], and not in the [list](LISTED).
static HAS_FINDER: AtomicBool = AtomicBool::new(false);

/// For a recorder in a library of its own: callers are found by this function, and calls within the
/// library do not count as callers.
///
/// # Safety
///
/// It is the C library's `_dl_find_object`, or null.
pub unsafe fn find_by(finder: *mut c_void) {
    FINDER.store(finder, Relaxed);
    HAS_FINDER.store(true, Relaxed);
}

/// Asks the loader which objects there are, unless there is a [`FINDER`]. That may wait for a lock
/// of the loader. So this is called before any thread waits for the one that makes the table.
pub(super) fn begin() {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if IS_DONE.load(Acquire) {
        return;
    }
    match HAS_FINDER.load(Relaxed) {
        true => find_own(),
        false => list(),
    }
    IS_DONE.store(true, Release);
}

/// An object as the loader described it when [`list`] asked: the fields of [`Found`], in their
/// order.
struct Listed([AtomicU64; 5]);

/// How many objects are listed: the program and its libraries.
const LISTED: usize = 64;

static LIST: [Listed; LISTED] = [const { Listed([const { AtomicU64::new(0) }; 5]) }; LISTED];

/// Lists the objects that the process has now. A static program, too, is one. An object that is
/// loaded later is not known: callers beyond a frame of it are not found.
fn list() {
    let mut count = 0_usize;
    // SAFETY: invariant 1: the callback gets the count, which lives until the call returns, and
    // does not unwind.
    unsafe { libc::dl_iterate_phdr(Some(list_one), (&raw mut count).cast()) };
}

unsafe extern "C" fn list_one(
    object: *mut libc::dl_phdr_info,
    _: libc::size_t,
    count: *mut c_void,
) -> c_int {
    // SAFETY: invariants 1 and 8: `list` passes a count, and the loader an object.
    let (object, count) = unsafe { (&*object, &mut *count.cast::<usize>()) };
    let Some(place) = LIST.get(*count) else {
        return 1;
    };
    // SAFETY: invariant 8.
    let segments =
        unsafe { slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)) };
    let bias = object.dlpi_addr;
    let loaded = || segments.iter().filter(|s| s.p_type == libc::PT_LOAD);
    let start = loaded().map(|s| s.p_vaddr).min().unwrap_or(0);
    let end = loaded().map(|s| s.p_vaddr + s.p_memsz).max().unwrap_or(0);
    let unwinding = segments.iter().find(|s| s.p_type == libc::PT_GNU_EH_FRAME);
    let unwinding = unwinding.map_or(0, |s| bias.wrapping_add(s.p_vaddr));
    // SAFETY: invariant 9.
    let own = unsafe { libc::getauxval(libc::AT_PHDR) };
    // C libraries call the program itself by different names.
    let name = match object.dlpi_phdr.addr() as u64 == own {
        true => ptr::null(),
        false => object.dlpi_name,
    };
    let (start, end) = (bias.wrapping_add(start), bias.wrapping_add(end));
    let all = [start, end, bias, unwinding, name.expose_provenance() as u64];
    for (to, from) in place.0.iter().zip(all) {
        to.store(from, Relaxed);
    }
    *count += 1;
    0
}

/// The listed object that an address lies in.
fn find_listed(address: u64) -> Option<Found> {
    let mut all = LIST
        .iter()
        .map(|object| object.0.each_ref().map(|n| n.load(Relaxed)));
    let [start, end, bias, unwinding, name] =
        all.find(|[start, end, ..]| (*start..*end).contains(&address))?;
    Some(Found {
        start,
        end,
        bias,
        unwinding: ptr::with_exposed_provenance(unwinding as usize),
        name: ptr::with_exposed_provenance(name as usize),
    })
}

/// The first address of this library, and the one after its last.
static OWN: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Finds out where this library is.
fn find_own() {
    if let Some(own) = find(here().pc) {
        OWN[0].store(own.start, Relaxed);
        OWN[1].store(own.end, Relaxed);
    }
}

/// Whether an address lies in this library.
pub(super) fn is_own(pc: u64) -> bool {
    (OWN[0].load(Relaxed)..OWN[1].load(Relaxed)).contains(&pc)
}

/// The shared object that an address lies in, if any.
pub(super) fn find(address: u64) -> Option<Found> {
    let finder = FINDER.load(Relaxed);
    if !HAS_FINDER.load(Relaxed) {
        return find_listed(address);
    }
    if finder.is_null() {
        return None;
    }
    let mut answer = MaybeUninit::<Answer>::zeroed();
    // SAFETY: invariant 1: it is that function. It fills the answer when it returns 0.
    let answer = unsafe {
        let finder = mem::transmute::<*mut c_void, Finder>(finder);
        if finder(address as *const c_void, answer.as_mut_ptr()) != 0 {
            return None;
        }
        answer.assume_init()
    };
    // SAFETY: invariant 8.
    let (bias, name) = unsafe { ((*answer.link).bias, (*answer.link).name) };
    Some(Found {
        start: answer.start as u64,
        end: answer.end as u64,
        bias,
        unwinding: answer.unwinding,
        name,
    })
}

/// Adds the shared object that an address lies in to the table, if it is not there yet.
pub(super) fn note(table: &Table, address: u64) {
    let count = (table.header.modules.load(Relaxed) as usize).min(MODULES);
    let contains = |module: &Module| {
        is_present(table, module)
            && (module.start.load(Relaxed)..module.end.load(Relaxed)).contains(&address)
    };
    if table.modules[..count].iter().any(contains) {
        return;
    }
    let Some(found) = find(address) else { return };
    let at = table.header.modules.fetch_add(1, Relaxed) as usize;
    let module = table.modules.get(at);
    let Some(module) = module.filter(|module| provide(table, *module)) else {
        return;
    };
    module.start.store(found.start, Relaxed);
    module.bias.store(found.bias, Relaxed);
    note_path(module, &found);
    note_build_id(module, &found);
    module.end.store(found.end, Release);
}

fn note_path(module: &Module, found: &Found) {
    let mut room = [0_u8; 512];
    // SAFETY: invariant 8. The program itself has no name here.
    let name = unsafe { (!found.name.is_null() && *found.name != 0).then_some(found.name) };
    let own = match name {
        None => own_path(&mut room),
        Some(_) => &[],
    };
    if !own.is_empty() {
        return store_path(module, own, &[]);
    }
    // SAFETY: invariants 8 and 9: what the kernel says is null or such a string.
    let path = unsafe {
        let executed = || libc::getauxval(libc::AT_EXECFN) as *const c_char;
        let path = name.unwrap_or_else(executed);
        if path.is_null() {
            return;
        }
        CStr::from_ptr(path).to_bytes()
    };
    let folder = match path.starts_with(b"/") {
        true => &[],
        // The loader found it by a name that is relative to the current folder.
        false => current_folder(&mut room),
    };
    store_path(module, folder, path);
}

fn store_path(module: &Module, folder: &[u8], path: &[u8]) {
    let all = module.path.iter().zip(folder.iter().chain(path));
    let length = all.map(|(to, &from)| to.store(from, Relaxed)).count();
    module.path_length.store(length as u32, Relaxed);
}

/// The path of the program; nothing if there is no `/proc`.
fn own_path(room: &mut [u8; 512]) -> &[u8] {
    let path = c"/proc/self/exe".as_ptr();
    // SAFETY: invariant 2.
    let length = unsafe {
        let (to, size) = (room.as_mut_ptr(), room.len());
        system_call!(libc::SYS_readlinkat, libc::AT_FDCWD, path, to, size)
    };
    room.get(..length.unwrap_or(0) as usize).unwrap_or(&[])
}

/// The current folder with a slash at its end; nothing if it is not known.
fn current_folder(room: &mut [u8; 512]) -> &[u8] {
    // SAFETY: invariant 2.
    let length = unsafe { system_call!(libc::SYS_getcwd, room.as_mut_ptr(), room.len()) };
    // It ends with a zero byte. A folder that this process cannot reach begins otherwise.
    match length {
        Ok(length @ 1..) if room[0] == b'/' => {
            room[length as usize - 1] = b'/';
            &room[..length as usize]
        }
        _ => &[],
    }
}

/// The type of an ELF note with a build ID (`NT_GNU_BUILD_ID`).
const BUILD_ID: u32 = 3;

/// The smallest page size.
const PAGE: u64 = 4096;
/// Notes and tables of segments that are longer than this are not read.
const LONGEST: u64 = 1 << 16;

/// Stores the build ID, if it can be found in memory. For an object without one the command accepts
/// any file at the object's path.
fn note_build_id(module: &Module, found: &Found) {
    let Some(segments) = program_segments(found).or_else(|| library_segments(found)) else {
        return;
    };
    for note in segments.iter().filter(|s| s.p_type == libc::PT_NOTE) {
        let is_loaded = segments.iter().any(|s| loads(s, note));
        let start = found.bias.wrapping_add(note.p_vaddr);
        if is_loaded && note.p_memsz <= LONGEST && is_all_readable(start, note.p_memsz) {
            let size = note.p_memsz as usize;
            // SAFETY: invariant 7.
            note_id_in(module, unsafe {
                slice::from_raw_parts(start as *const u8, size)
            });
        }
    }
}

/// Whether loading one segment also loads the file contents of another one.
fn loads(segment: &libc::Elf64_Phdr, other: &libc::Elf64_Phdr) -> bool {
    let end = segment.p_vaddr.saturating_add(segment.p_filesz);
    segment.p_type == libc::PT_LOAD
        && segment.p_flags & libc::PF_R != 0
        && segment.p_vaddr <= other.p_vaddr
        && other.p_vaddr.saturating_add(other.p_memsz) <= end
}

/// Whether all pages of a range can be read.
fn is_all_readable(start: u64, size: u64) -> bool {
    let first = start & !(PAGE - 1);
    let pages = (first..start.saturating_add(size)).step_by(PAGE as usize);
    pages.into_iter().all(|page| is_readable(page & !7))
}

/// The segments of the program itself. The kernel has told the process where they are. They cannot
/// be found as a library's: a program may consist of parts with gaps between them, so its beginning
/// does not follow from an address in one part.
fn program_segments(found: &Found) -> Option<&'static [libc::Elf64_Phdr]> {
    // SAFETY: invariant 8.
    if !found.name.is_null() && unsafe { *found.name } != 0 {
        return None;
    }
    // SAFETY: invariant 9.
    let (at, count) = unsafe {
        (
            libc::getauxval(libc::AT_PHDR),
            libc::getauxval(libc::AT_PHNUM),
        )
    };
    let segments = segments_at(at, count)?;
    // If the loader was started by its own name, with the program as an argument, the segments that
    // the kernel names are the loader's.
    let own = segments.iter().find(|s| s.p_type == libc::PT_PHDR)?;
    (found.bias.wrapping_add(own.p_vaddr) == at).then_some(segments)
}

/// The segments of an object whose first page in memory is the first one of its file, with the ELF
/// header. They are read only if they lie on that page, too: other parts of the file may be loaded
/// elsewhere.
fn library_segments(found: &Found) -> Option<&'static [libc::Elf64_Phdr]> {
    if found.start % PAGE != 0 || !is_readable(found.start) {
        return None;
    }
    // SAFETY: invariant 7.
    let header = unsafe { &*(found.start as *const libc::Elf64_Ehdr) };
    if !header.e_ident.starts_with(b"\x7fELF\x02")
        || usize::from(header.e_phentsize) != size_of::<libc::Elf64_Phdr>()
    {
        return None;
    }
    let size = u64::from(header.e_phentsize) * u64::from(header.e_phnum);
    let is_here = header.e_phoff.saturating_add(size) <= PAGE;
    is_here.then(|| segments_at(found.start + header.e_phoff, header.e_phnum.into()))?
}

/// `count` segments at an address, if they can be read.
fn segments_at(at: u64, count: u64) -> Option<&'static [libc::Elf64_Phdr]> {
    let size = count.checked_mul(size_of::<libc::Elf64_Phdr>() as u64)?;
    let is_there = at != 0 && at % 8 == 0 && size <= LONGEST && is_all_readable(at, size);
    // SAFETY: invariant 7.
    is_there.then(|| unsafe { slice::from_raw_parts(at as *const _, count as usize) })
}

/// Searches ELF notes for the build ID, and stores it.
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
        if kind == BUILD_ID && notes[12..].starts_with(b"GNU\0") && !id.is_empty() {
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
