//! The reader-writer lock: eight bytes. Readers count themselves in the word, or announce
//! themselves in a table; writers queue as for the [mutex](super::mutex).
//!
//! Sources: that readers and writers take turns is from the phase-fair locks of Brandenburg and
//! Anderson (2010). As in their ticket lock, a reader that waits for a writer counts itself at
//! once, so that the writer's release also admits all waiting readers, in one step. Here such a
//! reader may sleep, and may give up. Readers in a table are from BRAVO (Dice and Kogan, USENIX ATC
//! 2019). The queue, the policy of waiters and the hand-off request are those of the mutex.
//!
//! # The words
//!
//! ```text
//!   byte  0 .. 3                              4 5          6 7
//!         state                               writers      hints
//!         flags, generation, count: word.rs   their queue  see word.rs
//! ```
//!
//! # Transitions
//!
//! The table is for a lock that is not biased; the table in the module `bias` has the transitions
//! that set, use and end the bias. `state` is (flags, count); `F` = any other flags; small letters
//! refer to the notes below. `W` is `WRITER`, `U` is `UPGRADABLE`. A *free* word has neither, and
//! the count 0. Each transition is a compare-and-swap unless its row says otherwise.
//!
//! | who | from | to | then |
//! | --- | --- | --- | --- |
//! | reader enters | (F, n), no `W`, `REQUEST`, `UPGRADING` (a) | (F, n + 1) | (b) |
//! | ... passing writers | (F, n), no `W` | (F, n + 1) | (b) |
//! | ... registers with a writer | (F + W, n) | (F + W, n + 1) | waits (c) |
//! | ... and gives up | (F + W, n + 1) | (F + W, n) | |
//! | ... falls asleep | (F, n), where it cannot enter | (F + READERS_SLEEP, n) | parks |
//! | reader leaves | (F, n + 1) | (F, n), by fetch-and-add | the last one unparks (d) |
//! | ... that sees `W` or `WATCHED` | (F, n + 1) | (F, n), without `WATCHED` | the same |
//! | writer enters | free, no `REQUEST` | (F + W, 0) | |
//! | writer leaves | (F + W, n) | (F, n), no sleepers, no `WATCHED` | unparks (e) |
//! | ... as a reader | (F + W, n) | (F, n + 1), likewise | the same |
//! | ... as an upgradable reader | (F + W, n) | (F + U, n), likewise | the same |
//! | upgradable reader enters | (F, n), no `W`, `U`, `REQUEST` (a) | (F + U, n) | |
//! | ... leaves | (F + U, n) | (F, n), no `FRONT_SLEEPS`, `WATCHED` | unparks the front |
//! | ... as a reader | (F + U, n) | (F, n + 1), likewise | the same |
//! | ... becomes a writer | (F + U, 0) | (F + W, 0) | unparks readers |
//! | ... wants to, but n > 0 | (F + U, n) | (F + U + UPGRADING, n), by fetch-or | waits for n = 0 |
//! | ... and gives up | (F + U + UPGRADING, n) | (F + U, n), by fetch-and | unparks readers |
//! | front falls asleep | (F, n), cannot enter | (F + FRONT_SLEEPS, n) | parks |
//! | front begins a watch | (F, n) | (F + WATCHED, n), by fetch-or | |
//! | front requests to go next | (F, n) | (F + REQUEST, n) | |
//! | ... and enters | as without `REQUEST` | the same, without `REQUEST` | unparks readers (f) |
//! | ... with others at the front | (F + W, 0) or (F + U, n) | with `FRONT_SLEEPS` | (h) |
//! | ... or gives up | (F + REQUEST, n) | (F, n) | unparks readers, another front waiter |
//! | ... or does not come | free + REQUEST | (F, 0), by a reader (g) | the same |
//! | holder is about to leave fairly | (F + FRONT_SLEEPS, n) | (F + REQUEST, n) | unparks a front |
//! | ... and none slept | (F + REQUEST, n) | (F, n) | unparks readers |
//!
//! Notes:
//!
//! * (a) And the lock must not be full. A writer and an upgradable reader may become a counted
//!   reader without a look at the count, so while one of them holds the lock, a place is kept for
//!   it. A full lock registers no readers, either: a waiter that finds the lock full gives up.
//! * (b) A thread that enters a free lock clears `FRONT_SLEEPS`: see (d). On slow paths a reader
//!   that has seen a word of this row enters, passes or registers by a fetch-and-add, since among
//!   many readers a compare-and-swap would fail. The word before the addition tells whether the
//!   reader holds the lock, or has registered because a writer came in between. The reader may
//!   enter although a waiter has just requested to go next: that waiter waits for all counted
//!   readers. Each reader can do so only once, since it looks first. It may leave `FRONT_SLEEPS`
//!   set, and then the last reader sends a needless wake-up.
//! * (c) The reader holds the lock from the moment at which `W` is cleared.
//! * (d) The last reader unparks the upgrading reader or the front waiter. It does not clear the
//!   flag, since the lock may be gone. On a free lock the flag means that a wake-up has been sent.
//! * (e) The writer unparks the front waiter, unless the writer stays as an upgradable reader. It
//!   unparks the sleeping readers, unless no reader is counted afterwards and another waiter goes
//!   next.
//! * (f) These readers could not register before, and now they can.
//! * (g) The reader does this after its patience: the waiter at the front may not run. When that
//!   waiter runs, it finds that its request has ended, and makes it again.
//! * (h) The release of this holder wakes the next waiter at the front.
//!
//! # Why no front is forgotten
//!
//! Waiters beside the queue are at the front, too. A wake-up goes to one waiter at the front and
//! clears `FRONT_SLEEPS`, or leaves it set on a free lock, where the next thread that enters clears
//! it. The woken waiter owes the others a wake-up until it
//!
//! * *falls asleep again*: it sets the flag in the step in which it finds the lock held;
//! * *takes the lock*: it sets the flag as holder if others are at the front (h), so that its
//!   release wakes the next. The others counted themselves (`Hints`) before they set the flag, and
//!   this thread has changed the word since: either it sees them, or they find the lock held and
//!   set the flag;
//! * *gives up*: it clears the flag, looks for others in the same way, and wakes one of them. This
//!   also ends the request, whichever waiter had made it: the woken waiter makes it again, at the
//!   latest when its quantum is over;
//! * *rests or requests*: each ends within a quantum, in one of the cases above.
//!
//! This still holds if a newcomer takes the free lock first or a reader ends a request: the woken
//! waiter finds the lock held. If it does not run, the others look again when their quantum or
//! their patience has ended.
//!
//! # Why neither side starves
//!
//! 1. *A writer at the front* requests to go next after a quantum. From then on no reader enters
//!    unless it had looked before, no reader registers unless a writer holds the lock, and no other
//!    writer enters unless it waits beside the queue. So the writer waits at most for the writer
//!    that holds the lock, if there is one, and for one batch of readers: those that hold the lock,
//!    had looked, or were registered when that writer left.
//! 2. *A reader* registers after a spin, or after a quantum at a kept lock, if a writer holds the
//!    lock: it then waits for the rest of that writer's section. If a writer is to go next, the
//!    reader waits until that writer enters, is woken, and registers. So once it has spun it waits
//!    for one batch of readers and one writer at most, if it runs within a quantum of being woken.
//!    The quantum is shorter if many writers queue. If the reader runs later, the next writer may
//!    already be the next to go, and the reader waits for that writer, too. With `Quantum::FAIR`
//!    this is usual.
//! 3. *Writers* are first in, first out, except for writers that barge before the front waiter's
//!    request, and writers that leave the queue because the front waiter does not run.
//!
//! # Memory
//!
//! Each release changes `state` or an entry once, and then only uses the address. So a thread that
//! has taken the lock for writing may free it. There is one exception: a reader that leaves in
//! place of another reader looks at `state` a second time. For this to happen, a guard must be
//! released by another thread than its own, and a thread must be preempted between its look at the
//! flags and its fetch-and-add.
//!
//! # Fork
//!
//! Marks that waiters leave (`REQUEST`, `FRONT_SLEEPS`, registered readers) carry a generation, as
//! in the mutex: in the child they are void. The child empties all rows but the forking thread's.
//! Everything else is as in the parent: `docs/guide/rwlock.md` has a table.

