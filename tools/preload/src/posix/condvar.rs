//! Condition variables.

use crate::libc::layout::{self, Flag};
use crate::libc::real;
use crate::mode::{MODE, Mode, mode};
use crate::posix::mutex::{Kind, Mutex};
use crate::time::{self, Limit};
use crate::traced::counts;
use core::cell::Cell;
use core::ffi::{c_int, c_long, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering::*};
use kinlock_core::Native;
use kinlock_core::platform::{NEVER, Parked, Platform};
use kinlock_core::raw::condvar::{CondvarConfig, Partner, QueuedCondvar};

/// A `pthread_cond_t` as we use it, and as far as we do.
#[repr(C)]
pub(crate) struct Condvar {
    inner: QueuedCondvar<Native, WakesAll>,
    users: Users,
    /// `MONOTONIC` or 0: what [`pthread_cond_init`] was asked for.
    clock: AtomicU32,
    /// The C library's flags are among these. In an object that is ours they are 0, unless it was
    /// initialised by code that does not call this library.
    rest: [AtomicU32; 8],
}

const _: () = assert!(
    core::mem::offset_of!(Condvar, rest) == layout::OWN_WORDS * 4
        && size_of::<Condvar>() == size_of::<libc::pthread_cond_t>()
);

/// Time limits are moments of the monotonic clock.
const MONOTONIC: u32 = 1;

#[derive(Clone, Copy, Debug)]
struct WakesAll;

impl CondvarConfig for WakesAll {
    /// A broadcast moves no waiter to the mutex. The thread that broadcasts may destroy the
    /// condition variable at once, with the mutex still held: no waiter may need the mutex to get
    /// away.
    const AT_ONCE: u32 = i32::MAX as u32;
}

// ---- its users ------------------------------------------

/// How many threads are between their first and their last access. Destroying waits for them.
///
/// ```text
///   bit 0       a thread that destroys waits
///       1..7    the number of forks: in a child, those that its parent counted do not exist
///       8..31   how many
/// ```
#[repr(transparent)]
struct Users(AtomicU32);

const DESTROYS: u32 = 1;
const FORKS: u32 = 0xfe;
const USER: u32 = 0x100;

impl Users {
    /// What the word is for this process.
    fn of(word: u32) -> u32 {
        let forks = u32::from(Native::forks()) << 1 & FORKS;
        if word & FORKS == forks { word } else { forks }
    }

    fn enter(&self) {
        let mut seen = self.0.load(Relaxed);
        // Relaxed: the thread that destroys the object knows of all its users by other means.
        while let Err(now) = self
            .0
            .compare_exchange(seen, Self::of(seen) + USER, Relaxed, Relaxed)
        {
            seen = now;
        }
    }

    /// Afterwards the object may be gone.
    fn leave(&self) {
        let key = (&raw const self.0).cast();
        // Release pairs with the acquire in `wait_for_end`.
        if self.0.fetch_sub(USER, Release) & !FORKS == USER | DESTROYS {
            Native::unpark(key, u32::MAX);
        }
    }

    fn wait_for_end(&self) {
        loop {
            let seen = self.0.load(Acquire);
            if Self::of(seen) < USER {
                return;
            }
            let waits = seen | DESTROYS;
            if self
                .0
                .compare_exchange(seen, waits, Relaxed, Relaxed)
                .is_ok()
            {
                let key = (&raw const self.0).cast();
                Native::park(key, waits, NEVER, || self.0.load(Relaxed));
            }
        }
    }
}

impl Condvar {
    /// Whether the C library has set a flag.
    #[inline]
    fn has(&self, flag: &Flag) -> bool {
        let place = flag.place.load(Relaxed) as usize;
        let word = self.rest.get(place.wrapping_sub(layout::OWN_WORDS));
        word.is_some_and(|word| word.load(Relaxed) & flag.bits.load(Relaxed) != 0)
    }

    /// A process-shared one is the C library's.
    #[inline]
    fn is_passed(&self, mode: Mode) -> bool {
        mode.passes() || self.has(&layout::CONDVAR_SHARED)
    }

    /// The clock of its time limits.
    fn clock(&self, mode: Mode) -> libc::clockid_t {
        let is_ours = !self.is_passed(mode) && self.clock.load(Relaxed) == MONOTONIC;
        match is_ours || self.has(&layout::CONDVAR_MONOTONIC) {
            false => libc::CLOCK_REALTIME,
            true => libc::CLOCK_MONOTONIC,
        }
    }

    fn address(&self) -> *const c_void {
        (self as *const Self).cast()
    }

    #[inline]
    fn notify(&self, all: bool) -> c_int {
        let is_plain = MODE.load(Relaxed) == 0 && !self.has(&layout::CONDVAR_SHARED);
        if is_plain && !self.inner.is_waited_for() {
            return 0;
        }
        self.notify_some(all)
    }

