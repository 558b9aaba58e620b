//! What each thread notes: the locks that it holds, and the one that it waits for.
//!
//! The notes use the locks of `std`, which note nothing.
//!
//! # Fork
//!
//! In the child of a fork other threads do not exist, but they may have locked notes. So the first
//! use there begins a new list, and the surviving thread gets new notes of what it holds. The
//! parent's notes are never freed.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. `CURRENT` is null or was a box. What it has ever pointed to is never freed.

use super::Kind;
use backtrace::Backtrace;
use kinlock_core::platform::NEVER;
use kinlock_core::platform::Platform;
use kinlock_linux::Native;
use kinlock_linux::native::deadline;
use std::cell::RefCell;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

/// How long a thread waits before it notes where: most waits end earlier, and need no backtrace. It
/// then queues anew, once per wait. An eighth of it is a quantum: a waiter with a time limit
/// requests a hand-off after an eighth of the limit, and this one should request no earlier than
/// others.
const SHORT: Duration = Duration::from_millis(8);

/// The notes of one process.
struct Process {
    /// [`Platform::forks`], by which a child knows that these are its parent's notes.
    forks: u8,
    /// The notes of all threads that run.
    all: Mutex<Vec<Arc<Notes>>>,
    /// Held by a thread that checks.
    check: Mutex<()>,
}

impl Process {
    fn current() -> &'static Self {
        static CURRENT: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());
        let forks = Native::forks();
        let mut seen = CURRENT.load(Acquire);
        loop {
            // SAFETY: invariant 1.
            match unsafe { seen.as_ref() } {
                Some(process) if process.forks == forks => return process,
                _ => {}
            }
            let new = Box::into_raw(Box::new(Process {
                forks,
                all: Mutex::default(),
                check: Mutex::default(),
            }));
            seen = match CURRENT.compare_exchange(seen, new, AcqRel, Acquire) {
                Ok(_) => new,
                Err(now) => {
                    // SAFETY: this box was not named.
                    drop(unsafe { Box::from_raw(new) });
                    now
                }
            };
        }
    }
}

