//! `open1`: opening and closing a private file, after will-it-scale's test of that name.
//!
//! All threads of a process share its table of file descriptors. The table's lock is taken once to
//! allocate a descriptor and once to release it. Each time the bitmap of descriptors in use and the
//! array of files change under the lock. The rest of the two system calls is private work. Opening
//! and closing a file counts as one operation.

use super::{Body, Constant, Kind, Metered, work};
use crate::platform::SimU64;
use crate::world::Placement;
use kinlock_core::platform::{Atomic, Ordering::Relaxed};
use std::rc::Rc;

const OPEN: Constant = Constant::fitted(
    1_236.0,
    "private work of opening",
    "open1, stock, 1 thread, for both together; opening takes about twice as long as closing",
);
const CLOSE: Constant =
    Constant::fitted(674.0, "private work of closing", "open1, stock, 1 thread");
const SEARCH: Constant = Constant::assumed(
    20.0,
    "searching the bitmap, under the lock",
    "a few words of the bitmap",
);
const RELEASE: Constant = Constant::assumed(
    5.0,
    "releasing a descriptor, under the lock",
    "clearing a bit",
);

/// The workload.
pub const KIND: Kind = Kind::new(
    "open1",
    Placement::Compact,
    &[OPEN, CLOSE, SEARCH, RELEASE],
    prepare,
    "open and close a private file: the lock of the descriptor table, taken twice, with the \
     table's lines",
);

/// Descriptors in a line of the array of files: pointers of eight bytes.
const PER_LINE: usize = 8;

struct Open1 {
    lock: Metered,
    /// Where to search first, in the line of the table's head.
    hint: &'static SimU64,
    /// One bit per descriptor.
    bitmap: &'static [SimU64],
    /// The array of files.
    files: &'static [Line],
}

/// Some words of one cache line.
#[repr(align(64))]
struct Line([SimU64; PER_LINE]);

fn prepare(threads: usize, lock: Metered) -> Rc<dyn Body> {
    let line = |_| Line(std::array::from_fn(|_| SimU64::new(0)));
    Rc::new(Open1 {
        lock,
        hint: crate::place(SimU64::new(0)),
        bitmap: crate::place_slice(threads.div_ceil(64), |_| SimU64::new(0)),
        files: crate::place_slice(threads.div_ceil(PER_LINE), line),
    })
}

impl Body for Open1 {
    fn iterate(&self, me: usize) -> u64 {
        work(OPEN.value());
        self.lock.lock(me);
        let descriptor = self.allocate();
        self.lock.unlock(me);
        // The pointer to the file is published in the array after the lock has been released.
        let file = &self.files[descriptor / PER_LINE].0[descriptor % PER_LINE];
        file.store(1, Relaxed);

        work(CLOSE.value());
        self.lock.lock(me);
        file.store(0, Relaxed);
        self.release(descriptor);
        self.lock.unlock(me);
        1
    }
}

impl Open1 {
    /// Finds the lowest free descriptor. There are as many descriptors as threads, and each thread
    /// has at most one.
    fn allocate(&self) -> usize {
        work(SEARCH.value());
        let first = self.hint.load(Relaxed) as usize;
        for (i, word) in self.bitmap.iter().enumerate().skip(first / 64) {
            let used = word.load(Relaxed);
            if used != u64::MAX {
                let bit = used.trailing_ones() as usize;
                word.store(used | 1 << bit, Relaxed);
                self.hint.store((i * 64 + bit + 1) as u64, Relaxed);
                return i * 64 + bit;
            }
        }
        unreachable!("there are as many descriptors as threads");
    }

    fn release(&self, descriptor: usize) {
        work(RELEASE.value());
        let word = &self.bitmap[descriptor / 64];
        word.store(word.load(Relaxed) & !(1 << (descriptor % 64)), Relaxed);
        if (descriptor as u64) < self.hint.load(Relaxed) {
            self.hint.store(descriptor as u64, Relaxed);
        }
    }
}
