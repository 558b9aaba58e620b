//! Noting what locks do, for `kinlock run --report`: with the feature `report`.
//!
//! Each function of a lock tests one word ([`is_on`]), which is 0 while no report is made. It
//! differs from 0 if the command has started the program for a report, or to stand by. Then a call
//! goes through this module: it tries the lock and, if that fails and the call may wait, times the
//! wait. A wait is noted in either case, so that the command can say who waits ([`waiting`]).
//! Without the feature there is no test: the macros [`taking`], [`releasing`] and [`downgraded`]
//! expand to the plain operation or to nothing.

#[cfg(feature = "report")]
pub(crate) use notes::{
    Access, Reported, Reporting, Waits, downgrade, here, is_on, no_longer_upgradable, release,
    take, waiting,
};

/// Where the program calls a function of a lock.
#[cfg(feature = "report")]
pub(crate) type Place = &'static core::panic::Location<'static>;
#[cfg(all(feature = "std", not(feature = "report")))]
#[derive(Clone, Copy)]
pub(crate) struct Place;

/// The place of the function's caller, if the function has `track_caller`.
#[cfg(all(feature = "std", not(feature = "report")))]
#[inline(always)]
pub(crate) fn here() -> Place {
    Place
}

/// A probe with the name that the C library has for what happens: with the feature `probes`.
macro_rules! probing {
    (entry Mutex, $lock:expr) => { crate::report::probing!("mutex_entry", $lock) };
    (acquired Mutex, $lock:expr) => { crate::report::probing!("mutex_acquired", $lock) };
    (release Mutex, $lock:expr) => { crate::report::probing!("mutex_release", $lock) };
    (entry Read, $lock:expr) => { crate::report::probing!("rdlock_entry", $lock) };
    (acquired Read, $lock:expr) => { crate::report::probing!("rdlock_acquire_read", $lock) };
    (entry ReadAgain, $lock:expr) => { crate::report::probing!("rdlock_entry", $lock) };
    (acquired ReadAgain, $lock:expr) => { crate::report::probing!("rdlock_acquire_read", $lock) };
    (entry Upgradable, $lock:expr) => { crate::report::probing!("rdlock_entry", $lock) };
    (acquired Upgradable, $lock:expr) => { crate::report::probing!("rdlock_acquire_read", $lock) };
    (entry $access:ident, $lock:expr) => { crate::report::probing!("wrlock_entry", $lock) };
    (acquired $access:ident, $lock:expr) => {
        crate::report::probing!("wrlock_acquire_write", $lock)
    };
    (release $access:ident, $lock:expr) => { crate::report::probing!("rwlock_unlock", $lock) };
    ($name:literal, $lock:expr $(, $other:expr)?) => {
        #[cfg(feature = "probes")]
        kinlock_linux::probe!($name, $lock $(, $other)?);
    };
}
pub(crate) use probing;

/// Takes a lock: by `$attempt` or, if that fails and the call waits, by `$wait`. While no report is
/// made, `$first` replaces `$attempt`: the first step of `$wait`, which may fail on a lock that is
/// free. Without the feature, this is `$wait` alone.
macro_rules! taking {
    ($lock:expr, $access:ident, $attempt:expr) => {
        crate::report::taking!($lock, $access, Not, $attempt, $attempt)
    };
    ($lock:expr, $access:ident, $waits:ident, $attempt:expr, $wait:expr) => {
        crate::report::taking!($lock, $access, $waits, $attempt, $attempt, $wait)
    };
    ($lock:expr, $access:ident, $waits:ident, $first:expr, $attempt:expr, $wait:expr) => {{
        crate::report::probing!(entry $access, $lock);
        #[cfg(feature = "report")]
        let taken = match crate::report::is_on() {
            true => {
                use crate::report::{Access, Waits, here, take};
                let (access, waits) = (Access::$access, Waits::$waits);
                take($lock, access, waits, here(), || $first, || $attempt, || $wait)
            }
            false => {
                use crate::report::{Access, Waits, waiting};
                let (access, waits) = (Access::$access, Waits::$waits);
                let is_taken = $first;
                is_taken || waits != Waits::Not && waiting($lock, access, waits, || $wait)
            }
        };
        #[cfg(not(feature = "report"))]
        let taken = $wait;
        #[cfg(feature = "probes")]
        if taken {
            crate::report::probing!(acquired $access, $lock);
        }
        taken
    }};
}
pub(crate) use taking;

/// Notes that the calling thread is about to release a lock.
macro_rules! releasing {
    ($lock:expr, $access:ident) => {
        crate::report::probing!(release $access, $lock);
        #[cfg(feature = "report")]
        if crate::report::is_on() {
            crate::report::release($lock, crate::report::Access::$access);
        }
    };
}
pub(crate) use releasing;

/// Notes that the calling thread was a writer, and reads now.
macro_rules! downgraded {
    ($lock:expr, $access:ident) => {
        #[cfg(feature = "report")]
        if crate::report::is_on() {
            let access = crate::report::Access::$access;
            crate::report::downgrade($lock, access, crate::report::here());
        }
    };
}
pub(crate) use downgraded;

