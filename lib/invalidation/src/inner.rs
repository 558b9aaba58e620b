//! A domain whatever its backend.

use super::backend::Backend;
use super::places::Places;
use crate::raw::{self as raw, Config, Locked, NearWrap, Slots};
use kinlock_core::platform::Atomics;
#[cfg(miri)]
use kinlock_core::platform::Platform;
use kinlock_linux::Native;
use kinlock_linux::config::AsConfigured;

#[derive(Clone, Copy, Debug)]
pub(super) struct Configured;

impl Config for Configured {}

type Of<B, L> = raw::Domain<Native, Configured, B, Places<L>>;

/// A domain with the chosen backend.
// There is one per domain, behind an `Arc`: no need to box the larger variants.
#[derive(Debug)]
pub(super) enum Inner {
    Locked(Of<Locked<Native, AsConfigured>, raw::Member<Native>>),
    Slots(Of<Slots<Native>, <Native as Atomics>::AtomicU64>),
}

/// Evaluates an expression for the domain of any backend.
macro_rules! each {
    ($inner:expr, $domain:ident => $what:expr) => {
        match $inner {
            Inner::Locked($domain) => $what,
            Inner::Slots($domain) => $what,
        }
    };
}
pub(super) use each;

impl Inner {
    pub(super) fn new(backend: Backend, generation: u64) -> Self {
        match backend {
            Backend::Locked => {
                Inner::Locked(raw::Domain::new(Locked::new(generation), Places::new()))
            }
            Backend::Slots => Inner::Slots(raw::Domain::new(Slots::new(generation), Places::new())),
        }
    }

    pub(super) fn backend(&self) -> Backend {
        match self {
            Inner::Locked(_) => Backend::Locked,
            Inner::Slots(_) => Backend::Slots,
        }
    }

    #[inline]
    pub(super) fn begin(&self, place: u16) -> Result<u64, NearWrap> {
        each!(self, domain => domain.begin(place, coarse_now))
    }

    #[inline]
    pub(super) fn end(&self, place: u16) {
        each!(self, domain => domain.end(place));
    }

    #[inline]
    pub(super) fn depth(&self, place: u16) -> u32 {
        each!(self, domain => domain.depth(place))
    }

    pub(super) fn begun_in(&self, place: u16) -> u64 {
        let open = each!(self, domain => domain.sections().find(|open| open.place == place));
        open.map_or(0, |open| open.generation)
    }

    pub(super) fn sections(&self) -> Vec<raw::Open> {
        each!(self, domain => domain.sections().collect())
    }

    pub(super) fn reset_in_child(&self, survivor: Option<u16>) {
        each!(self, domain => domain.reset_in_child(survivor));
    }
}

/// Monotonic time in nanoseconds, accurate to some milliseconds. It takes a few loads; the exact
/// time would take as long as a whole section.
#[inline]
pub(super) fn coarse_now() -> u64 {
    #[cfg(not(miri))]
    {
        kinlock_linux::native::coarse_now()
    }
    #[cfg(miri)]
    Native::now()
}
