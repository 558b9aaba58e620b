//! The platform of this build: Linux with the feature `std`, bare hardware without.

#[cfg(not(feature = "std"))]
pub(crate) use kinlock_core::bare::{AsConfigured, Bare as Native, Fifo, InOrder, NumaAware};
#[cfg(feature = "std")]
pub(crate) use kinlock_linux::Native;
#[cfg(feature = "std")]
pub(crate) use kinlock_linux::config::{AsConfigured, Fifo, InOrder, NumaAware};
