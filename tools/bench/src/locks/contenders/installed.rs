//! Locks of shared libraries that may be installed: nsync's, in C, and Abseil's, in C++.
//!
//! Such a library is opened when one of its locks is asked for. The command is not linked with it,
//! so it starts where the library is missing, too. A call reads the function's address from a
//! table and jumps there, as in a program that is linked with the library.
//!
//! # Invariants
//!
//! 1. All-zero memory is an unlocked mutex, or a condition variable for which nobody waits. nsync's
//!    headers say so of its types. Abseil's constructor stores 0 in the one word that there is.
//! 2. A mutex may be moved until it is first taken, since its memory holds no address before. The
//!    command does not move a lock after that.
//! 3. The table of a library is complete before there is a mutex of it. Its functions have C's
//!    calling convention; a member function in C++ takes its object's address as first argument.
//! 4. Only the thread that holds a mutex unlocks it, in the mode in which it was locked.
//! 5. The value is changed between locking for writing and unlocking only, and read while the mutex
//!    is held only.
//! 6. A mutex owns nothing, so that it need not be destroyed. nsync has no destructors. Abseil's
//!    forgets what was noted of the mutex for debugging, which nobody here turns on.

use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, c_void};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol};

use super::{CondvarFamily, Family, Lock, Monitor, ReadWrite, ReadWriteFamily};
use crate::harness::team::or_abort;

/// A library that has a mutex which several threads can hold for reading.
pub trait Installed: Send + Sync + 'static {
    /// The memory of a mutex.
    type Memory: Default + Send + 'static;

    fn library() -> &'static Library;
}

pub struct Nsync;

pub struct Abseil;

impl Installed for Nsync {
    /// A word of 32 bits and a pointer.
    type Memory = [usize; 2];

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