    #[inline(never)]
    fn notify_some(&self, all: bool) -> c_int {
        let mode = mode();
        if mode.counts() {
            counts::signal(mode, self.is_passed(mode));
        }
        if self.is_passed(mode) {
            // SAFETY: invariant 3.
            return unsafe {
                match all {
                    false => real::pthread_cond_signal(self.address()),
                    true => real::pthread_cond_broadcast(self.address()),
                }
            };
        }
        if self.inner.is_waited_for() {
            self.users.enter();
            match all {
                false => drop(self.inner.notify_one()),
                true => drop(self.inner.notify_all()),
            }
            self.users.leave();
        }
        0
    }
}

// ---- waiting --------------------------------------------

/// One wait. It has no destructor: a cancelled thread unwinds the frame in which it lies.
struct Wait<'a> {
    condvar: &'a Condvar,
    mutex: &'a Mutex,
    mode: Mode,
    limit: Limit,
    /// The C library's condition variable with our mutex.
    is_mixed: bool,
    /// What the mutex's functions returned.
    result: Cell<c_int>,
}

unsafe extern "C-unwind" {
    fn kinlock_wait_frame(wait: *mut c_void) -> c_int;
    fn kinlock_cancellable_futex(
        key: *const u32,
        operation: c_int,
        expected: u32,
        until: *const libc::timespec,
        sets: u32,
    ) -> c_long;
}

impl Partner<Native> for Wait<'_> {
    unsafe fn unlock(&self) -> bool {
        self.result.set(self.mutex.release_watched(self.mode));
        self.result.get() == 0
    }

    fn lock(&self) {
        self.result.set(self.mutex.acquire_again(self.mode, false));
    }

    fn lock_notified(&self) {
        self.result.set(self.mutex.acquire_again(self.mode, true));
    }

    fn park(
        &self,
        key: *const u32,
        expected: u32,
        until: u64,
        sets: u32,
        _: impl Fn() -> u32,
    ) -> Parked {
        let moment = moment(until);
        let mut operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
        let until = match self.limit.time_of_day() {
            // The kernel heeds it if that clock is set.
            Some(until) => {
                operation |= libc::FUTEX_CLOCK_REALTIME;
                ptr::from_ref(until)
            }
            None if until == NEVER => ptr::null(),
            None => &raw const moment,
        };
        // SAFETY: invariant 4.
        let result = unsafe { kinlock_cancellable_futex(key, operation, expected, until, sets) };
        match -result as c_int {
            0 => Parked::Woken,
            libc::ETIMEDOUT | libc::EINTR => Parked::Unwoken,
            _ => Parked::Differed,
        }
    }

    fn leave(&self) {
        self.condvar.users.leave();
    }
}

fn moment(nanos: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (nanos / 1_000_000_000) as libc::time_t,
        tv_nsec: (nanos % 1_000_000_000) as c_long,
    }
}

/// Waits with our condition variable, in the frame that a cancellation cleans up.
///
/// # Safety
///
/// `wait` is what [`wait`] passes.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kinlock_wait(wait: *const c_void) -> c_int {
    // SAFETY: as this function demands.
    let wait = unsafe { &*wait.cast::<Wait<'_>>() };
    if wait.is_mixed {
        return wait_mixed(wait);
    }
    wait.condvar.users.enter();
    // SAFETY: invariant 2: `release` checks it, or the program must.
    let notified = unsafe {
        wait.condvar
            .inner
            .wait_by(wait, || wait.limit.until_by_kernel())
    };
    match (wait.result.get(), notified) {
        (0, false) => libc::ETIMEDOUT,
        (result, _) => result,
    }
}

/// How long a wait with two kinds of objects sleeps at a time, in nanoseconds.
const MIXED: u64 = 2_000_000;

/// The C library's condition variable does not know how to release our mutex, and between a release
/// and its wait a signal may come. So the wait is short, and returns like one that was notified.
fn wait_mixed(wait: &Wait<'_>) -> c_int {
    let left = wait.limit.left();
    if left == 0 {
        match wait.mutex.release_watched(wait.mode) {
            0 => wait.lock(),
            error => return error,
        }
        return match wait.result.get() {
            0 => libc::ETIMEDOUT,
            error => error,
        };
    }
    // SAFETY: as the trait demands: `release` checks it, or the program must.
    if !unsafe { wait.unlock() } {
        return wait.result.get();
    }
    // By the clock that it has, as older C libraries know no wait by another.
    let now = time::read(wait.condvar.clock(wait.mode));
    let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    let until = moment(now.saturating_add(left.min(MIXED)));
    let helper = MaybeUninit::<libc::pthread_mutex_t>::zeroed();
    let (helper, condvar) = (helper.as_ptr().cast(), wait.condvar.address());
    // SAFETY: invariants 3 and 4; zeros are an unlocked mutex.
    unsafe {
        real::pthread_mutex_lock(helper);
        real::pthread_cond_timedwait(condvar, helper, &until);
        real::pthread_mutex_unlock(helper);
    }
    wait.lock();
    wait.result.get()
}