#[cfg(feature = "report")]
mod notes {
    use super::Place;
    use core::cell::Cell;
    use core::panic::Location;
    use core::ptr;
    use core::sync::atomic::Ordering::Relaxed;
    use kinlock_recorder::mode::OWN;
    use kinlock_recorder::now::{self, Noted};
    use kinlock_recorder::table::REPORTS;
    use kinlock_recorder::table::now::{HOLDS, LIMITED, PASSES, SENDABLE, UPGRADABLE};
    use kinlock_recorder::thread::known_number;
    use kinlock_recorder::{
        BUSY, Behind, Object, Outcome, TIMED_OUT, Wait, acquisition, enter,
        release as release_mutex, rwlock_asked, rwlock_release,
    };
    use kinlock_recorder::{program, table};

    #[used]
    #[unsafe(link_section = ".init_array")]
    static BEGIN: extern "C" fn() = program::begin;

    /// Whether uses of locks are reported, or their holders noted.
    #[inline(always)]
    pub(crate) fn is_on() -> bool {
        OWN.switch.mode.load(Relaxed) != 0
    }

    fn reports() -> bool {
        OWN.switch.mode.load(Relaxed) & REPORTS != 0
    }

    /// Whether holders of locks are noted. If guards may be sent to other threads, holders are not
    /// known.
    fn notes_holds() -> bool {
        !TRAVELS && OWN.switch.mode.load(Relaxed) & HOLDS != 0
    }

    #[inline(always)]
    #[track_caller]
    pub(crate) fn here() -> Place {
        Location::caller()
    }

