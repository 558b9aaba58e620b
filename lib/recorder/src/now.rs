//! What threads wait for and hold now, for a command that looks at the process ([`table::now`]).
//!
//! There is neither a file nor anything that begins or ends: the facts lie in static memory of
//! zeros. Whoever waits for a lock writes one before its wait and clears it afterwards. A thread
//! that leaves a wait by a jump leaves its fact behind; so does the parent of a fork, in the child.
//! The command ignores facts of threads that do not exist.

use super::stack::here;
use core::sync::atomic::Ordering::*;
use kinlock_core::platform::Platform;
use kinlock_linux::Native;
use kinlock_report::now::{BUSY, FACTS, Fact, IS_HELD, Now};
use kinlock_report::unwind::Registers;
use kinlock_report::{self as table};

static NOW: Now = Now::new();

// The note that says where it is. Only an assembler can write the distance, which the linker knows:
// an address would have to be relocated when the program starts.
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

/// The locks are objects of the C library's types. `number_at`: where the C library keeps the
/// number of a thread; see [`Now::number_at`].
pub fn are_posix(number_at: usize) {
    NOW.are_posix.store(1, Relaxed);
    NOW.number_at.store(number_at as u32, Relaxed);
}

/// A fact that is there. It has no destructor: a cancelled thread unwinds the frame in which it
/// lies.
#[derive(Clone, Copy)]
#[must_use]
pub struct Noted(Option<&'static Fact>);

impl Noted {
    /// No fact.
    pub const NONE: Self = Noted(None);

    /// The wait is over.
    #[inline]
    pub fn end(self) {
        if let Some(fact) = self.0 {
            fact.what.store(0, Relaxed);
        }
    }
}

/// The calling thread, which has that number, is about to wait. `what` and `kind` are as in
/// [`Fact`]. The function that calls this has to stay on the stack for as long as the wait lasts.
#[inline(always)]
pub fn waits(what: u64, kind: u32, thread: u32) -> Noted {
    note_wait(what, kind, thread, here())
}

#[cold]
#[inline(never)]
fn note_wait(what: u64, kind: u32, thread: u32, at: Registers) -> Noted {
    note(what, kind, thread, Native::now(), at)
}

/// The calling thread, which has that number, holds a lock that does not tell who holds it.
#[inline(never)]
pub fn holds(address: u64, kind: u32, thread: u32) {
    let nowhere = Registers {
        pc: 0,
        stack: 0,
        frame: 0,
    };
    let _ = note(address | IS_HELD, kind, thread, 0, nowhere);
}

/// The calling thread is about to release such a lock. Of a lock that it holds several times, one
/// hold ends.
#[inline(never)]
pub fn released(address: u64, thread: u32) {
    let is_it = |fact: &&Fact| {
        fact.what.load(Relaxed) == address | IS_HELD && fact.thread.load(Relaxed) == thread
    };
    if let Some(fact) = places(thread).find(is_it) {
        fact.what.store(0, Relaxed);
    }
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
    let Some(fact) = places(thread).find(takes) else {
        NOW.dropped.fetch_add(1, Relaxed);
        return Noted::NONE;
    };
    fact.kind.store(kind, Relaxed);
    fact.thread.store(thread, Relaxed);
    fact.since.store(since, Relaxed);
    for (to, from) in fact.registers.iter().zip([at.pc, at.stack, at.frame]) {
        to.store(from, Relaxed);
    }
    // The command, which reads this memory from outside, takes for complete what it finds twice.
    fact.what.store(what, Release);
    Noted(Some(fact))
}
