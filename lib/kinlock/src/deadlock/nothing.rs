//! Without the feature nothing is noted.

use super::Kind;

#[inline(always)]
pub(crate) fn lock<L>(_: &L, _: Kind, _: impl Fn(u64) -> bool, lock: impl FnOnce()) {
    lock();
}

#[inline(always)]
pub(crate) fn upgrade<L>(_: &L, _: impl Fn(u64) -> bool, upgrade: impl FnOnce()) {
    upgrade();
}

#[inline(always)]
pub(crate) fn tried<L>(_: &L, _: Kind, taken: bool) -> bool {
    taken
}

#[inline(always)]
pub(crate) fn acquired<L>(_: &L, _: Kind) {}

#[inline(always)]
pub(crate) fn changed<L>(_: &L, _: Kind) {}

#[inline(always)]
pub(crate) fn releasing<L>(_: &L) {}
