//! Mutexes.

use crate::libc::layout::{ADAPTIVE, ELISION, ERROR_CHECKING, KINDS, RECURSIVE};
use crate::libc::real;
use crate::mode::{MODE, Mode, REPORTS, mode};
use crate::posix::cancel::{self, Attempt};
use crate::thread::thread_id;
use crate::time::{self, Limit};
use crate::traced;
use crate::traced::counts;
use crate::traced::report::{self, Marks, Object, Wait};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use kinlock_core::Native;
use kinlock_core::configured::AsConfigured;
use kinlock_core::raw::QueuedSpinLock;
use kinlock_core::raw::mutex::{Joined, QueuedMutex};

pub(crate) type Blocking = QueuedMutex<Native, AsConfigured, Joined<Native>>;
type Spinning = QueuedSpinLock<Native, AsConfigured>;

/// A `pthread_mutex_t` as we use it, and as far as we do. The kind is where the C library has it.
#[repr(C)]
pub(crate) struct Mutex {
    word: Blocking,
    /// Of a recursive mutex: how often it was taken.
    depth: AtomicU32,
    /// Of a recursive or error-checking mutex: the kernel's number of its holder, or 0. Where the
    /// C library has it, for debuggers.
    owner: AtomicU32,
    /// The report's, as the next two. Near the lock, as it changes with the holder.
    last: AtomicU32,
    kind: AtomicU32,
    serial: AtomicU32,
    domain: AtomicU32,
    /// `ADAPTIVE` if that was asked for. The kind is then 0: we have no such kind, and a kind of 0
    /// takes the shortest path. For the report.
    declared: AtomicU32,
}

const _: () = assert!(
    core::mem::offset_of!(Mutex, owner) == 8
        && core::mem::offset_of!(Mutex, kind) == 16
        && size_of::<Mutex>() <= size_of::<libc::pthread_mutex_t>()
);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Recursive,
    ErrorChecking,
    /// The C library's, for what it does: robust, ... or destroyed.
    Passed,
}

const DESTROYED: u32 = u32::MAX;

impl Mutex {
    pub(crate) fn kind(&self, mode: Mode) -> Kind {
        match self.kind.load(Relaxed) & !ELISION {
            _ if mode.passes() => Kind::Passed,
            0 | ADAPTIVE => Kind::Normal,
            RECURSIVE => Kind::Recursive,
            ERROR_CHECKING => Kind::ErrorChecking,
            _ => Kind::Passed,
        }
    }

    /// The C library's kind of a mutex that is passed on, otherwise 0.
    fn passed_kind(&self, mode: Mode) -> u32 {
        match self.kind(mode) {
            Kind::Passed => self.kind.load(Relaxed),
            _ => 0,
        }
    }

