//! Waits for what is no lock: condition variables, barriers, semaphores, and the ends of threads.
//!
//! Nobody holds these. So all numbers of their entries are changed by atomic operations, which is
//! no matter beside a wait.

use super::acquisition::{Wait, note_wait};
use super::entries::{add, bump};
use super::locks::{is_left_out, lock_at, lock_of_holder, note_thread};
use super::object::Object;
use super::thread::token;
use super::threads::thread;
use super::{make, memory};
use core::panic::Location;
use core::sync::atomic::Ordering::*;
use kinlock_report::{NO_LOCKS, Table, waits_per_sample};

/// What a thread waits for that is no lock.
#[derive(Clone, Copy)]
pub struct Awaited {
    /// Its address, or [`JOINS`](kinlock_report::JOINS).
    pub address: u64,
    /// Which of [`NO_LOCKS`] it is.
    pub kind: u32,
    /// As in [`Object::place`].
    pub place: Option<&'static Location<'static>>,
}

impl Awaited {
    fn object(self) -> Object<'static> {
        Object {
            place: self.place,
            ..Object::new(self.address, self.kind)
        }
    }

    /// The calling thread begins to wait for it.
    #[cold]
    #[inline(never)]
    pub fn begin(self) -> Wait {
        Wait::at(self.address, |table| {
            // An entry from now on, so that a wait which does not end is seen.
            let entry = lock_of_holder(table, self.object());
            waits_per_sample(entry.map_or(0, |(_, entry)| entry.contended.load(Relaxed)))
        })
    }

    /// The calling thread has waited for it.
    #[cold]
    #[inline(never)]
    pub fn end(self, wait: Wait) {
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
        let Some((index, entry)) = lock_of_holder(table, self.object()) else {
            return add(&table.header.dropped_waits, 1);
        };
        add(&entry.locked, 1);
        note_thread(entry, token());
        note_wait(table, index, entry, wait);
    }

    /// The last wait of the calling thread for it ended since its time limit expired.
    #[cold]
    pub fn note_timeout(self) {
        if let Some((_, entry)) = memory::table().and_then(|table| lock_at(table, self.address)) {
            add(&entry.timeouts, 1);
        }
    }

    /// A call that would have waited for it did not have to.
    #[cold]
    #[inline(never)]
    pub fn passed(self) {
        if let Some(table) = make::own_table() {
            self.note_passed(table);
        }
    }

    fn note_passed(self, table: &Table) {
        if is_left_out(table, self.object(), false) {
            return;
        }
        if let Some((_, entry)) = lock_of_holder(table, self.object()) {
            add(&entry.locked, 1);
            note_thread(entry, token());
        }
    }
}
