//! Where the C library keeps the attributes of objects, found out by calling its own functions.
//!
//! The layout of these types is private to the C library and differs between its versions: glibc
//! 2.41 moved the attributes of condition variables. Static initialisers are compiled into
//! programs, so the places that they write cannot change. No other place is taken for granted.
//!
//! Before glibc 2.34, a process without threads may lack the functions. Then the places are known
//! from these versions.

use crate::libc::real;
use crate::thread::find_number;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A function of the C library that initialises an object.
type Initialise = unsafe extern "C-unwind" fn(*const c_void, *const c_void) -> c_int;

unsafe extern "C-unwind" {
    fn kinlock_sample_condvar(
        initialise: Initialise,
        object: *mut c_void,
        shared: c_int,
        monotonic: c_int,
    ) -> c_int;
    fn kinlock_sample_mutex(
        initialise: Initialise,
        object: *mut c_void,
        kind: c_int,
        shared: c_int,
        robust: c_int,
    ) -> c_int;
    fn kinlock_sample_rwlock(
        initialise: Initialise,
        object: *mut c_void,
        shared: c_int,
        preference: c_int,
    ) -> c_int;
}

/// The word of a mutex that has its kind.
const KIND: usize = 4;

/// The size of a sample: enough for each type on each architecture.
const WORDS: usize = 16;
type Words = [u32; WORDS];

const _: () = assert!(
    size_of::<libc::pthread_cond_t>() <= size_of::<Words>()
        && size_of::<libc::pthread_mutex_t>() <= size_of::<Words>()
        && size_of::<libc::pthread_rwlock_t>() <= size_of::<Words>()
);

// Values of the word in which the C library keeps the kind of a mutex.
pub(crate) const RECURSIVE: u32 = 1;
pub(crate) const ERROR_CHECKING: u32 = 2;
pub(crate) const ADAPTIVE: u32 = 3;
/// The bits in which these values differ.
pub(crate) const KINDS: u32 = 3;
/// Bits of robust and of priority-inheriting mutexes. The kernel has to find out who holds such a
/// mutex, so its lock word says it, by the bits of [`libc::FUTEX_TID_MASK`].
pub(crate) const HOLDER_IN_WORD: u32 = 0x10 | 0x20;
/// Bits that ask for lock elision by transactions, or forbid it. We ignore them.
pub(crate) const ELISION: u32 = 0x300;

/// The word of a reader-writer lock that says whether processes share it.
pub(crate) const RWLOCK_SHARED: usize = 7;
/// The word that says whether readers or writers go first.
pub(crate) const RWLOCK_PREFERENCE: usize = 12;
/// The preference with which a thread that holds the lock for reading must not take it again for
/// reading while a writer waits (`PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP`).
pub(crate) const NOT_RECURSIVE: u32 = 2;

/// The value of a free spinlock. On x86 the C library takes a spinlock by counting down from 1: it
/// is held at every value below 1.
pub(crate) const FREE: u32 = if cfg!(target_arch = "x86_64") { 1 } else { 0 };

/// A flag of the C library: some bits of one word of an object. No bits: its place is unknown.
pub(crate) struct Flag {
    /// The index of the word.
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

/// A condition variable is process-shared.
pub(crate) static CONDVAR_SHARED: Flag = Flag::unknown();
/// The time limits of a condition variable are times of the monotonic clock.
pub(crate) static CONDVAR_MONOTONIC: Flag = Flag::unknown();

/// How many words at the beginning of a condition variable this library uses. The flags must lie
/// behind them.
pub(crate) const OWN_WORDS: usize = 4;

/// What one of the C library's functions wrote into zeros.
enum Sample {
    Written(Words),
    /// The function failed.
    Failed,
    /// The process has no such function.
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

/// The first word that is not 0, and its index.
fn first_word(words: Words) -> Option<(usize, u32)> {
    let at = words.iter().position(|&word| word != 0)?;
    Some((at, words[at]))
}

/// The only word that is not 0, and its index. `None` if there are several, or none.
fn only_word(words: Words) -> Option<(usize, u32)> {
    let (at, word) = first_word(words)?;
    (words.iter().filter(|&&word| word != 0).count() == 1).then_some((at, word))
}

/// Whether mutexes, condition variables and spinlocks are laid out so that this library can replace
/// them. Finds out where condition variables have their flags.
pub(crate) fn knows_mutexes_and_condvars() -> bool {
    match find_condvars() {
        None => true,
        Some(is_known) => is_known && knows_mutexes() && knows_spinlocks(),
    }
}

/// Whether the flags of condition variables are where we can test them. `None`: the process lacks
/// the functions. Then no other sample is taken, since a look-up that fails allocates.
fn find_condvars() -> Option<bool> {
    let condvar = |shared, monotonic| {
        // SAFETY: invariants 3 and 4.
        sample(|object| unsafe {
            kinlock_sample_condvar(real::pthread_cond_init, object, shared, monotonic)
        })
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
    let mutex = |kind: u32, shared, robust| {
        // SAFETY: invariants 3 and 4.
        sample(|object| unsafe {
            kinlock_sample_mutex(
                real::pthread_mutex_init,
                object,
                kind as c_int,
                shared,
                robust,
            )
        })
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
    let is_delegated = |kind: u32| kind & !KINDS != 0;
    [0, RECURSIVE, ERROR_CHECKING, ADAPTIVE]
        .into_iter()
        .all(|kind| has_kind(mutex(kind, 0, 0), &|found| found == kind))
        && has_kind(mutex(0, 1, 0), &is_delegated)
        && has_kind(mutex(0, 0, 1), &is_delegated)
}

/// Finds out where the C library keeps the number of a thread: its own function stores the number
/// in a recursive mutex. If the process lacks the function, the place stays unknown.
pub(crate) fn find_thread_number() {
    const OWNER: usize = 2;
    let mut words: Words = [0; WORDS];
    words[KIND] = RECURSIVE;
    let mutex = (&raw mut words).cast::<c_void>();
    // SAFETY: invariants 3 and 4.
    let (taken, owner) = unsafe {
        let taken = real::pthread_mutex_lock(mutex);
        (taken, mutex.cast::<u32>().add(OWNER).read_volatile())
    };
    if taken != 0 {
        return;
    }
    // SAFETY: invariants 2 and 3.
    unsafe { real::pthread_mutex_unlock(mutex) };
    if owner != 0 {
        find_number(owner);
    }
}

/// Whether reader-writer locks have their attributes where static initialisers put them.
pub(crate) fn knows_rwlocks() -> bool {
    let lock = |shared, preference: u32| {
        // SAFETY: invariants 3 and 4.
        sample(|object| unsafe {
            kinlock_sample_rwlock(
                real::pthread_rwlock_init,
                object,
                shared,
                preference as c_int,
            )
        })
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

/// Whether a free spinlock has the value [`FREE`].
fn knows_spinlocks() -> bool {
    let mut word = !FREE;
    // SAFETY: invariants 3 and 4.
    let result = unsafe { real::pthread_spin_init((&raw mut word).cast_const().cast(), 0) };
    result == 0 && word == FREE
}
