//! The algorithms with the knobs in force under Linux; see [`kinlock_core::configured`].

use crate::Native;

/// The knobs of [`config`](crate::config): what the crate `kinlock` uses.
pub type AsConfigured = kinlock_core::configured::AsConfigured<Native>;
/// As [`AsConfigured`], but always first in, first out.
pub type Fifo = kinlock_core::configured::Fifo<Native>;
/// As [`Fifo`], and no thread overtakes a waiter that sleeps.
pub type InOrder = kinlock_core::configured::InOrder<Native>;
/// As [`AsConfigured`], but always NUMA-aware.
pub type NumaAware = kinlock_core::configured::NumaAware<Native>;
