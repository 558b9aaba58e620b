//! All domains of the process, for ending threads and forked children.

use super::domain::Inner;
use super::{Backend, thread};
use crate::Mutex;
use std::sync::Weak;

static DOMAINS: Mutex<Vec<Weak<Inner>>> = Mutex::new(Vec::new());

/// A section that is open in some domain.
pub(super) struct Open {
    pub(super) generation: u64,
    pub(super) backend: Backend,
}

/// Adds a domain. Forgets dropped ones.
pub(super) fn add(domain: Weak<Inner>) {
    crate::fork::register();
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

/// For [`fork`](crate::fork): locks the list until one of the next two functions runs on this
/// thread.
pub(crate) fn lock_before_fork() {
    core::mem::forget(DOMAINS.lock());
}

/// # Safety
///
/// The calling thread has [locked](lock_before_fork).
pub(crate) unsafe fn unlock_after_fork() {
    // SAFETY: the caller's promise.
    unsafe { DOMAINS.force_unlock() };
}

/// In the child of a fork: ends the sections of threads that do not exist there.
///
/// # Safety
///
/// The calling thread has [locked](lock_before_fork) before the fork, and is the only one.
pub(crate) unsafe fn reset_in_child() {
    // SAFETY: the caller's promise.
    let domains = unsafe { &*DOMAINS.data_ptr() };
    let kept = thread::kept();
    for domain in domains.iter().filter_map(Weak::upgrade) {
        domain.reset_in_child(kept);
    }
    thread::reset_in_child();
    // SAFETY: the caller's promise.
    unsafe { DOMAINS.force_unlock() };
    // Drops waiters that do not exist here.
    // SAFETY: the mutex is free, and there is no other thread.
    unsafe { DOMAINS.raw() }.0.reset_in_child();
}
