//! The end of a thread: its leases are released, its memberships and its area are given up.
//!
//! A `pthread` key's destructor does this. The C library decides when it runs relative to other
//! destructors, which may still use a lease:
//!
//! | destructors | glibc | musl: Rust runs thread-locals' destructors from a key |
//! | --- | --- | --- |
//! | of thread-locals | before those of keys | among those of keys, in round 1 or 2 |
//! | of other keys | before or after ours, in each round | the same |
//!
//! Keys' destructors run in rounds, at least four of them (POSIX), for as long as a destructor sets
//! its key again. Our destructor waits for leases that are held: it runs again in the next round,
//! and takes leases away only in its fourth. A lease held then was forgotten, or is used by a
//! destructor of the fourth round, which [`Lease`](super::Lease) forbids. The key's value is the
//! number of the round. A round that finds nothing held is the last, unless the thread enters a
//! domain again.
//!
//! | state | from, until |
//! | --- | --- |
//! | `Unknown` | until the thread first needs this module |
//! | `WillEnd` | until our destructor's first round |
//! | `Ending` | until held leases are taken away; stays here if none is held |
//! | `Ended` | afterwards |
//!
//! | state | may become a member, may register an area | may enter |
//! | --- | --- | --- |
//! | `Unknown`, `WillEnd` | yes | yes |
//! | `Ending` | no | yes; another round follows, if there may be one |
//! | `Ended` | no | no |
//!
//! In `Ended` the thread gets no ID: it might get one back that was taken away, and its older lease
//! would release it.
//!
//! If only a destructor has used this module, our first round is not the C library's first, and our
//! fourth may never run. Then forgotten leases and the membership are lost. A lease that is
//! forgotten after our destructor has run in the C library's last round is also lost.
//!
//! # Invariants
//!
//! 1. Functions given to the C library are `extern "C"`, do not unwind, and live as long as the
//!    program; out-pointers are to locals; the key that
//!    `KEY` names is never deleted.

use core::cell::Cell;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering::*};

/// The key + 1; 0 = none.
static KEY: AtomicU64 = AtomicU64::new(0);

thread_local! {
    // No destructor: plain memory of the thread, accessible for as long as it runs.
    static STATE: Cell<State> = const { Cell::new(State::Unknown) };
    // The last round that has begun. Meaningful in state `Ending`.
    static ROUND: Cell<usize> = const { Cell::new(0) };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unknown,
    WillEnd,
    Ending,
    Ended,
}

/// The least number of rounds: `_POSIX_THREAD_DESTRUCTOR_ITERATIONS`.
pub(super) const ROUNDS: usize = 4;

/// Makes the key whose destructor is `end`, once. Must be called before any thread needs
/// [`will_end`]. Not for signal handlers.
///
/// Two threads may each make a key, of which one is kept. A `Once` would be simpler, but in the
/// child of a fork it might wait for ever for a thread that does not exist there.
pub(super) fn prepare(end: extern "C" fn(*mut c_void)) {
    if KEY.load(Relaxed) != 0 {
        return;
    }
    let mut key = 0;
    // SAFETY: invariant 1.
    if unsafe { libc::pthread_key_create(&mut key, Some(end)) } != 0 {
        return;
    }
    let made = u64::from(key) + 1;
    if KEY.compare_exchange(0, made, Release, Relaxed).is_err() {
        // SAFETY: it was just made, and no thread has a value for it.
        unsafe { libc::pthread_key_delete(key) };
    }
}

/// Ensures that the calling thread cleans up when it ends. False if that cannot be promised, or if
/// the clean-up has begun already.
///
/// A thread's first call may allocate if the program has many `pthread` keys.
pub(super) fn will_end() -> bool {
    match STATE.with(Cell::get) {
        State::WillEnd => return true,
        State::Ending | State::Ended => return false,
        State::Unknown => {}
    }
    let promised = will_end_in(1);
    if promised {
        STATE.with(|state| state.set(State::WillEnd));
    }
    promised
}

/// Called when a thread without a [promise](will_end) is about to get an ID. If the thread is
/// ending, its destructor runs in another round, if there may be one.
#[cold]
pub(super) fn comes_again() {
    let round = ROUND.with(Cell::get);
    if STATE.with(Cell::get) == State::Ending && round < ROUNDS {
        will_end_in(round + 1);
    }
}

/// Whether the calling thread has ended as far as IDs are concerned: it must not get any.
#[cold]
pub(super) fn has_ended() -> bool {
    STATE.with(Cell::get) == State::Ended
}

/// Makes the C library call the destructor once more, as round `round`.
pub(super) fn will_end_in(round: usize) -> bool {
    let Some(key) = KEY.load(Acquire).checked_sub(1) else {
        return false;
    };
    let value = ptr::without_provenance(round);
    // SAFETY: the key was made and never deleted (invariant 1). The value only has to differ from
    // null.
    unsafe { libc::pthread_setspecific(key as libc::pthread_key_t, value) == 0 }
}

/// The calling thread's destructor begins this round: it gets no more promises.
pub(super) fn begins(round: usize) {
    ROUND.with(|last| last.set(round));
    STATE.with(|state| state.set(State::Ending));
}

/// From now on the calling thread gets no more IDs.
pub(super) fn ends() {
    STATE.with(|state| state.set(State::Ended));
}

/// A number that no other living thread has: the address of a thread-local. Never 0.
#[inline]
pub(super) fn token() -> usize {
    STATE.with(|state| ptr::from_ref(state).addr())
}