/// The thread was cancelled in its wait: takes the mutex for the program's cleanup handlers.
///
/// # Safety
///
/// `wait` is what [`wait`] passes.
#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_wait_cancelled(wait: *const c_void) {
    // SAFETY: as this function demands.
    let wait = unsafe { &*wait.cast::<Wait<'_>>() };
    match wait.is_mixed {
        true => wait.lock(),
        false => wait.condvar.inner.abandon(wait),
    }
}

/// Which limit a wait has.
#[derive(Clone, Copy)]
pub(crate) enum Until {
    Never,
    /// A moment of the condition variable's own clock.
    Own(*const libc::timespec),
    /// A moment of that clock.
    Of(libc::clockid_t, *const libc::timespec),
}

/// # Safety
///
/// Invariants 1 and 3.
pub(crate) unsafe fn wait(condvar: *const Condvar, mutex: *const Mutex, until: Until) -> c_int {
    let mode = mode();
    // SAFETY: invariant 1.
    let (condvar, mutex) = unsafe { (&*condvar, &*mutex) };
    let (passed, mutex_passed) = (condvar.is_passed(mode), mutex.kind(mode) == Kind::Passed);
    if passed && mutex_passed {
        if mode.counts() {
            counts::wait(mode, true);
        }
        // SAFETY: invariant 3.
        return mutex.between(mode, || unsafe {
            wait_passed(condvar.address(), ptr::from_ref(mutex).cast(), until)
        });
    }
    // SAFETY: invariant 3.
    let limit = unsafe {
        match until {
            Until::Never => Limit::Never,
            Until::Own(until) => Limit::at(condvar.clock(mode), until),
            Until::Of(clock, until) => Limit::at(clock, until),
        }
    };
    match limit.check() {
        0 => {}
        error => return error,
    }
    if mode.counts() {
        counts::wait(mode, passed || mutex_passed);
    }
    let mut wait = Wait {
        condvar,
        mutex,
        mode,
        limit,
        is_mixed: passed,
        result: Cell::new(0),
    };
    // SAFETY: `wait` lives until the frame is left. Nothing in Rust's frames has a destructor.
    unsafe { kinlock_wait_frame((&raw mut wait).cast()) }
}

/// # Safety
///
/// As the C library demands.
unsafe fn wait_passed(condvar: *const c_void, mutex: *const c_void, until: Until) -> c_int {
    // SAFETY: invariant 3.
    unsafe {
        match until {
            Until::Never => real::pthread_cond_wait(condvar, mutex),
            Until::Own(until) => real::pthread_cond_timedwait(condvar, mutex, until),
            Until::Of(clock, until) => real::pthread_cond_clockwait(condvar, mutex, clock, until),
        }
    }
}

// ---- the functions --------------------------------------

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_cond_init(
    condvar: *mut Condvar,
    attributes: *const c_void,
) -> c_int {
    let mode = mode();
    counts::call(mode, || 0);
    // SAFETY: invariant 1. The object is the caller's alone. The C library writes as much.
    unsafe { condvar.cast::<[u64; 6]>().write([0; 6]) };
    if attributes.is_null() && !mode.passes() {
        return 0;
    }
    // SAFETY: invariant 3.
    let result = unsafe { real::pthread_cond_init(condvar.cast(), attributes) };
    // SAFETY: invariant 1.
    let object = unsafe { &*condvar };
    if result == 0 && !object.is_passed(mode) && object.has(&layout::CONDVAR_MONOTONIC) {
        // SAFETY: as above.
        unsafe { condvar.cast::<[u64; 6]>().write([0; 6]) };
        object.clock.store(MONOTONIC, Relaxed);
    }
    result
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_cond_destroy(condvar: *mut Condvar) -> c_int {
    let mode = mode();
    counts::call(mode, || 0);
    // SAFETY: invariant 1.
    let condvar = unsafe { &*condvar };
    if condvar.is_passed(mode) {
        // SAFETY: invariant 3.
        return unsafe { real::pthread_cond_destroy(condvar.address()) };
    }
    condvar.users.wait_for_end();
    0
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_cond_wait(condvar: *mut Condvar, mutex: *mut Mutex) -> c_int {
    // SAFETY: invariant 1.
    unsafe { wait(condvar, mutex, Until::Never) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pthread_cond_timedwait(
    condvar: *mut Condvar,
    mutex: *mut Mutex,
    until: *const libc::timespec,
) -> c_int {
    // SAFETY: invariants 1 and 3.
    unsafe { wait(condvar, mutex, Until::Own(until)) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_cond_clockwait(
    condvar: *mut Condvar,
    mutex: *mut Mutex,
    clock: libc::clockid_t,
    until: *const libc::timespec,
) -> c_int {
    if !time::is_known(clock) {
        return libc::EINVAL;
    }
    // SAFETY: invariants 1 and 3.
    unsafe { wait(condvar, mutex, Until::Of(clock, until)) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_cond_signal(condvar: *mut Condvar) -> c_int {
    // SAFETY: invariant 1.
    unsafe { &*condvar }.notify(false)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_cond_broadcast(condvar: *mut Condvar) -> c_int {
    // SAFETY: invariant 1.
    unsafe { &*condvar }.notify(true)
}
