//! The laboratory's door: delays inside sequences. Not part of the public API.
//!
//! The structures for users, such as [`Stack`](crate::Stack), are these ones with [`Sound`]
//! sequences. A check takes another [`Probe`], and must find what is wrong with it.

use crate::counter::Words;
use crate::domain::Domain;
use crate::error::BuildError;

pub use crate::pool::{Probed as Pool, ProbedObject as Pooled};
pub use crate::probe::{Probe, Sound};
pub use crate::ring::Probed as Ring;
pub use crate::stack::Probed as Stack;

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
