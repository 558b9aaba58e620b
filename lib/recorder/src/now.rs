//! What threads wait for and hold now, for a command that looks at the process ([`table::now`]).
//!
//! There is neither a file nor anything that begins or ends: the facts lie in static memory of
//! zeros. A thread that waits for a lock writes a fact before its wait and clears it afterwards. A
//! thread that leaves a wait by a jump, or is cancelled in it, leaves its fact behind; so does the
//! parent of a fork, in the child. The command ignores facts of threads that do not exist, and
//! where there is no place left, their places are used again.

use super::memory::system_call;
use super::stack::here;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use kinlock_core::platform::Platform;
use kinlock_linux::{Native, futex_alone};
use kinlock_report::now::{BUSY, FACTS, Fact, IS_HELD, Now};
use kinlock_report::unwind::Registers;
use kinlock_report::{self as table};

static NOW: Now = Now::new();

// The ELF note that says where [`NOW`] is. Only an assembler can write the distance, which the
// linker knows: an address would have to be relocated when the program starts.
core::arch::global_asm!(
    ".pushsection .note.kinlock, \"a\", %note",
    ".balign 4",
    ".long 8, 16, 1",
    ".asciz \"kinlock\"",
    ".quad {magic}",
    ".quad {now} - .",
    ".popsection",
    magic = const table::MAGIC,
    now = sym NOW,
);

/// Notes that the locks are objects of the C library's types. `number_at`: where the C library
/// keeps the number of a thread; see [`Now::number_at`].
pub fn are_posix(number_at: usize) {
    NOW.are_posix.store(1, Relaxed);
    NOW.number_at.store(number_at as u32, Relaxed);
}

/// A fact that was noted. It has no destructor: a cancelled thread unwinds the frame in which it
/// lies.
#[derive(Clone, Copy)]
#[must_use]
pub struct Noted(Option<&'static Fact>);

impl Noted {
    /// No fact.
    pub const NONE: Self = Noted(None);

    /// Clears the fact: the wait is over.
    #[inline]
    pub fn end(self) {
        if let Some(fact) = self.0 {
            fact.what.store(0, Relaxed);
        }
    }
}

/// Notes that the calling thread, whose number is `thread`, is about to wait. `what` and `kind` are
/// as in [`Fact`]. The function that calls this has to stay on the stack for as long as the wait
/// lasts.
#[inline(always)]
pub fn waits(what: u64, kind: u32, thread: u32) -> Noted {
    note_wait(what, kind, thread, here())
}

#[cold]
#[inline(never)]
fn note_wait(what: u64, kind: u32, thread: u32, at: Registers) -> Noted {
    note(what, kind, thread, Native::now(), at)
}

/// Notes that the calling thread, whose number is `thread`, holds a lock that does not tell who
/// holds it. `what` and `kind` are as in [`Fact`], without [`IS_HELD`].
#[inline(never)]
pub fn holds(what: u64, kind: u32, thread: u32) {
    let nowhere = Registers {
        pc: 0,
        stack: 0,
        frame: 0,
    };
    let _ = note(what | IS_HELD, kind, thread, 0, nowhere);
}

/// Notes that the calling thread is about to release such a lock. If it holds the lock several
/// times, one hold ends.
#[inline(never)]
pub fn released(what: u64, thread: u32) {
    let is_it = |fact: &&Fact| {
        fact.what.load(Relaxed) == what | IS_HELD && fact.thread.load(Relaxed) == thread
    };
    match places(thread).find(is_it) {
        Some(fact) => fact.what.store(0, Relaxed),
        // If holds were dropped, this may be one of them.
        None if NOW.dropped.load(Relaxed) == 0 => released_for_another(what | IS_HELD),
        None => {}
    }
}

/// Ends the hold of some thread: the calling thread releases a lock that it did not take.
#[cold]
#[inline(never)]
fn released_for_another(what: u64) {
    let ends = |fact: &Fact| {
        fact.what.load(Relaxed) == what
            && fact
                .what
                .compare_exchange(what, 0, Relaxed, Relaxed)
                .is_ok()
    };
    let _ = NOW.facts.iter().any(ends);
}

/// How many entries a thread may use. It shares them with other threads.
const REACH: usize = 64;

/// The entries that a thread may use, from the one that its number chooses. Threads whose numbers
/// follow each other use different ones.
fn places(thread: u32) -> impl Iterator<Item = &'static Fact> {
    let (block, first) = (thread as usize % (FACTS / REACH), thread as usize / REACH);
    let entry = move |step| block * REACH + (first + step) % REACH;
    (0..REACH).map(move |step| &NOW.facts[entry(step)])
}