    /// How a lock is taken.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Access {
        /// A mutex.
        Mutex,
        /// A reader-writer lock for writing.
        Write,
        /// For reading, behind writers that wait.
        Read,
        /// For reading, ahead of writers that wait.
        ReadAgain,
        /// As the upgradable reader, behind writers that wait.
        Upgradable,
        /// For writing, by its upgradable reader.
        Upgrade,
    }

    /// Whether the program's call waits.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Waits {
        Not,
        Limited,
        Endless,
    }

    /// A lock, as the recorder has to know it.
    pub(crate) trait Reported {
        fn is_held(&self) -> bool;
        fn is_held_by_writer(&self) -> bool;
    }

    /// Whether guards may be sent to other threads.
    const TRAVELS: bool = cfg!(feature = "send_guard");

    fn address<L>(lock: &L) -> u64 {
        ptr::from_ref(lock).addr() as u64
    }

    /// A lock, or the side of a reader-writer lock that is asked for.
    fn object<L>(lock: &L, access: Access, place: Option<Place>) -> Object<'static> {
        let object = match access {
            Access::Mutex => Object::new(address(lock), 0),
            Access::Write | Access::Upgrade => Object::side(address(lock), false),
            Access::Read | Access::ReadAgain | Access::Upgradable => {
                Object::side(address(lock), true)
            }
        };
        Object {
            place,
            travels: TRAVELS,
            ..object
        }
    }

    /// The lock's name in a note, and its kind there.
    fn noted<L>(lock: &L, access: Access, waits: Waits) -> (u64, u32) {
        let limit = match waits {
            Waits::Limited => LIMITED,
            _ => 0,
        };
        let how = match access {
            Access::Mutex | Access::Write | Access::Read => 0,
            Access::Upgrade | Access::Upgradable => UPGRADABLE,
            Access::ReadAgain => PASSES,
        };
        let sendable = if TRAVELS { SENDABLE } else { 0 };
        let object = object(lock, access, None);
        (object.address, object.kind | how | limit | sendable)
    }

    /// Waits for a lock by `wait`, and notes that for as long as it takes.
    #[cold]
    #[inline(never)]
    pub(crate) fn waiting<L>(
        lock: &L,
        access: Access,
        waits: Waits,
        wait: impl FnOnce() -> bool,
    ) -> bool {
        let (what, kind) = noted(lock, access, waits);
        let noted = now::waits(what, kind, known_number());
        let is_taken = wait();
        noted.end();
        is_taken
    }

    /// Notes that the calling thread has taken a lock, if holders are noted.
    fn note_hold<L>(lock: &L, access: Access) {
        if access == Access::Upgrade {
            note_release(lock, Access::Upgradable);
        }
        if notes_holds() {
            let (what, kind) = noted(lock, access, Waits::Endless);
            now::holds(what, kind, known_number());
        }
    }

    /// Notes that the calling thread is about to release a lock, if holders are noted.
    fn note_release<L>(lock: &L, access: Access) {
        if notes_holds() {
            let (what, _) = noted(lock, access, Waits::Endless);
            now::released(what, known_number());
        }
    }

    /// Notes that the calling thread was the upgradable reader, and is a plain reader now.
    #[cold]
    #[inline(never)]
    pub(crate) fn no_longer_upgradable<L>(lock: &L) {
        note_release(lock, Access::Upgradable);
        note_hold(lock, Access::Read);
    }

    /// Takes a lock, and notes how that went; see [`taking`](super::taking). Returns whether the
    /// calling thread has it.
    #[cold]
    #[inline(never)]
    pub(crate) fn take<L: Reported>(
        lock: &L,
        access: Access,
        waits: Waits,
        place: Place,
        first: impl FnOnce() -> bool,
        attempt: impl FnOnce() -> bool,
        wait: impl FnOnce() -> bool,
    ) -> bool {
        if !reports() {
            let is_taken = first() || waits != Waits::Not && waiting(lock, access, waits, wait);
            if is_taken {
                note_hold(lock, access);
            }
            return is_taken;
        }
        enter();
        let object = object(lock, access, Some(place));
        let (is_try, is_endless) = (waits == Waits::Not, waits == Waits::Endless);
        let is_upgrade = access == Access::Upgrade;
        // An upgrade asks for nothing that another thread can hold while it waits for this one.
        if access != Access::Mutex && !is_try && !is_upgrade {
            rwlock_asked(object, is_endless, access != Access::ReadAgain);
        }
        let mut waited = None;
        let mut is_taken = attempt();
        if !is_taken && !is_try {
            let behind = match lock.is_held_by_writer() {
                true => Behind::Writer,
                false => Behind::Readers,
            };
            let begun = Wait::begin(object, is_endless).behind(behind);
            is_taken = waiting(lock, access, waits, wait);
            waited = Some(begun.end());
        }
        if is_taken {
            note_hold(lock, access);
        }
        // The wait may have called `enter`, too.
        enter();
        if is_upgrade && is_taken {
            rwlock_release(address(lock), true, 0);
        }
        let result = match (is_taken, is_try) {
            (true, _) => 0,
            (false, true) => BUSY,
            (false, false) => TIMED_OUT,
        };
        let outcome = Outcome {
            is_try,
            is_endless,
            waited,
            result,
            asked: None,
        };
        acquisition(object, outcome);
        is_taken
    }

    /// Notes that the calling thread has become a reader. The release of its write lock has been
    /// noted.
    #[cold]
    #[inline(never)]
    pub(crate) fn downgrade<L>(lock: &L, access: Access, place: Place) {
        note_hold(lock, access);
        if !reports() {
            return;
        }
        enter();
        acquisition(object(lock, access, Some(place)), Outcome::AT_ONCE);
    }

    /// Notes that the calling thread is about to release a lock.
    #[cold]
    #[inline(never)]
    pub(crate) fn release<L: Reported>(lock: &L, access: Access) {
        note_release(lock, access);
        if !reports() {
            return;
        }
        enter();
        match access {
            Access::Mutex => release_mutex(object(lock, access, None), None, lock.is_held()),
            _ => rwlock_release(address(lock), lock.is_held(), 0),
        }
    }

    /// A wait for a condition variable, and what it does to the mutex, as they are reported.
    pub(crate) struct Reporting {
        awaited: Object<'static>,
        place: Place,
        begun: Cell<Option<Wait>>,
        noted: Cell<Noted>,
    }

    impl Reporting {
        /// Inlined into the function that waits: the note refers to that function's frame.
        #[inline(always)]
        pub(crate) fn new<C>(condvar: &C, is_endless: bool, place: Place) -> Self {
            let limit = if is_endless { 0 } else { LIMITED };
            let noted = now::waits(address(condvar), table::CONDVAR | limit, known_number());
            let awaited = Object {
                place: Some(place),
                ..Object::new(address(condvar), table::CONDVAR)
            };
            Reporting {
                awaited,
                place,
                begun: Cell::new(None),
                noted: Cell::new(noted),
            }
        }

        /// Called when the wait is over, by a notification or not.
        #[inline]
        pub(crate) fn ended(&self, is_notified: bool) {
            // If the time was up at once, the wait has begun only after the call of `left`.
            self.left();
            if reports() && !is_notified {
                self.awaited.note_timeout();
            }
        }

        /// Called when the wait begins: the mutex is about to be released.
        pub(crate) fn releasing(&self, mutex: &impl Reported) {
            if reports() {
                self.begin();
            }
            if is_on() {
                release(mutex, Access::Mutex);
            }
        }

        #[cold]
        #[inline(never)]
        fn begin(&self) {
            enter();
            self.begun.set(Some(self.awaited.begin_wait()));
        }

        /// Takes the mutex by `lock`.
        pub(crate) fn retake(&self, mutex: &impl Reported, lock: impl Fn()) {
            if !is_on() && !mutex.is_held() {
                return lock();
            }
            // A mutex that is found free counts as taken without a wait.
            let attempt = || {
                let is_free = !mutex.is_held();
                if is_free {
                    lock();
                }
                is_free
            };
            let wait = || {
                lock();
                true
            };
            let (access, waits) = (Access::Mutex, Waits::Endless);
            take(mutex, access, waits, self.place, attempt, attempt, wait);
        }

        /// Called when the wait no longer uses the condition variable, and has not taken the mutex
        /// again yet.
        pub(crate) fn left(&self) {
            self.noted.replace(Noted::NONE).end();
            if let Some(begun) = self.begun.take() {
                self.awaited.end_wait(begun);
            }
        }
    }
}