    fn address(&self) -> *const c_void {
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

    /// Takes the mutex. Returns what POSIX says.
    pub(crate) fn acquire(&self, mode: Mode, limit: Limit) -> c_int {
        let kind = match self.kind(mode) {
            Kind::Normal => return self.take(mode, limit),
            Kind::Passed => return self.acquire_passed(limit),
            kind => kind,
        };
        let thread = thread_id();
        // Relaxed: only this thread stores its own number, and only while it holds the mutex.
        if self.owner.load(Relaxed) == thread {
            return match (kind, limit) {
                (Kind::Recursive, _) => self.deepen(),
                (_, Limit::Now) => libc::EBUSY,
                _ => libc::EDEADLK,
            };
        }
        let result = self.take(mode, limit);
        if result == 0 {
            self.own(thread);
        }
        result
    }

    /// As [`acquire`](Self::acquire), for a thread that a notification has just woken.
    fn acquire_notified(&self, mode: Mode) -> c_int {
        let kind = self.kind(mode);
        let is_held = kind != Kind::Normal && self.owner.load(Relaxed) == thread_id();
        if kind == Kind::Passed || mode.spins() || is_held {
            return self.acquire(mode, Limit::Never);
        }
        self.word.lock_notified();
        if kind != Kind::Normal {
            self.own(thread_id());
        }
        0
    }

    #[inline]
    fn own(&self, thread: u32) {
        self.owner.store(thread, Relaxed);
        self.depth.store(1, Relaxed);
    }

    fn deepen(&self) -> c_int {
        match self.depth.load(Relaxed).checked_add(1) {
            Some(depth) => self.depth.store(depth, Relaxed),
            None => return libc::EAGAIN,
        }
        0
    }

    fn take(&self, mode: Mode, limit: Limit) -> c_int {
        match (self.try_take(mode.spins()), limit) {
            (true, _) => 0,
            (false, Limit::Now) => libc::EBUSY,
            _ => self.wait_for(mode.spins(), limit),
        }
    }

    /// Waits until it is taken. Returns what POSIX says.
    #[cold]
    #[inline(never)]
    fn wait_for(&self, spins: bool, limit: Limit) -> c_int {
        match limit.check() {
            0 => {}
            error => return error,
        }
        let taken = match spins {
            false => cancel::wait(&self.word, limit, || self.queue_until(spins, limit)),
            true => cancel::wait(self.spinning(), limit, || self.queue_until(spins, limit)),
        };
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

    fn acquire_passed(&self, limit: Limit) -> c_int {
        let mutex = self.address();
        // SAFETY: invariant 3.
        unsafe {
            match limit {
                Limit::Now => real::pthread_mutex_trylock(mutex),
                Limit::Never => real::pthread_mutex_lock(mutex),
                Limit::At(libc::CLOCK_REALTIME, until) => {
                    real::pthread_mutex_timedlock(mutex, &until)
                }
                Limit::At(clock, until) => real::pthread_mutex_clocklock(mutex, clock, &until),
            }
        }
    }

    /// Releases the mutex. Returns what POSIX says.
    pub(crate) fn release(&self, mode: Mode) -> c_int {
        match self.kind(mode) {
            Kind::Normal => {}
            // SAFETY: invariant 3.
            Kind::Passed => return unsafe { real::pthread_mutex_unlock(self.address()) },
            kind => {
                if self.owner.load(Relaxed) != thread_id() {
                    return libc::EPERM;
                }
                let depth = self.depth.load(Relaxed);
                if kind == Kind::Recursive && depth > 1 {
                    self.depth.store(depth - 1, Relaxed);
                    return 0;
                }
                self.depth.store(0, Relaxed);
                self.owner.store(0, Relaxed);
            }
        }
        // SAFETY: invariant 2.
        unsafe {
            match mode.spins() {
                false => self.word.unlock(),
                true => self.spinning().unlock(),
            }
        }
        0
    }

    /// The same as `acquire`, counted and reported if that is asked for.
    pub(crate) fn acquire_watched(&self, mode: Mode, limit: Limit) -> c_int {
        let lock = (!matches!(limit, Limit::Now)).then_some(|| self.acquire(mode, limit));
        self.watch(mode, lock)
    }

    fn watch(&self, mode: Mode, lock: Option<impl FnOnce() -> c_int>) -> c_int {
        let attempt = || match self.kind.load(Relaxed) {
            0 if mode.is_usual() => match self.word.try_lock() {
                true => 0,
                false => libc::EBUSY,
            },
            _ => self.acquire(mode, Limit::Now),
        };
        traced::acquisition(mode, self.object(mode), attempt, lock)
    }

    /// The same as `release`, reported if that is asked for.
    pub(crate) fn release_watched(&self, mode: Mode) -> c_int {
        // Afterwards another thread may hold it.
        if mode.reports() && self.is_released_now() {
            report::release(self.address() as u64, self.marks(mode), None);
        }
        self.release(mode)
    }

    /// Takes the mutex after a wait for a condition variable: reported, but not counted.
    pub(crate) fn acquire_again(&self, mode: Mode, notified: bool) -> c_int {
        let lock = || match notified {
            true => self.acquire_notified(mode),
            false => self.acquire(mode, Limit::Never),
        };
        match mode.reports() {
            true => self.watch(mode.uncounted(), Some(lock)),
            false => lock(),
        }
    }

    /// Calls the C library's wait, which releases the mutex and takes it again.
    pub(crate) fn between(&self, mode: Mode, wait: impl FnOnce() -> c_int) -> c_int {
        if !mode.reports() {
            return wait();
        }
        let object = self.object(mode);
        let released = self.is_released_now();
        if released {
            report::release(object.address, object.marks, None);
        }
        let result = wait();
        // With other results it may not be held.
        if released && matches!(result, 0 | libc::ETIMEDOUT | libc::EOWNERDEAD) {
            report::taken_again(object);
        }
        result
    }

    fn own_marks(&self) -> Marks<'_> {
        Marks {
            serial: &self.serial,
            last: &self.last,
            domain: &self.domain,
        }
    }

    /// Room for marks, unless it is the C library's.
    fn marks(&self, mode: Mode) -> Option<Marks<'_>> {
        (self.kind(mode) != Kind::Passed).then_some(self.own_marks())
    }

