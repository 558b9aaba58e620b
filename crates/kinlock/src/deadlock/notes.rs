//! What each thread notes: the locks that it holds, and the one that it waits for.
//!
//! The notes use the locks of `std`, which note nothing.

use super::Kind;
use backtrace::Backtrace;
use kinlock_core::Native;
use kinlock_core::native::deadline;
use kinlock_core::platform::NEVER;
use kinlock_core::raw::condvar::Partner;
use kinlock_core::raw::mutex::{MutexConfig, QueuedMutex};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

/// How long a thread waits before it notes where: most waits end earlier, and need no backtrace.
/// It then queues anew, once per wait.
const SHORT: Duration = Duration::from_millis(1);

/// The notes of all threads that run.
static ALL: Mutex<Vec<Arc<Notes>>> = Mutex::new(Vec::new());

std::thread_local! {
    static MINE: Mine = Mine(Notes::enlist());
}

/// What one thread notes.
pub(super) struct Notes {
    thread: ThreadId,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: Vec<Held>,
    wait: Option<Wait>,
    /// How many waits have begun.
    waits: u64,
    /// Where it waits, once the wait is not short.
    place: Option<Backtrace>,
    /// A check has reported this wait.
    reported: bool,
}

/// A lock, by its address, and how it is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Held {
    pub lock: usize,
    pub kind: Kind,
}

/// A lock, by its address, and how it is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wait {
    pub lock: usize,
    pub kind: Kind,
    /// By its upgradable reader, which does not wait for itself.
    pub upgrade: bool,
}

/// A copy of a thread's notes.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub held: Vec<Held>,
    pub wait: Option<Wait>,
    pub waits: u64,
    pub reported: bool,
}

/// What becomes of a wait.
pub(super) enum Progress {
    /// It has ended.
    Ended,
    /// It goes on, and is short so far.
    Short,
    /// It goes on, here.
    Long(Backtrace),
}

impl Notes {
    fn enlist() -> Arc<Self> {
        let notes = Arc::new(Notes {
            thread: std::thread::current().id(),
            state: Mutex::default(),
        });
        all().push(notes.clone());
        notes
    }

    pub fn thread(&self) -> ThreadId {
        self.thread
    }

    pub fn view(&self) -> View {
        let state = self.state();
        View {
            held: state.held.clone(),
            wait: state.wait,
            waits: state.waits,
            reported: state.reported,
        }
    }

    /// What becomes of the wait with this number.
    pub fn progress(&self, waits: u64) -> Progress {
        let state = self.state();
        match &state.place {
            _ if state.wait.is_none() || state.waits != waits => Progress::Ended,
            None => Progress::Short,
            Some(place) => Progress::Long(place.clone()),
        }
    }

    pub fn set_reported(&self, waits: u64) {
        let mut state = self.state();
        if state.waits == waits {
            state.reported = true;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, wait: Wait) {
        let mut state = self.state();
        state.wait = Some(wait);
        state.waits += 1;
        state.place = None;
        state.reported = false;
    }
}

/// Takes a thread's notes off the list when it ends.
struct Mine(Arc<Notes>);

impl Drop for Mine {
    fn drop(&mut self) {
        all().retain(|notes| !Arc::ptr_eq(notes, &self.0));
    }
}

/// The notes of all threads that run.
pub(super) fn threads() -> Vec<Arc<Notes>> {
    all().clone()
}

fn all() -> MutexGuard<'static, Vec<Arc<Notes>>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The notes of this thread; `None` while it ends.
fn mine() -> Option<Arc<Notes>> {
    MINE.try_with(|mine| mine.0.clone()).ok()
}

fn address<L>(lock: &L) -> usize {
    core::ptr::from_ref(lock).addr()
}

/// Takes `lock`. `wait` does so until a moment; 0 tries once.
pub(crate) fn lock<L>(lock: &L, kind: Kind, wait: impl Fn(u64) -> bool, _: impl FnOnce()) {
    let noted = Wait {
        lock: address(lock),
        kind,
        upgrade: false,
    };
    wait_for(noted, wait);
    acquired(lock, kind);
}

/// As [`lock`], by the upgradable reader of `lock`.
pub(crate) fn upgrade<L>(lock: &L, wait: impl Fn(u64) -> bool, _: impl FnOnce()) {
    let noted = Wait {
        lock: address(lock),
        kind: Kind::Exclusive,
        upgrade: true,
    };
    wait_for(noted, wait);
    changed(lock, Kind::Exclusive);
}

fn wait_for(noted: Wait, wait: impl Fn(u64) -> bool) {
    if wait(0) {
        return;
    }
    let Some(notes) = mine() else {
        wait(NEVER);
        return;
    };
    notes.begin(noted);
    if !wait(deadline(SHORT)) {
        let place = Backtrace::new_unresolved();
        notes.state().place = Some(place);
        wait(NEVER);
    }
    notes.state().wait = None;
}

/// Notes that this thread holds `lock`, if it was taken.
pub(crate) fn tried<L>(lock: &L, kind: Kind, taken: bool) -> bool {
    if taken {
        acquired(lock, kind);
    }
    taken
}

/// Notes that this thread holds `lock`.
pub(crate) fn acquired<L>(lock: &L, kind: Kind) {
    let held = Held {
        lock: address(lock),
        kind,
    };
    if let Some(notes) = mine() {
        notes.state().held.push(held);
    }
}

/// Notes that the thread that holds `lock` holds it in another way.
pub(crate) fn changed<L>(lock: &L, kind: Kind) {
    with_holder(address(lock), |held, at| held[at].kind = kind);
}

/// Notes that `lock` is about to be released.
pub(crate) fn releasing<L>(lock: &L) {
    with_holder(address(lock), |held, at| _ = held.swap_remove(at));
}

/// Changes the note that `lock` is held: of this thread, else of another, for which this one
/// releases it.
fn with_holder(lock: usize, change: impl Fn(&mut Vec<Held>, usize)) {
    let changed = |notes: &Notes| {
        let held = &mut notes.state().held;
        let at = held.iter().rposition(|held| held.lock == lock);
        at.map(|at| change(held, at)).is_some()
    };
    if !mine().is_some_and(|notes| changed(&notes)) {
        threads().iter().any(|notes| changed(notes));
    }
}

/// The mutex that a condition variable releases and takes again, with notes.
pub(crate) struct Noted<'a, C: MutexConfig>(pub &'a QueuedMutex<Native, C>);

impl<C: MutexConfig> Partner<Native> for Noted<'_, C> {
    fn key(&self) -> Option<*const u32> {
        Partner::key(self.0)
    }

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    unsafe fn unlock(&self) -> bool {
        releasing(self.0);
        // SAFETY: as this function demands.
        unsafe { Partner::unlock(self.0) }
    }

    fn lock(&self) {
        let wait = |until| self.0.lock_until(until);
        lock(self.0, Kind::Exclusive, wait, || self.0.lock());
    }

    /// The wait is not noted: the next of many sleepers depends on this one.
    fn lock_after_sleep(&self) {
        Partner::lock_after_sleep(self.0);
        acquired(self.0, Kind::Exclusive);
    }
}
