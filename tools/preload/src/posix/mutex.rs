//! Mutexes of ours: their kinds, owners and error codes.
//!
//! `posix_lock` and `posix_unlock` are for mutexes that are ours, of any kind. `lock_owned` and
//! `unlock_owned` are the same with fewer tests, for kinds that know their owner in the usual mode.

use super::cancel;
use crate::libc::layout::{ADAPTIVE, ELISION, ERROR_CHECKING, HOLDER_IN_WORD, KINDS, RECURSIVE};
use crate::mode::Mode;
use crate::thread::{known_thread_id, thread_id};
use crate::time::Limit;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use kinlock_core::raw::QueuedSpinLock;
use kinlock_core::raw::mutex::{Joined, QueuedMutex};
use kinlock_linux::Native;
use kinlock_linux::config::AsConfigured;
use kinlock_linux::probe;
use kinlock_recorder::now;

type Blocking = QueuedMutex<Native, AsConfigured, Joined<Native>>;
type Spinning = QueuedSpinLock<Native, AsConfigured>;

/// The part of a `pthread_mutex_t` that this library uses. `owner` and `kind` lie where the C
/// library has them.
#[repr(C)]
pub(crate) struct Mutex {
    pub(crate) word: Blocking,
    /// How many times the owner of a recursive mutex has taken it.
    depth: AtomicU32,
    /// The number of the thread that holds the mutex, as the C library would have stored it, or 0.
    /// It is read here by the command, by debuggers, and by programs that want to know their
    /// thread's number as the C library knows it.
    owner: AtomicU32,
    /// The report's mark: the token of the last holder. Like the lock word it changes with the
    /// holder, so it lies near that word. `serial` and `domain` are the report's, too.
    pub(crate) last: AtomicU32,
    /// The C library's word for the kind: one of our kinds, or the kind of a delegated mutex.
    pub(crate) kind: AtomicU32,
    pub(crate) serial: AtomicU32,
    pub(crate) domain: AtomicU32,
    /// `ADAPTIVE` if the program asked for that kind, for the report. We have no such kind, so
    /// `kind` is then 0, which takes the shortest path.
    pub(crate) declared: AtomicU32,
    /// How many threads have released the mutex for a wait, and not taken it again. Only its holder
    /// changes the number. While it is not 0, `pthread_mutex_destroy` fails, as in the C library.
    waits: AtomicU32,
}

const _: () = assert!(
    core::mem::offset_of!(Mutex, owner) == 8
        && core::mem::offset_of!(Mutex, kind) == 16
        && size_of::<Mutex>() <= size_of::<libc::pthread_mutex_t>()
);

/// The kinds that are ours.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Recursive,
    ErrorChecking,
}

/// The kind of a destroyed mutex. The C library uses the same value.
const DESTROYED: u32 = u32::MAX;

impl Mutex {
    /// The kind of a mutex that is ours. `None`: it is delegated to the C library, because of the
    /// mode or since it is robust, priority-inheriting, priority-protected, process-shared or
    /// destroyed.
    pub(crate) fn kind(&self, mode: Mode) -> Option<Kind> {
        match self.kind.load(Relaxed) & !ELISION {
            _ if mode.delegates() => None,
            0 | ADAPTIVE => Some(Kind::Normal),
            RECURSIVE => Some(Kind::Recursive),
            ERROR_CHECKING => Some(Kind::ErrorChecking),
            _ => None,
        }
    }

    pub(crate) fn is_delegated(&self, mode: Mode) -> bool {
        self.kind(mode).is_none()
    }

    pub(crate) fn is_destroyed(&self) -> bool {
        self.kind.load(Relaxed) == DESTROYED
    }

    pub(crate) fn address(&self) -> *const c_void {
        (self as *const Self).cast()
    }

    fn spinning(&self) -> &Spinning {
        // SAFETY: invariant 1. Both locks are made of four bytes of atomics, of which zeros are an
        // unlocked lock. A process uses only one of them: the mode does not change.
        unsafe { &*(&raw const self.word).cast() }
    }

    fn is_held(&self, mode: Mode) -> bool {
        match mode.spins() {
            false => self.word.is_locked(),
            true => self.spinning().is_locked(),
        }
    }

    /// Whether any thread seems to hold the mutex, of whatever kind. A delegated mutex has its
    /// owner in the same place as one of ours, unless it is elided.
    pub(crate) fn seems_held(&self, mode: Mode) -> bool {
        match self.kind(mode) {
            Some(_) => self.is_held(mode),
            None => self.owner() != 0 || self.kind.load(Relaxed) & ELISION != 0,
        }
    }

    /// The kernel's number of the thread that holds a mutex which knows its owner, or 0.
    pub(crate) fn owner(&self) -> u32 {
        // If the holder of a robust mutex has died, the owner is a number that no thread has.
        self.holder_in_word()
            .unwrap_or_else(|| self.owner.load(Relaxed))
    }

