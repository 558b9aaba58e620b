//! What the C library's own functions write into objects, found out by calling them.
//!
//! The layout of these types is private to the C library and differs between its versions: glibc
//! 2.41 moved the attributes of condition variables. Static initialisers fix some places for ever,
//! but no other place is taken for granted here.
//!
//! A process without threads may lack the functions, with a C library before 2.34. Then the places
//! are those of these C libraries.

use crate::libc::real;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

unsafe extern "C" {
    fn kinlock_sample_condvar(object: *mut c_void, shared: c_int, monotonic: c_int) -> c_int;
    fn kinlock_sample_mutex(
        object: *mut c_void,
        kind: c_int,
        shared: c_int,
        robust: c_int,
    ) -> c_int;
    fn kinlock_sample_rwlock(object: *mut c_void, shared: c_int, preference: c_int) -> c_int;
}

/// Enough for each type on each architecture.
const WORDS: usize = 16;
type Words = [u32; WORDS];

const _: () = assert!(
    size_of::<libc::pthread_cond_t>() <= size_of::<Words>()
        && size_of::<libc::pthread_mutex_t>() <= size_of::<Words>()
        && size_of::<libc::pthread_rwlock_t>() <= size_of::<Words>()
);

// What the C library writes into the kinds of mutexes.
pub(crate) const RECURSIVE: u32 = 1;
pub(crate) const ERROR_CHECKING: u32 = 2;
pub(crate) const ADAPTIVE: u32 = 3;
/// The bits of these.
pub(crate) const KINDS: u32 = 3;
/// Whether to elide the lock by transactions.
pub(crate) const ELISION: u32 = 0x300;

/// Where reader-writer locks say that processes share them, and who goes first, in words.
pub(crate) const RWLOCK_SHARED: usize = 7;
pub(crate) const RWLOCK_PREFERENCE: usize = 12;
/// The preference by which a thread that reads must not read again while a writer waits.
pub(crate) const NOT_RECURSIVE: u32 = 2;

/// The value of a free spinlock. On x86 the C library takes one by counting down, so that every
/// value below 1 is a held one.
pub(crate) const FREE: u32 = if cfg!(target_arch = "x86_64") { 1 } else { 0 };

/// Some bits of one word of an object. No bits: not known.
pub(crate) struct Flag {
    /// Which word.
    pub(crate) place: AtomicU32,
    pub(crate) bits: AtomicU32,
}

impl Flag {
    const fn unknown() -> Self {
        Flag {
            place: AtomicU32::new(0),
            bits: AtomicU32::new(0),
        }
    }

    fn set(&self, (place, bits): (usize, u32)) {
        self.place.store(place as u32, Relaxed);
        self.bits.store(bits, Relaxed);
    }
}

/// That a condition variable is process-shared.
pub(crate) static CONDVAR_SHARED: Flag = Flag::unknown();
/// That its time limits are moments of the monotonic clock.
pub(crate) static CONDVAR_MONOTONIC: Flag = Flag::unknown();

/// How many words of a condition variable are ours: the flags must lie behind them.
pub(crate) const OWN_WORDS: usize = 4;

/// What a function wrote into zeros, or why that cannot be told.
enum Sample {
    Written(Words),
    Failed,
    /// There is no such function.
    Missing,
}

fn sample(initialise: impl FnOnce(*mut c_void) -> c_int) -> Sample {
    let mut words = [0; WORDS];
    match initialise(words.as_mut_ptr().cast()) {
        0 => Sample::Written(words),
        -1 => Sample::Missing,
        _ => Sample::Failed,
    }
}

fn first_word(words: Words) -> Option<(usize, u32)> {
    let at = words.iter().position(|&word| word != 0)?;
    Some((at, words[at]))
}

fn only_word(words: Words) -> Option<(usize, u32)> {
    let (at, word) = first_word(words)?;
    (words.iter().filter(|&&word| word != 0).count() == 1).then_some((at, word))
}

/// Whether nothing stands against replacing mutexes, condition variables and spinlocks. Finds out
/// where condition variables have their flags.
pub(crate) fn knows_mutexes_and_condvars() -> bool {
    match find_condvars() {
        None => true,
        Some(is_known) => is_known && knows_mutexes() && knows_spinlocks(),
    }
}

