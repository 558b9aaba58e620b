//! What happens before `main`, or when the library is loaded.
//!
//! The program has one thread then. So what would be slow or racy later is cheap and sound here. A
//! program that never contends for a lock pays for this, too: it may take a few microseconds at
//! most.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. `dladdr` compares addresses and never reads through them. The strings that it returns live
//!    as long as their object is loaded, and this one is.
//! 2. `getauxval` has no preconditions.

use super::{copies, futex, kept, thread};
use crate::{environment, fork, sys};

extern "C" fn prepare() {
    // This comes first: after the other steps, forks of other threads call into this copy. It then
    // decides which tables it uses, and has to know whether other copies may depend on it.
    #[cfg(not(any(miri, target_feature = "crt-static")))]
    stay_loaded();
    environment::take_snapshot();
    // Finding the tables maps memory, which a filter may forbid later. It is still allowed now,
    // since starting a program maps memory.
    if environment::futex_alone() {
        copies::tables();
    } else if environment::is_any_set() {
        sys::remember_stderr();
    }
    futex::register_membarrier();
    kept::KEY.make(thread::release_slot);
    fork::register(0, &thread::SLOTS);
}

#[used]
#[unsafe(link_section = ".init_array")]
static PREPARE: extern "C" fn() = prepare;

/// Keeps the shared object with this code loaded, even after `dlclose`: threads that keep a slot
/// call into it when they end. The program itself is never unloaded.
#[cfg(not(any(miri, target_feature = "crt-static")))]
fn stay_loaded() {
    let _errno = crate::sys::KeepErrno::hold();
    // SAFETY: invariant 2.
    let program = object_with(unsafe { libc::getauxval(libc::AT_ENTRY) } as usize);
    let Some(here) = object_with(prepare as *const () as usize) else {
        // In a program without a loader, which C compilers link by `-static`, nothing is unloaded.
        // SAFETY: invariant 2.
        let has_loader = unsafe { libc::getauxval(libc::AT_BASE) } != 0;
        if has_loader {
            // Without its name, the object cannot be kept loaded.
            copies::keep_apart();
        }
        return;
    };
    copies::set_object(here.dli_fname);
    if program.is_none_or(|program| program.dli_fbase != here.dli_fbase) {
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
        // SAFETY: invariant 1. The object is loaded, so no other code runs; the handle is kept.
        if unsafe { libc::dlopen(here.dli_fname, flags) }.is_null() {
            copies::keep_apart();
        }
    }
}

/// What the loader knows of the object that contains `address`.
#[cfg(not(any(miri, target_feature = "crt-static")))]
fn object_with(address: usize) -> Option<libc::Dl_info> {
    let mut info = core::mem::MaybeUninit::uninit();
    // SAFETY: invariant 1; `info` is written where the result is not 0.
    unsafe {
        let found = libc::dladdr(core::ptr::without_provenance(address), info.as_mut_ptr());
        (found != 0).then(|| info.assume_init())
    }
}
