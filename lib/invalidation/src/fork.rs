//! What happens to domains in the child of a fork.
//!
//! # Invariants
//!
//! 1. `fork` of the core calls the functions of a part on one thread, which has locked the list
//!    with the first of them. In the child it is the only thread.

use super::registry::DOMAINS;
use super::thread;
use kinlock_linux::fork::Part;
use kinlock_linux::native::register_for_fork;
use std::sync::Weak;

/// Must be called before a domain is used.
pub(super) fn prepare() {
    register_for_fork(2, &PART);
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
