//! All domains of the process, for ending threads and forked children.
//!
//! # Invariant
//!
//! 1. A domain is in the list from when it is complete until it is dropped. It does not move.

use super::backend::Backend;
use super::inner::Inner;
use kinlock_linux::list::{Link, Linked, List};
use std::ops::Deref;
use std::sync::Arc;

static DOMAINS: List<Known> = List::EMPTY;

/// A domain in the list.
#[derive(Debug)]
pub(super) struct Known {
    inner: Inner,
    link: Link<Known>,
}

impl Deref for Known {
    type Target = Inner;

    #[inline]
    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl Linked for Known {
    fn link(&self) -> &Link<Self> {
        &self.link
    }
}

impl Known {
    pub(super) fn new(inner: Inner) -> Arc<Self> {
        let link = Link::new();
        let known = Arc::new(Known { inner, link });
        // SAFETY: invariant 1.
        unsafe { DOMAINS.add(&known) };
        known
    }
}

/// Must be called before the domain is dropped, and when nothing else uses it.
pub(super) fn forget(known: &Known) {
    DOMAINS.remove(known);
}

/// A section that is open in some domain.
pub(super) struct Open {
    pub(super) generation: u64,
    pub(super) backend: Backend,
}

/// A section that is open in this place, in any domain.
pub(super) fn open_in(place: u16) -> Option<Open> {
    let mut open = None;
    DOMAINS.any(|domain| {
        if domain.depth(place) != 0 {
            open = Some(Open {
                generation: domain.begun_in(place),
                backend: domain.backend(),
            });
        }
        open.is_some()
    });
    open
}

/// In the child of a fork: calls `each` with each domain.
///
/// # Safety
///
/// The calling thread is the only one, and was not in a function of this module when it forked.
pub(super) unsafe fn for_each_in_child(mut each: impl FnMut(&Inner)) {
    // SAFETY: by the caller.
    unsafe { DOMAINS.for_each_in_child(|known| each(known)) };
}
