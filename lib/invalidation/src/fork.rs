//! What happens to domains in the child of a fork.
//!
//! # Invariant
//!
//! 1. `fork` of kinlock-linux calls the function of a part in the child, on its only thread.

use super::{registry, thread};
use kinlock_linux::fork::Part;
use kinlock_linux::native::register_for_fork;

/// Must be called before a domain is used.
pub(super) fn prepare() {
    register_for_fork(2, &PART);
}

/// The domains, as a part of the fork protocol. Rank 2: it uses parts of lower ranks.
static PART: Part = Part { reset_in_child };

/// Ends the sections of threads that do not exist in the child of a fork.
fn reset_in_child() {
    let kept = thread::kept();
    // SAFETY: invariant 1.
    unsafe { registry::for_each_in_child(|domain| domain.reset_in_child(kept)) };
    thread::reset_in_child();
}