    fn object(&self, mode: Mode) -> Object<'_> {
        let mut kind = self.kind.load(Relaxed);
        if kind == 0 && !mode.passes() {
            kind = self.declared.load(Relaxed);
        }
        Object {
            address: self.address() as u64,
            marks: self.marks(mode),
            kind,
            is_nested: mode.reports() && kind & KINDS == RECURSIVE && self.is_callers(),
        }
    }

    /// Whether it, one that knows its holder, is held by the calling thread.
    fn is_callers(&self) -> bool {
        // Relaxed: as in `acquire`. The C library has its holder in the same place.
        self.owner.load(Relaxed) == thread_id()
    }

    /// Whether the calling thread's release makes it free.
    fn is_released_now(&self) -> bool {
        match self.kind.load(Relaxed) & KINDS {
            RECURSIVE => self.is_callers() && self.depth.load(Relaxed) == 1,
            ERROR_CHECKING => self.is_callers(),
            _ => true,
        }
    }

    /// Gives a mutex that a static initialiser made the kind that [`pthread_mutex_init`] gives it.
    /// Threads that do this at the same time store the same.
    fn settle(&self, mode: Mode) {
        let kind = self.kind.load(Relaxed);
        let ours = kind & !ELISION;
        if mode.passes() || ours > ADAPTIVE {
            return;
        }
        if ours == ADAPTIVE {
            self.declared.store(ADAPTIVE, Relaxed);
            self.kind.store(0, Relaxed);
        } else if kind != ours {
            self.kind.store(ours, Relaxed);
        }
    }

    fn destroy(&self, mode: Mode) -> c_int {
        match self.kind.load(Relaxed) {
            DESTROYED => return 0,
            // SAFETY: invariant 3.
            _ if self.kind(mode) == Kind::Passed => unsafe {
                return real::pthread_mutex_destroy(self.address());
            },
            _ if self.is_held(mode) => return libc::EBUSY,
            _ => self.kind.store(DESTROYED, Relaxed),
        }
        0
    }
}

/// # Safety
///
/// Invariant 1.
unsafe fn mutex<'a>(pointer: *const Mutex) -> &'a Mutex {
    // SAFETY: invariant 1.
    unsafe { &*pointer }
}

impl Attempt for Blocking {
    fn attempt(&self) -> bool {
        self.try_lock()
    }

    fn undo(&self) {
        // SAFETY: invariant 2: this thread has just taken it.
        unsafe { self.unlock() };
    }
}

impl Attempt for Spinning {
    fn attempt(&self) -> bool {
        self.try_lock()
    }

    fn undo(&self) {
        // SAFETY: invariant 2: this thread has just taken it.
        unsafe { self.unlock() };
    }
}

