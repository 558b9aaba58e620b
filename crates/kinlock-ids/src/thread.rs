//! What becomes of a thread's part in all this when it ends.
//!
//! Its leases are given back by the destructor of a `pthread` key: too early for destructors that run later and still use one. When they run depends on the C library:
//!
//! | destructors | with glibc | elsewhere, where Rust's standard library runs those of thread-locals in that of a key (musl) |
//! | --- | --- | --- |
//! | of thread-locals | before those of keys | among those of keys, in the first or second round |
//! | of other keys | before or after ours, in each round | the same |
//!
//! Keys' destructors run in rounds, as long as one of them sets its key again, at least four times (POSIX). So ours waits for leases that are held: it comes again in the next round, and takes them away in its fourth only. What
//! is held then has been forgotten, or will be used by a destructor that runs in the fourth round: [`Lease`](super::Lease) says that it must not. The key's value is the number of the round. Who uses a domain after a round in which ours
//! has found nothing makes it come again in the next.
//!
//! | state | when | may become a member, may register an area | may enter |
//! | --- | --- | --- | --- |
//! | `Unknown` | until it first needs us | yes | yes |
//! | `WillEnd` | until the first round | yes | yes |
//! | `Ending` | until what it holds is taken away; mostly it holds nothing and stays here | no | yes, as before or as no member: then there is another round, if there may be |
//! | `Ended` | afterwards | no | no: an ID that was taken away must not come back to the same thread, whose older lease would release it |
//!
//! A thread whose first round is not the C library's first, since only a destructor has used us, may not come as far as its fourth: then what it forgets, and its membership, are lost. So is what is forgotten after our turn in the C library's last round.
//!
//! # Invariants
//!
//! 1. Functions given to the C library are `extern "C"`, do not unwind, and live as long as the program; out-pointers are to locals; the key is never deleted.

use core::cell::Cell;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::Once;

use super::{area, leased};
use kinlock_core::native;

/// The key + 1; 0 = none.
static KEY: AtomicU64 = AtomicU64::new(0);

thread_local! {
    // No destructor: plain memory of the thread, accessible for as long as it runs.
    static STATE: Cell<State> = const { Cell::new(State::Unknown) };
    // The last round that has begun. Says something in state `Ending`.
    static ROUND: Cell<usize> = const { Cell::new(0) };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unknown,
    WillEnd,
    Ending,
    Ended,
}

/// So many rounds there are at least: `_POSIX_THREAD_DESTRUCTOR_ITERATIONS`.
const ROUNDS: usize = 4;

/// To be called before any thread needs [`will_end`]. Not by signal handlers.
pub(super) fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut key = 0;
        // SAFETY: invariant 1.
        if unsafe { libc::pthread_key_create(&mut key, Some(end)) } == 0 {
            KEY.store(u64::from(key) + 1, Release);
        }
    });
    kinlock_core::fork::register(1, &leased::PART);
}

/// Sees to it that the calling thread cleans up when it ends. False if that cannot be promised, or if it has done so already.
///
/// The first call of a thread may allocate, if the program has many `pthread` keys.
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

/// The calling thread, which cannot [promise](will_end) to clean up, is about to get an ID. If it is ending the destructor has another turn, if there may be another round.
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

/// The next call of [`end`] will be the one of that round.
fn will_end_in(round: usize) -> bool {
    let Some(key) = KEY.load(Acquire).checked_sub(1) else {
        return false;
    };
    let value = ptr::without_provenance(round);
    // SAFETY: the key was made and never deleted (invariant 1). The value only has to differ from null.
    unsafe { libc::pthread_setspecific(key as libc::pthread_key_t, value) == 0 }
}

extern "C" fn end(round: *mut c_void) {
    let round = round.addr();
    ROUND.with(|last| last.set(round));
    STATE.with(|state| state.set(State::Ending));
    // In the first round already: the memory goes whether there is another one or not.
    area::unregister_own();
    if round >= ROUNDS {
        // Nobody might give it back: the list that is locked here has waiters.
        native::keep_no_slot();
    }
    if leased::leave_where_nothing_is_held() {
        return;
    }
    if round < ROUNDS && will_end_in(round + 1) {
        return;
    }
    // First: it does not become a member again.
    STATE.with(|state| state.set(State::Ended));
    leased::leave_all();
}

/// A number that no other thread has as long as this one lives: the address of a thread-local. Never 0.
#[inline]
pub(super) fn token() -> usize {
    STATE.with(|state| ptr::from_ref(state).addr())
}

#[cfg(all(test, not(loom)))]
mod tests;
