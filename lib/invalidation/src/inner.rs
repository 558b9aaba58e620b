//! A domain whatever its backend, and all domains of the process, for ending threads and forked
//! children.
//!
//! # Invariant
//!
//! 1. A domain is in [`DOMAINS`] from when it is complete until it is dropped. It does not move.

use super::backend::Backend;
use super::places::Places;
use crate::raw::{self as raw, Config, Locked, Open, Slots};
use kinlock_core::platform::Atomics;
#[cfg(miri)]
use kinlock_core::platform::Platform;
use kinlock_linux::Native;
use kinlock_linux::config::AsConfigured;
use kinlock_linux::list::{Link, Linked, List};
use std::sync::Arc;

static DOMAINS: List<Inner> = List::EMPTY;

#[derive(Clone, Copy, Debug)]
pub(super) struct Configured;

impl Config for Configured {}

type Of<B, L> = raw::Domain<Native, Configured, B, Places<L>>;

/// A domain in the list.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) kind: Kind,
    link: Link<Inner>,
}

/// A domain with the chosen backend.
// There is one per domain, behind an `Arc`: no need to box the larger variants.
#[derive(Debug)]
pub(super) enum Kind {
    Locked(Of<Locked<Native, AsConfigured>, raw::Member<Native>>),
    Slots(Of<Slots<Native>, <Native as Atomics>::AtomicU64>),
}

/// Evaluates an expression for the domain of any backend.
macro_rules! each {
    ($inner:expr, $domain:ident => $what:expr) => {
        match &$inner.kind {
            $crate::inner::Kind::Locked($domain) => $what,
            $crate::inner::Kind::Slots($domain) => $what,
        }
    };
}
pub(super) use each;

impl Linked for Inner {
    fn link(&self) -> &Link<Self> {
        &self.link
    }
}

impl Inner {
    pub(super) fn new(backend: Backend) -> Arc<Self> {
        let kind = match backend {
            Backend::Locked => Kind::Locked(raw::Domain::new(Locked::new(0), Places::new())),
            Backend::Slots => Kind::Slots(raw::Domain::new(Slots::new(0), Places::new())),
        };
        let link = Link::new();
        let inner = Arc::new(Inner { kind, link });
        // SAFETY: invariant 1.
        unsafe { DOMAINS.add(&inner) };
        inner
    }

    /// Must be called before the domain is dropped, and when nothing else uses it.
    pub(super) fn forget(&self) {
        DOMAINS.remove(self);
    }

    pub(super) fn backend(&self) -> Backend {
        match self.kind {
            Kind::Locked(_) => Backend::Locked,
            Kind::Slots(_) => Backend::Slots,
        }
    }
}

/// A section that is open in this place, in any domain, and the backend of that domain.
pub(super) fn open_in(place: u16) -> Option<(Open, Backend)> {
    let mut found = None;
    DOMAINS.any(|inner| {
        let open = each!(inner, domain => domain.section(place));
        found = open.map(|open| (open, inner.backend()));
        found.is_some()
    });
    found
}

/// In the child of a fork: ends all sections but those in the place `kept`.
///
/// # Safety
///
/// The calling thread is the only one, and was not in a function of this module when it forked.
pub(super) unsafe fn reset_in_child(kept: Option<u16>) {
    let reset = |inner: &Inner| each!(inner, domain => domain.reset_in_child(kept));
    // SAFETY: by the caller.
    unsafe { DOMAINS.for_each_in_child(reset) };
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
