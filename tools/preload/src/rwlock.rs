//! Reader-writer locks.

use crate::cancel::{self, Attempt};
use crate::counts::{self, Access};
use crate::layout;
use crate::mode::{RWLOCKS, mode, of_rwlocks};
use crate::real;
use crate::report;
use crate::thread::thread_id;
use crate::time::Limit;
use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use kinlock_core::Native;
use kinlock_core::configured::AsConfigured;
use kinlock_core::platform::Platform;
use kinlock_core::raw::QueuedRwLock;

unsafe extern "C" {
    /// How many read locks the thread holds: its own thread-local.
    safe fn kinlock_read_locks() -> *mut c_uint;
}

/// A `pthread_rwlock_t` as we use it, and as far as we do.
#[repr(C)]
pub(crate) struct RwLock {
    word: QueuedRwLock<Native, AsConfigured>,
    unused: [u32; 4],
    /// The kernel's number of the thread that writes, or 0. Where the C library has it, for
    /// debuggers.
    writer: AtomicU32,
    /// Where the C library has it: whether processes share the lock.
    shared: AtomicU32,
    unused_too: [u32; 4],
    /// Where the C library has it: who goes first.
    preference: AtomicU32,
}

const _: () = assert!(
    core::mem::offset_of!(RwLock, writer) == 24
        && core::mem::offset_of!(RwLock, shared) == layout::RWLOCK_SHARED * 4
        && core::mem::offset_of!(RwLock, preference) == layout::RWLOCK_PREFERENCE * 4
        && size_of::<RwLock>() <= size_of::<libc::pthread_rwlock_t>()
);

/// How long, in nanoseconds, a thread that reads nothing waits behind a writer. By default the C
/// library lets readers pass. Where the thread that reads waits for this one, only that ends the
/// wait.
const PATIENCE: u64 = 100_000_000;

impl RwLock {
    fn is_passed(&self) -> bool {
        of_rwlocks().passes() || self.shared.load(Relaxed) != 0
    }

    fn address(&self) -> *const c_void {
        (self as *const Self).cast()
    }

