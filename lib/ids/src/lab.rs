//! The laboratory's door: delays inside sequences. Not part of the public API.
//!
//! The structures for users, such as [`Stack`](crate::Stack), are these ones with [`Sound`]
//! sequences. A check takes another [`Probe`], and must find what is wrong with it.

pub use crate::probe::{Probe, Sound};
#[cfg(not(loom))]
pub use crate::{
    counter::Probed as Counter,
    pool::{Probed as Pool, ProbedObject as Pooled},
    stack::Probed as Stack,
};
