//! Locks of shared libraries that may be installed: nsync's, in C, and Abseil's, in C++.
//!
//! Such a library is opened when one of its locks is asked for. The command is not linked with it,
//! so the command also starts if the library is missing. A call reads the function's address from a
//! table and jumps there, as in a program that is linked with the library.
//!
//! # Invariants
//!
//! 1. All-zero memory is an unlocked mutex, or a condition variable for which nobody waits. nsync's
//!    headers say so for its types. Abseil's constructor stores 0 in the only word.
//! 2. A mutex may be moved until it is first taken, since its memory holds no address before. The
//!    command does not move a lock after that.
//! 3. The table of a library is complete before there is a mutex of it. Its functions have C's
//!    calling convention; a member function in C++ takes its object's address as first argument.
//! 4. Only the thread that holds a mutex unlocks it, in the mode in which it was locked.
//! 5. A mutex owns nothing, so it need not be destroyed. nsync has no destructors. Abseil's only
//!    removes debugging information, which is never turned on here.

use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use lock_api::{GuardNoSend, MutexGuard, RawMutex, RawRwLock};
use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol};

/// A library that has a mutex which several threads can hold for reading.
pub trait Installed: Send + Sync + 'static {
    /// The memory of a mutex.
    type Memory: Send + 'static;
    const UNLOCKED: Self::Memory;

    fn library() -> &'static Library;
}

pub struct Nsync;

pub struct Abseil;

impl Installed for Nsync {
    /// A word of 32 bits and a pointer.
    type Memory = [usize; 2];
    const UNLOCKED: [usize; 2] = [0; 2];

    fn library() -> &'static Library {
        static LIBRARY: Library = Library::new(
            c"libnsync.so.1",
            "nsync_",
            &[
                &["mu_lock"],
                &["mu_unlock"],
                &["mu_rlock"],
                &["mu_runlock"],
                &["cv_wait"],
                &["cv_signal"],
                &["cv_broadcast"],
            ],
        );
        &LIBRARY
    }
}

impl Installed for Abseil {
    /// An integer of the size of a pointer.
    type Memory = usize;
    const UNLOCKED: usize = 0;

    /// Its condition variable is left out: in newer versions waiting is an inline function around a
    /// private one, whose arguments are not documented.
    fn library() -> &'static Library {
        static LIBRARY: Library = Library::new(
            c"libabsl_synchronization.so",
            // An inline namespace follows that is named after the version.
            "_ZN4absl",
            &[
                &["5Mutex4LockEv", "5Mutex4lockEv"],
                &["5Mutex6UnlockEv", "5Mutex6unlockEv"],
                &["5Mutex10ReaderLockEv", "5Mutex11lock_sharedEv"],
                &["5Mutex12ReaderUnlockEv", "5Mutex13unlock_sharedEv"],
            ],
        );
        &LIBRARY
    }
}

// Places in the table of a library.
const LOCK: usize = 0;
const UNLOCK: usize = 1;
const READ_LOCK: usize = 2;
const READ_UNLOCK: usize = 3;
const WAIT: usize = 4;
const SIGNAL: usize = 5;
const BROADCAST: usize = 6;

const NOBODY_TRIES: &str = "the command waits for its locks";

