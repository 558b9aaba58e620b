//! The MCS lock of Concurrency Kit, through a C shim that the build compiles where the headers are installed.
//!
//! Invariants:
//! 1. A null queue pointer is an unlocked lock.
//! 2. A node lives, in place, from the call to lock until the matching unlock has returned.
//! 3. Only the thread between lock and unlock touches the value.

#[cfg(have_ck)]
pub use present::{CkMcs, UNAVAILABLE};

#[cfg(not(have_ck))]
pub use absent::{CkMcs, UNAVAILABLE};

#[cfg(have_ck)]
mod present {
    use std::cell::UnsafeCell;
    use std::ffi::c_void;
    use std::mem::MaybeUninit;
    use std::ptr;

    use crate::locks::{Family, Lock};

    pub const UNAVAILABLE: Option<&str> = None;

    /// Room for one queue node, at least as large as C's.
    #[repr(C, align(16))]
    struct Node([usize; 4]);

    unsafe extern "C" {
        fn kinlock_ck_mcs_node_size() -> usize;
        fn kinlock_ck_mcs_lock(queue: *mut *mut c_void, node: *mut Node);
        fn kinlock_ck_mcs_unlock(queue: *mut *mut c_void, node: *mut Node);
    }

    /// The family of [`CkLock`].
    pub struct CkMcs;

    impl Family for CkMcs {
        type Of<T: Send + 'static> = CkLock<T>;
    }

    /// `ck_spinlock_mcs_t` beside the value it guards; the queue node is on the stack.
    pub struct CkLock<T> {
        queue: UnsafeCell<*mut c_void>,
        value: UnsafeCell<T>,
    }

    // SAFETY: the queue is only accessed by the C library, atomically, and the value under the lock: invariant 3.
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
}

#[cfg(not(have_ck))]
mod absent {
    use std::convert::Infallible;
    use std::marker::PhantomData;

    use crate::locks::{Family, Lock};

    pub const UNAVAILABLE: Option<&str> =
        Some("install Concurrency Kit's headers (Debian: libck-dev, Fedora: ck-devel) and rebuild");

    /// The family of [`NoLock`].
    pub struct CkMcs;

    impl Family for CkMcs {
        type Of<T: Send + 'static> = NoLock<T>;
    }

    /// A lock of which there is no value: no verb uses a lock that is unavailable.
    pub struct NoLock<T>(Infallible, PhantomData<fn(T) -> T>);

    impl<T: Send + 'static> Lock<T> for NoLock<T> {
        fn new(_: T) -> Self {
            panic!("this build has no ck-mcs")
        }

        fn with<R>(&self, _: impl FnOnce(&mut T) -> R) -> R {
            match self.0 {}
        }

        fn into_inner(self) -> T {
            match self.0 {}
        }
    }
}
