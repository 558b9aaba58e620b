//! Reader-writer locks of ours: recursive reading, error codes, and who goes first.

use super::cancel;
use crate::libc::layout;
use crate::mode::Mode;
use crate::thread::{known_thread_id, read_locks, thread_id};
use crate::time::Limit;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use kinlock_core::platform::Platform;
use kinlock_core::raw::QueuedRwLock;
use kinlock_linux::Native;
use kinlock_linux::config::AsConfigured;
use kinlock_linux::probe;
use kinlock_recorder::now;
use kinlock_report::now::PASSES;
use kinlock_report::{READING, RWLOCK};

/// How a reader-writer lock is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The part of a `pthread_rwlock_t` that this library uses. `writer`, `shared` and `preference` lie
/// where the C library has them.
#[repr(C)]
pub(crate) struct RwLock {
    pub(crate) word: QueuedRwLock<Native, AsConfigured>,
    /// The report's marks: the serial numbers of the writing and the reading side; 0: not known.
    /// They lie near the word, since each acquisition that is reported reads one.
    serials: [AtomicU32; 2],
    unused: [u32; 2],
    /// The number of the thread that holds the lock for writing, or 0. Debuggers look for it here.
    writer: AtomicU32,
    /// Whether processes share the lock.
    shared: AtomicU32,
    unused_too: [u32; 4],
    /// Whether readers or writers go first.
    preference: AtomicU32,
}

const _: () = assert!(
    core::mem::offset_of!(RwLock, writer) == 24
        && core::mem::offset_of!(RwLock, shared) == layout::RWLOCK_SHARED * 4
        && core::mem::offset_of!(RwLock, preference) == layout::RWLOCK_PREFERENCE * 4
        && size_of::<RwLock>() <= size_of::<libc::pthread_rwlock_t>()
);

/// How long a reader that holds no read lock lets waiting writers go first, in nanoseconds.
///
/// Then it overtakes them, as readers always do by default in the C library. Some programs need
/// that: if the thread that holds the lock for reading waits for this reader, and this reader waits
/// for a writer, none of the three can go on.
const WRITERS_FIRST_NS: u64 = 100_000_000;