mod bias;
mod read;
mod upgrade;
mod wait;
mod word;
mod write;

use super::config::LockConfig;
pub use super::contend::QueueKind;
use super::osq::Osq;
use crate::events::Event;
use crate::platform::{Atomic, NEVER, Ordering::*, Parked, Platform, const_fn};
use crate::raw::waiter::expired;
use core::marker::PhantomData;
use word::*;

/// The park sets: waiters at the front, the upgrading reader, and readers.
const FRONT: u32 = 1;
const UPGRADER: u32 = 2;
const READERS: u32 = 4;

/// The reader-writer lock, generic over where it runs and how it is configured.
///
/// All-zero memory is an unlocked lock. It owns nothing outside its eight bytes. It may be freed as
/// soon as another thread has taken it for writing.
#[repr(C, align(4))]
#[derive(Debug)]
pub struct QueuedRwLock<P: Platform, C: LockConfig> {
    state: State<P>,
    writers: Osq<P>,
    hints: Hints<P>,
    config: PhantomData<C>,
}

impl<P: Platform, C: LockConfig> Default for QueuedRwLock<P, C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Platform, C: LockConfig> QueuedRwLock<P, C> {
    const PARKS: bool = P::CAN_PARK && C::PARK;

    const_fn! {
        /// An unlocked lock.
        pub const fn new() -> Self {
            QueuedRwLock {
                state: State::new(),
                writers: Osq::new(),
                hints: Hints::new(),
                config: PhantomData,
            }
        }
    }