/// Which operation follows: 0 the usual one, of a normal mutex that is ours, without counts; a kind
/// the usual one of that kind; `REPORTS` the usual one, but for a report.
#[inline]
fn way(mutex: &Mutex) -> u32 {
    mutex.kind.load(Relaxed) | MODE.load(Relaxed)
}

/// Takes a mutex that is reported on.
#[inline(never)]
fn lock_reported(mutex: &Mutex) -> c_int {
    if !mutex.word.try_lock() {
        return wait_reported(mutex);
    }
    if !report::counted(mutex.address() as u64, mutex.own_marks()) {
        report::taken_at_once(mutex.object(mode()));
    }
    0
}

/// The same, of one that is held.
#[cold]
#[inline(never)]
fn wait_reported(mutex: &Mutex) -> c_int {
    let object = Object {
        address: mutex.address() as u64,
        marks: Some(mutex.own_marks()),
        kind: 0,
        is_nested: false,
    };
    let wait = Wait::begin(object);
    mutex.wait_for(false, Limit::Never);
    report::taken_after(object, wait.end());
    0
}

#[inline(never)]
fn unlock_reported(mutex: &Mutex) -> c_int {
    let (address, marks) = (mutex.address() as u64, mutex.own_marks());
    if let now @ Some(_) = report::released(address, marks) {
        report::release(address, Some(marks), now);
    }
    // SAFETY: invariant 2.
    unsafe { mutex.word.unlock() };
    0
}

/// Takes a mutex that knows its holder.
#[inline]
fn lock_owned(mutex: &Mutex, kind: u32) -> c_int {
    let thread = thread_id();
    // Relaxed: as in `acquire`.
    if mutex.owner.load(Relaxed) == thread {
        return match kind {
            RECURSIVE => mutex.deepen(),
            _ => libc::EDEADLK,
        };
    }
    if !mutex.word.lock_at_once() {
        return wait_owned(mutex);
    }
    mutex.own(thread);
    0
}

#[cold]
#[inline(never)]
fn wait_owned(mutex: &Mutex) -> c_int {
    mutex.wait_for(false, Limit::Never);
    mutex.own(thread_id());
    0
}

#[inline]
fn unlock_owned(mutex: &Mutex) -> c_int {
    if mutex.owner.load(Relaxed) != thread_id() {
        return libc::EPERM;
    }
    // An error-checking one is never deeper than 1.
    let depth = mutex.depth.load(Relaxed).wrapping_sub(1);
    mutex.depth.store(depth, Relaxed);
    if depth == 0 {
        mutex.owner.store(0, Relaxed);
        // SAFETY: invariant 2.
        unsafe { mutex.word.unlock() };
    }
    0
}

/// Waits for a normal mutex.
#[cold]
#[inline(never)]
fn wait(mutex: &Mutex) -> c_int {
    mutex.wait_for(false, Limit::Never)
}

/// All other acquisitions.
#[cold]
#[inline(never)]
fn acquire(mutex: &Mutex, limit: Limit) -> c_int {
    let mode = mode();
    mutex.settle(mode);
    if !mode.watches() {
        return mutex.acquire(mode, limit);
    }
    counts::call(mode, || mutex.passed_kind(mode));
    mutex.acquire_watched(mode, limit)
}

#[cold]
#[inline(never)]
fn release(mutex: &Mutex) -> c_int {
    let mode = mode();
    counts::call(mode, || mutex.passed_kind(mode));
    mutex.release_watched(mode)
}

