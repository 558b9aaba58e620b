//! Locks of C libraries that consist of inline functions, through shims in C that the build
//! compiles where the headers are installed: the MCS lock of Concurrency Kit and the CNA lock of
//! libvsync. Both are queues whose nodes lie on the stacks of the waiters.
//!
//! Invariants:
//! 1. A null queue pointer is an unlocked lock.
//! 2. A node lives, in place, from the call to lock until the matching unlock has returned.
//! 3. Only the thread between lock and unlock touches the value.
//! 4. A node has the size and the alignment that C's has: the shims assert it.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;

use super::{Family, Lock};
use crate::harness::team::or_abort;

/// A lock that is a pointer to the last node of a queue.
pub trait Queue: Send + Sync + 'static {
    /// Room for one node.
    type Node;

    /// Takes the lock by way of a node that it initialises.
    ///
    /// # Safety
    ///
    /// Invariants 1 and 2.
    unsafe fn lock(queue: *mut *mut c_void, node: *mut Self::Node);
    /// Frees the lock.
    ///
    /// # Safety
    ///
    /// Invariants 1 and 2. The calling thread has taken the lock by way of this node.
    unsafe fn unlock(queue: *mut *mut c_void, node: *mut Self::Node);
}

/// `ck_spinlock_mcs_t`.
#[cfg(have_ck_mcs)]
pub struct CkMcs;

/// `ck_spinlock_mcs_context_t`.
#[cfg(have_ck_mcs)]
#[repr(C, align(16))]
pub struct CkNode([usize; 4]);

#[cfg(have_ck_mcs)]
unsafe extern "C" {
    fn kinlock_ck_mcs_lock(queue: *mut *mut c_void, node: *mut CkNode);
    fn kinlock_ck_mcs_unlock(queue: *mut *mut c_void, node: *mut CkNode);
}

#[cfg(have_ck_mcs)]
impl Queue for CkMcs {
    type Node = CkNode;

    #[inline(always)]
    unsafe fn lock(queue: *mut *mut c_void, node: *mut CkNode) {
        // SAFETY: as the caller says; invariant 4.
        unsafe { kinlock_ck_mcs_lock(queue, node) };
    }

    #[inline(always)]
    unsafe fn unlock(queue: *mut *mut c_void, node: *mut CkNode) {
        // SAFETY: as the caller says; invariant 4.
        unsafe { kinlock_ck_mcs_unlock(queue, node) };
    }
}

/// `cnalock_t`. It is told the locality domain in which the calling thread runs, as our own locks
/// see it.
#[cfg(have_vsync_cna)]
pub struct VsyncCna;

/// `cna_node_t`.
#[cfg(have_vsync_cna)]
#[repr(C, align(128))]
pub struct VsyncNode([u8; 128]);

#[cfg(have_vsync_cna)]
unsafe extern "C" {
    fn kinlock_vsync_cna_lock(queue: *mut *mut c_void, node: *mut VsyncNode, domain: u32);
    fn kinlock_vsync_cna_unlock(queue: *mut *mut c_void, node: *mut VsyncNode, domain: u32);
}

#[cfg(have_vsync_cna)]
impl Queue for VsyncCna {
    type Node = VsyncNode;

    #[inline(always)]
    unsafe fn lock(queue: *mut *mut c_void, node: *mut VsyncNode) {
        let domain = kinlock_linux::topology::current_domain();
        // SAFETY: as the caller says; invariant 4. Any number is the name of a domain.
        unsafe { kinlock_vsync_cna_lock(queue, node, domain.into()) };
    }

    #[inline(always)]
    unsafe fn unlock(queue: *mut *mut c_void, node: *mut VsyncNode) {
        let domain = kinlock_linux::topology::current_domain();
        // SAFETY: as the caller says; invariant 4. Any number is the name of a domain.
        unsafe { kinlock_vsync_cna_unlock(queue, node, domain.into()) };
    }
}

/// The family of such a lock.
pub struct Queued<Q>(PhantomData<Q>);

impl<Q: Queue> Family for Queued<Q> {
    type Of<T: Send + 'static> = QueuedLock<Q, T>;
}

/// The pointer to the queue beside the value that the lock guards.
pub struct QueuedLock<Q, T> {
    queue: UnsafeCell<*mut c_void>,
    value: UnsafeCell<T>,
    of: PhantomData<Q>,
}

// SAFETY: the queue is only accessed by the C library, atomically, and the value under the lock:
// invariant 3.
unsafe impl<Q, T: Send> Send for QueuedLock<Q, T> {}
// SAFETY: as above.
unsafe impl<Q, T: Send> Sync for QueuedLock<Q, T> {}

impl<Q: Queue, T: Send + 'static> Lock<T> for QueuedLock<Q, T> {
    fn new(value: T) -> Self {
        Self {
            queue: UnsafeCell::new(ptr::null_mut()),
            value: UnsafeCell::new(value),
            of: PhantomData,
        }
    }

    #[inline(always)]
    fn with<R>(&self, section: impl FnOnce(&mut T) -> R) -> R {
        let mut node = MaybeUninit::uninit();
        // SAFETY: invariants 1 and 2.
        unsafe { Q::lock(self.queue.get(), node.as_mut_ptr()) };
        // SAFETY: invariant 3.
        let result = or_abort(|| section(unsafe { &mut *self.value.get() }));
        // SAFETY: invariant 2: the node is the one that this thread locked with.
        unsafe { Q::unlock(self.queue.get(), node.as_mut_ptr()) };
        result
    }

    fn into_inner(self) -> T {
        self.value.into_inner()
    }
}
