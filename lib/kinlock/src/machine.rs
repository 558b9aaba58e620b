//! The platform of this build: Linux with the feature `std`, bare hardware without.

#[cfg(not(feature = "std"))]
pub(crate) use kinlock_core::bare::Bare as Native;
use kinlock_core::config;
#[cfg(feature = "std")]
pub(crate) use kinlock_linux::Native;

// The configurations of locks on this platform.
pub(crate) type AsConfigured = config::AsConfigured<Native>;
pub(crate) type Fifo = config::Fifo<Native>;
pub(crate) type InOrder = config::InOrder<Native>;
pub(crate) type NumaAware = config::NumaAware<Native>;