/// Makes a mutex of a kind of ours.
pub(crate) fn initialise(mutex: *mut Mutex, recursive: bool) {
    counts::call(mode(), || 0);
    begins_anew(mutex);
    // SAFETY: invariant 1. The object is the caller's alone. The C library writes as much.
    unsafe { mutex.cast::<[u64; 5]>().write([0; 5]) };
    // SAFETY: invariant 1.
    unsafe { &*mutex }
        .kind
        .store(u32::from(recursive) * RECURSIVE, Relaxed);
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_mutex_init(
    mutex: *mut Mutex,
    attributes: *const c_void,
) -> c_int {
    if attributes.is_null() && !mode().passes() {
        initialise(mutex, false);
        return 0;
    }
    counts::call(mode(), || 0);
    begins_anew(mutex);
    // SAFETY: invariant 1. The object is the caller's alone. The C library writes as much.
    unsafe { mutex.cast::<[u64; 5]>().write([0; 5]) };
    // The C library's initial state is one of ours, too, and it checks the attributes.
    // SAFETY: invariant 3.
    let result = unsafe { real::pthread_mutex_init(mutex.cast(), attributes) };
    if result == 0 {
        // SAFETY: invariant 1.
        unsafe { &*mutex }.settle(mode());
    }
    result
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_mutex_destroy(pointer: *mut Mutex) -> c_int {
    let mode = mode();
    // SAFETY: invariant 1.
    let mutex = unsafe { mutex(pointer) };
    counts::call(mode, || mutex.passed_kind(mode));
    let result = mutex.destroy(mode);
    if result == 0 {
        begins_anew(pointer);
    }
    result
}

/// What was reported of the memory was another mutex.
fn begins_anew(mutex: *const Mutex) {
    if mode().reports() {
        report::end(mutex as u64);
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pthread_mutex_lock(pointer: *mut Mutex) -> c_int {
    // SAFETY: invariant 1.
    let mutex = unsafe { mutex(pointer) };
    match way(mutex) {
        0 if mutex.word.lock_at_once() => 0,
        0 => wait(mutex),
        kind @ (RECURSIVE | ERROR_CHECKING) => lock_owned(mutex, kind),
        REPORTS => lock_reported(mutex),
        _ => acquire(mutex, Limit::Never),
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_mutex_trylock(pointer: *mut Mutex) -> c_int {
    // SAFETY: invariant 1.
    let mutex = unsafe { mutex(pointer) };
    if way(mutex) == 0 {
        return match mutex.word.try_lock() {
            true => 0,
            false => libc::EBUSY,
        };
    }
    acquire(mutex, Limit::Now)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pthread_mutex_timedlock(
    pointer: *mut Mutex,
    until: *const libc::timespec,
) -> c_int {
    // SAFETY: invariants 1 and 3.
    unsafe { acquire(mutex(pointer), Limit::at(libc::CLOCK_REALTIME, until)) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pthread_mutex_clocklock(
    pointer: *mut Mutex,
    clock: libc::clockid_t,
    until: *const libc::timespec,
) -> c_int {
    if !time::is_known(clock) {
        return libc::EINVAL;
    }
    // SAFETY: invariants 1 and 3.
    unsafe { acquire(mutex(pointer), Limit::at(clock, until)) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_mutex_unlock(pointer: *mut Mutex) -> c_int {
    // SAFETY: invariant 1.
    let mutex = unsafe { mutex(pointer) };
    match way(mutex) {
        // SAFETY: invariant 2.
        0 => unsafe { mutex.word.unlock() },
        RECURSIVE | ERROR_CHECKING => return unlock_owned(mutex),
        REPORTS => return unlock_reported(mutex),
        _ => return release(mutex),
    }
    0
}

/// Names that older C++ libraries and programs use.
macro_rules! aliases {
    ($($alias:ident = $name:ident($($parameter:ident: $type:ty),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $alias($($parameter: $type),*) -> c_int {
                // SAFETY: as that function demands.
                unsafe { $name($($parameter),*) }
            }
        )*
    };
}

aliases! {
    __pthread_mutex_init = pthread_mutex_init(mutex: *mut Mutex, attributes: *const c_void);
    __pthread_mutex_destroy = pthread_mutex_destroy(mutex: *mut Mutex);
    __pthread_mutex_lock = pthread_mutex_lock(mutex: *mut Mutex);
    __pthread_mutex_trylock = pthread_mutex_trylock(mutex: *mut Mutex);
    __pthread_mutex_unlock = pthread_mutex_unlock(mutex: *mut Mutex);
}
