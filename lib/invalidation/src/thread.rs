//! The place of each thread: a number from 1 on, the same in all domains. A thread gets it with its
//! first section and gives it back when it ends.
//!
//! The destructor of a `pthread` key gives the place back. With glibc it runs after the destructors
//! of thread-locals, and so after a thread-local that holds a section, in whatever order the two
//! were first used. Destructors of other keys, from which musl runs thread-locals, may come later.
//! Keys' destructors run in [rounds](ROUNDS), at least four of them. Ours asks for another round
//! while a section is open. A section that is still open in the fourth round was forgotten.
//!
//! If only a destructor has begun sections, our first round is not the C library's first, and our
//! fourth may never run: a forgotten section is then not noticed.
//!
//! # Invariant
//!
//! 1. `gettid` takes nothing and returns a number.

use super::error::BeginError;
use super::inner;
use super::places::PLACES;
use core::cell::Cell;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering::*};
use kinlock_linux::native::{Key, ROUNDS};

/// One bit for each place in use.
static IN_USE: [AtomicU32; PLACES.div_ceil(32)] =
    [const { AtomicU32::new(0) }; PLACES.div_ceil(32)];

/// The kernel's thread IDs of the threads that have places, as of when the place was claimed.
static THREADS: [AtomicU32; PLACES] = [const { AtomicU32::new(0) }; PLACES];

const NONE: u16 = 0;
/// The thread has given its place back.
const ENDED: u16 = u16::MAX;

/// The key of the destructor, [`end`].
static KEY: Key = Key::NONE;

thread_local! {
    // No destructor: plain memory of the thread, so that reading it costs a load.
    static PLACE: Cell<u16> = const { Cell::new(NONE) };
}

/// Gives the place back when the thread ends.
extern "C" fn end(round: *mut c_void) {
    let (place, round) = (PLACE.get(), round.addr());
    if let Some((open, backend)) = inner::open_in(place) {
        if round < ROUNDS && KEY.set(round + 1) {
            return;
        }
        eprintln!(
            "kinlock: a thread ended within a section of delayed invalidation (generation {}, \
             backend {backend}): a wait for it would never end",
            open.generation
        );
        std::process::abort();
    }
    PLACE.set(ENDED);
    release(place);
}

/// The calling thread's place.
#[inline]
pub(super) fn place() -> Result<u16, BeginError> {
    match PLACE.get() {
        NONE | ENDED => claim(),
        place => Ok(place),
    }
}

/// A number that tells this copy of the library from others in the process: the address of a
/// static.
#[inline]
pub(super) fn copy() -> usize {
    ptr::from_ref(&IN_USE).addr()
}

/// The calling thread's place, if it has one.
#[inline]
pub(super) fn kept() -> Option<u16> {
    match PLACE.get() {
        NONE | ENDED => None,
        place => Some(place),
    }
}

/// The kernel's ID of the thread that has the place, or had it last.
pub(super) fn id_of(place: u16) -> u32 {
    THREADS[place as usize - 1].load(Relaxed)
}

#[cold]
#[inline(never)]
fn claim() -> Result<u16, BeginError> {
    if PLACE.get() == ENDED {
        return Err(BeginError::ThreadEnding);
    }
    let place = claim_lowest().ok_or(BeginError::TooManyThreads)?;
    KEY.prepare(end);
    if !KEY.set(1) {
        release(place);
        return Err(BeginError::NoKey);
    }
    THREADS[place as usize - 1].store(own_id(), Relaxed);
    PLACE.set(place);
    Ok(place)
}

fn claim_lowest() -> Option<u16> {
    for (w, word) in IN_USE.iter().enumerate() {
        let mut seen = word.load(Relaxed);
        while seen != u32::MAX {
            let bit = (!seen).trailing_zeros();
            let place = w * 32 + bit as usize + 1;
            if place > PLACES {
                return None;
            }
            // Acquire pairs with the Release in `release`: the last owner no longer uses the place.
            seen = word.fetch_or(1 << bit, Acquire);
            if seen & (1 << bit) == 0 {
                return Some(place as u16);
            }
        }
    }
    None
}

fn release(place: u16) {
    let i = place as usize - 1;
    IN_USE[i / 32].fetch_and(!(1 << (i % 32)), Release);
}

/// In a forked child: the calling thread is the only one.
pub(super) fn reset_in_child() {
    let kept = kept();
    for (w, word) in IN_USE.iter().enumerate() {
        let own = kept.map_or(0, |place| {
            let i = place as usize - 1;
            if i / 32 == w { 1 << (i % 32) } else { 0 }
        });
        word.store(own, Relaxed);
    }
    if let Some(place) = kept {
        THREADS[place as usize - 1].store(own_id(), Relaxed);
    }
}

fn own_id() -> u32 {
    // SAFETY: invariant 1.
    #[cfg(not(miri))]
    let id = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    #[cfg(miri)]
    let id = 0;
    id
}
