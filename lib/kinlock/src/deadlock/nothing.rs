//! Without the feature nothing is noted.

use super::Kind;
use kinlock_core::platform::NEVER;

/// An acquisition under way.
pub(crate) struct Acquiring;

impl Acquiring {
    #[inline(always)]
    pub(crate) fn begin<L>(_: &L, _: Kind) -> Self {
        Acquiring
    }

    #[inline(always)]
    pub(crate) fn upgrade<L>(_: &L) -> Self {
        Acquiring
    }

    #[inline(always)]
    pub(crate) fn next_limit(&mut self) -> u64 {
        NEVER
    }

    #[inline(always)]
    pub(crate) fn end(self) {}
}

#[inline(always)]
pub(crate) fn forbid_relock<L>(_: &L) {}

#[inline(always)]
pub(crate) fn tried<L>(_: &L, _: Kind, taken: bool) -> bool {
    taken
}

#[inline(always)]
pub(crate) fn changed<L>(_: &L, _: Kind) {}

#[inline(always)]
pub(crate) fn releasing<L>(_: &L) {}