fn note(what: u64, kind: u32, thread: u32, since: u64, at: Registers) -> Noted {
    let takes = |fact: &&Fact| {
        fact.what.load(Relaxed) == 0
            && fact
                .what
                .compare_exchange(0, BUSY, Relaxed, Relaxed)
                .is_ok()
    };
    let free = places(thread).find(takes);
    // A search takes many system calls, and may find nothing: the more facts are dropped, the rarer
    // it is.
    let left = || {
        let is_due = (NOW.dropped.load(Relaxed) + 1).is_power_of_two();
        is_due.then(|| left_behind(thread)).flatten()
    };
    let Some(fact) = free.or_else(left) else {
        NOW.dropped.fetch_add(1, Relaxed);
        return Noted::NONE;
    };
    fact.kind.store(kind, Relaxed);
    fact.thread.store(thread, Relaxed);
    fact.since.store(since, Relaxed);
    for (to, from) in fact.registers.iter().zip([at.pc, at.stack, at.frame]) {
        to.store(from, Relaxed);
    }
    // The command, which reads this memory from outside, takes a fact for complete if it reads the
    // same twice.
    fact.what.store(what, Release);
    Noted(Some(fact))
}

/// A place with a fact of a thread that does not exist, for the calling thread.
#[cold]
#[inline(never)]
fn left_behind(thread: u32) -> Option<&'static Fact> {
    if futex_alone() {
        return None;
    }
    places(thread).find(|fact| {
        let (what, of) = (fact.what.load(Relaxed), fact.thread.load(Relaxed));
        let is_left = what > BUSY && of != thread && !exists(of);
        // If several threads find the place, one of them replaces the number. If the place has
        // become free and got another fact since, `what` has changed.
        let takes = |word: &AtomicU32| word.compare_exchange(of, thread, Relaxed, Relaxed).is_ok();
        let is_same =
            |word: &AtomicU64| word.compare_exchange(what, BUSY, Relaxed, Relaxed).is_ok();
        is_left && takes(&fact.thread) && is_same(&fact.what)
    })
}

/// Whether a thread is one of this process.
fn exists(thread: u32) -> bool {
    // SAFETY: invariants 1 and 9; the signal 0 is none.
    let result = unsafe { system_call!(libc::SYS_tgkill, libc::getpid(), thread, 0) };
    result != Err(libc::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::super::thread::number;
    use super::*;

    const LOCK: u64 = 0x1000;

    /// Numbers that no thread has, and that choose the same places as the calling thread's.
    fn gone(which: usize) -> u32 {
        let blocks = FACTS / REACH;
        ((1 << 23) + which * blocks + number() as usize % blocks) as u32
    }

    /// The order matters: once a hold was dropped, another thread's hold no longer ends in its
    /// place.
    #[test]
    fn holds_end_by_whoever_releases_and_places_are_used_again() {
        a_hold_ends_by_whoever_releases();
        places_of_threads_that_are_gone_are_used_again();
        holds(2 * LOCK, 0, gone(0));
        released(2 * LOCK, gone(REACH) + 1);
        assert!(
            NOW.facts
                .iter()
                .any(|fact| fact.what.load(Relaxed) == (2 * LOCK) | IS_HELD)
        );
        released(2 * LOCK, gone(0));
    }

    fn places_of_threads_that_are_gone_are_used_again() {
        let is_noted = |thread| waits(LOCK, 0, thread).0.is_some();
        for which in 0..REACH {
            assert!(is_noted(gone(which)), "{which}");
        }
        for _ in 0..REACH {
            assert!(is_noted(number()));
        }
        assert!(!is_noted(number()) && !is_noted(gone(0)));
        for fact in places(number()) {
            assert_eq!(fact.thread.load(Relaxed), number());
            Noted(Some(fact)).end();
        }
    }

    fn a_hold_ends_by_whoever_releases() {
        let all = || NOW.facts.iter().map(|fact| fact.what.load(Relaxed));
        let holders = || all().filter(|what| *what == (2 * LOCK) | IS_HELD).count();
        for which in 0..2 {
            holds(2 * LOCK, 0, gone(which));
        }
        released(2 * LOCK, gone(1));
        assert_eq!(holders(), 1);
        released(2 * LOCK, gone(REACH) + 1);
        assert_eq!(holders(), 0);
        released(2 * LOCK, gone(0));
    }
}
