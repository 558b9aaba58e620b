//! All domains of the process, for threads that end and for children of fork.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. Functions registered with the C library are `extern "C"`, do not unwind, and live as long as the program.
//! 2. The lock is taken before a fork, and released after it by the same thread, in the parent and in the child.

use super::domain::Inner;
use super::{Backend, thread};
use crate::Mutex;
use std::sync::{Once, Weak};

static DOMAINS: Mutex<Vec<Weak<Inner>>> = Mutex::new(Vec::new());

/// A section that is open in some domain.
pub(super) struct Open {
    pub(super) generation: u64,
    pub(super) backend: Backend,
}

/// Adds a domain. Forgets those that are gone.
pub(super) fn add(domain: Weak<Inner>) {
    handle_forks();
    let mut domains = DOMAINS.lock();
    domains.retain(|known| known.strong_count() != 0);
    domains.push(domain);
}

/// A section that is open in this place, in whatever domain.
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

#[cfg(miri)]
fn handle_forks() {}

#[cfg(not(miri))]
fn handle_forks() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: invariant 1. Without memory for it, children of fork inherit open sections that nobody ends.
        unsafe {
            libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child));
        }
    });
}

/// So that no other thread is changing the list meanwhile.
extern "C" fn before_fork() {
    core::mem::forget(DOMAINS.lock());
}

extern "C" fn after_fork() {
    // SAFETY: invariant 2.
    unsafe { DOMAINS.force_unlock() };
}

extern "C" fn in_child() {
    // SAFETY: invariant 2: held by this thread, which is the only one.
    let domains = unsafe { &*DOMAINS.data_ptr() };
    let kept = thread::kept();
    for domain in domains.iter().filter_map(Weak::upgrade) {
        domain.reset_in_child(kept);
    }
    thread::reset_in_child();
    // SAFETY: invariant 2.
    unsafe { DOMAINS.force_unlock() };
    // Waiters may have stood in line who do not exist here.
    // SAFETY: it is free, and there is no other thread.
    unsafe { DOMAINS.raw() }.0.reset_in_child();
}
