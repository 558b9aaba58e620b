//! What becomes of a thread's part in all this when it ends, and of a process's when it forks.
//!
//! The destructor of a `pthread` key runs after the destructors of thread-locals: these can still use everything.
//!
//! # Invariants
//!
//! 1. Functions given to the C library are `extern "C"`, do not unwind, and live as long as the program; the out-pointer is to a local; the key is never deleted.

use core::cell::Cell;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::Once;

use super::{area, leased};

/// The key + 1; 0 = none.
static KEY: AtomicU64 = AtomicU64::new(0);

thread_local! {
    // No destructor: plain memory of the thread, accessible for as long as it runs.
    static STATE: Cell<State> = const { Cell::new(State::Unknown) };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unknown,
    WillEnd,
    Ended,
}

/// To be called before any thread needs [`will_end`]. Not by signal handlers.
pub(super) fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut key = 0;
        // SAFETY: invariant 1.
        if unsafe { libc::pthread_key_create(&mut key, Some(end)) } == 0 {
            KEY.store(u64::from(key) + 1, Release);
        }
        // SAFETY: invariant 1. Where there is no memory for it, a child of fork finds IDs held by threads that it does not have.
        unsafe {
            libc::pthread_atfork(
                Some(leased::before_fork),
                Some(leased::after_fork_in_parent),
                Some(leased::after_fork_in_child),
            )
        };
    });
}

/// Sees to it that the calling thread cleans up when it ends. False if that cannot be promised, or if it has done so already.
///
/// The first call of a thread may allocate, if the program has many `pthread` keys.
pub(super) fn will_end() -> bool {
    match STATE.with(Cell::get) {
        State::WillEnd => return true,
        State::Ended => return false,
        State::Unknown => {}
    }
    let Some(key) = KEY.load(Acquire).checked_sub(1) else {
        return false;
    };
    let value = ptr::without_provenance(1);
    // SAFETY: the key was made and never deleted (invariant 1). The value only has to differ from null.
    let promised = unsafe { libc::pthread_setspecific(key as libc::pthread_key_t, value) } == 0;
    if promised {
        STATE.with(|state| state.set(State::WillEnd));
    }
    promised
}

extern "C" fn end(_: *mut c_void) {
    STATE.with(|state| state.set(State::Ended));
    leased::leave_all();
    area::unregister_own();
}

/// A number that no other thread has as long as this one lives: the address of a thread-local. Never 0.
#[inline]
pub(super) fn token() -> usize {
    STATE.with(|state| ptr::from_ref(state).addr())
}
