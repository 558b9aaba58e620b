//! Restartable sequences on per-ID memory: a few instructions that the kernel restarts if the
//! thread is disturbed before the last one.
//!
//! # How a sequence works
//!
//! ```text
//!           area.sequence := descriptor    { begin, length, where to go on after an abort }
//!   begin:  id := area.mm_cid              loaded inside: after an abort the ID may be another
//!           slot := base + (id << shift)   the memory of this ID, unless id >= limit
//!           ...                            loads, and stores to memory that no other thread reads
//!           store to slot                  the commit: one instruction, and the last one
//!   end:
//! ```
//!
//! If the thread is preempted, migrated or signalled between begin and end, the kernel makes it go
//! on at the abort handler. The handler jumps back to where the descriptor is stored. No other
//! thread runs with this ID while this one does, so the values loaded from the slot are still
//! current at the commit. The commit is one instruction, so it is never half done. Hence a *plain*
//! store suffices. A list has no ABA problem: another thread changes the head only after this one
//! was preempted, or restarted by a thief, which closes the *gate* of the list first (see `lists`).
//! In both cases this sequence starts again.
//!
//! The next thread with the same ID sees everything done with it before: a context switch is a full
//! barrier. Threads with other IDs see only what [`Relaxed`](core::sync::atomic::Ordering::Relaxed)
//! stores guarantee.
//!
//! # A trial before the first use
//!
//! All this rests on the kernel. Linux 6.19 and 7.0 on aarch64 let a sequence go on whose thread
//! was preempted by another one of the same CPU; counters would lose additions silently. So these
//! kernels are refused. Under any other kernel, a process that asks for restartable sequences for
//! the first time tries one: it waits inside a sequence until a helper thread has run on its CPU,
//! and then must have started again. If it has not, there are leases instead
//! ([`Unavailable::NotRestarted`](super::Unavailable)).
//!
//! The trial takes the start and the end of a thread and a sleep of 50 us, and at most 100 ms if
//! the CPU is busy with other threads. If the helper did not run in that time, or there can be
//! none, nothing is shown and sequences are used as the kernel offers them;
//! [`Backend::tried`](super::Backend::tried) tells. The affinity of the calling thread stays as it
//! is, and its signals wait until the trial has ended. A seccomp filter that *kills* a process
//! which makes a thread, or calls `sched_setaffinity` for itself, must be installed after the first
//! domain is built; one that refuses the call does no harm.
//!
//! # Requirements, and what ensures them
//!
//! * The commit is the last instruction before the end. Each sequence is one block of assembly, so
//!   the compiler cannot move anything into it or out of it.
//! * The inputs are unchanged when an abort restarts the sequence: they are `in` operands, and all
//!   results go to other registers.
//! * There is no system call and no other call inside.
//! * aarch64: no operand is in x16 or x17. A linker may reach a distant label by a veneer, which
//!   overwrites them.
//! * The descriptor's memory stays mapped, since the kernel may read it after the end. A library
//!   with sequences must not be unloaded while threads that used it live.
//! * Inlining and link-time optimisation may copy a block. All labels are local numbers, and the
//!   descriptor is copied along in the section `__rseq_cs`. A linker that drops unused sections
//!   drops both or none, since the code refers to the descriptor.
//! * The abort handler is preceded by the signature, in a section of its own, so no code falls into
//!   it.
//!
//! # Labels in the assembly
//!
//! | label | where |
//! | --- | --- |
//! | 77 | the descriptor: version 0, no flags (newer kernels refuse any), begin, length, abort |
//! | 55 | the start, to which the abort handler returns |
//! | 22 | the begin |
//! | 33 | the end; a sequence without anything to commit jumps here |
//! | 44 | the abort handler |
//! | 66 | x86-64: the thread is not registered, or its ID not below the limit; returns to 33 |
//!
//! The sections `__rseq_cs_ptr_array` and `__rseq_exit_point_array` tell debuggers what to step
//! over: a breakpoint or a single step inside a sequence makes it restart forever.
//!
//! # Invariants
//!
//! 1. `area` is what `area::current` or `Reach::area` has returned to the calling thread.
//! 2. For every `id` below `limit`, a *slot* is at `base + (id << shift)`: as many bytes as were
//!    allocated, mapped, writable and live. `base` is aligned to 8. Sequences that run with that ID
//!    access the words of the slot. Other code does so atomically, or with exclusive access.
//! 3. Every node in a list is live memory of `Node`'s layout. Only the thread that has popped it,
//!    or is about to push it, writes it.
//! 4. The slots are near each other: `shift` is that of a `STRETCH`.

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

