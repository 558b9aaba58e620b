//! Restartable sequences on per-ID memory: a few instructions that either happen as a whole while the thread runs undisturbed, or start again.
//!
//! # How a sequence works
//!
//! ```text
//!           area.sequence := descriptor        { begin, length, where to go on after an abort }
//!   begin:  id := area.mm_cid                  loaded inside: after an abort the ID may be another
//!           slot := base + id * stride         the memory of this ID, unless id >= limit
//!           ...                                loads, and stores to memory that nobody else sees
//!           store to slot                      the commit: one instruction, and the last one
//!   end:
//! ```
//!
//! If the thread is preempted, migrated or gets a signal between begin and end, the kernel makes it go on at the abort handler, which jumps back to where the descriptor
//! is stored. Nobody else runs with this ID as long as this thread does, so what was loaded from the slot is still there when the commit comes; and a commit is done
//! by one instruction, so it is not half done. That is why a *plain* store is enough, and why a list has no ABA problem: a thread that would pop the same node in
//! between has preempted this one, and this one starts again.
//!
//! Whoever runs next with the same ID sees all that was done with it before: a context switch is a full barrier. Nobody else sees more than [`Relaxed`](core::sync::atomic::Ordering::Relaxed)
//! stores give.
//!
//! # Lists and who may look at them from outside
//!
//! The head of a list may be taken by a thread with another ID (stealing). It closes the list's *gate* and executes a `membarrier` that restarts all sequences of the process. Every sequence on a list
//! looks at the gate first: one that runs after that sees it closed and does nothing, and none that saw it open is still under way.
//!
//! # What must hold, and what makes it hold
//!
//! * The commit is the last instruction before the end. Each sequence is one block of assembly: a compiler cannot move anything into it or out of it.
//! * The inputs are unchanged when an abort starts it again: they are `in` operands, and what is overwritten is another register.
//! * No system call, and no call at all, is made inside.
//! * The descriptor's memory stays mapped, for the kernel may look at it after the end: a library with sequences must not be unloaded while there are threads that used it.
//! * Inlining and link-time optimisation may copy a block: all its labels are local numbers, and its descriptor goes along in the section `__rseq_cs`. A linker that drops unused
//!   sections drops both or none, since the code refers to the descriptor.
//! * The abort handler is preceded by the signature, in a section of its own: nobody can fall into it.
//!
//! # Invariants
//!
//! 1. `area` is what `area::current` has returned to the calling thread.
//! 2. For every `id` below `limit`, `stride` bytes at `base + id * stride` are mapped, writable and live, and `base` is aligned to 8. They hold words that are accessed by sequences on this thread's
//!    own ID, and atomically by everybody else.
//! 3. Every node in a list is live memory of `Node`'s layout that only who has popped it, or is about to push it, writes.

#[cfg(all(target_arch = "aarch64", target_endian = "little", not(miri)))]
mod aarch64;
#[cfg(not(all(
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_endian = "little")
    ),
    not(miri)
)))]
mod none;
#[cfg(all(test, not(miri)))]
mod tests;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64;

#[cfg(all(target_arch = "aarch64", target_endian = "little", not(miri)))]
pub(super) use aarch64::*;
#[cfg(not(all(
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_endian = "little")
    ),
    not(miri)
)))]
pub(super) use none::*;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(super) use x86_64::*;

use core::ptr::NonNull;

/// What tests may do to sequences. Programs use [`Sound`].
///
/// # Safety
///
/// With a [`FAULT`](Self::FAULT), only [`Counter`](super::Counter)s may use it, which then count wrong: a list would have nodes twice.
pub unsafe trait Probe: Copy + core::fmt::Debug + Send + Sync + 'static {
    /// Iterations of an empty loop right before the commit, so that sequences are disturbed there; at most 65,535.
    const DELAY: u32 = 0;
    /// What is broken on purpose.
    const FAULT: Option<Fault> = None;
}

/// Sequences as they should be.
#[derive(Clone, Copy, Debug)]
pub struct Sound;

// SAFETY: no fault.
unsafe impl Probe for Sound {}

/// A defect, to show that tests find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The kernel is not told of the sequence, so that it goes on after a disturbance as if nothing had happened.
    NoRestart,
}

/// What the assembly makes of a [`Probe`].
pub(super) struct Knobs<P>(core::marker::PhantomData<P>);

impl<P: Probe> Knobs<P> {
    /// Whether the kernel is told.
    pub(super) const RESTART: usize = !matches!(P::FAULT, Some(Fault::NoRestart)) as usize;
    /// [`Probe::DELAY`], as far as it fits into an instruction.
    pub(super) const DELAY: usize = {
        assert!(P::DELAY <= u16::MAX as u32);
        P::DELAY as usize
    };
}

/// The memory of all IDs: one slot of `stride` bytes each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slots {
    /// The slot of ID 0.
    pub(super) base: NonNull<u8>,
    /// The distance between the slots of two neighbouring IDs.
    pub(super) stride: usize,
    /// How many slots there are.
    pub(super) limit: u32,
}

impl Slots {
    /// Whether a sequence that ran with this ID did anything.
    #[inline]
    fn check(&self, id: u64) -> Result<(), OutOfRange> {
        if (id as u32) < self.limit {
            Ok(())
        } else {
            Err(OutOfRange)
        }
    }
}

/// The ID with which a sequence ran is not below `limit`: nothing was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OutOfRange;

/// A node of a list: the first two words of what is in it.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Node {
    /// The node below, or null.
    pub(super) next: *mut Node,
    /// How many nodes are in the list from here on downwards.
    pub(super) depth: usize,
}

/// Where in a slot the gate of a list is: 0 = open.
pub(super) const GATE: usize = 0;
/// Where in a slot the head of a list is.
pub(super) const HEAD: usize = 8;
/// Where in a node the link is.
pub(super) const NEXT: usize = 0;
/// Where in a node the depth is.
pub(super) const DEPTH: usize = 8;

const _: () = assert!(
    core::mem::offset_of!(Node, next) == NEXT && core::mem::offset_of!(Node, depth) == DEPTH
);

/// What the assembly reports instead of a head when the gate is closed: no node is there.
pub(super) const CLOSED: usize = 1;

/// What became of a push.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pushed {
    /// It is in the list of the ID.
    Done,
    /// The list has as many nodes as it may have.
    Full,
    /// The gate is closed.
    Closed,
    /// As [`OutOfRange`].
    OutOfRange,
}

impl Pushed {
    /// From what the assembly reports: the head, and the depth that the list would have.
    #[inline]
    fn of(ran: Result<(), OutOfRange>, found: usize, depth: usize, most: usize) -> Self {
        match ran {
            Err(OutOfRange) => Self::OutOfRange,
            Ok(()) if found == CLOSED => Self::Closed,
            Ok(()) if depth > most => Self::Full,
            Ok(()) => Self::Done,
        }
    }
}

/// What became of a pop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Popped {
    /// The caller has it now.
    Node(NonNull<Node>),
    /// The list is empty.
    Empty,
    /// The gate is closed.
    Closed,
    /// As [`OutOfRange`].
    OutOfRange,
}

impl Popped {
    /// From what the assembly reports: the head.
    #[inline]
    fn of(ran: Result<(), OutOfRange>, found: *mut Node) -> Self {
        match (ran, NonNull::new(found)) {
            (Err(OutOfRange), _) => Self::OutOfRange,
            (Ok(()), None) => Self::Empty,
            (Ok(()), Some(node)) if node.addr().get() == CLOSED => Self::Closed,
            (Ok(()), Some(node)) => Self::Node(node),
        }
    }
}
