//! What the library does when the process forks: one set of handlers for all its parts.
//!
//! # What happens, in which order
//!
//! | when | what |
//! | --- | --- |
//! | before the fork | takes the locks of the lists below: domains of delayed invalidation, domains of IDs, tables of memory by ID. So nobody changes one meanwhile. Nobody takes two of them otherwise but in this order |
//! | after it, in the parent | gives them back, the last one first |
//! | after it, in the child | blocks all signals; tidies up: waiter slots, then IDs, then delayed invalidation, each with its locks made free; restores the signals |
//!
//! Slots come first, since locks need them, and what comes later may lock something one day. The parts do not need each other otherwise. A lock is made free and not unlocked only: threads may stand in its word that do not exist in the child.
//!
//! # Handlers of the program
//!
//! Ours are registered before `main`, or when the library is loaded. POSIX runs handlers of the last registered first before a fork, and of the first registered first after it. So ours run after those of the program before a fork, and before them in the
//! parent and the child: a program whose handler takes a lock with which it also makes or uses domains takes that lock first each time, and its handler in the child finds everything tidied up. Not so if the library is loaded later
//! (`dlopen`) than a handler was registered: then that handler must not use the library, nor take a lock under which domains are made.
//!
//! If there is no memory for handlers, registering is tried again with each domain that is made. Until then a child of fork is as if its handlers had not run yet (see below) for good.
//!
//! # Signals
//!
//! From the fork until our handler runs, the child is as the parent would be if it had stopped all other threads: a signal handler finds nothing half done by its own thread that it would not find elsewhere, and what it may use at any time does not
//! wait for other threads, but for locks that they hold, as ever. Then signals are blocked, since the handlers of signals could come between two steps that tidy up: a slot that they claim, an ID that they take, would be free and in use.
//!
//! They are not blocked earlier. The C library takes its own locks between our handlers and the fork. A thread that waits for these must not be deaf: who holds one may have been stopped by a signal handler that waits until all threads have come to
//! theirs, as garbage collectors do.
//!
//! A signal handler must not fork if it may have interrupted this library: it could wait for a lock of its own thread.
//!
//! # Invariants
//!
//! 1. Functions given to the C library are `extern "C"`, do not unwind, and live as long as the program. Sets of signals are filled before they are used.
//! 2. The C library calls [`before`] and then one of the other two, each on the thread that forks. In the child there is no other thread until the handlers have run.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering::*};

use crate::ids::leased as ids;
#[cfg(not(loom))]
use crate::invalidation::registry as invalidation;
use crate::platform::native;

/// Registers the handlers, unless that has been done. Called before `main`, and where that may not have happened.
pub(crate) fn register() {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    // SAFETY: invariant 1.
    once(&REGISTERED, || unsafe {
        libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child))
    });
}

/// Does it until it returns 0. Who comes second while somebody does it does not wait: after a fork that might be for ever.
fn once(done: &AtomicBool, attempt: impl FnOnce() -> c_int) {
    if !done.swap(true, Relaxed) && attempt() != 0 {
        done.store(false, Relaxed);
    }
}

extern "C" fn before() {
    #[cfg(not(loom))]
    invalidation::lock_before_fork();
    ids::lock_before_fork();
}

extern "C" fn in_parent() {
    // SAFETY: invariant 2: `before` has locked them on this thread.
    unsafe {
        ids::unlock_after_fork();
        #[cfg(not(loom))]
        invalidation::unlock_after_fork();
    }
}

extern "C" fn in_child() {
    let _undisturbed = Undisturbed::new();
    native::reset_in_child();
    #[cfg(all(test, not(any(loom, miri))))]
    tests::in_the_midst();
    // SAFETY: invariant 2: `before` has locked them on this thread, and it is the only one.
    unsafe {
        ids::reset_in_child();
        #[cfg(not(loom))]
        invalidation::reset_in_child();
    }
}

/// While this is there no signal handler runs on the calling thread.
struct Undisturbed(libc::sigset_t);

impl Undisturbed {
    fn new() -> Self {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: invariant 1. Neither fails with these arguments, so that `before` is written.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Undisturbed(before.assume_init())
        }
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        // SAFETY: invariant 1.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests;