    /// Its condition variable is left out: in newer versions waiting for it is an inline function
    /// around a private one, whose arguments are nobody's business.
    fn library() -> &'static Library {
        static LIBRARY: Library = Library::new(
            c"libabsl_synchronization.so",
            // Then comes an inline namespace that is named after the version.
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

/// A shared library, and where its functions are.
pub struct Library {
    file: &'static CStr,
    /// What the names of all functions begin with.
    prefix: &'static str,
    /// What the name of each function ends in: one of these.
    suffixes: &'static [&'static [&'static str]],
    calls: [AtomicPtr<c_void>; 7],
    /// What is wrong with it, once it is known.
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

    /// Opens the library at the first call. `None`: its functions can be called. Otherwise what is
    /// wrong: `missing` if there is no such file.
    pub fn fault(&self, missing: &'static str) -> Option<&'static str> {
        *self.fault.get_or_init(|| match self.open() {
            Ok(()) => None,
            Err(None) => Some(missing),
            Err(Some(what)) => Some(what.leak()),
        })
    }

    /// Fails with what is wrong, if there is such a file.
    fn open(&self) -> Result<(), Option<String>> {
        // SAFETY: the name ends in a null byte. What the library does when it is loaded is what it
        // does in every program that uses it.
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

    /// The only name that begins and ends so.
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
    /// The function is one of that kind, and may be called with `object`.
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

/// The file that a library of this name was loaded from. Its name may end in more of the version.
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

/// A mutex of a library beside the value it guards.
pub struct Guarded<L: Installed, T> {
    mutex: UnsafeCell<L::Memory>,
    value: UnsafeCell<T>,
}

// SAFETY: the mutex is the library's, which synchronises its own accesses. The value is only
// reached under it: invariant 5.
unsafe impl<L: Installed, T: Send> Send for Guarded<L, T> {}
// SAFETY: invariant 5. Several threads read the value at once in `ReadWrite` only, whose family
// demands `T: Sync`.
unsafe impl<L: Installed, T: Send> Sync for Guarded<L, T> {}

impl<L: Installed, T> Guarded<L, T> {
    fn around(value: T) -> Self {
        Guarded {
            mutex: UnsafeCell::default(),
            value: UnsafeCell::new(value),
        }
    }

    /// Runs `section` between a call of one function and a call of the other: a pair of them.
    #[inline(always)]
    fn between<R>(&self, [lock, unlock]: [usize; 2], section: impl FnOnce() -> R) -> R {
        // SAFETY: invariants 1, 2 and 3.
        unsafe { L::library().call(lock, self.mutex.get().cast()) };
        let result = or_abort(section);
        // SAFETY: invariants 3 and 4: this thread has just taken the lock.
        unsafe { L::library().call(unlock, self.mutex.get().cast()) };
        result
    }
}

/// The family of a library's mutexes.
pub struct Of<L>(PhantomData<L>);

impl<L: Installed> Family for Of<L> {
    type Of<T: Send + 'static> = Guarded<L, T>;
}

impl<L: Installed, T: Send + 'static> Lock<T> for Guarded<L, T> {
    fn new(value: T) -> Self {
        Self::around(value)
    }

    #[inline(always)]
    fn with<R>(&self, section: impl FnOnce(&mut T) -> R) -> R {
        self.between([LOCK, UNLOCK], || {
            // SAFETY: invariant 5.
            section(unsafe { &mut *self.value.get() })
        })
    }

    fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<L: Installed> ReadWriteFamily for Of<L> {
    type Of<T: Send + Sync + 'static> = Guarded<L, T>;
}

impl<L: Installed, T: Send + Sync + 'static> ReadWrite<T> for Guarded<L, T> {
    fn new(value: T) -> Self {
        Self::around(value)
    }

    #[inline(always)]
    fn read<R>(&self, section: impl FnOnce(&T) -> R) -> R {
        self.between([READ_LOCK, READ_UNLOCK], || {
            // SAFETY: invariant 5.
            section(unsafe { &*self.value.get() })
        })
    }

    #[inline(always)]
    fn write<R>(&self, section: impl FnOnce(&mut T) -> R) -> R {
        self.with(section)
    }
}

impl CondvarFamily for Nsync {
    type Of<T: Send + 'static> = NsyncMonitor<T>;
}

/// A value under nsync's mutex, with its condition variables.
pub struct NsyncMonitor<T> {
    guarded: Guarded<Nsync, T>,
    /// As large as a mutex, and as easily made.
    condvars: [UnsafeCell<<Nsync as Installed>::Memory>; 2],
}

// SAFETY: only the library touches the condition variables; for the rest see `Guarded`.
unsafe impl<T: Send> Send for NsyncMonitor<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for NsyncMonitor<T> {}

impl<T: Send + 'static> Monitor<T> for NsyncMonitor<T> {
    fn new(value: T) -> Self {
        NsyncMonitor {
            guarded: Guarded::around(value),
            condvars: Default::default(),
        }
    }

    fn when<R>(
        &self,
        condvar: usize,
        mut ready: impl FnMut(&mut T) -> bool,
        section: impl FnOnce(&mut T) -> R,
    ) -> R {
        type Wait = unsafe extern "C" fn(*mut c_void, *mut c_void);
        let (mutex, value) = (&self.guarded.mutex, &self.guarded.value);
        self.guarded.between([LOCK, UNLOCK], || {
            // SAFETY: invariant 5.
            while !ready(unsafe { &mut *value.get() }) {
                let wait = Nsync::library().calls[WAIT].load(Relaxed);
                // SAFETY: invariant 3.
                let wait = unsafe { std::mem::transmute::<*mut c_void, Wait>(wait) };
                // SAFETY: invariants 1 to 4: this thread holds the mutex, and holds it again when
                // the function returns.
                unsafe { wait(self.condvars[condvar].get().cast(), mutex.get().cast()) };
            }
            // SAFETY: invariant 5.
            section(unsafe { &mut *value.get() })
        })
    }

    fn notify_one(&self, condvar: usize) {
        // SAFETY: invariants 1, 2 and 3.
        unsafe { Nsync::library().call(SIGNAL, self.condvars[condvar].get().cast()) };
    }

    fn notify_all(&self, condvar: usize) {
        // SAFETY: invariants 1, 2 and 3.
        unsafe { Nsync::library().call(BROADCAST, self.condvars[condvar].get().cast()) };
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
        // This one is there wherever a program panics.
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
