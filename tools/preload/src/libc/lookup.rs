//! Finding a function by name and version in the loaded shared objects.
//!
//! That is what `dlvsym` does. But before glibc 2.34 `dlvsym` is in `libdl`, which not every
//! process has loaded. Nothing here allocates or calls a function.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. The loader's list describes loaded objects. The ones that are searched here are never
//!    unloaded, and neither are those before them in the list. What their dynamic sections refer to
//!    is loaded and laid out as ELF says.

use core::ffi::{CStr, c_char, c_void};
use core::ptr;

/// The C library. Before glibc 2.34 the functions for threads are in a library of their own.
const C_LIBRARY: [&[u8]; 2] = [b"libc.so.6", b"libpthread.so.0"];
/// The loader's name ends with its version.
const LOADER: [&[u8]; 2] = [b"ld-linux", b"ld64.so"];

/// The address of a function of the C library itself; null if it has none of this name. Functions
/// with which other preloaded libraries replace it are not found.
pub(crate) fn in_c_library(name: &CStr, version: &CStr) -> *mut c_void {
    find(name, version, |object| C_LIBRARY.contains(&object))
}

/// The address of a function of the loader, which may be in the C library; null if there is none
/// of this name.
pub(crate) fn of_loader(name: &CStr, version: &CStr) -> *mut c_void {
    find(name, version, |object| {
        C_LIBRARY.contains(&object) || LOADER.iter().any(|name| object.starts_with(name))
    })
}

fn find(name: &CStr, version: &CStr, is_searched: impl Fn(&[u8]) -> bool) -> *mut c_void {
    let found = objects().find_map(|object| {
        // SAFETY: invariant 1.
        let symbols = unsafe { Symbols::of(object) }?;
        match is_searched(symbols.soname()) {
            true => symbols.find(name.to_bytes(), version.to_bytes()),
            false => None,
        }
    });
    ptr::with_exposed_provenance_mut(found.unwrap_or(0))
}

/// The path under which the loader has loaded this library.
pub(crate) fn own_path() -> &'static [u8] {
    unsafe extern "C" {
        #[link_name = "_DYNAMIC"]
        static OWN_DYNAMIC: [u64; 2];
    }
    let own = objects().find(|object| object.dynamic == &raw const OWN_DYNAMIC);
    match own {
        // SAFETY: invariant 1. This library, and so its name, is never unloaded.
        Some(object) if !object.path.is_null() => unsafe { CStr::from_ptr(object.path) }.to_bytes(),
        _ => b"",
    }
}

/// The loader's description of an object (`struct link_map`).
#[repr(C)]
struct Object {
    bias: usize,
    path: *const c_char,
    dynamic: *const [u64; 2],
    next: *const Object,
}

/// What the loader tells debuggers (`struct r_debug`).
#[repr(C)]
struct Loader {
    version: i32,
    first: *const Object,
}

/// The loaded objects, in the order in which they are searched.
fn objects() -> impl Iterator<Item = &'static Object> {
    unsafe extern "C" {
        #[link_name = "_r_debug"]
        static LOADER: Loader;
    }
    // SAFETY: invariant 1.
    let mut next = unsafe { (&raw const LOADER.first).read_volatile() };
    core::iter::from_fn(move || {
        // SAFETY: invariant 1: null, or an object.
        let object = unsafe { next.as_ref() }?;
        next = object.next;
        Some(object)
    })
}

/// The tables of an object by which a symbol of some version is found.
struct Symbols {
    bias: usize,
    names: *const u8,
    /// The offset of the object's own name among the names.
    soname: usize,
    symbols: *const libc::Elf64_Sym,
    hashes: *const u32,
    versions: *const u16,
    definitions: *const u8,
    definition_count: usize,
}

