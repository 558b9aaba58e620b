//! All domains of the process, for ending threads and forked children.
//!
//! # Invariants
//!
//! 1. A domain is in the list from when it is complete until it is dropped. It does not move.
//! 2. `fork` calls the function of [`PART`] in the child, on its only thread.

use super::backend::Backend;
use super::inner::Inner;
use super::thread;
use kinlock_linux::fork::Part;
use kinlock_linux::list::{Link, Linked, List};
use kinlock_linux::native::register_for_fork;
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
        register_for_fork(2, &PART);
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

/// The list of domains, as a part of the fork protocol. Rank 2: it uses parts of lower ranks.
static PART: Part = Part { reset_in_child };

/// Ends the sections of threads that do not exist in the child of a fork.
fn reset_in_child() {
    let kept = thread::kept();
    // SAFETY: invariant 2.
    unsafe { DOMAINS.for_each_in_child(|domain| domain.reset_in_child(kept)) };
    thread::reset_in_child();
}