    /// The same for a mutex whose holder is in the C library's lock word. `None`: this mutex is of
    /// another kind.
    fn holder_in_word(&self) -> Option<u32> {
        if self.kind.load(Relaxed) & HOLDER_IN_WORD == 0 || self.is_destroyed() {
            return None;
        }
        // SAFETY: invariant 1. The C library's lock word is the first word, too.
        let word: &AtomicU32 = unsafe { &*(&raw const self.word).cast() };
        Some(word.load(Relaxed) & libc::FUTEX_TID_MASK)
    }

    /// Takes a mutex of ours. Returns what POSIX says.
    pub(crate) fn posix_lock(&self, mode: Mode, kind: Kind, limit: Limit) -> c_int {
        if kind == Kind::Normal {
            return match self.take(mode, limit) {
                0 => self.note_owner(),
                error => error,
            };
        }
        let thread = thread_id();
        // Relaxed: only this thread stores its own number, and only while it holds the mutex.
        if self.owner.load(Relaxed) == thread {
            return match (kind, limit) {
                (Kind::Recursive, _) => self.deepen(),
                (_, Limit::Now) => libc::EBUSY,
                _ => libc::EDEADLK,
            };
        }
        match self.take(mode, limit) {
            0 => self.own(thread),
            error => error,
        }
    }

    /// As [`posix_lock`](Self::posix_lock) without a limit, for a thread that a notification has
    /// just woken: it expects to find the mutex held by the notifier.
    #[inline(never)]
    pub(crate) fn posix_lock_notified(&self, mode: Mode, kind: Kind) -> c_int {
        let is_held = kind != Kind::Normal && self.is_callers();
        if mode.spins() || is_held {
            return self.posix_lock(mode, kind, Limit::Never);
        }
        let noted = now::waits(self.address() as u64, 0, thread_id());
        self.word.lock_notified();
        noted.end();
        match kind {
            Kind::Normal => self.note_owner(),
            _ => self.own(thread_id()),
        }
    }

    /// The calling thread has taken the lock word of a normal mutex. Returns 0.
    #[inline]
    pub(crate) fn note_owner(&self) -> c_int {
        probe!("mutex_acquired", self);
        match known_thread_id() {
            Some(thread) => self.owner.store(thread, Relaxed),
            None => return self.note_asked_owner(),
        }
        0
    }

    #[cold]
    #[inline(never)]
    fn note_asked_owner(&self) -> c_int {
        self.owner.store(thread_id(), Relaxed);
        0
    }

    /// The same for a mutex that knows its owner. `thread` is the number of the calling thread.
    #[inline]
    pub(crate) fn own(&self, thread: u32) -> c_int {
        probe!("mutex_acquired", self);
        self.owner.store(thread, Relaxed);
        self.depth.store(1, Relaxed);
        0
    }

    pub(crate) fn deepen(&self) -> c_int {
        match self.depth.load(Relaxed).checked_add(1) {
            Some(depth) => self.depth.store(depth, Relaxed),
            None => return libc::EAGAIN,
        }
        probe!("mutex_acquired", self);
        0
    }

    /// Whether this thread holds a mutex of ours that knows its owner.
    #[inline]
    pub(crate) fn is_owned_by(&self, thread: u32) -> bool {
        // Relaxed: as in `posix_lock`.
        self.owner.load(Relaxed) == thread
    }

    /// Whether a recursive mutex, which the calling thread holds, was taken more than once.
    pub(crate) fn is_deeper(&self) -> bool {
        self.depth.load(Relaxed) > 1
    }

    fn take(&self, mode: Mode, limit: Limit) -> c_int {
        match (self.try_take(mode.spins()), limit) {
            (true, _) => 0,
            (false, Limit::Now) => libc::EBUSY,
            _ => self.wait_for(mode.spins(), limit),
        }
    }

    /// Waits until the calling thread has taken the lock word. Returns what POSIX says.
    #[cold]
    #[inline(never)]
    pub(crate) fn wait_for(&self, spins: bool, limit: Limit) -> c_int {
        match limit.check() {
            0 => {}
            error => return error,
        }
        let attempt = || Some(self.try_take(spins));
        // SAFETY: invariant 2: this thread has just taken it.
        let undo = || unsafe { self.unlock_word(spins) };
        let queue = || self.queue_until(spins, limit);
        let taken = cancel::wait(self.address() as u64, 0, limit, attempt, undo, queue);
        if taken { 0 } else { libc::ETIMEDOUT }
    }

    fn try_take(&self, spins: bool) -> bool {
        match spins {
            false => self.word.try_lock(),
            true => self.spinning().try_lock(),
        }
    }

    fn queue_until(&self, spins: bool, limit: Limit) -> bool {
        while let Some(until) = limit.until() {
            let taken = match spins {
                false => self.word.queue_until(until),
                true => self.spinning().lock_until(until),
            };
            if taken {
                return true;
            }
        }
        false
    }

