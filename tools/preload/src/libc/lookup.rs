//! Finding a function by name and version in the loaded shared objects.
//!
//! That is what `dlvsym` does. But before glibc 2.34 `dlvsym` is in `libdl`, which not every
//! process has loaded. Nothing here allocates.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. `dl_iterate_phdr` describes loaded objects, and none of them is unloaded before it returns.
//!    What their headers and dynamic sections refer to is loaded and laid out as ELF says.

use core::ffi::{CStr, c_int, c_void};
use core::{ptr, slice};

/// Which objects to search.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    /// All of them.
    Anywhere,
    /// Those that come after this library in the loader's search order.
    Next,
}

/// The address of a function in the objects that come after this library in the search order; null
/// if none has it. As `RTLD_NEXT`.
pub(crate) fn next(name: &CStr, version: &CStr) -> *mut c_void {
    find(name, version, Where::Next)
}

/// The address of a function in any object, including the loader itself; null if none has it.
pub(crate) fn anywhere(name: &CStr, version: &CStr) -> *mut c_void {
    find(name, version, Where::Anywhere)
}

fn find(name: &CStr, version: &CStr, place: Where) -> *mut c_void {
    let mut search = Search {
        name: name.to_bytes(),
        version: version.to_bytes(),
        is_in_range: place == Where::Anywhere,
        found: 0,
    };
    // SAFETY: the callback gets the search, which lives until the call returns, and does not
    // unwind.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    ptr::with_exposed_provenance_mut(search.found)
}

struct Search<'a> {
    name: &'a [u8],
    version: &'a [u8],
    /// Whether to search the objects that follow.
    is_in_range: bool,
    found: usize,
}

unsafe extern "C" fn visit(
    object: *mut libc::dl_phdr_info,
    _: libc::size_t,
    search: *mut c_void,
) -> c_int {
    // SAFETY: invariant 1, and `find` passes its search.
    let (object, search) = unsafe { (&*object, &mut *search.cast::<Search<'_>>()) };
    if !search.is_in_range {
        search.is_in_range = contains(object, find as *const () as usize);
        return 0;
    }
    // SAFETY: invariant 1.
    let found = unsafe { Symbols::of(object) };
    let found = found.and_then(|symbols| symbols.find(search.name, search.version));
    let Some(address) = found else { return 0 };
    search.found = address;
    1
}

/// The path under which the loader has loaded this library.
pub(crate) fn own_path() -> &'static [u8] {
    unsafe extern "C" fn visit(
        object: *mut libc::dl_phdr_info,
        _: libc::size_t,
        path: *mut c_void,
    ) -> c_int {
        // SAFETY: invariant 1. This library, and so its name, is never unloaded.
        unsafe {
            let object = &*object;
            if !contains(object, find as *const () as usize) || object.dlpi_name.is_null() {
                return 0;
            }
            *path.cast::<&'static [u8]>() = CStr::from_ptr(object.dlpi_name).to_bytes();
        }
        1
    }
    let mut path: &'static [u8] = b"";
    // SAFETY: as in `find`.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut path).cast()) };
    path
}

fn segments(object: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    match object.dlpi_phdr.is_null() {
        true => &[],
        // SAFETY: invariant 1.
        false => unsafe { slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) },
    }
}

fn contains(object: &libc::dl_phdr_info, address: usize) -> bool {
    let mut loaded = segments(object)
        .iter()
        .filter(|segment| segment.p_type == libc::PT_LOAD);
    loaded.any(|segment| {
        let start = (object.dlpi_addr as usize).wrapping_add(segment.p_vaddr as usize);
        address.wrapping_sub(start) < segment.p_memsz as usize
    })
}

/// The tables of an object by which a symbol of some version is found.
struct Symbols {
    bias: usize,
    names: *const u8,
    symbols: *const libc::Elf64_Sym,
    hashes: *const u32,
    versions: *const u16,
    definitions: *const u8,
    definition_count: usize,
}

impl Symbols {
    /// `None` if the object has no versions, or no hash table of the usual kind.
    ///
    /// # Safety
    ///
    /// Invariant 1.
    unsafe fn of(object: &libc::dl_phdr_info) -> Option<Self> {
        const END: u64 = 0;
        const NAMES: u64 = 5;
        const SYMBOLS: u64 = 6;
        const HASHES: u64 = 0x6fff_fef5;
        const VERSIONS: u64 = 0x6fff_fff0;
        const DEFINITIONS: u64 = 0x6fff_fffc;
        const DEFINITION_COUNT: u64 = 0x6fff_fffd;

        let bias = object.dlpi_addr as usize;
        let mut dynamic = segments(object)
            .iter()
            .filter(|segment| segment.p_type == libc::PT_DYNAMIC);
        let start = bias.wrapping_add(dynamic.next()?.p_vaddr as usize);
        let mut entry = ptr::with_exposed_provenance::<[u64; 2]>(start);
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
        (!all.contains(&0)).then(|| Symbols {
            bias,
            names: ptr::with_exposed_provenance(names),
            symbols: ptr::with_exposed_provenance(symbols),
            hashes: ptr::with_exposed_provenance(hashes),
            versions: ptr::with_exposed_provenance(versions),
            definitions: ptr::with_exposed_provenance(definitions),
            definition_count,
        })
    }

    fn is_called(&self, offset: u32, name: &[u8]) -> bool {
        // SAFETY: invariant 1: a zero-terminated string.
        unsafe { CStr::from_ptr(self.names.add(offset as usize).cast()) }.to_bytes() == name
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
            if self.is_called(names, name) {
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
                    if has == version && is_function && self.is_called(entry.st_name, name) {
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