impl RwLock {
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(Relaxed) != 0
    }

    /// Whether the lock is the C library's: because of the mode or since processes share it.
    pub(crate) fn is_delegated(&self, mode: Mode) -> bool {
        mode.delegates() || self.is_shared()
    }

    /// The word of the mode, with another bit set if processes share the lock.
    #[inline]
    pub(crate) fn path(&self, mode: u32) -> u32 {
        self.shared.load(Relaxed) | mode
    }

    pub(crate) fn address(&self) -> *const c_void {
        (self as *const Self).cast()
    }

    /// The mark of one side.
    #[inline]
    pub(crate) fn serial(&self, access: Access) -> &AtomicU32 {
        &self.serials[usize::from(access == Access::Read)]
    }

    /// Clears the marks of a lock that is destroyed.
    pub(crate) fn clear_marks(&self) {
        for serial in &self.serials {
            serial.store(0, Relaxed);
        }
    }

    fn key(&self) -> u64 {
        self.address() as u64
    }

    /// Whether a thread that holds the lock for reading may take it again for reading while a
    /// writer waits. Then such a read has to overtake waiting writers.
    pub(crate) fn is_recursive(&self) -> bool {
        self.preference.load(Relaxed) != layout::NOT_RECURSIVE
    }

    /// The kind of a wait for reading.
    pub(crate) fn kind_to_read(&self) -> u32 {
        match self.is_recursive() {
            true => RWLOCK | PASSES,
            false => RWLOCK,
        }
    }

    /// The kernel's number of the thread that holds the lock for writing, or 0.
    pub(crate) fn writer(&self) -> u32 {
        self.writer.load(Relaxed)
    }

    /// The same, but 0 if that is the calling thread.
    pub(crate) fn other_writer(&self) -> u32 {
        match self.writer() {
            writer if writer == thread_id() => 0,
            writer => writer,
        }
    }

    /// How the lock is held, if the calling thread holds it; `None`: another thread writes.
    #[inline]
    pub(crate) fn callers_access(&self) -> Option<Access> {
        match self.writer() {
            0 => Some(Access::Read),
            writer => (known_thread_id() == Some(writer)).then_some(Access::Write),
        }
    }

    /// Why the calling thread cannot wait for the lock, or 0.
    fn deadlock(&self, limit: Limit) -> c_int {
        // Relaxed: only this thread stores its own number, and only while it writes.
        match (self.writer.load(Relaxed) == thread_id(), limit) {
            (false, _) => 0,
            (true, Limit::Now) => libc::EBUSY,
            (true, _) => libc::EDEADLK,
        }
    }

    /// Takes a lock of ours for reading. Returns what POSIX says.
    #[cold]
    #[inline(never)]
    pub(crate) fn posix_read(&self, mode: Mode, limit: Limit) -> c_int {
        if self.word.read_at_once() {
            return self.note_read(mode);
        }
        match self.deadlock(limit) {
            0 => {}
            error => return error,
        }
        let taken = match limit {
            Limit::Now => self.word.try_read(self.is_recursive()),
            _ => {
                let attempt = || match self.word.try_read(self.is_recursive()) {
                    false if self.word.is_full() => None,
                    taken => Some(taken),
                };
                // SAFETY: invariant 2: this thread has just taken the lock, and not counted it yet.
                let undo = || unsafe { self.word.unlock_read() };
                let (what, kind) = (self.key() | READING, self.kind_to_read());
                let queue = || self.read_until(limit);
                cancel::wait(what, kind, limit, attempt, undo, queue)
            }
        };
        match (taken, limit) {
            (true, _) => self.note_read(mode),
            // A wait without a limit gives up for no other reason.
            (false, Limit::Never) => libc::EAGAIN,
            (false, _) if self.word.is_full() => libc::EAGAIN,
            (false, Limit::Now) => libc::EBUSY,
            (false, _) => libc::ETIMEDOUT,
        }
    }

    /// Called when the thread has taken the lock for reading: counts that for the thread.
    #[inline]
    pub(crate) fn count_read(&self) -> c_int {
        probe!("rdlock_acquire_read", self);
        let held = read_locks();
        // SAFETY: invariant 5.
        unsafe { *held += 1 };
        0
    }

    /// As [`count_read`](Self::count_read), in a mode that is not the usual one.
    pub(crate) fn note_read(&self, mode: Mode) -> c_int {
        self.note_hold(mode);
        self.count_read()
    }

    /// The calling thread reads: notes that, if the mode says so.
    pub(crate) fn note_hold(&self, mode: Mode) {
        if mode.notes_holds() {
            now::holds(self.key() | READING, RWLOCK, thread_id());
        }
    }

    /// Called before the thread releases the lock, if readers are noted.
    #[inline]
    pub(crate) fn note_release(&self) {
        if self.writer() == 0 {
            now::released(self.key() | READING, thread_id());
        }
    }

    fn read_until(&self, limit: Limit) -> bool {
        // SAFETY: invariant 5.
        let holds_read_lock = unsafe { *read_locks() } != 0;
        let overtakes = self.is_recursive();
        if overtakes && !holds_read_lock {
            let overtakes_from = Native::now().saturating_add(WRITERS_FIRST_NS);
            let until = limit.until().map(|until| until.min(overtakes_from));
            if until.is_some_and(|until| self.word.read_until(until, false)) {
                return true;
            }
        }
        while let Some(until) = limit.until() {
            if self.word.read_until(until, overtakes) {
                return true;
            }
            if self.word.is_full() {
                return false;
            }
        }
        // The limit may have expired before the call: then the lock has not been tried yet.
        self.word.try_read(overtakes)
    }

    /// Takes a lock of ours for writing. Returns what POSIX says.
    #[cold]
    #[inline(never)]
    pub(crate) fn posix_write(&self, limit: Limit) -> c_int {
        if self.word.write_at_once() {
            return self.note_writer();
        }
        match self.deadlock(limit) {
            0 => {}
            error => return error,
        }
        let taken = match limit {
            Limit::Now => self.word.try_write(),
            _ => {
                let attempt = || Some(self.word.try_write());
                // SAFETY: invariant 2: this thread has just taken it, and not noted that yet.
                let undo = || unsafe { self.word.unlock_write() };
                let queue = || self.write_until(limit);
                cancel::wait(self.key(), RWLOCK, limit, attempt, undo, queue)
            }
        };
        match (taken, limit) {
            (true, _) => self.note_writer(),
            (false, Limit::Now) => libc::EBUSY,
            (false, _) => libc::ETIMEDOUT,
        }
    }

    fn write_until(&self, limit: Limit) -> bool {
        while let Some(until) = limit.until() {
            if self.word.write_until(until) {
                return true;
            }
        }
        // As in `read_until`.
        self.word.try_write()
    }

    /// The calling thread has taken the lock for writing.
    #[inline]
    pub(crate) fn note_writer(&self) -> c_int {
        probe!("wrlock_acquire_write", self);
        self.writer.store(thread_id(), Relaxed);
        0
    }

    /// Releases a lock of ours, whichever way the calling thread holds it.
    #[inline]
    pub(crate) fn posix_unlock(&self) {
        probe!("rwlock_unlock", self);
        // Relaxed: a reader finds 0, since the last writer stored that before it released the lock.
        if self.writer.load(Relaxed) != 0 {
            self.writer.store(0, Relaxed);
            // SAFETY: invariant 2.
            return unsafe { self.word.unlock_write() };
        }
        let held = read_locks();
        // SAFETY: invariant 5. Saturating: another thread may have taken this read lock.
        unsafe { *held = (*held).saturating_sub(1) };
        // SAFETY: invariant 2.
        unsafe { self.word.unlock_read() };
    }
}
