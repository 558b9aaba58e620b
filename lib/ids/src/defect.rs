//! Seeded defects of the allocator and of restartable sequences, each to be caught by the check
//! meant for it. Users have the sound ones; the laboratory reaches the others by
//! [`lab`](crate::lab).

use core::fmt::Debug;

/// How restartable sequences are assembled.
///
/// # Safety
///
/// A probe that does not [restart](Self::RESTARTS) may be used by [counters](crate::lab::Counter)
/// and by [rings](crate::lab::Ring) of integers only, which then count wrong, or lose and double
/// integers. A list would have nodes twice.
pub unsafe trait Probe: Copy + Debug + Send + Sync + 'static {
    /// Iterations of an empty loop right before the commit, so that disturbances hit it.
    const DELAY: u16 = 0;
    /// Whether the kernel is told of the sequence. If it is not, a disturbed sequence goes on
    /// instead of starting again: the defect `NoRestart`.
    const RESTARTS: bool = true;
}

/// Correct sequences without a delay: those of users.
#[derive(Clone, Copy, Debug)]
pub struct Sound;

// SAFETY: it restarts.
unsafe impl Probe for Sound {}

/// Deliberate defects of an [`Allocator`](crate::raw::Allocator), each to be caught by the check
/// meant for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Defect {
    /// Taking a kept ID away does not check whether its owner has just taken it back: the ID is
    /// shared.
    Shared = 1,
    /// A release that finds its record occupied forgets the ID: it is leaked.
    Leaked,
    /// A fresh ID is handed out although lower ones are kept, not held: it is above the bound.
    AboveBound,
    /// A recent ID is acquired again although the limit has shrunk below it: it is above the bound.
    StaleRecent,
    /// No acquisition takes what a record keeps above the limit: acquisitions that need it search
    /// for ever.
    Stranded,
    /// A release does not publish what the holder did to the ID's data.
    RelaxedRelease,
}
