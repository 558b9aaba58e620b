//! All domains of the process, for ending threads and forked children.
//!
//! # Invariants
//!
//! 1. `fork` calls the functions of a part on one thread, which has locked the list with the first
//!    of them. In the child it is the only thread.

use super::domain::Inner;
use super::{Backend, thread};
use kinlock::Mutex;
use kinlock_core::fork::Part;
use std::sync::Weak;

static DOMAINS: Mutex<Vec<Weak<Inner>>> = Mutex::new(Vec::new());

/// A section that is open in some domain.
pub(super) struct Open {
    pub(super) generation: u64,
    pub(super) backend: Backend,
}

/// Adds a domain. Forgets dropped ones.
pub(super) fn add(domain: Weak<Inner>) {
    kinlock_core::fork::register(2, &PART);
    let mut domains = DOMAINS.lock();
    domains.retain(|known| known.strong_count() != 0);
    domains.push(domain);
}

/// A section that is open in this place, in any domain.
pub(super) fn open_in(place: u16) -> Option<Open> {
    let domains = DOMAINS.lock();
    let mut alive = domains.iter().filter_map(Weak::upgrade);
    alive.find_map(|domain| {
        (domain.depth(place) != 0).then(|| Open {
            generation: domain.begun_in(place),
            backend: domain.backend(),
        })
    })
}

/// The list of domains, as a part of the fork protocol. Rank 2: it uses parts of lower ranks.
static PART: Part = Part {
    lock: lock_before_fork,
    unlock: unlock_after_fork,
    reset_in_child,
};

/// Locks the list until one of the next two functions runs on this thread.
fn lock_before_fork() {
    core::mem::forget(DOMAINS.lock());
}

/// Called by the thread that has called [`lock_before_fork`].
fn unlock_after_fork() {
    // SAFETY: invariant 1.
    unsafe { DOMAINS.force_unlock() };
}

/// Ends the sections of threads that do not exist in the child of a fork.
fn reset_in_child() {
    // SAFETY: invariant 1.
    let domains = unsafe { &*DOMAINS.data_ptr() };
    let kept = thread::kept();
    for domain in domains.iter().filter_map(Weak::upgrade) {
        domain.reset_in_child(kept);
    }
    thread::reset_in_child();
    // SAFETY: invariant 1. The word may name waiters that do not exist in the child.
    unsafe {
        DOMAINS.force_unlock();
        DOMAINS.raw().reset_in_child();
    }
}
