//! Who holds which mutex, as far as debug builds remember. Without `debug_assertions` there is nothing here.
//!
//! A fixed table of words, each a mix of a mutex's address and its holder's number. Whoever takes a mutex writes the mix where the address falls;
//! whoever finds its own mix there when it locks holds the mutex already. Two mutexes may fall on the same place: then the later holder is remembered, and relocking the other is
//! not noticed. A mutex that was taken over behind our back, by a condition variable or in memory that was used again, is not taken for held: its new holder has overwritten the word, or it is free.
//!
//! All accesses are relaxed, so that the table orders nothing and hides no race from a tool that looks for races. It allocates nothing, waits for
//! nothing and may be used in signal handlers. In a child of fork the forking thread keeps its number, and what it holds.

#[cfg(not(all(debug_assertions, feature = "std")))]
pub(super) use nothing::{forbid_relock, forget, note};
#[cfg(all(debug_assertions, feature = "std"))]
pub(super) use table::{forbid_relock, forget, note};

#[cfg(all(debug_assertions, feature = "std"))]
mod table {
    use crate::RawMutex;
    use core::cell::Cell;
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

    const PLACES: usize = 4096;

    /// 0: nobody.
    static HELD: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

    /// Panics if the calling thread holds `mutex`.
    #[track_caller]
    pub(in super::super) fn forbid_relock(mutex: &RawMutex) {
        let (place, mix) = entry(mutex);
        if place.load(Relaxed) == mix && mutex.0.is_locked() {
            panic!(
                "this thread locks a kinlock mutex that it holds already: it would wait for ever"
            );
        }
    }

    /// The calling thread has taken `mutex`.
    pub(in super::super) fn note(mutex: &RawMutex) {
        let (place, mix) = entry(mutex);
        place.store(mix, Relaxed);
    }

    /// `mutex` is about to be released. Panics if nobody holds it.
    #[track_caller]
    pub(in super::super) fn forget(mutex: &RawMutex) {
        assert!(
            mutex.0.is_locked(),
            "a kinlock mutex is unlocked that nobody holds"
        );
        let (place, mix) = entry(mutex);
        // What another thread writes in between is forgotten: no harm.
        if place.load(Relaxed) == mix {
            place.store(0, Relaxed);
        }
    }

    fn entry(mutex: &RawMutex) -> (&'static AtomicU64, u64) {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let address = ((mutex as *const RawMutex).addr() as u64).wrapping_mul(ODD);
        let mix = address ^ thread().wrapping_mul(ODD).rotate_left(32);
        // Never the word that means nobody.
        (&HELD[(address >> 52) as usize % PLACES], mix | 1)
    }

    /// The calling thread's number, which no other thread ever has.
    fn thread() -> u64 {
        std::thread_local! {
            // No destructor: accessible for as long as the thread runs.
            static NUMBER: Cell<u64> = const { Cell::new(0) };
        }
        static LAST: AtomicU64 = AtomicU64::new(0);
        NUMBER.with(|number| {
            if number.get() == 0 {
                let fresh = LAST.fetch_add(1, Relaxed) + 1;
                // A signal handler may have been first, and has noted its locks and forgotten them.
                number.set(fresh);
            }
            number.get()
        })
    }
}

#[cfg(not(all(debug_assertions, feature = "std")))]
mod nothing {
    use crate::RawMutex;

    #[inline(always)]
    pub(in super::super) fn forbid_relock(_: &RawMutex) {}

    #[inline(always)]
    pub(in super::super) fn note(_: &RawMutex) {}

    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(in super::super) fn forget(mutex: &RawMutex) {
        debug_assert!(
            mutex.0.is_locked(),
            "a kinlock mutex is unlocked that nobody holds"
        );
        let _ = mutex;
    }
}
