//! The laboratory's door: seeded defects, and delays inside sequences. Not part of the public API.
//!
//! The structures for users, such as [`Stack`](crate::Stack), are these ones with [`Sound`]
//! sequences. A check takes another [`Probe`], and must find what is wrong with it.

use core::fmt::Debug;

use crate::counter::Words;
use crate::domain::Domain;
use crate::error::BuildError;

pub use crate::pool::{Probed as Pool, ProbedObject as Pooled};
pub use crate::raw::Allocator;
pub use crate::ring::Probed as Ring;
pub use crate::stack::Probed as Stack;

/// How restartable sequences are assembled.
///
/// # Safety
///
/// A probe that does not [restart](Self::RESTARTS) may be used by [`Counter`]s and by [`Ring`]s of
/// integers only, which then count wrong, or lose and double integers. A list would have nodes
/// twice.
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

/// A [`Counter`](crate::Counter) with the sequences of any [`Probe`].
#[derive(Debug)]
pub struct Counter<P: Probe>(Words<P>);

impl<P: Probe> Counter<P> {
    /// As [`Counter::new`](crate::Counter::new).
    ///
    /// # Errors
    ///
    /// [`BuildError::Memory`].
    pub fn new(domain: &Domain) -> Result<Self, BuildError> {
        Words::new(domain, 1).map(Counter)
    }

    /// As [`Counter::add`](crate::Counter::add).
    #[inline]
    pub fn add(&self, n: u64) {
        // SAFETY: there is a word.
        unsafe { self.0.add(0, n) };
    }

    /// As [`Counter::sum`](crate::Counter::sum).
    pub fn sum(&self) -> u64 {
        self.0.sum(0)
    }
}

/// Deliberate defects of an [`Allocator`], each to be caught by the check meant for it.
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