std::thread_local! {
    static MINE: Mine = Mine(RefCell::new((Native::forks(), Notes::enlist(Vec::new()))));
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
    /// Whether a check has reported this wait.
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
    /// Whether the lock's upgradable reader waits, which does not wait for itself.
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
    fn enlist(held: Vec<Held>) -> Arc<Self> {
        let notes = Arc::new(Notes {
            thread: std::thread::current().id(),
            state: Mutex::new(State {
                held,
                ..State::default()
            }),
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

/// A thread's notes, and the [forks](Platform::forks) of their process. Dropping this when the
/// thread ends takes the notes off the list.
struct Mine(RefCell<(u8, Arc<Notes>)>);

impl Mine {
    fn notes(&self) -> Arc<Notes> {
        let (forks, mut mine) = (Native::forks(), self.0.borrow_mut());
        if mine.0 != forks {
            // A thread of the parent that was reading the notes does not exist here, and they stay
            // locked. Then this thread forgets what it holds.
            let held = mine.1.state.try_lock().map(|state| state.held.clone());
            *mine = (forks, Notes::enlist(held.unwrap_or_default()));
        }
        mine.1.clone()
    }
}

impl Drop for Mine {
    fn drop(&mut self) {
        let (_, mine) = self.0.get_mut();
        all().retain(|notes| !Arc::ptr_eq(notes, mine));
    }
}

/// The notes of all threads that run.
pub(super) fn threads() -> Vec<Arc<Notes>> {
    all().clone()
}

fn all() -> MutexGuard<'static, Vec<Arc<Notes>>> {
    let all = Process::current().all.lock();
    all.unwrap_or_else(PoisonError::into_inner)
}

/// Two checks at once would both report a circle.
pub(super) fn one_at_a_time() -> MutexGuard<'static, ()> {
    let check = Process::current().check.lock();
    check.unwrap_or_else(PoisonError::into_inner)
}

/// The notes of this thread; `None` while it ends.
fn mine() -> Option<Arc<Notes>> {
    MINE.try_with(Mine::notes).ok()
}

fn address<L>(lock: &L) -> usize {
    core::ptr::from_ref(lock).addr()
}

/// An acquisition under way.
pub(crate) struct Acquiring<'a, L> {
    lock: &'a L,
    wait: Wait,
    progress: Attempt,
}

/// How far an acquisition has come.
enum Attempt {
    /// It tries once.
    First,
    /// It is about to wait.
    Begins,
    /// It has waited for a short time.
    Short(Arc<Notes>),
    /// It waits without a limit. `None`: the thread ends, and notes nothing.
    Long(Option<Arc<Notes>>),
}

impl<'a, L> Acquiring<'a, L> {
    pub(crate) fn begin(lock: &'a L, kind: Kind) -> Self {
        let wait = Wait {
            lock: address(lock),
            kind,
            upgrade: false,
        };
        Acquiring {
            lock,
            wait,
            progress: Attempt::First,
        }
    }

    /// Begins an upgrade by the upgradable reader of `lock`.
    pub(crate) fn upgrade(lock: &'a L) -> Self {
        let mut upgrade = Self::begin(lock, Kind::Exclusive);
        upgrade.wait.upgrade = true;
        upgrade
    }

    /// The moment until which the thread waits next; 0: it tries once.
    pub(crate) fn next_limit(&mut self) -> u64 {
        let (progress, limit) = match core::mem::replace(&mut self.progress, Attempt::First) {
            Attempt::First => (Attempt::Begins, 0),
            Attempt::Begins => match mine() {
                Some(notes) => {
                    notes.begin(self.wait);
                    (Attempt::Short(notes), deadline(SHORT))
                }
                None => (Attempt::Long(None), NEVER),
            },
            Attempt::Short(notes) => {
                notes.state().place = Some(Backtrace::new_unresolved());
                (Attempt::Long(Some(notes)), NEVER)
            }
            Attempt::Long(notes) => (Attempt::Long(notes), NEVER),
        };
        self.progress = progress;
        limit
    }

    /// Notes that this thread holds the lock.
    pub(crate) fn end(self) {
        let (lock, wait) = (self.lock, self.wait);
        drop(self);
        if wait.upgrade {
            changed(lock, wait.kind);
        } else {
            acquired(lock, wait.kind);
        }
    }
}

/// The wait is over, also if it ends in a panic.
impl<L> Drop for Acquiring<'_, L> {
    fn drop(&mut self) {
        if let Attempt::Short(notes) | Attempt::Long(Some(notes)) = &self.progress {
            notes.state().wait = None;
        }
    }
}

/// Forbids nothing: a check finds a thread that locks again what it holds.
pub(crate) fn forbid_relock<L>(_: &L) {}

/// Notes that this thread holds `lock`, if it was taken.
pub(crate) fn tried<L>(lock: &L, kind: Kind, taken: bool) -> bool {
    if taken {
        acquired(lock, kind);
    }
    taken
}

/// Notes that this thread holds `lock`.
fn acquired<L>(lock: &L, kind: Kind) {
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

/// Changes the note that `lock` is held: this thread's note or, if there is none, the note of the
/// thread for which this one releases the lock.
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

#[cfg(all(test, not(miri)))]
#[path = "../../tests/support/mod.rs"]
mod support;

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::deadlock::check_deadlock;
    use std::sync::Barrier;
    use std::thread;

    #[test]
    fn a_child_neither_waits_for_nor_notes_threads_that_it_lacks() {
        let (lock, looks) = (0_u8, Barrier::new(2));
        acquired(&lock, Kind::Exclusive);
        let status = thread::scope(|s| {
            s.spawn(|| {
                let (_all, _check) = (all(), one_at_a_time());
                looks.wait();
                looks.wait();
            });
            looks.wait();
            let status = support::in_a_child(|| {
                let mine = mine().expect("the thread runs").view().held;
                let other = thread::spawn(|| {
                    let lock = 0_u8;
                    acquired(&lock, Kind::Exclusive);
                    releasing(&lock);
                    threads().len()
                });
                let threads = other.join().expect("it does not panic");
                i32::from(mine.len() != 1 || threads != 2 || !check_deadlock().is_empty())
            });
            looks.wait();
            status
        });
        releasing(&lock);
        assert_eq!(status, Some(0));
    }
}