    fn is_recursive(&self) -> bool {
        self.preference.load(Relaxed) != layout::NOT_RECURSIVE
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

    /// Takes the lock for reading. Returns what POSIX says.
    #[cold]
    #[inline(never)]
    fn read(&self, limit: Limit) -> c_int {
        if self.is_passed() {
            return self.read_passed(limit);
        }
        if self.word.read_at_once() {
            return self.reads();
        }
        match self.deadlock(limit) {
            0 if self.word.is_full() => return libc::EAGAIN,
            0 => {}
            error => return error,
        }
        let taken = match limit {
            Limit::Now => self.word.try_read(self.is_recursive()),
            _ => cancel::wait(&Reading(self), limit, || self.read_until(limit)),
        };
        match (taken, limit) {
            (true, _) => self.reads(),
            (false, Limit::Now) => libc::EBUSY,
            (false, _) => libc::ETIMEDOUT,
        }
    }

    /// One more read lock is the calling thread's.
    fn reads(&self) -> c_int {
        let held = kinlock_read_locks();
        // SAFETY: invariant 8.
        unsafe { *held += 1 };
        0
    }

    fn read_until(&self, limit: Limit) -> bool {
        // SAFETY: invariant 8.
        let reads = unsafe { *kinlock_read_locks() } != 0;
        let passing = self.is_recursive();
        if passing && !reads {
            let patience = Native::now().saturating_add(PATIENCE);
            let until = limit.until().map(|until| until.min(patience));
            if until.is_some_and(|until| self.word.read_until(until, false)) {
                return true;
            }
        }
        while let Some(until) = limit.until() {
            if self.word.read_until(until, passing) {
                return true;
            }
        }
        // The limit may have passed before the call.
        self.word.try_read(passing)
    }

    /// Takes the lock for writing. Returns what POSIX says.
    #[cold]
    #[inline(never)]
    fn write(&self, limit: Limit) -> c_int {
        if self.is_passed() {
            return self.write_passed(limit);
        }
        match self.deadlock(limit) {
            0 => {}
            error => return error,
        }
        let taken = match limit {
            Limit::Now => self.word.try_write(),
            _ => cancel::wait(&Writing(self), limit, || self.write_until(limit)),
        };
        match (taken, limit) {
            (true, _) => self.writes(),
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
        // As for reading.
        self.word.try_write()
    }

    fn writes(&self) -> c_int {
        self.writer.store(thread_id(), Relaxed);
        0
    }

    fn read_passed(&self, limit: Limit) -> c_int {
        let lock = self.address();
        // SAFETY: invariant 3.
        unsafe {
            match limit {
                Limit::Now => real::pthread_rwlock_tryrdlock(lock),
                Limit::Never => real::pthread_rwlock_rdlock(lock),
                Limit::At(libc::CLOCK_REALTIME, until) => {
                    real::pthread_rwlock_timedrdlock(lock, &until)
                }
                Limit::At(clock, until) => real::pthread_rwlock_clockrdlock(lock, clock, &until),
            }
        }
    }

    fn write_passed(&self, limit: Limit) -> c_int {
        let lock = self.address();
        // SAFETY: invariant 3.
        unsafe {
            match limit {
                Limit::Now => real::pthread_rwlock_trywrlock(lock),
                Limit::Never => real::pthread_rwlock_wrlock(lock),
                Limit::At(libc::CLOCK_REALTIME, until) => {
                    real::pthread_rwlock_timedwrlock(lock, &until)
                }
                Limit::At(clock, until) => real::pthread_rwlock_clockwrlock(lock, clock, &until),
            }
        }
    }

    /// Releases the lock.
    #[inline]
    fn release(&self) {
        // Relaxed: while a thread reads it is 0, as the writer before stored it before it released.
        if self.writer.load(Relaxed) != 0 {
            self.writer.store(0, Relaxed);
            // SAFETY: invariant 2.
            return unsafe { self.word.unlock_write() };
        }
        let held = kinlock_read_locks();
        // SAFETY: invariant 8. Saturating: another thread may have taken it.
        unsafe { *held = (*held).saturating_sub(1) };
        // SAFETY: invariant 2.
        unsafe { self.word.unlock_read() };
    }

    /// An operation that takes the lock, counted if that is asked for.
    fn take(&self, access: Access, limit: Limit) -> c_int {
        let take = |limit| match access {
            Access::Read => self.read(limit),
            Access::Write => self.write(limit),
        };
        // Before any attempt, as the C library does.
        match limit.check() {
            0 => {}
            error => return error,
        }
        let mode = of_rwlocks();
        counts::call(mode, || self.passed_kind());
        let result = match mode.counts() {
            true => counts::access(access, limit, take),
            false => take(limit),
        };
        if mode.reports() && counts::is_taken(result) {
            report::rwlock_taken();
        }
        result
    }

    /// What counts have for why it is passed on, otherwise 0.
    fn passed_kind(&self) -> u32 {
        match self.shared.load(Relaxed) {
            0 => 0,
            _ => counts::SHARED,
        }
    }
}

/// A reader that has not been counted.
struct Reading<'a>(&'a RwLock);

impl Attempt for Reading<'_> {
    fn attempt(&self) -> bool {
        self.0.word.try_read(self.0.is_recursive())
    }

    fn undo(&self) {
        // SAFETY: invariant 2: this thread has just taken it.
        unsafe { self.0.word.unlock_read() };
    }
}

/// A writer that has not left its number.
struct Writing<'a>(&'a RwLock);

impl Attempt for Writing<'_> {
    fn attempt(&self) -> bool {
        self.0.word.try_write()
    }

    fn undo(&self) {
        // SAFETY: invariant 2: this thread has just taken it.
        unsafe { self.0.word.unlock_write() };
    }
}

/// Whether the usual operation follows: a lock that is ours, and nothing is counted.
#[inline]
fn is_plain(lock: &RwLock) -> bool {
    lock.shared.load(Relaxed) | RWLOCKS.load(Relaxed) == 0
}

