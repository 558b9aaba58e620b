//! Waits for what is no lock: condition variables, barriers, semaphores, and the ends of threads.
//!
//! Nobody holds these. So all numbers of their entries are changed by atomic operations, whose cost
//! does not matter next to a wait.

use super::acquisition::{Wait, note_wait};
use super::entries::{add, bump};
use super::locks::{is_left_out, lock_at, lock_of_holder, note_thread};
use super::object::Object;
use super::thread::token;
use super::threads::thread;
use super::{make, memory};
use core::sync::atomic::Ordering::*;
use kinlock_report::{NO_LOCKS, waits_per_sample};

/// Functions of an object whose kind is one of [`NO_LOCKS`]. The address of the ends of threads is
/// [`JOINS`](kinlock_report::JOINS).
impl Object<'_> {
    /// Begins a wait of the calling thread for this object.
    #[cold]
    #[inline(never)]
    pub fn begin_wait(self) -> Wait {
        Wait::at(self.address, |table| {
            // The entry is made now, so that a wait that does not end is seen.
            let entry = lock_of_holder(table, self);
            waits_per_sample(entry.map_or(0, |entry| entry.contended.load(Relaxed)))
        })
    }

    /// Ends the wait of the calling thread.
    #[cold]
    #[inline(never)]
    pub fn end_wait(self, wait: Wait) {
        let wait = wait.end();
        let Some(table) = make::own_table() else {
            return;
        };
        if let Some(thread) = thread(table) {
            thread.waits_for.store(0, Relaxed);
            bump(&thread.others, 1);
            let at = NO_LOCKS.iter().position(|&kind| kind == self.kind);
            if let Some(nanos) = at.and_then(|at| thread.other_ns.get(at)) {
                bump(nanos, wait.nanos());
            }
        }
        let Some(entry) = lock_of_holder(table, self) else {
            return add(&table.header.dropped_waits, 1);
        };
        add(&entry.locked, 1);
        note_thread(entry, token());
        note_wait(table, entry, wait);
    }

    /// Notes that the last wait of the calling thread for this object ended because its time limit
    /// expired.
    #[cold]
    pub fn note_timeout(self) {
        if let Some(entry) = memory::table().and_then(|table| lock_at(table, self.address)) {
            add(&entry.timeouts, 1);
        }
    }

    /// Notes that a call that would have waited for this object did not have to.
    #[cold]
    #[inline(never)]
    pub fn pass(self) {
        let table = make::own_table().filter(|table| !is_left_out(table, self, false));
        let entry = table.and_then(|table| lock_of_holder(table, self));
        if let Some(entry) = entry {
            add(&entry.locked, 1);
            note_thread(entry, token());
        }
    }
}