    // ---- readers ------------------------------------------

    /// Takes the lock for reading, waiting for as long as it takes. Acquires what the previous
    /// writers released. Returns `false` if the lock [is full](Self::is_full).
    ///
    /// Waits behind a writer that has requested to go next. So a thread that already reads may wait
    /// forever; see [`read_passing`](Self::read_passing).
    #[inline]
    #[must_use]
    pub fn read(&self) -> bool {
        self.read_until(NEVER, false)
    }

    /// Like [`read`](Self::read), but passes waiting writers. A thread that already reads does not
    /// wait.
    #[inline]
    #[must_use]
    pub fn read_passing(&self) -> bool {
        self.read_until(NEVER, true)
    }

    /// Takes the lock for reading, or gives up and returns `false` once [`Platform::now`] has
    /// reached `deadline`, or if the lock [is full](Self::is_full). `passing`: the reader passes
    /// waiting writers.
    #[inline]
    #[must_use]
    pub fn read_until(&self, deadline: u64, passing: bool) -> bool {
        self.read_at_once() || self.read_slow(deadline, passing)
    }

    /// Takes the lock for reading if that is possible at once. `passing`: the reader passes waiting
    /// writers.
    #[inline]
    pub fn try_read(&self, passing: bool) -> bool {
        self.read_at_once() || self.try_read_slow(passing)
    }

    /// Takes the lock for reading if one attempt succeeds. The attempt may fail even if all other
    /// holders are readers.
    #[inline]
    pub fn read_at_once(&self) -> bool {
        let seen = self.state.load(Relaxed);
        if seen & BIASED != 0 {
            return self.announce();
        }
        self.state.enter(seen)
    }

    /// Ends reading.
    ///
    /// # Safety
    ///
    /// The lock must be held for reading, and the right to release it must be the caller's.
    #[inline]
    pub unsafe fn unlock_read(&self) {
        // Relaxed: an announced reader sees `BIASED` or `WRITER`, since one of the two is set from
        // its own look at the word until it leaves.
        if self.state.load(Relaxed) & (BIASED | WRITER | WATCHED) != 0 {
            self.leave_marked();
        } else {
            self.leave_counted();
        }
    }

    /// Like [`unlock_read`](Self::unlock_read). If a writer sleeps at the front of the queue, no
    /// reader enters before that writer has had the lock.
    ///
    /// # Safety
    ///
    /// As for [`unlock_read`](Self::unlock_read).
    #[inline]
    pub unsafe fn unlock_read_fair(&self) {
        self.call_front();
        // SAFETY: by the caller.
        unsafe { self.unlock_read() };
    }

    // ---- writers ------------------------------------------

    /// Takes the lock for writing, waiting for as long as it takes. Acquires what all previous
    /// holders released.
    #[inline]
    pub fn write(&self) {
        if !self.state.take_idle() {
            self.take_slow(Want::Write, NEVER);
        }
    }

    /// Takes the lock for writing, or gives up and returns `false` once [`Platform::now`] has
    /// reached `deadline`.
    #[inline]
    pub fn write_until(&self, deadline: u64) -> bool {
        self.state.take_idle() || self.take_slow(Want::Write, deadline)
    }

    /// Takes the lock for writing if one attempt succeeds: if no thread holds it, waits for it or
    /// is announced at it.
    #[inline]
    pub fn write_at_once(&self) -> bool {
        self.state.take_idle()
    }

    /// Takes the lock for writing if no thread holds it or is to go next.
    #[inline]
    pub fn try_write(&self) -> bool {
        match self.state.load(Relaxed) {
            0 => self.state.take_idle(),
            seen if is_free(seen) => self.try_write_slow(),
            _ => false,
        }
    }

    /// Ends writing.
    ///
    /// # Safety
    ///
    /// The lock must be held for writing, and the right to release it must be the caller's.
    #[inline]
    pub unsafe fn unlock_write(&self) {
        if !self.state.leave_idle() {
            self.leave_writer(Leave::Free);
        }
    }

