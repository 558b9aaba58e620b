//! The MCS lock of Concurrency Kit, through a C shim that the build compiles where the headers are
//! installed. This file is compiled with it.
//!
//! Invariants:
//! 1. A null queue pointer is an unlocked lock.
//! 2. A node lives, in place, from the call to lock until the matching unlock has returned.
//! 3. Only the thread between lock and unlock touches the value.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

use crate::bench::locks::contenders::{Family, Lock};

/// Room for one queue node, at least as large as C's.
#[repr(C, align(16))]
struct Node([usize; 4]);

unsafe extern "C" {
    fn kinlock_ck_mcs_node_size() -> usize;
    fn kinlock_ck_mcs_lock(queue: *mut *mut c_void, node: *mut Node);
    fn kinlock_ck_mcs_unlock(queue: *mut *mut c_void, node: *mut Node);
}

pub struct CkMcs;

impl Family for CkMcs {
    type Of<T: Send + 'static> = CkLock<T>;
}

/// `ck_spinlock_mcs_t` beside the value it guards; the queue node is on the stack.
pub struct CkLock<T> {
    queue: UnsafeCell<*mut c_void>,
    value: UnsafeCell<T>,
}

// SAFETY: the queue is only accessed by the C library, atomically, and the value under the lock:
// invariant 3.
unsafe impl<T: Send> Send for CkLock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for CkLock<T> {}

impl<T: Send + 'static> Lock<T> for CkLock<T> {
    fn new(value: T) -> Self {
        // SAFETY: the function has no preconditions.
        assert!(unsafe { kinlock_ck_mcs_node_size() } <= size_of::<Node>());
        Self {
            queue: UnsafeCell::new(ptr::null_mut()),
            value: UnsafeCell::new(value),
        }
    }

    #[inline(always)]
    fn with<R>(&self, section: impl FnOnce(&mut T) -> R) -> R {
        let mut node = MaybeUninit::uninit();
        // SAFETY: invariants 1 and 2; lock initialises the node.
        unsafe { kinlock_ck_mcs_lock(self.queue.get(), node.as_mut_ptr()) };
        // A section that unwinds would leave the lock taken and its node dangling.
        let abort = AbortOnUnwind;
        // SAFETY: invariant 3.
        let result = section(unsafe { &mut *self.value.get() });
        std::mem::forget(abort);
        // SAFETY: invariant 2: the node is the one that this thread locked with.
        unsafe { kinlock_ck_mcs_unlock(self.queue.get(), node.as_mut_ptr()) };
        result
    }

    fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        eprintln!("kinlock: a critical section under ck-mcs panicked");
        std::process::abort();
    }
}