/// # Safety
///
/// Invariant 1.
#[inline]
unsafe fn rwlock<'a>(pointer: *const RwLock) -> &'a RwLock {
    // SAFETY: invariant 1.
    unsafe { &*pointer }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_rwlock_init(lock: *mut RwLock, attributes: *const c_void) -> c_int {
    counts::call(mode(), || 0);
    // The C library's initial state is one of ours, too: zeros, but for the attributes.
    // SAFETY: invariant 3.
    unsafe { real::pthread_rwlock_init(lock.cast(), attributes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_rwlock_destroy(pointer: *mut RwLock) -> c_int {
    // SAFETY: invariant 1.
    let lock = unsafe { rwlock(pointer) };
    counts::call(mode(), || lock.passed_kind());
    match lock.is_passed() {
        // SAFETY: invariant 3.
        true => unsafe { real::pthread_rwlock_destroy(pointer.cast()) },
        false => 0,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_rwlock_rdlock(pointer: *mut RwLock) -> c_int {
    // SAFETY: invariant 1.
    let lock = unsafe { rwlock(pointer) };
    if is_plain(lock) && lock.word.read_at_once() {
        return lock.reads();
    }
    lock.take(Access::Read, Limit::Never)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_rwlock_wrlock(pointer: *mut RwLock) -> c_int {
    // SAFETY: invariant 1.
    let lock = unsafe { rwlock(pointer) };
    if is_plain(lock) && lock.word.write_at_once() {
        return lock.writes();
    }
    lock.take(Access::Write, Limit::Never)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_rwlock_unlock(pointer: *mut RwLock) -> c_int {
    // SAFETY: invariant 1.
    let lock = unsafe { rwlock(pointer) };
    if !is_plain(lock) {
        counts::call(mode(), || lock.passed_kind());
        if lock.is_passed() {
            // SAFETY: invariant 3.
            return unsafe { real::pthread_rwlock_unlock(pointer.cast()) };
        }
    }
    lock.release();
    0
}

/// Operations that do not wait, or for a time only.
macro_rules! limited {
    ($($name:ident($($parameter:ident: $type:ty),*) = $access:ident, $limit:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name(
                pointer: *mut RwLock,
                $($parameter: $type),*
            ) -> c_int {
                // SAFETY: invariants 1 and 3.
                unsafe { rwlock(pointer).take(Access::$access, $limit) }
            }
        )*
    };
}

limited! {
    pthread_rwlock_tryrdlock() = Read, Limit::Now;
    pthread_rwlock_trywrlock() = Write, Limit::Now;
    pthread_rwlock_timedrdlock(until: *const libc::timespec) =
        Read, Limit::at(libc::CLOCK_REALTIME, until);
    pthread_rwlock_timedwrlock(until: *const libc::timespec) =
        Write, Limit::at(libc::CLOCK_REALTIME, until);
    pthread_rwlock_clockrdlock(clock: libc::clockid_t, until: *const libc::timespec) =
        Read, Limit::at(clock, until);
    pthread_rwlock_clockwrlock(clock: libc::clockid_t, until: *const libc::timespec) =
        Write, Limit::at(clock, until);
}

/// Names that older C++ libraries and programs use.
macro_rules! aliases {
    ($($alias:ident = $name:ident($($parameter:ident: $type:ty),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $alias(
                pointer: *mut RwLock,
                $($parameter: $type),*
            ) -> c_int {
                // SAFETY: as that function demands.
                unsafe { $name(pointer, $($parameter),*) }
            }
        )*
    };
}

aliases! {
    __pthread_rwlock_init = pthread_rwlock_init(attributes: *const c_void);
    __pthread_rwlock_destroy = pthread_rwlock_destroy();
    __pthread_rwlock_rdlock = pthread_rwlock_rdlock();
    __pthread_rwlock_wrlock = pthread_rwlock_wrlock();
    __pthread_rwlock_tryrdlock = pthread_rwlock_tryrdlock();
    __pthread_rwlock_trywrlock = pthread_rwlock_trywrlock();
    __pthread_rwlock_unlock = pthread_rwlock_unlock();
}