/// `None`: the process lacks the functions. Then none of them is looked up: a lookup that fails
/// allocates.
fn find_condvars() -> Option<bool> {
    let condvar = |shared, monotonic| {
        // SAFETY: invariants 3 and 4.
        sample(|object| unsafe { kinlock_sample_condvar(object, shared, monotonic) })
    };
    let samples = (condvar(0, 0), condvar(1, 0), condvar(0, 1));
    let (shared, monotonic) = match samples {
        (Sample::Missing, ..) => {
            CONDVAR_SHARED.set((9, 1));
            CONDVAR_MONOTONIC.set((9, 2));
            return None;
        }
        (Sample::Written(fresh), Sample::Written(shared), Sample::Written(monotonic))
            if fresh == [0; WORDS] =>
        {
            (first_word(shared), first_word(monotonic))
        }
        _ => return Some(false),
    };
    let (Some(shared), Some(monotonic)) = (shared, monotonic) else {
        return Some(false);
    };
    let places = OWN_WORDS..size_of::<libc::pthread_cond_t>() / 4;
    let is_sound = places.contains(&shared.0)
        && places.contains(&monotonic.0)
        && (shared.0 != monotonic.0 || shared.1 & monotonic.1 == 0);
    if is_sound {
        CONDVAR_SHARED.set(shared);
        CONDVAR_MONOTONIC.set(monotonic);
    }
    Some(is_sound)
}

/// Whether mutexes have their kind where static initialisers put it.
fn knows_mutexes() -> bool {
    const KIND: usize = 4;
    let mutex = |kind: u32, shared, robust| {
        // SAFETY: invariants 3 and 4.
        sample(|object| unsafe { kinlock_sample_mutex(object, kind as c_int, shared, robust) })
    };
    let has_kind = |sample: Sample, is_right: &dyn Fn(u32) -> bool| match sample {
        Sample::Missing => true,
        Sample::Failed => false,
        Sample::Written(mut words) => {
            let kind = words[KIND] & !ELISION;
            words[KIND] = 0;
            words == [0; WORDS] && is_right(kind)
        }
    };
    let is_passed = |kind: u32| kind & !KINDS != 0;
    [0, RECURSIVE, ERROR_CHECKING, ADAPTIVE]
        .into_iter()
        .all(|kind| has_kind(mutex(kind, 0, 0), &|found| found == kind))
        && has_kind(mutex(0, 1, 0), &is_passed)
        && has_kind(mutex(0, 0, 1), &is_passed)
}

/// Whether reader-writer locks have their attributes where [`rwlock`] looks for them.
pub(crate) fn knows_rwlocks() -> bool {
    let lock = |shared, preference: u32| {
        // SAFETY: invariants 3 and 4.
        sample(|object| unsafe { kinlock_sample_rwlock(object, shared, preference as c_int) })
    };
    match (lock(0, 0), lock(1, 0), lock(0, NOT_RECURSIVE)) {
        (Sample::Missing, ..) => true,
        (Sample::Written(fresh), Sample::Written(shared), Sample::Written(prefers)) => {
            fresh == [0; WORDS]
                && only_word(shared).is_some_and(|(place, _)| place == RWLOCK_SHARED)
                && only_word(prefers) == Some((RWLOCK_PREFERENCE, NOT_RECURSIVE))
        }
        _ => false,
    }
}

/// Whether a free spinlock has the value that [`spin`] takes for it.
fn knows_spinlocks() -> bool {
    let mut word = !FREE;
    // SAFETY: invariants 3 and 4.
    let result = unsafe { real::pthread_spin_init((&raw mut word).cast_const().cast(), 0) };
    result == 0 && word == FREE
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_real_cond_init(object: *mut c_void, with: *const c_void) -> c_int {
    // SAFETY: invariant 3.
    unsafe { real::pthread_cond_init(object, with) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_real_mutex_init(object: *mut c_void, with: *const c_void) -> c_int {
    // SAFETY: invariant 3.
    unsafe { real::pthread_mutex_init(object, with) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_real_rwlock_init(object: *mut c_void, with: *const c_void) -> c_int {
    // SAFETY: invariant 3.
    unsafe { real::pthread_rwlock_init(object, with) }
}
