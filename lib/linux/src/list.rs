//! A list of objects that ending threads and forked children have to find.
//!
//! The objects are linked to each other, so that adding one allocates nothing. Each change is one
//! store. So the list is whole at every moment, and a thread that forks need not lock it: the child
//! finds the list as it was before or after a change, and frees its lock.
//!
//! # Invariants
//!
//! 1. An object stays alive and in its place from `add` until `remove` has returned. That is what
//!    the caller of `add` promises.
//! 2. Links are written, and objects reached through them, under the lock, or in the child of a
//!    fork on its only thread. A child has no object that its parent had removed and freed: the
//!    thread that freed it had stored the link before that.
//! 3. Only the holder of the lock releases it. Functions that are called under it neither allocate
//!    nor call other code, and do not unwind.

use crate::config::AsConfigured;
use crate::native::Native;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering::*};
use kinlock_core::raw::mutex::QueuedMutex;

/// The link to the next object.
#[derive(Debug)]
pub struct Link<T>(AtomicPtr<T>);

impl<T> Link<T> {
    /// A link to nothing.
    pub const fn new() -> Self {
        Link(AtomicPtr::new(ptr::null_mut()))
    }
}

impl<T> Default for Link<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// An object that can be in a [`List`].
pub trait Linked: Sized + Sync + 'static {
    /// The object's link, always the same one. Only the list changes it.
    fn link(&self) -> &Link<Self>;
}

/// The list. The object that was added last is the first.
#[derive(Debug)]
pub struct List<T> {
    first: Link<T>,
    lock: QueuedMutex<Native, AsConfigured>,
}

impl<T> List<T> {
    /// An empty list.
    pub const EMPTY: Self = List {
        first: Link::new(),
        lock: QueuedMutex::new(),
    };
}

impl<T: Linked> List<T> {
    /// Adds an object that is in no list.
    ///
    /// # Safety
    ///
    /// Invariant 1.
    pub unsafe fn add(&self, object: &T) {
        self.lock.lock();
        let first = self.first.0.load(Relaxed);
        object.link().0.store(first, Relaxed);
        // Release: a child that has this store also has the object, see `for_each_in_child`.
        self.first
            .0
            .store(ptr::from_ref(object).cast_mut(), Release);
        // SAFETY: invariant 3.
        unsafe { self.lock.unlock() };
    }

    /// Removes an object, if it is there.
    pub fn remove(&self, object: &T) {
        self.lock.lock();
        let mut link = &self.first;
        // SAFETY: invariants 1 and 2.
        while let Some(other) = unsafe { link.0.load(Relaxed).as_ref() } {
            if ptr::eq(other, object) {
                // Release: as in `add`. The object's own link stays: a child that still finds the
                // object also finds those behind it.
                link.0.store(object.link().0.load(Relaxed), Release);
                break;
            }
            link = other.link();
        }
        // SAFETY: invariant 3.
        unsafe { self.lock.unlock() };
    }

    /// Calls `each` with each object, under the lock, until `each` returns `true`. Returns whether
    /// it did. Invariant 3 says what `each` must not do.
    pub fn any(&self, each: impl FnMut(&T) -> bool) -> bool {
        self.lock.lock();
        // SAFETY: invariants 1 and 2.
        let found = unsafe { self.walk() }.any(each);
        // SAFETY: invariant 3.
        unsafe { self.lock.unlock() };
        found
    }

    /// Like [`any`](Self::any). `None` if the lock is held, perhaps by code that the caller, a
    /// signal handler, has interrupted.
    pub fn try_any(&self, each: impl FnMut(&T) -> bool) -> Option<bool> {
        if !self.lock.try_lock() {
            return None;
        }
        // SAFETY: invariants 1 and 2.
        let found = unsafe { self.walk() }.any(each);
        // SAFETY: invariant 3.
        unsafe { self.lock.unlock() };
        Some(found)
    }

    /// In the child of a fork: calls `each` with each object, and frees the lock.
    ///
    /// # Safety
    ///
    /// The calling thread is the only one, and was not in a function of this list when it forked.
    pub unsafe fn for_each_in_child(&self, each: impl FnMut(&T)) {
        // SAFETY: invariants 1 and 2, by the caller.
        unsafe { self.walk() }.for_each(each);
        // SAFETY: the caller promises that nobody relies on holding the lock.
        unsafe { self.lock.reset_in_child() };
    }

    /// # Safety
    ///
    /// Invariants 1 and 2.
    unsafe fn walk(&self) -> impl Iterator<Item = &T> {
        // SAFETY: by the caller.
        let next = |link: &Link<T>| unsafe { link.0.load(Acquire).as_ref() };
        core::iter::successors(next(&self.first), move |object| next(object.link()))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Object(u32, Link<Object>);

    impl Linked for Object {
        fn link(&self) -> &Link<Self> {
            &self.1
        }
    }

    fn numbers(list: &List<Object>) -> Vec<u32> {
        let mut seen = Vec::new();
        assert!(!list.any(|object| {
            seen.push(object.0);
            false
        }));
        seen
    }

    #[test]
    fn objects_come_and_go_in_any_order() {
        static LIST: List<Object> = List::EMPTY;
        let objects: Vec<_> = (0..5).map(|number| Object(number, Link::new())).collect();
        for object in &objects {
            // SAFETY: invariant 1: all are removed below.
            unsafe { LIST.add(object) };
        }
        assert_eq!(numbers(&LIST), [4, 3, 2, 1, 0]);
        for (gone, left) in [
            (2, &[4, 3, 1, 0][..]),
            (4, &[3, 1, 0]),
            (0, &[3, 1]),
            (0, &[3, 1]),
            (1, &[3]),
            (3, &[]),
        ] {
            LIST.remove(&objects[gone]);
            assert_eq!(numbers(&LIST), left);
        }
    }

    #[test]
    fn a_list_that_is_in_use_is_not_waited_for() {
        static LIST: List<Object> = List::EMPTY;
        let object = Object(1, Link::new());
        // SAFETY: invariant 1: it is removed below.
        unsafe { LIST.add(&object) };
        assert_eq!(LIST.try_any(|found| found.0 == 1), Some(true));
        let mut within = None;
        assert!(LIST.any(|_| {
            within = Some(LIST.try_any(|_| true));
            true
        }));
        assert_eq!(within, Some(None));
        // As in the child of a fork, where the thread that used the list does not exist.
        LIST.lock.lock();
        let mut found = 0;
        // SAFETY: no other thread uses this list.
        unsafe { LIST.for_each_in_child(|_| found += 1) };
        assert_eq!((found, LIST.try_any(|_| false)), (1, Some(false)));
        LIST.remove(&object);
    }
}