use crate::probe::Probe;
use core::ptr::NonNull;

/// The constants that the assembly takes from a [`Probe`].
pub(super) struct Knobs<P>(core::marker::PhantomData<P>);

impl<P: Probe> Knobs<P> {
    /// Whether the kernel is told of the sequence.
    pub(super) const RESTART: usize = P::RESTARTS as usize;
    /// [`Probe::DELAY`].
    pub(super) const DELAY: usize = P::DELAY as usize;
}

/// The stretch of an ID in a region for ordinary structures, a multiple of the largest page size,
/// as stretches never share a page. A larger structure has a region of its own, with stretches of
/// the next power of two. So shifting an ID finds its stretch. An array of 16,384 counters fits;
/// stretches are not longer, since limits on address space count what is unused.
pub(super) const STRETCH: usize = 128 * 1024;

/// The memory of all IDs: one slot each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slots {
    /// The slot of ID 0.
    pub(super) base: NonNull<u8>,
    /// Two slots of neighbouring IDs are `1 << shift` bytes apart. A shift takes one cycle of the
    /// way from the ID to the address, a multiplication three.
    pub(super) shift: u32,
    /// How many slots there are.
    pub(super) limit: u32,
}

/// Keeps the compiler from computing a result that is seldom needed together with the usual one.
#[cold]
#[inline(never)]
fn seldom() {}

/// A node of a list: the first two words of each element.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Node {
    /// The node below, or null.
    pub(super) next: *mut Node,
    /// The number of nodes in the list from this one on.
    pub(super) depth: usize,
}

/// The offset of the gate in a slot; 0 = open.
pub(super) const GATE: usize = 0;
/// The offset of the head in a slot.
pub(super) const HEAD: usize = 8;
/// The offset of the link in a node.
pub(super) const NEXT: usize = 0;
/// The offset of the depth in a node.
pub(super) const DEPTH: usize = 8;

const _: () = assert!(
    core::mem::offset_of!(Node, next) == NEXT && core::mem::offset_of!(Node, depth) == DEPTH
);

/// What the assembly reports instead of a head when the gate is closed. Never the address of a
/// node.
pub(super) const CLOSED: usize = 1;

/// The result of a push.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pushed {
    /// The node is in the list of the ID.
    Done,
    /// The list has as many nodes as allowed.
    Full,
    /// The thread has no ID with a slot, or the gate is closed.
    Refused,
}

impl Pushed {
    /// From what the assembly reports: the slot, the head that it found, and the depth that the
    /// list would get.
    #[cfg_attr(
        not(any(target_arch = "x86_64", target_arch = "aarch64")),
        allow(dead_code)
    )]
    #[inline]
    fn of(slot: *mut u8, found: usize, depth: usize, most: usize) -> Self {
        if !slot.is_null() && found != CLOSED && depth <= most {
            return Self::Done;
        }
        seldom();
        match slot.is_null() || found == CLOSED {
            true => Self::Refused,
            false => Self::Full,
        }
    }
}

/// The popped node, which belongs to the caller, from what the assembly reports: the slot, and the
/// head that it found. `None`: the list is empty, or as [`Pushed::Refused`].
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    allow(dead_code)
)]
#[inline]
fn popped(slot: *mut u8, found: *mut Node) -> Option<NonNull<Node>> {
    NonNull::new(found).filter(|node| !slot.is_null() && node.addr().get() != CLOSED)
}

/// What happened to a sequence that waited to be preempted.
#[repr(C)]
#[derive(Default, Debug)]
pub(super) struct Trace {
    /// How often it started.
    pub(super) starts: u32,
    /// How often it went on to its commit after the word that it watched had changed.
    pub(super) commits: u32,
    /// The value of that word at the beginning.
    pub(super) seen: u32,
}
