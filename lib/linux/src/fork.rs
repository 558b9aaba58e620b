//! What the library does in the child of a fork. Parts of the library register with it.
//!
//! The child calls [`Part::reset_in_child`] of each part, lowest rank first, since parts may use
//! parts of a lower rank. The ranks in use are: waiter slots 0, concurrency IDs 1, delayed
//! invalidation 2.
//!
//! # Nothing is locked before the fork
//!
//! Between the library's handlers and the fork other code runs: older handlers of the program, and
//! of its allocator. They may wait for threads that end, or for a thread that holds a lock of the
//! library and allocates. So the library holds no lock then. Instead, whatever the child resets is
//! whole at every moment: each change of it is one store. A child finds the memory as its parent's
//! threads left it: it sees the stores of each thread up to some moment, and no later ones.
//!
//! # Handlers of the program
//!
//! The library registers its handlers before `main`, or when it is loaded. POSIX runs handlers in
//! the child in order of registration, so that the handlers of the program find the library reset.
//! One exception: if the library was loaded by `dlopen` after the program registered a handler,
//! that handler must not use the library in the child.
//!
//! If memory for the handlers is lacking, the next part that registers tries again. Until that
//! succeeds, children are not reset.
//!
//! # Signals
//!
//! The child blocks all signals while it resets. Otherwise a signal handler between two steps could
//! claim a slot or take an ID that the next step declares free.
//!
//! A signal handler must not fork if it may have interrupted this library: the child would reset
//! what its own thread is changing.
//!
//! # Invariants
//!
//! 1. Functions given to the C library are `extern "C"`, do not unwind, and live as long as the
//!    program. Sets of signals are filled before they are used.
//! 2. The C library calls `in_child` in the child, on its only thread.
//! 3. An entry of `PARTS` is null or was a `&'static Part`: `register` is the only writer.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering::*};

/// What one part of the library does in the child of a fork.
#[derive(Debug)]
pub struct Part {
    /// Makes the part consistent in the child, whose only thread is the one that has forked, and
    /// resets the part's locks, since their words may name waiters that do not exist there. Runs
    /// with signals blocked.
    pub reset_in_child: fn(),
}

/// The number of ranks.
const RANKS: usize = 4;

static PARTS: [AtomicPtr<Part>; RANKS] = [const { AtomicPtr::new(ptr::null_mut()) }; RANKS];

/// Registers a part under its rank, and the handlers if they are not registered yet. May be
/// repeated. Register a part before using what it resets: then a child that inherits a trace of
/// that use has the part, too.
///
/// # Panics
///
/// If `rank` is 4 or more, or is the rank of another part.
pub fn register(rank: usize, part: &'static Part) {
    let part = ptr::from_ref(part).cast_mut();
    // Release: pairs with the acquire in `parts`.
    let found = PARTS[rank].compare_exchange(ptr::null_mut(), part, Release, Relaxed);
    let registered = found.is_ok() || found == Err(part);
    assert!(registered, "two parts have the fork rank {rank}");
    register_handlers();
}

/// Two threads may both register the handlers: registering them twice has the same effect as once.
fn register_handlers() {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if !REGISTERED.load(Relaxed) {
        // SAFETY: invariant 1.
        let failed = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
        REGISTERED.store(failed == 0, Relaxed);
    }
}

/// The parts, lowest rank first.
fn parts() -> impl Iterator<Item = &'static Part> {
    // SAFETY: invariant 3.
    let part = |part: &AtomicPtr<Part>| unsafe { part.load(Acquire).as_ref() };
    PARTS.iter().filter_map(part)
}

/// Whether a child has to be reset. Set before each fork, and cleared by the first handler of the
/// child. The parent never clears it, so its threads may fork at the same time, and handlers may
/// fork, too.
static FORKED: AtomicBool = AtomicBool::new(true);

extern "C" fn before() {
    FORKED.store(true, Relaxed);
    UNDER_WAY.fetch_add(1, Relaxed);
}

extern "C" fn in_parent() {
    UNDER_WAY.fetch_sub(1, Relaxed);
}

extern "C" fn in_child() {
    if FORKED.swap(false, Relaxed) {
        let _blocked = SignalsBlocked::new();
        for part in parts() {
            (part.reset_in_child)();
            #[cfg(all(test, not(any(loom, miri))))]
            tests::between_two_parts();
        }
    }
    UNDER_WAY.store(0, Relaxed);
}

/// The number of forks whose first handler has run and whose last one has not. If a thread clones
/// during such a fork, its child inherits the number and passes for an announced one.
static UNDER_WAY: AtomicU32 = AtomicU32::new(0);

/// Whether this process is the child of a fork that a handler resets or will reset.
pub(crate) fn is_announced() -> bool {
    UNDER_WAY.load(Relaxed) != 0
}

/// Runs `action` while no signal handler runs on the calling thread, unless the kernel refuses.
pub fn without_signals<R>(action: impl FnOnce() -> R) -> R {
    let _blocked = SignalsBlocked::new();
    action()
}

/// While this exists no signal handler runs on the calling thread, unless the kernel refuses.
pub(crate) struct SignalsBlocked(Option<libc::sigset_t>);

impl SignalsBlocked {
    pub(crate) fn new() -> Self {
        // SAFETY: invariant 1; zero is a valid set.
        unsafe {
            let (mut all, mut before) = core::mem::zeroed();
            libc::sigfillset(&mut all);
            let failed = libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            SignalsBlocked((failed == 0).then_some(before))
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // SAFETY: invariant 1.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
        }
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests;
