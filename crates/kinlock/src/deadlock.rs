//! Nothing, without the feature `deadlock_detection`.

use kinlock_core::Native;
use kinlock_core::raw::mutex::{MutexConfig, QueuedMutex};

/// How a thread holds a lock, or wants to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Exclusive,
}

#[inline(always)]
pub(crate) fn lock<L>(_: &L, _: Kind, _: impl Fn(u64) -> bool, lock: impl FnOnce()) {
    lock();
}

#[inline(always)]
pub(crate) fn acquired<L>(_: &L, _: Kind) {}

#[inline(always)]
pub(crate) fn releasing<L>(_: &L) {}

#[inline(always)]
pub(crate) fn partner<C: MutexConfig>(mutex: &QueuedMutex<Native, C>) -> &QueuedMutex<Native, C> {
    mutex
}
