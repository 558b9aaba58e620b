//! What the library does when the process forks: one set of handlers, with which parts register.
//!
//! # What happens, in which order
//!
//! | when | what |
//! | --- | --- |
//! | before the fork | [`Part::lock`] of each part, the highest rank first |
//! | after it, in the parent | [`Part::unlock`] of the same parts, the lowest rank first |
//! | after it, in the child | all signals are blocked; [`Part::reset_in_child`] of each part, the lowest rank first; signals are restored |
//!
//! A part of a lower rank may be used by those above it, so the child resets it first. The ranks in
//! use stand with the parts: waiter slots 0, concurrency IDs 1, delayed invalidation 2. A part resets
//! its locks instead of unlocking them: their words may name waiters that do not exist in the child.
//!
//! # Handlers of the program
//!
//! Ours are registered before `main`, or when the library is loaded. POSIX runs the handlers that were
//! registered last first before a fork, and those registered first first after it. So ours run after
//! those of the program before a fork, and before them in the parent and the child. A handler of the
//! program may therefore take a lock under which it also uses the library. The exception is a library
//! that is loaded (`dlopen`) after the handler was registered: that handler must not use the library.
//!
//! If there is no memory for handlers, each new part tries again. Until one succeeds, a child is not
//! reset.
//!
//! # Signals
//!
//! The child blocks signals while it resets: a handler between two steps could claim a slot or take
//! an ID that is then declared free. Signals stay open before that, since the C library takes its own
//! locks between our handlers and the fork, and a thread that holds one of those may have been stopped
//! by a signal handler that waits for all threads, as garbage collectors do.
//!
//! A signal handler must not fork if it may have interrupted this library: it could wait for a lock
//! that its own thread holds.
//!
//! # Invariants
//!
//! 1. Functions given to the C library are `extern "C"`, do not unwind, and live as long as the program.
//!    Sets of signals are filled before they are used.
//! 2. The C library calls `before` and then one of the other two, each on the thread that forks. In
//!    the child there is no other thread until the handlers have run.
//! 3. `LOCKED` has the bits of those parts that `before` has locked on this thread.

use core::cell::Cell;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};

/// What a part of the library does around a fork.
#[derive(Debug)]
pub struct Part {
    /// Takes the locks of the part, so that no other thread changes it during the fork.
    pub lock: fn(),
    /// Releases them in the parent, on the thread that took them.
    pub unlock: fn(),
    /// Makes the part right for a process whose only thread is the one that has called
    /// [`lock`](Self::lock), and resets the locks. Runs with signals blocked.
    pub reset_in_child: fn(),
}

/// How many ranks there are.
const RANKS: usize = 4;

static PARTS: [AtomicPtr<Part>; RANKS] = [const { AtomicPtr::new(ptr::null_mut()) }; RANKS];

thread_local! {
    // No destructor: plain memory of the thread, accessible for as long as it runs.
    static LOCKED: Cell<u32> = const { Cell::new(0) };
}

/// Registers a part under its rank, and the handlers unless that has been done. May be called again.
///
/// # Panics
///
/// If there is no such rank.
pub fn register(rank: usize, part: &'static Part) {
    // Release: pairs with the acquire in `parts`.
    PARTS[rank].store(ptr::from_ref(part).cast_mut(), Release);
    register_handlers();
}

fn register_handlers() {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    // SAFETY: invariant 1.
    once(&REGISTERED, || unsafe {
        libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child))
    });
}

/// Attempts it until it returns 0. A second caller does not wait for the first: in the child of a
/// fork it might wait for ever.
fn once(done: &AtomicBool, attempt: impl FnOnce() -> c_int) {
    if !done.swap(true, Relaxed) && attempt() != 0 {
        done.store(false, Relaxed);
    }
}

/// The parts with their ranks, the lowest first.
fn parts() -> impl DoubleEndedIterator<Item = (usize, &'static Part)> {
    PARTS.iter().enumerate().filter_map(|(rank, part)| {
        let part = part.load(Acquire);
        // SAFETY: null, or made from a `&'static Part` by `register`, the only writer.
        unsafe { part.as_ref() }.map(|part| (rank, part))
    })
}

/// The parts that this thread has locked, the lowest rank first. A part that another thread has
/// registered since then is not among them.
fn locked_parts() -> impl Iterator<Item = &'static Part> {
    let locked = LOCKED.replace(0);
    parts().filter_map(move |(rank, part)| (locked & 1 << rank != 0).then_some(part))
}

extern "C" fn before() {
    for (rank, part) in parts().rev() {
        (part.lock)();
        LOCKED.set(LOCKED.get() | 1 << rank);
    }
}

extern "C" fn in_parent() {
    for part in locked_parts() {
        (part.unlock)();
    }
}

extern "C" fn in_child() {
    let _blocked = SignalsBlocked::new();
    for part in locked_parts() {
        (part.reset_in_child)();
        #[cfg(all(test, not(any(loom, miri))))]
        tests::between_two_parts();
    }
}

/// While this exists no signal handler runs on the calling thread.
struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    fn new() -> Self {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: invariant 1. Neither fails with these arguments, so that `before` is written.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            SignalsBlocked(before.assume_init())
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: invariant 1.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests;
