//! What the library does when the process forks. Parts of the library register with it.
//!
//! # What happens, in which order
//!
//! | when | what |
//! | --- | --- |
//! | before the fork | [`Part::lock`] of each part, highest rank first |
//! | after it, in the parent | [`Part::unlock`] of the same parts, lowest rank first |
//! | after it, in the child | [`Part::reset_in_child`] of the same parts, lowest rank first |
//!
//! Parts may use parts of a lower rank, so the child resets lower ranks first. The ranks in use
//! are: waiter slots 0, concurrency IDs 1, delayed invalidation 2. A part resets its locks in the
//! child instead of unlocking them: their words may name waiters that do not exist there.
//!
//! # Handlers of the program
//!
//! The library registers its handlers before `main`, or when it is loaded. POSIX runs handlers
//! before a fork in reverse order of registration, and after it in order of registration. So the
//! library's handlers run last before a fork, and first after it. A handler of the program may
//! therefore take a lock under which the program uses the library. One exception: if the library
//! was loaded by `dlopen` after the program registered a handler, that handler must not use the
//! library.
//!
//! If memory for the handlers is lacking, the next part that registers tries again. Until that
//! succeeds, children are not reset.
//!
//! # Signals
//!
//! The child blocks all signals while it resets. Otherwise a signal handler between two steps could
//! claim a slot or take an ID that the next step declares free.
//!
//! The parent does not block signals before the fork. The C library takes locks of its own between
//! the library's handlers and the fork. A thread that holds one of them may have been stopped by
//! the signal handler of a garbage collector, which waits until every thread has handled the
//! signal.
//!
//! A signal handler must not fork if it may have interrupted this library: it could wait for a lock
//! that its own thread holds.
//!
//! # Invariants
//!
//! 1. Functions given to the C library are `extern "C"`, do not unwind, and live as long as the
//!    program. Sets of signals are filled before they are used.
//! 2. The C library calls `before` and then one of the other two, each on the thread that forks. In
//!    the child there is no other thread until the handlers have run.
//! 3. `FORKS` says that `before` has run on this thread: it has shut the gate, and has locked all
//!    parts. None registers until the gate is open again.
//! 4. An entry of `PARTS` is null or was a `&'static Part`: `register` is the only writer.

use core::cell::Cell;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

/// What one part of the library does around a fork.
#[derive(Debug)]
pub struct Part {
    /// Takes the locks of the part, so that no other thread changes it during the fork.
    pub lock: fn(),
    /// Releases them in the parent, on the thread that took them.
    pub unlock: fn(),
    /// Makes the part consistent in the child, whose only thread is the one that called
    /// [`lock`](Self::lock), and resets its locks. Runs with signals blocked.
    pub reset_in_child: fn(),
}

/// How many ranks there are.
const RANKS: usize = 4;

static PARTS: [AtomicPtr<Part>; RANKS] = [const { AtomicPtr::new(ptr::null_mut()) }; RANKS];

/// Shut while a thread forks or registers a part: then the number of its process. Otherwise 0.
static GATE: AtomicU32 = AtomicU32::new(0);

thread_local! {
    // No destructor: plain memory of the thread, accessible for as long as it runs.
    static FORKS: Cell<bool> = const { Cell::new(false) };
}

/// Registers a part under its rank, and the handlers if they are not registered yet. May be
/// repeated. Waits while another thread forks; not for signal handlers.
///
/// # Panics
///
/// If `rank` is 4 or more, or is the rank of another part.
pub fn register(rank: usize, part: &'static Part) {
    let part = ptr::from_ref(part).cast_mut();
    if PARTS[rank].load(Acquire) != part {
        shut_gate();
        // Release: pairs with the acquire in `parts`.
        let found = PARTS[rank].compare_exchange(ptr::null_mut(), part, Release, Relaxed);
        open_gate();
        let registered = found.is_ok() || found == Err(part);
        assert!(registered, "two parts have the fork rank {rank}");
    }
    // Not within the gate: the C library may hold the lock of its handlers during a fork.
    register_handlers();
}

/// Shuts the gate: no part registers until it is open again. Otherwise a part could register, and
/// its locks be taken, between `before` and the fork. The child would find them locked for ever.
///
/// In a process that was forked before the handlers were registered, or without them, the gate may
/// have been shut by a thread that does not exist there. Such a gate is as good as open.
fn shut_gate() {
    let process = std::process::id();
    let mut yields = 0;
    // Acquire and the release in `open_gate` pair: a fork sees each registered part.
    while GATE
        .fetch_update(Acquire, Relaxed, |by| (by != process).then_some(process))
        .is_err()
    {
        // A yield of a real-time thread lets only threads of the same priority run.
        if yields < YIELDS {
            yields += 1;
            std::thread::yield_now();
        } else {
            // Not the standard library's, in which `pthread_cancel` may end the thread.
            crate::sys::nap(NAP);
        }
    }
}

/// How often a thread at the shut gate yields before it sleeps, and for how long at a time, in
/// nanoseconds.
const YIELDS: u32 = 16;
const NAP: u32 = 50_000;

fn open_gate() {
    GATE.store(0, Release);
}

fn register_handlers() {
    static REGISTERED: AtomicU32 = AtomicU32::new(0);
    // SAFETY: invariant 1.
    once(&REGISTERED, || unsafe {
        libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child))
    });
}

/// The state of [`once`] after an attempt that has succeeded.
const DONE: u32 = u32::MAX;

/// Calls `attempt` unless an earlier call has returned 0, or one has begun in this process. `state`
/// is 0 at first, and the number of the process during an attempt: an attempt that a thread of the
/// parent has begun never ends in the child of a fork.
fn once(state: &AtomicU32, attempt: impl FnOnce() -> c_int) {
    let process = std::process::id();
    let begin = |seen| (seen != DONE && seen != process).then_some(process);
    if state.fetch_update(Relaxed, Relaxed, begin).is_ok() {
        let succeeded = attempt() == 0;
        state.store(if succeeded { DONE } else { 0 }, Relaxed);
    }
}

/// The parts with their ranks, the lowest first.
fn parts() -> impl DoubleEndedIterator<Item = (usize, &'static Part)> {
    PARTS.iter().enumerate().filter_map(|(rank, part)| {
        let part = part.load(Acquire);
        // SAFETY: invariant 4.
        unsafe { part.as_ref() }.map(|part| (rank, part))
    })
}

extern "C" fn before() {
    // A process that was forked in the middle of a registration may have registered twice.
    if FORKS.get() {
        return;
    }
    shut_gate();
    FORKS.set(true);
    parts().rev().for_each(|(_, part)| (part.lock)());
}

extern "C" fn in_parent() {
    if FORKS.replace(false) {
        parts().for_each(|(_, part)| (part.unlock)());
        open_gate();
    }
}

extern "C" fn in_child() {
    if FORKS.replace(false) {
        let _blocked = SignalsBlocked::new();
        for (_, part) in parts() {
            (part.reset_in_child)();
            #[cfg(all(test, not(any(loom, miri))))]
            tests::between_two_parts();
        }
        open_gate();
    }
}

/// Whether the calling thread is between the handlers of a fork: the child will be reset.
pub(crate) fn is_announced() -> bool {
    FORKS.get()
}

/// While this exists no signal handler runs on the calling thread.
pub(crate) struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    pub(crate) fn new() -> Self {
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
