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
//! Keys' destructors run in [rounds](ROUNDS), at least four of them. Our destructor waits for
//! leases that are held: it runs again in the next round, and takes leases away only in its fourth.
//! A lease held then was forgotten, or is used by a destructor of the fourth round, which
//! [`Lease`](super::Lease) forbids. A round that finds nothing held is the last, unless the thread
//! enters a domain again.
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

use core::cell::Cell;
use core::ptr;

use kinlock_linux::native::Key;
pub(super) use kinlock_linux::native::ROUNDS;

/// The key of the destructor. [`ending`](super::ending) makes it before any thread needs
/// [`will_end`].
pub(super) static KEY: Key = Key::NONE;

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
    let promised = KEY.set(1);
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
        let _ = KEY.set(round + 1);
    }
}

/// Whether the calling thread has ended as far as IDs are concerned: it must not get any.
#[cold]
pub(super) fn has_ended() -> bool {
    STATE.with(Cell::get) == State::Ended
}

/// Notes that the calling thread's destructor begins this round: the thread gets no more promises.
pub(super) fn begins(round: usize) {
    ROUND.with(|last| last.set(round));
    STATE.with(|state| state.set(State::Ending));
}

/// Notes that the calling thread gets no more IDs from now on.
pub(super) fn ends() {
    STATE.with(|state| state.set(State::Ended));
}

/// A number that no other living thread has: the address of a thread-local. Never 0.
#[inline]
pub(super) fn token() -> usize {
    STATE.with(|state| ptr::from_ref(state).addr())
}