/// A shared library, and where its functions are.
pub struct Library {
    file: &'static CStr,
    /// The prefix of the names of all functions.
    prefix: &'static str,
    /// For each function, the possible ends of its name.
    suffixes: &'static [&'static [&'static str]],
    calls: [AtomicPtr<c_void>; 7],
    /// The problem with the library, or none, once it has been opened.
    fault: OnceLock<Option<&'static str>>,
}

impl Library {
    const fn new(
        file: &'static CStr,
        prefix: &'static str,
        suffixes: &'static [&'static [&'static str]],
    ) -> Self {
        Library {
            file,
            prefix,
            suffixes,
            calls: [const { AtomicPtr::new(ptr::null_mut()) }; 7],
            fault: OnceLock::new(),
        }
    }

    /// Opens the library at the first call. `None`: its functions can be called. Otherwise the
    /// problem, which is `missing` if there is no such file.
    pub fn fault(&self, missing: &'static str) -> Option<&'static str> {
        *self.fault.get_or_init(|| match self.open() {
            Ok(()) => None,
            Err(None) => Some(missing),
            Err(Some(what)) => Some(what.leak()),
        })
    }

    /// Fails with the problem, or with `None` if there is no such file.
    fn open(&self) -> Result<(), Option<String>> {
        // SAFETY: the name ends in a null byte. The library's initialisers run as in every program
        // that uses it.
        let handle = unsafe { libc::dlopen(self.file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let handle = NonNull::new(handle).ok_or(None)?;
        let unknown = |why: &str| Some(format!("{}: {why}", self.file.to_string_lossy()));
        let file = mapped(self.file).ok_or_else(|| unknown("its file is not known"))?;
        let file = std::fs::read(file).map_err(|error| unknown(&error.to_string()))?;
        let names = dynamic_names(&file).ok_or_else(|| unknown("its symbols cannot be read"))?;
        for (call, suffixes) in self.calls.iter().zip(self.suffixes) {
            let name = self.find(&names, suffixes).ok_or_else(|| {
                let wanted = format!("{}..{}", self.prefix, suffixes.join(" or "));
                unknown(&format!("this version has no function {wanted}"))
            })?;
            let name = CString::new(name).expect("a name in a file ends at its first null byte");
            // SAFETY: the library stays open.
            let address = unsafe { libc::dlsym(handle.as_ptr(), name.as_ptr()) };
            call.store(address, Relaxed);
        }
        Ok(())
    }

    /// The only name with the prefix and one of these suffixes.
    fn find<'a>(&self, names: &[&'a str], suffixes: &[&str]) -> Option<&'a str> {
        let mut found = names.iter().filter(|name| {
            let rest = name.strip_prefix(self.prefix);
            rest.is_some_and(|rest| suffixes.iter().any(|suffix| rest.ends_with(suffix)))
        });
        found.next().copied().filter(|_| found.next().is_none())
    }

    /// Calls a function that takes one object.
    ///
    /// # Safety
    ///
    /// The function takes one object, and may be called with `object`.
    #[inline(always)]
    unsafe fn call(&self, function: usize, object: *mut c_void) {
        let address = self.calls[function].load(Relaxed);
        // SAFETY: invariant 3.
        let function = unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void)>(address)
        };
        // SAFETY: as the caller says.
        unsafe { function(object) };
    }
}

/// The file from which a library with this name was loaded. The file's name may have a longer
/// version.
fn mapped(name: &CStr) -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let paths = maps
        .lines()
        .filter_map(|line| Some(&line[line.find('/')?..]));
    let mut paths = paths.map(Path::new);
    let found = paths.find(|path| {
        let file = path.file_name().unwrap_or_default();
        file.as_encoded_bytes().starts_with(name.to_bytes())
    });
    found.map(Path::to_owned)
}

/// The names of the functions that a library exports.
fn dynamic_names(file: &[u8]) -> Option<Vec<&str>> {
    let file = ElfFile64::<object::Endianness>::parse(file).ok()?;
    let symbols = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition());
    Some(symbols.filter_map(|symbol| symbol.name().ok()).collect())
}

/// A mutex of a library, which several threads can hold for reading.
pub struct RawInstalled<L: Installed>(UnsafeCell<L::Memory>);

pub type RawNsync = RawInstalled<Nsync>;
pub type RawAbseil = RawInstalled<Abseil>;

// SAFETY: the mutex is the library's, which synchronises its own accesses.
unsafe impl<L: Installed> Send for RawInstalled<L> {}
// SAFETY: as above.
unsafe impl<L: Installed> Sync for RawInstalled<L> {}

impl<L: Installed> RawInstalled<L> {
    const UNLOCKED: Self = Self(UnsafeCell::new(L::UNLOCKED));

    #[inline(always)]
    fn call(&self, function: usize) {
        // SAFETY: invariants 1 to 4: the functions that `lock_api` reaches by way of the traits
        // below take one object, and it calls them in the right order.
        unsafe { L::library().call(function, self.0.get().cast()) };
    }
}

// SAFETY: the libraries promise mutual exclusion between lock and unlock (invariants 1 to 4).
unsafe impl<L: Installed> RawMutex for RawInstalled<L> {
    const INIT: Self = Self::UNLOCKED;
    type GuardMarker = GuardNoSend;