    /// Like [`unlock_write`](Self::unlock_write). Readers that wait, and a writer that sleeps at
    /// the front of the queue, get the lock before others.
    ///
    /// # Safety
    ///
    /// As [`unlock_write`](Self::unlock_write).
    #[inline]
    pub unsafe fn unlock_write_fair(&self) {
        if !self.state.leave_idle() {
            self.call_front();
            self.leave_writer(Leave::Free);
        }
    }

    /// Goes from writing to reading. No other writer gets the lock in between.
    ///
    /// # Safety
    ///
    /// As [`unlock_write`](Self::unlock_write).
    #[inline]
    pub unsafe fn downgrade(&self) {
        self.leave_writer(Leave::Reader);
    }

    // ---- observation --------------------------------------

    /// Whether the lock is held in any way at this moment. Without a table a biased lock counts as
    /// held: the code that made it biased has a table, in which readers may be announced.
    pub fn is_locked(&self) -> bool {
        let seen = self.state.load(Relaxed);
        !is_free(seen) || seen & BIASED != 0 && self.is_announced()
    }

    /// Whether the lock is held for writing at this moment, or reserved for a writer that waits for
    /// the last readers.
    #[inline]
    pub fn is_locked_exclusive(&self) -> bool {
        self.state.load(Relaxed) & WRITER != 0
    }

    /// Whether as many readers hold the lock, or wait for a writer, as can be counted: 2^20 - 1,
    /// including the writer or the upgradable reader that holds it. No reader, upgradable or not,
    /// waits for a full lock: its holders may be leaked.
    pub fn is_full(&self) -> bool {
        is_full(self.state.load(Relaxed))
    }

    /// Whether a writer queues or is to go next, or an upgradable reader waits for others, at this
    /// moment.
    pub fn is_contended(&self) -> bool {
        let waiting = REQUEST | FRONT_SLEEPS | UPGRADING;
        self.writers.last() != 0 || self.state.load(Relaxed) & waiting != 0
    }

    /// Makes the lock read-biased if the platform has a table, no writer holds the lock, and no
    /// waiter sleeps at the front of the queue or is to go next. Returns whether it has done so.
    /// Without this call, readers set the bias when they contend with each other.
    ///
    /// The check comes before the write: a writer that takes the lock in between leaves it biased.
    #[doc(hidden)]
    pub fn set_biased(&self) -> bool {
        let may = P::visible_readers().is_some() && may_be_biased(self.state.load(Relaxed));
        if may {
            // Not a compare-and-swap: among many readers it hardly ever succeeds.
            self.state.set(BIASED);
        }
        may
    }

    /// Resets the lock to unlocked in a forked child, where its holders and waiters do not exist.
    ///
    /// # Safety
    ///
    /// No other thread uses the lock during this call, and no thread that took it before relies on
    /// still holding it.
    pub unsafe fn reset_in_child(&self) {
        self.writers.tail().store(0, Relaxed);
        self.state.clear(u32::MAX);
        self.forget_announced();
    }

    // ---- sleeping -----------------------------------------

    /// The address at which waiters sleep.
    fn key(&self) -> *const u32 {
        (&raw const self.state).cast()
    }

    /// Sleeps in the park set `set` until a wake-up, until the word is not `blocked`, or until the
    /// time `until`. `mark` sets `flag`.
    fn sleep(
        &self,
        set: u32,
        flag: u32,
        until: u64,
        mark: impl Fn(u32) -> u32,
        blocked: impl Fn(u32) -> bool,
    ) {
        let going = |seen| blocked(seen).then(|| mark(seen));
        if self.state.fetch_update(SeqCst, going).is_err() {
            return;
        }
        if !Self::PARKS {
            self.state
                .wait_for(crate::raw::waiter::left(until, P::now), |seen| {
                    !blocked(seen)
                });
            return;
        }
        P::count(Event::Park);
        loop {
            let seen = self.state.load(Relaxed);
            if !blocked(seen) || seen & flag == 0 || expired(until, P::now) {
                return;
            }
            let parked = P::park_in(self.key(), seen, until, set, || self.state.load(Relaxed));
            if parked == Parked::Woken {
                return;
            }
        }
    }

    /// Wakes the sleepers whose flags were `cleared`: one waiter at the front, and all readers. The
    /// lock may be gone.
    fn wake(key: *const u32, cleared: u32) {
        if cleared & FRONT_SLEEPS != 0 {
            P::count(Event::Wake);
            P::unpark_in(key, 1, FRONT);
        }
        if cleared & READERS_SLEEP != 0 {
            P::count(Event::Wake);
            P::unpark_in(key, u32::MAX, READERS);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
