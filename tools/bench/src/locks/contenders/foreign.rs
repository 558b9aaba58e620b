//! Locks in C that a constant cannot initialise, or that need a node: the C library's spinlock, and
//! queue locks whose nodes lie on the stacks of the waiters. The queue locks consist of inline
//! functions and are called through shims in C, which the build compiles if the headers are
//! installed: the MCS lock of Concurrency Kit and the CNA lock of libvsync.
//!
//! Invariants:
//! 1. An initialised lock may be moved until it is first taken: none keeps an address in it. The
//!    command does not move a lock after that. A null queue pointer is an unlocked lock.
//! 2. A node lives, in place, from the call to lock until the matching unlock has returned.
//! 3. Only the thread between lock and unlock touches the value.
//! 4. A node has the size and the alignment that C's has: the shims assert it.

use std::cell::UnsafeCell;
#[cfg(any(have_ck_mcs, have_vsync_cna))]
use std::ffi::c_void;
use std::mem::MaybeUninit;

use super::Lock;
use crate::harness::team::AbortOnPanic;

/// A lock that is taken by way of a node.
pub trait Foreign: Send + Sync + 'static {
    /// The memory that all threads share.
    type Memory;
    /// Room for one node.
    type Node;

    fn unlocked() -> Self::Memory;
    /// Takes the lock by way of a node that it initialises.
    ///
    /// # Safety
    ///
    /// Invariants 1 and 2.
    unsafe fn lock(lock: *mut Self::Memory, node: *mut Self::Node);
    /// Frees the lock.
    ///
    /// # Safety
    ///
    /// Invariants 1 and 2. The calling thread has taken the lock by way of this node.
    unsafe fn unlock(lock: *mut Self::Memory, node: *mut Self::Node);
}

/// Such a lock with the value that it guards.
pub struct Guarded<F: Foreign, T> {
    lock: UnsafeCell<F::Memory>,
    value: UnsafeCell<T>,
}

// SAFETY: the lock is only accessed by its functions, which synchronise, and the value under it:
// invariant 3.
unsafe impl<F: Foreign, T: Send> Send for Guarded<F, T> {}
// SAFETY: as above.
unsafe impl<F: Foreign, T: Send> Sync for Guarded<F, T> {}

impl<F: Foreign, T: Send + 'static> Lock<T> for Guarded<F, T> {
    fn new(value: T) -> Self {
        Self {
            lock: UnsafeCell::new(F::unlocked()),
            value: UnsafeCell::new(value),
        }
    }

    #[inline(always)]
    fn with<R>(&self, section: impl FnOnce(&mut T) -> R) -> R {
        let mut node = MaybeUninit::uninit();
        // SAFETY: invariants 1 and 2.
        unsafe { F::lock(self.lock.get(), node.as_mut_ptr()) };
        // A panic in the section aborts the process: the others would wait for the lock forever,
        // some on a node that no longer exists. Without a panic this costs nothing.
        let abort = AbortOnPanic;
        // SAFETY: invariant 3.
        let result = section(unsafe { &mut *self.value.get() });
        std::mem::forget(abort);
        // SAFETY: invariants 1 and 2: the node is the one that this thread locked with.
        unsafe { F::unlock(self.lock.get(), node.as_mut_ptr()) };
        result
    }

    fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

/// `pthread_spinlock_t`, private to the process. Its unlocked value differs between machines and is
/// known only to the C library.
pub struct PthreadSpin;

impl Foreign for PthreadSpin {
    type Memory = libc::pthread_spinlock_t;
    type Node = ();

    fn unlocked() -> Self::Memory {
        let mut lock = 0;
        // SAFETY: the pointer is to a local; invariant 1 permits moving it.
        unsafe { libc::pthread_spin_init(&mut lock, libc::PTHREAD_PROCESS_PRIVATE) };
        lock
    }

    #[inline(always)]
    unsafe fn lock(lock: *mut Self::Memory, _: *mut ()) {
        // SAFETY: as the caller says.
        unsafe { libc::pthread_spin_lock(lock) };
    }

    #[inline(always)]
    unsafe fn unlock(lock: *mut Self::Memory, _: *mut ()) {
        // SAFETY: as the caller says.
        unsafe { libc::pthread_spin_unlock(lock) };
    }
}

/// `ck_spinlock_mcs_t`, a pointer to the last node.
#[cfg(have_ck_mcs)]
pub struct CkMcs;
#[cfg(have_ck_mcs)]
pub type CkMcsLock<T> = Guarded<CkMcs, T>;
/// Never taken: the lock is unavailable.
#[cfg(not(have_ck_mcs))]
pub type CkMcsLock<T> = std::sync::Mutex<T>;

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
impl Foreign for CkMcs {
    type Memory = *mut c_void;
    type Node = CkNode;

    fn unlocked() -> Self::Memory {
        std::ptr::null_mut()
    }

    #[inline(always)]
    unsafe fn lock(queue: *mut Self::Memory, node: *mut CkNode) {
        // SAFETY: as the caller says; invariant 4.
        unsafe { kinlock_ck_mcs_lock(queue, node) };
    }

    #[inline(always)]
    unsafe fn unlock(queue: *mut Self::Memory, node: *mut CkNode) {
        // SAFETY: as the caller says; invariant 4.
        unsafe { kinlock_ck_mcs_unlock(queue, node) };
    }
}

/// `cnalock_t`. It gets the locality domain in which the calling thread runs, as our own locks see
/// it.
#[cfg(have_vsync_cna)]
pub struct VsyncCna;
#[cfg(have_vsync_cna)]
pub type VsyncCnaLock<T> = Guarded<VsyncCna, T>;
/// Never taken: the lock is unavailable.
#[cfg(not(have_vsync_cna))]
pub type VsyncCnaLock<T> = std::sync::Mutex<T>;

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
impl Foreign for VsyncCna {
    type Memory = *mut c_void;
    type Node = VsyncNode;

    fn unlocked() -> Self::Memory {
        std::ptr::null_mut()
    }

    #[inline(always)]
    unsafe fn lock(queue: *mut Self::Memory, node: *mut VsyncNode) {
        let domain = kinlock_linux::topology::current_domain();
        // SAFETY: as the caller says; invariant 4. Any number is the name of a domain.
        unsafe { kinlock_vsync_cna_lock(queue, node, domain.into()) };
    }

    #[inline(always)]
    unsafe fn unlock(queue: *mut Self::Memory, node: *mut VsyncNode) {
        let domain = kinlock_linux::topology::current_domain();
        // SAFETY: as the caller says; invariant 4. Any number is the name of a domain.
        unsafe { kinlock_vsync_cna_unlock(queue, node, domain.into()) };
    }
}