    #[inline(always)]
    fn lock(&self) {
        self.call(LOCK);
    }

    fn try_lock(&self) -> bool {
        unimplemented!("{NOBODY_TRIES}")
    }

    #[inline(always)]
    unsafe fn unlock(&self) {
        self.call(UNLOCK);
    }
}

// SAFETY: as above, and that readers share the mutex with readers only.
unsafe impl<L: Installed> RawRwLock for RawInstalled<L> {
    const INIT: Self = Self::UNLOCKED;
    type GuardMarker = GuardNoSend;

    #[inline(always)]
    fn lock_shared(&self) {
        self.call(READ_LOCK);
    }

    fn try_lock_shared(&self) -> bool {
        unimplemented!("{NOBODY_TRIES}")
    }

    #[inline(always)]
    unsafe fn unlock_shared(&self) {
        self.call(READ_UNLOCK);
    }

    #[inline(always)]
    fn lock_exclusive(&self) {
        self.call(LOCK);
    }

    fn try_lock_exclusive(&self) -> bool {
        unimplemented!("{NOBODY_TRIES}")
    }

    #[inline(always)]
    unsafe fn unlock_exclusive(&self) {
        self.call(UNLOCK);
    }
}

/// nsync's condition variable, which has the size of a mutex, and is initialised by zeros, too.
#[derive(Default)]
pub struct NsyncCondvar(UnsafeCell<<Nsync as Installed>::Memory>);

// SAFETY: only the library touches it.
unsafe impl Send for NsyncCondvar {}
// SAFETY: as above.
unsafe impl Sync for NsyncCondvar {}

impl NsyncCondvar {
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, RawNsync, T>) {
        type Wait = unsafe extern "C" fn(*mut c_void, *mut c_void);
        let wait = Nsync::library().calls[WAIT].load(Relaxed);
        // SAFETY: invariant 3.
        let wait = unsafe { std::mem::transmute::<*mut c_void, Wait>(wait) };
        // SAFETY: invariants 1 to 4: this thread holds the mutex, and holds it again when the
        // function returns.
        unsafe {
            let mutex = MutexGuard::mutex(guard).raw();
            wait(self.0.get().cast(), mutex.0.get().cast());
        }
    }

    pub fn notify_one(&self) {
        // SAFETY: invariants 1, 2 and 3.
        unsafe { Nsync::library().call(SIGNAL, self.0.get().cast()) };
    }

    pub fn notify_all(&self) {
        // SAFETY: invariants 1, 2 and 3.
        unsafe { Nsync::library().call(BROADCAST, self.0.get().cast()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(file: &'static CStr, suffixes: &'static [&'static [&'static str]]) -> Library {
        Library::new(file, "", suffixes)
    }

    #[test]
    fn a_library_that_is_missing_or_of_another_version_is_told() {
        let missing = library(c"libnothing-of-that-name.so", &[]);
        assert_eq!(missing.fault("install it"), Some("install it"));
        // This library is on every machine: it is needed for panics.
        let other = library(c"libgcc_s.so.1", &[&["_Unwind_Resume_of_another_version"]]);
        let fault = other.fault("install it").unwrap();
        assert!(
            fault.starts_with("libgcc_s.so.1: this version has no"),
            "{fault}"
        );
        assert!(
            fault.contains("_Unwind_Resume_of_another_version"),
            "{fault}"
        );
    }

    #[test]
    fn a_name_is_found_whatever_its_namespace_is() {
        for names in [
            ["_ZN4absl5Mutex4LockEv", "_ZN4absl5Mutex6UnlockEv"],
            [
                "_ZN4absl7debian35Mutex4LockEv",
                "_ZN4absl7debian35Mutex6UnlockEv",
            ],
            [
                "_ZN4absl12lts_202505125Mutex4lockEv",
                "_ZN4absl12lts_202505125Mutex6unlockEv",
            ],
        ] {
            let found = |call: usize| {
                let library = Abseil::library();
                library.find(&names, library.suffixes[call])
            };
            assert_eq!(found(LOCK), Some(names[0]));
            assert_eq!(found(UNLOCK), Some(names[1]));
            assert_eq!(found(READ_LOCK), None);
        }
    }
}
