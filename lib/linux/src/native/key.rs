//! Keys of thread-specific data by whose destructors a library learns that a thread ends.
//!
//! The C library calls them in *rounds*: there is another round as long as a destructor sets its
//! key again, up to [`ROUNDS`] of them at least. A library that acts in several rounds stores the
//! number of the next round as the key's value.
//!
//! A program may rely on having all keys of the C library. So a library that replaces the C
//! library's function gives up its keys once no other key is left ([`Key::give_up`]).
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. `pthread_key_create` writes to a local. All other functions for keys check the key's number.
//!    A key is deleted, or a value set to null, only while no other code has stored a value under
//!    it. Destructors do not unwind, and stay loaded: objects with a copy of this crate are pinned.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering::*, fence};

/// From this key on, the C library allocates memory to store a value.
const FIRST_THAT_ALLOCATES: libc::pthread_key_t = 32;

/// How many rounds there are at least: `_POSIX_THREAD_DESTRUCTOR_ITERATIONS`.
pub const ROUNDS: usize = 4;

/// A key, or none: not yet, or no longer.
#[derive(Debug)]
pub struct Key(
    /// Its number plus 1; 0: there is none.
    AtomicU64,
);

impl Key {
    /// No key.
    pub const NONE: Self = Key(AtomicU64::new(0));

    /// Whether there is a key.
    pub fn exists(&self) -> bool {
        self.0.load(Relaxed) != 0
    }

    /// Makes the key, if there is one whose values need no memory. Called by one thread at a time.
    /// A thread that ends calls the destructor if it has stored a value.
    pub fn make(&self, destructor: unsafe extern "C" fn(*mut c_void)) {
        if let Some(key) = without_allocation(Some(destructor)) {
            self.0.store(u64::from(key) + 1, Relaxed);
        }
    }

    /// Makes the key, once, even if its values need memory. Not for signal handlers.
    ///
    /// Two threads may each make a key, of which one is kept. A `Once` would be simpler, but in the
    /// child of a fork it might wait forever for a thread that does not exist there.
    pub fn prepare(&self, destructor: unsafe extern "C" fn(*mut c_void)) {
        if self.exists() {
            return;
        }
        let mut key = 0;
        // SAFETY: invariant 1.
        if unsafe { libc::pthread_key_create(&mut key, Some(destructor)) } != 0 {
            return;
        }
        let made = u64::from(key) + 1;
        if self.0.compare_exchange(0, made, Release, Relaxed).is_err() {
            // SAFETY: invariant 1: it was just made, and no thread has a value for it.
            unsafe { libc::pthread_key_delete(key) };
        }
    }

    /// Stores a value of the calling thread; 0: none. `false`: there is no key, or no memory for
    /// the value. Values of a key that was [made](Self::make) need none.
    #[must_use]
    pub fn set(&self, value: usize) -> bool {
        // Acquire pairs with the release in `prepare`.
        let stored = self.0.load(Acquire);
        let key = stored.wrapping_sub(1) as libc::pthread_key_t;
        let value = ptr::without_provenance(value);
        // SAFETY: invariant 1.
        let store = || unsafe { libc::pthread_setspecific(key, value) };
        if stored == 0 || store() != 0 {
            return false;
        }
        // Pairs with the fence in `give_up`: if the key that now has this number is the program's,
        // this thread sees that. The program cannot have stored a value for this thread in between,
        // since the thread was here.
        fence(SeqCst);
        let is_kept = self.0.load(Relaxed) == stored;
        if !is_kept {
            // SAFETY: invariant 1.
            unsafe { libc::pthread_setspecific(key, ptr::null()) };
        }
        is_kept
    }

    /// Deletes the key for good, so that the program can have it. `false`: there is none. From now
    /// on the end of a thread goes unnoticed, even if the thread has stored a value.
    pub fn give_up(&self) -> bool {
        let stored = self.0.swap(0, Relaxed);
        fence(SeqCst);
        let key = stored.wrapping_sub(1) as libc::pthread_key_t;
        // SAFETY: invariant 1.
        stored != 0 && unsafe { libc::pthread_key_delete(key) } == 0
    }
}

/// A new key whose values are stored without allocation. It avoids low numbers if another key is
/// free: a program that uses a key which it has not created uses a low number, often 0, and relies
/// on the error.
///
/// The search takes only a few keys for a moment. If another thread came too late for the first
/// keys, values of its new key would need memory, and an allocator that stores such a value would
/// call itself without end.
pub(super) fn without_allocation(
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
) -> Option<libc::pthread_key_t> {
    const LOW: usize = 8;
    let (mut low, mut made) = ([None; LOW], None);
    let mut places = low.iter_mut();
    loop {
        let mut key = 0;
        // SAFETY: invariant 1.
        if unsafe { libc::pthread_key_create(&mut key, destructor) } != 0 {
            break;
        }
        if key >= FIRST_THAT_ALLOCATES {
            // SAFETY: invariant 1: it was just created, and no thread has a value for it.
            unsafe { libc::pthread_key_delete(key) };
            break;
        }
        made = Some(key);
        match places.next() {
            Some(place) if (key as usize) < LOW => *place = made,
            _ => break,
        }
    }
    for key in low.into_iter().flatten().filter(|key| made != Some(*key)) {
        // SAFETY: as above.
        unsafe { libc::pthread_key_delete(key) };
    }
    made
}

#[cfg(all(test, not(any(miri, loom))))]
mod tests {
    use super::*;

    /// The key is the first one that may be used: to find a later one, the search would take all
    /// keys before it.
    #[test]
    fn others_get_keys_without_allocation_meanwhile() {
        let key = without_allocation(None).expect("one is free");
        // SAFETY: invariant 1.
        unsafe { libc::pthread_key_delete(key) };
        assert!((8..16).contains(&key), "{key}");
    }
}