impl Symbols {
    /// `None` if the object has no name, no versions, or no hash table of the usual kind.
    ///
    /// # Safety
    ///
    /// Invariant 1.
    unsafe fn of(object: &Object) -> Option<Self> {
        const END: u64 = 0;
        const NAMES: u64 = 5;
        const SYMBOLS: u64 = 6;
        const SONAME: u64 = 14;
        const HASHES: u64 = 0x6fff_fef5;
        const VERSIONS: u64 = 0x6fff_fff0;
        const DEFINITIONS: u64 = 0x6fff_fffc;
        const DEFINITION_COUNT: u64 = 0x6fff_fffd;

        let bias = object.bias;
        let mut entry = object.dynamic;
        let mut soname = None;
        let mut all = [0_usize; 6];
        loop {
            // SAFETY: invariant 1: the entries end with a zero.
            let [tag, value] = unsafe { *entry };
            let (place, value) = (value as usize, value as usize);
            // Which of these offsets the loader has already turned into addresses depends on the
            // loader. An offset is smaller than any address.
            let address = match place < bias {
                true => bias + place,
                false => place,
            };
            match tag {
                END => break,
                NAMES => all[0] = address,
                SYMBOLS => all[1] = address,
                HASHES => all[2] = address,
                VERSIONS => all[3] = address,
                DEFINITIONS => all[4] = address,
                DEFINITION_COUNT => all[5] = value,
                SONAME => soname = Some(value),
                _ => {}
            }
            // SAFETY: invariant 1: this was not the last entry.
            entry = unsafe { entry.add(1) };
        }
        let [
            names,
            symbols,
            hashes,
            versions,
            definitions,
            definition_count,
        ] = all;
        let soname = soname.filter(|_| !all.contains(&0))?;
        Some(Symbols {
            bias,
            soname,
            names: ptr::with_exposed_provenance(names),
            symbols: ptr::with_exposed_provenance(symbols),
            hashes: ptr::with_exposed_provenance(hashes),
            versions: ptr::with_exposed_provenance(versions),
            definitions: ptr::with_exposed_provenance(definitions),
            definition_count,
        })
    }

    fn name(&self, offset: usize) -> &[u8] {
        // SAFETY: invariant 1: a zero-terminated string.
        unsafe { CStr::from_ptr(self.names.add(offset).cast()) }.to_bytes()
    }

    /// The object's own name.
    fn soname(&self) -> &[u8] {
        self.name(self.soname)
    }

    /// The number by which this object's symbols refer to a version.
    fn version(&self, name: &[u8]) -> Option<u16> {
        let mut definition = self.definitions;
        for _ in 0..self.definition_count {
            // SAFETY: invariant 1: `vd_ndx`, `vd_aux` and `vd_next` of the definition, and
            // `vda_name` of its first name.
            let (number, names, next) = unsafe {
                let names = definition.add(12).cast::<u32>().read() as usize;
                (
                    definition.add(4).cast::<u16>().read(),
                    definition.add(names).cast::<u32>().read(),
                    definition.add(16).cast::<u32>().read() as usize,
                )
            };
            if self.name(names as usize) == name {
                return Some(number);
            }
            if next == 0 {
                break;
            }
            // SAFETY: invariant 1.
            definition = unsafe { definition.add(next) };
        }
        None
    }

    /// The address of a function, by way of the hash table (`DT_GNU_HASH`).
    fn find(&self, name: &[u8], version: &[u8]) -> Option<usize> {
        let version = self.version(version)?;
        let hash = name.iter().fold(5381_u32, |hash, &byte| {
            hash.wrapping_mul(33).wrapping_add(byte.into())
        });
        // SAFETY: invariant 1: the table is a header of four words, a filter of 64-bit words, the
        // buckets, and the hashes of the symbols from `first` on. Bit 0 of a hash marks the last
        // one of its bucket.
        unsafe {
            let [buckets, first, filters, _] = *self.hashes.cast::<[u32; 4]>();
            let heads = self.hashes.add(4 + 2 * filters as usize);
            let mut symbol = *heads.add((hash % buckets.max(1)) as usize);
            while symbol >= first.max(1) {
                let at = *heads.add(buckets as usize + (symbol - first) as usize);
                if (at | 1) == (hash | 1) {
                    let has = *self.versions.add(symbol as usize) & 0x7fff;
                    let entry = &*self.symbols.add(symbol as usize);
                    let is_function = entry.st_info & 0xf == 2 && entry.st_shndx != 0;
                    if has == version && is_function && self.name(entry.st_name as usize) == name {
                        return Some(self.bias.wrapping_add(entry.st_value as usize));
                    }
                }
                if at & 1 != 0 {
                    break;
                }
                symbol += 1;
            }
        }
        None
    }
}