    /// Releases a mutex of ours. Returns what POSIX says.
    pub(crate) fn posix_unlock(&self, mode: Mode, kind: Kind) -> c_int {
        if kind != Kind::Normal {
            if !self.is_callers() {
                return libc::EPERM;
            }
            let depth = self.depth.load(Relaxed);
            if kind == Kind::Recursive && depth > 1 {
                self.depth.store(depth - 1, Relaxed);
                return 0;
            }
            self.depth.store(0, Relaxed);
        }
        probe!("mutex_release", self);
        self.owner.store(0, Relaxed);
        // SAFETY: invariant 2.
        unsafe { self.unlock_word(mode.spins()) };
        0
    }

    /// Releases the lock word.
    ///
    /// # Safety
    ///
    /// The calling thread has taken it.
    unsafe fn unlock_word(&self, spins: bool) {
        // SAFETY: as this function demands.
        unsafe {
            match spins {
                false => self.word.unlock(),
                true => self.spinning().unlock(),
            }
        }
    }

    /// Releases a mutex of ours that the calling thread holds once, in a mode without spinlocks.
    #[inline]
    pub(crate) fn release(&self) {
        probe!("mutex_release", self);
        self.owner.store(0, Relaxed);
        // SAFETY: invariant 2.
        unsafe { self.word.unlock() };
    }

    /// Destroys a mutex of ours.
    pub(crate) fn posix_destroy(&self, mode: Mode) -> c_int {
        if self.is_held(mode) || self.waits.load(Relaxed) != 0 {
            return libc::EBUSY;
        }
        probe!("mutex_destroy", self);
        self.kind.store(DESTROYED, Relaxed);
        0
    }

    /// Whether the calling thread holds a mutex that knows its owner.
    pub(crate) fn is_callers(&self) -> bool {
        // Relaxed: as in `posix_lock`. A delegated mutex has its owner in the same place.
        self.owner.load(Relaxed) == thread_id()
    }

    /// Whether an unlock by the calling thread would free the mutex, rather than fail or only
    /// decrease its depth.
    pub(crate) fn would_be_free(&self) -> bool {
        match self.kind.load(Relaxed) & KINDS {
            RECURSIVE => self.is_callers() && self.depth.load(Relaxed) == 1,
            ERROR_CHECKING => self.is_callers(),
            _ => self
                .holder_in_word()
                .is_none_or(|holder| holder == thread_id()),
        }
    }

    /// Counts the calling thread, which is about to release the mutex for a wait. Returns the
    /// counter; `None`: the release would not make the mutex free.
    ///
    /// The C library counts the holder and the waiters of a delegated mutex in the word that is
    /// `last` in ours. Its function that releases the mutex subtracts the holder.
    pub(crate) fn add_wait(&self, mode: Mode) -> Option<&AtomicU32> {
        if !self.would_be_free() {
            return None;
        }
        let count = match self.kind(mode) {
            Some(_) => &self.waits,
            None => &self.last,
        };
        // Relaxed, and no read-modify-write: only the holder changes it.
        count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
        Some(count)
    }

    /// Gives a mutex that was made by a static initialiser the kind that `pthread_mutex_init` would
    /// have given it, so that it takes the shortest path. Several threads may do this at the same
    /// time: they store the same value.
    pub(crate) fn simplify_kind(&self, mode: Mode) {
        let kind = self.kind.load(Relaxed);
        let ours = kind & !ELISION;
        if mode.delegates() || ours > ADAPTIVE {
            return;
        }
        if ours == ADAPTIVE {
            self.declared.store(ADAPTIVE, Relaxed);
            self.kind.store(0, Relaxed);
        } else if kind != ours {
            self.kind.store(ours, Relaxed);
        }
    }

    /// [`posix_lock`](Self::posix_lock) without a limit, in the usual mode, for a mutex that knows
    /// its owner. `thread` is the number of the calling thread, and `kind` the mutex's kind.
    #[inline]
    pub(crate) fn lock_owned(&self, thread: u32, kind: u32) -> c_int {
        // Relaxed: as in `posix_lock`.
        if self.owner.load(Relaxed) == thread {
            return match kind {
                RECURSIVE => self.deepen(),
                _ => libc::EDEADLK,
            };
        }
        if !self.word.lock_at_once() {
            return self.wait_owned();
        }
        self.own(thread)
    }

    #[cold]
    #[inline(never)]
    fn wait_owned(&self) -> c_int {
        self.wait_for(false, Limit::Never);
        self.own(thread_id())
    }

    /// [`posix_unlock`](Self::posix_unlock) in the usual mode, for a mutex that knows its owner.
    /// `thread` is the number of the calling thread.
    #[inline]
    pub(crate) fn unlock_owned(&self, thread: u32) -> c_int {
        if self.owner.load(Relaxed) != thread {
            return libc::EPERM;
        }
        // The depth of an error-checking mutex is always 1 while it is held.
        let depth = self.depth.load(Relaxed).wrapping_sub(1);
        self.depth.store(depth, Relaxed);
        if depth == 0 {
            self.release();
        }
        0
    }
}
