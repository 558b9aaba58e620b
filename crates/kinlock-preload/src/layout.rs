//! What the C library's own functions write into objects, found out by calling them.
//!
//! The layout of these types is private to the C library and differs between its versions: glibc
//! 2.41 moved the attributes of condition variables. Static initialisers fix some places for ever,
//! but no other place is taken for granted here.

use crate::mutex::{ADAPTIVE, ELISION, ERROR_CHECKING, KINDS, RECURSIVE};
use crate::real;
use crate::{rwlock, spin};
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Enough for each type on each architecture.
const WORDS: usize = 16;
type Words = [u32; WORDS];

/// Where the flags of condition variables are, in words. Zero: not known yet, or not found.
pub(crate) static CONDVAR_FLAGS: AtomicU32 = AtomicU32::new(0);
/// The flag of a process-shared one.
pub(crate) static CONDVAR_SHARED: AtomicU32 = AtomicU32::new(0);
/// The flag of one whose time limits are moments of the monotonic clock.
pub(crate) static CONDVAR_MONOTONIC: AtomicU32 = AtomicU32::new(0);

/// How many words of a condition variable are ours: the flags must lie behind them.
pub(crate) const OWN_WORDS: usize = 4;

/// Memory that an initialising function has written, if it succeeds on zeros.
fn written(initialise: impl FnOnce(*mut c_void) -> c_int) -> Option<Words> {
    let mut words = [0; WORDS];
    (initialise(words.as_mut_ptr().cast()) == 0).then_some(words)
}

/// The only word that is not zero, and its place.
fn only_word(words: Words) -> Option<(usize, u32)> {
    let mut set = (0..WORDS).filter(|&at| words[at] != 0);
    let at = set.next()?;
    set.next().is_none().then_some((at, words[at]))
}

fn condvar(shared: c_int, clock: libc::clockid_t) -> Option<Words> {
    let mut attributes = MaybeUninit::uninit();
    let attributes: *mut libc::pthread_condattr_t = attributes.as_mut_ptr();
    // SAFETY: invariants 3 and 4.
    written(|object| unsafe {
        libc::pthread_condattr_init(attributes);
        libc::pthread_condattr_setpshared(attributes, shared);
        libc::pthread_condattr_setclock(attributes, clock);
        real::pthread_cond_init(object, attributes.cast())
    })
}

/// Finds out where condition variables have their flags. `false`: that cannot be told.
fn find_condvars() -> bool {
    let find = || {
        let (private, shared) = (libc::PTHREAD_PROCESS_PRIVATE, libc::PTHREAD_PROCESS_SHARED);
        let fresh = condvar(private, libc::CLOCK_REALTIME)?;
        let (place, shared) = only_word(condvar(shared, libc::CLOCK_REALTIME)?)?;
        let (same, monotonic) = only_word(condvar(private, libc::CLOCK_MONOTONIC)?)?;
        let is_sound = fresh == [0; WORDS]
            && place == same
            && (OWN_WORDS..size_of::<libc::pthread_cond_t>() / 4).contains(&place)
            && shared & monotonic == 0;
        is_sound.then_some((place as u32, shared, monotonic))
    };
    let Some((place, shared, monotonic)) = find() else {
        return false;
    };
    CONDVAR_SHARED.store(shared, Relaxed);
    CONDVAR_MONOTONIC.store(monotonic, Relaxed);
    CONDVAR_FLAGS.store(place, Relaxed);
    true
}

/// Whether nothing stands against replacing mutexes, condition variables and spinlocks.
pub(crate) fn knows_mutexes_and_condvars() -> bool {
    find_condvars() && knows_mutexes() && knows_spinlocks()
}

/// Whether mutexes have their kind where static initialisers put it.
fn knows_mutexes() -> bool {
    const KIND: usize = 4;
    let mutex = |kind, shared, robust| {
        let mut attributes = MaybeUninit::uninit();
        let attributes: *mut libc::pthread_mutexattr_t = attributes.as_mut_ptr();
        // SAFETY: invariants 3 and 4.
        let mut words = written(|object| unsafe {
            libc::pthread_mutexattr_init(attributes);
            libc::pthread_mutexattr_settype(attributes, kind);
            libc::pthread_mutexattr_setpshared(attributes, shared);
            libc::pthread_mutexattr_setrobust(attributes, robust);
            real::pthread_mutex_init(object, attributes.cast())
        })?;
        let kind = words[KIND] & !ELISION;
        words[KIND] = 0;
        (words == [0; WORDS]).then_some(kind)
    };
    let (private, stalled) = (libc::PTHREAD_PROCESS_PRIVATE, libc::PTHREAD_MUTEX_STALLED);
    let kinds = [0, RECURSIVE, ERROR_CHECKING, ADAPTIVE];
    let plain = kinds.map(|kind| mutex(kind as c_int, private, stalled));
    let is_passed = |kind: Option<u32>| kind.is_some_and(|kind| kind & !KINDS != 0);
    plain == kinds.map(Some)
        && is_passed(mutex(0, libc::PTHREAD_PROCESS_SHARED, stalled))
        && is_passed(mutex(0, private, libc::PTHREAD_MUTEX_ROBUST))
}

/// Whether reader-writer locks have their attributes where [`rwlock`] looks for them.
pub(crate) fn knows_rwlocks() -> bool {
    let lock = |shared, preference| {
        let mut attributes = MaybeUninit::uninit();
        let attributes: *mut libc::pthread_rwlockattr_t = attributes.as_mut_ptr();
        // SAFETY: invariants 3 and 4.
        written(|object| unsafe {
            libc::pthread_rwlockattr_init(attributes);
            libc::pthread_rwlockattr_setpshared(attributes, shared);
            pthread_rwlockattr_setkind_np(attributes, preference);
            real::pthread_rwlock_init(object, attributes.cast())
        })
    };
    let (private, not_recursive) = (libc::PTHREAD_PROCESS_PRIVATE, rwlock::NOT_RECURSIVE);
    let place_of = |words: Option<Words>| only_word(words?);
    lock(private, 0) == Some([0; WORDS])
        && place_of(lock(private, not_recursive as c_int))
            == Some((rwlock::PREFERENCE, not_recursive))
        && place_of(lock(libc::PTHREAD_PROCESS_SHARED, 0))
            .is_some_and(|(place, _)| place == rwlock::SHARED)
}

/// Whether a spinlock that is free has the value that [`spin`] expects.
fn knows_spinlocks() -> bool {
    // SAFETY: invariants 3 and 4.
    let fresh =
        written(|object| unsafe { real::pthread_spin_init(object, libc::PTHREAD_PROCESS_PRIVATE) });
    let mut expected = [0; WORDS];
    expected[0] = spin::FREE;
    fresh == Some(expected)
}

unsafe extern "C" {
    fn pthread_rwlockattr_setkind_np(
        attributes: *mut libc::pthread_rwlockattr_t,
        preference: c_int,
    ) -> c_int;
}

const _: () = assert!(size_of::<libc::pthread_cond_t>() <= size_of::<Words>());
const _: () = assert!(size_of::<libc::pthread_mutex_t>() <= size_of::<Words>());
const _: () = assert!(size_of::<libc::pthread_rwlock_t>() <= size_of::<Words>());
