//! The condition variable: eight bytes. Waiters sleep on a count of notifications; one of them
//! spins first; a broadcast moves sleepers to the mutex.
//!
//! Sources: sleeping on a count with a futex and requeueing onto the mutex are common knowledge
//! (Drepper, "Futexes Are Tricky", 2011; Denis-Courmont, 2020, for the plain count). New here:
//!
//! * A flag says that waiters may have been requeued. Only then do woken waiters continue the chain
//!   of wake-ups, and while the mutex is free each of them wakes several sleepers at once.
//! * The word names the mutex by its distance, so no address is stored.
//! * A waiter that registers late may catch a wake-up meant for another waiter. It passes the
//!   wake-up on.
//! * One waiter at a time spins for as long as sleeping would cost. So threads that alternate
//!   quickly do without the kernel, and on an oversubscribed machine no CPU goes to sleep.
//!
//! # The two words
//!
//! ```text
//!   sequence                                         place
//!   bit 0      WAITERS    a thread waits             see place.rs: the distance from
//!       1      NEWCOMERS  ... and registered after   here to the mutex, and a number of
//!                         the last notification      waiters, for what notifiers report
//!       2      SPINNER    ... and spins on the count
//!       3      VAIN       the last spinner spun without being notified
//!       4      MOVED      waiters may sleep on the mutex
//!       5..31  count: 1 for each notify_one, 1 or 2 for each notify_all
//! ```
//!
//! # Transitions of `sequence`
//!
//! A state is (count, SPINNER, NEWCOMERS, WAITERS); a waiter's *ticket* `t` is the count with which
//! it registered. `VAIN` is a hint. Only the last two rows change `MOVED`.
//!
//! | who | from | to | how |
//! | --- | --- | --- | --- |
//! | waiter registers, holding the mutex | (c, s, *, *) | (t = c, s, 1, 1) | compare-and-swap (a) |
//! | ... and will spin | (c, 0, *, *) | (t = c, 1, 1, 1) | compare-and-swap (b) |
//! | ... and is not notified | (t, 1, *, *) | (t, 0, *, *) | compare-and-swap if the count is t |
//! | waiter sleeps | (t, *, *, *) | | park while the word is what it last read |
//! | `notify_one`, no waiter | (c, 0, 0, 0) | | load |
//! | `notify_one` | (c, 0, *, 1) | (c + 1, 0, 0, 1) | compare-and-swap, then unpark one |
//! | ... and none slept | (c + 1, 0, 0, 1) | (c + 1, 0, 0, 0) | compare-and-swap, tried once |
//! | `notify_one`, with a spinner | (c, 1, *, 1) | (c + 1, 0, 0, 1) | compare-and-swap (c) |
//! | `notify_all` | (c, *, *, 1) | (c + 1, 0, 0, 0) | compare-and-swap, then wake some |
//! | ... and more sleep | (c, *, *, *) | (c + 1, 0, 0, 0), MOVED | compare-and-swap, requeue (d) |
//! | woken waiter wakes moved waiters | MOVED | no MOVED | fetch-and, then unpark some (e) |
//!
//! * (a) The compare-and-swap is not needed if both flags are set, unless the distance is or
//!   becomes `SEVERAL`.
//! * (b) The waiter then releases the mutex and waits for another count.
//! * (c) If c + 1 is a multiple of 64, the notifier also unparks one waiter.
//! * (d) The notifier wakes one waiter and requeues the others. If the word has changed since the
//!   compare-and-swap, it wakes all.
//! * (e) The waiter sets the flag again if there may be more sleepers.
//!
//! # Why no notification is lost
//!
//! 1. *A waiter between registering and sleeping* is on no list of sleepers. But any notification
//!    changes the word, and the kernel compares it: such a waiter does not fall asleep.
//! 2. *A thread that changes the condition under the mutex finds the waiter registered*, since the
//!    waiter registered while it held the mutex. So a relaxed load can tell that no thread waits.
//! 3. *`WAITERS` is cleared only when no thread can be asleep*, or by a `notify_all`, which goes on
//!    until all are awake or sleep on the mutex. Suppose a `notify_one` has woken no thread.
//!    Waiters that registered before its compare-and-swap do not fall asleep, by 1. A waiter that
//!    registers later sets `NEWCOMERS`, and the compare-and-swap that clears `WAITERS` fails.
//! 4. *The spinner takes a notification by seeing the count move on.* It owns `SPINNER` from the
//!    compare-and-swap that sets the flag to the compare-and-swap that changes the count or clears
//!    the flag. So if a `notify_one` clears the flag, the spinner takes its notification: the
//!    spinner does not sleep before its own compare-and-swap has checked the count. The notifier
//!    need not wake another waiter.
//! 5. *A wake-up caught by a latecomer.* A wake-up is sent after the count has changed. A waiter
//!    that registers in between may catch the wake-up in place of an earlier waiter. It recognises
//!    this by the count: it was woken, and the count is still its ticket. It then notifies all. If
//!    a notification for the spinner changes the count before that check, the latecomer keeps the
//!    wake-up: it was already waiting when that notification came.
//! 6. *A wake-up caught by a waiter whose time is up.* The platform tells whether a sleep was ended
//!    by a wake-up or by the clock. A woken waiter counts as notified, however late it is. A waiter
//!    that was not woken has taken no wake-up from others.
//!
//! # Why no requeued waiter is forgotten
//!
//! Sleepers on the mutex's word are woken by unlocks that find its `SLEEPERS` flag. Requeueing does
//! not set the flag, since a notifier must not touch a mutex that it does not hold. Instead some
//! thread that is awake always owes the flag: at first the waiter that the requeueing wakes. This
//! waiter finds the mutex either free or held.
//!
//! * *Free*: it clears `MOVED` and wakes some of the sleepers on the mutex's word. If there were
//!   fewer than it tried to wake, no sleeper is left. Otherwise it sets `MOVED` again and still
//!   owes the flag.
//! * *Held*: it sets `SLEEPERS`, at the latest when it has the mutex. Its unlock clears the flag
//!   and wakes the next sleeper, which then owes the flag.
//!
//! A waiter whose time is up was not woken and owes nothing. A woken waiter that does not find
//! `MOVED` owes nothing, so a `notify_one` costs no needless wake-up: the waiter that cleared
//! `MOVED` has since woken all sleepers on the mutex's word, or owes the flag. The kernel refuses a
//! requeueing that comes after `MOVED` was cleared, since the word is not the announced word. If
//! the requeueing came before, the waiter that clears `MOVED` wakes sleepers afterwards, and finds
//! the requeued ones.
//!
//! # Why no waiter is requeued onto a mutex that it does not use
//!
//! A waiter stores the distance of its mutex, or finds it stored, before it sleeps. A broadcast
//! that still finds `NONE` wakes all waiters.
//!
//! A waiter that finds the distance to be `SEVERAL`, or makes it so, then changes `sequence` by a
//! read-modify-write, whatever the flags are. If this comes before the read-modify-write by which a
//! broadcast announces its requeueing, the broadcast sees `SEVERAL` and wakes all. If it comes
//! after, the word is not the announced word, whose flags were cleared, and the kernel refuses to
//! requeue. The waiter does not change the count: a spinner would take another count for a
//! notification, and leave its flag behind.
//!
//! # Memory
//!
//! A notifier reads `sequence` again after it has woken a waiter. So a condition variable must
//! outlive the calls that notify it, and all waits. A waiter that has the mutex may free it if all
//! notifiers hold the mutex, and no other thread waits or is returning from a wait.

mod partner;
mod place;
mod wait;

use core::marker::PhantomData;

pub use self::partner::Partner;
use self::place::{FAR, Place, SEVERAL};
use super::config::{LockConfig, Usual};
use super::mutex::{NOTIFIED, OTHERS};
use crate::events::Event;
use crate::platform::{Atomic, EVERY_SET, NEVER, Ordering::*, Parked, Platform, const_fn, zero};

const WAITERS: u32 = 1;
const NEWCOMERS: u32 = 2;
const SPINNER: u32 = 4;
const VAIN: u32 = 8;
const MOVED: u32 = 16;
const REGISTERED: u32 = WAITERS | NEWCOMERS;
const FLAGS: u32 = REGISTERED | SPINNER | VAIN | MOVED;
/// The flags that outlast a broadcast.
const LASTING: u32 = VAIN | MOVED;
/// What a notification adds to the sequence, whose count wraps around after 2^27.
const ONE: u32 = FLAGS + 1;
/// One notification in this many also wakes a sleeper, even if there is a spinner to take it.
const SLEEPERS_PERIOD: u32 = 64;

/// How many of the sleepers on the mutex a woken waiter wakes: about the number of short critical
/// sections that fit into the time of a wake-up.
const PORTION: u32 = 16;

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The time was up, and no wake-up came.
    TimeUp,
    /// The waiter saw that the sequence had changed. No wake-up had ended its last sleep.
    Awake,
    /// A wake-up ended the sleep, here or perhaps on the mutex.
    Woken,
}

/// The condition variable, generic over where it runs.
///
/// All-zero memory is a fresh condition variable. It owns nothing outside its eight bytes. It may
/// be moved while no thread waits. Later broadcasts are cheaper if the mutex moves with it.
#[repr(C, align(4))]
#[derive(Debug)]
pub struct QueuedCondvar<P: Platform, C: LockConfig = Usual> {
    sequence: P::AtomicU32,
    place: Place<P>,
    config: PhantomData<C>,
}

impl<P: Platform, C: LockConfig> Default for QueuedCondvar<P, C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Platform, C: LockConfig> QueuedCondvar<P, C> {
    const_fn! {
        /// A fresh condition variable.
        pub const fn new() -> Self {
            QueuedCondvar {
                sequence: zero!(),
                place: Place::new(),
                config: PhantomData,
            }
        }
    }

    /// Releases `mutex`, waits for a notification, and takes `mutex` again. May return without a
    /// notification.
    ///
    /// # Panics
    ///
    /// With `debug_assertions`, if a thread that uses another mutex waits here. `mutex` is then
    /// still held.
    ///
    /// # Safety
    ///
    /// The caller must hold `mutex`.
    pub unsafe fn wait<M: Partner<P>>(&self, mutex: &M) {
        // SAFETY: as this function demands.
        unsafe { self.wait_by(mutex, || Some(NEVER)) };
    }

    /// Like [`wait`](Self::wait), but gives up and returns `false` once [`Platform::now`] has
    /// reached `deadline`.
    ///
    /// `true` does not prove a notification. `false` means that this waiter has not taken a
    /// notification from another waiter. If the deadline has passed already, the call still
    /// releases the mutex and takes it again.
    ///
    /// # Safety
    ///
    /// The caller must hold `mutex`.
    pub unsafe fn wait_until<M: Partner<P>>(&self, mutex: &M, deadline: u64) -> bool {
        let until = || (deadline == NEVER || P::now() < deadline).then_some(deadline);
        // SAFETY: as this function demands.
        unsafe { self.wait_by(mutex, until) }
    }

    /// Like [`wait_until`](Self::wait_until), for any clock. `until` returns the time, by
    /// [`Platform::now`], at which it is to be called again, or `None` if the time is up. The first
    /// call is made with the mutex held, later calls without it.
    ///
    /// # Safety
    ///
    /// The caller must hold `mutex`.
    pub unsafe fn wait_by<M: Partner<P>>(
        &self,
        mutex: &M,
        mut until: impl FnMut() -> Option<u64>,
    ) -> bool {
        let Some(first) = until() else {
            mutex.leave();
            // SAFETY: the caller holds the mutex.
            if unsafe { mutex.unlock() } {
                mutex.lock();
            }
            return false;
        };
        let distance = self.distance(mutex);
        let known = self.learn(distance);
        let (ticket, spins) = self.register(known == SEVERAL);
        // SAFETY: the caller holds the mutex.
        if !unsafe { mutex.unlock() } {
            self.unregister(ticket, spins);
            mutex.leave();
            return true;
        }
        let end = match spins && self.spin(ticket, first) {
            true => End::Awake,
            false => self.sleep(mutex, ticket, first, until),
        };
        let may_be_moved = known == distance && !place::is_far(distance);
        let owes = end == End::Woken && may_be_moved && self.owes(mutex);
        mutex.leave();
        match end {
            _ if owes => mutex.lock_after_sleep(),
            End::Woken => mutex.lock_notified(),
            End::Awake | End::TimeUp => mutex.lock(),
        }
        end != End::TimeUp
    }

    /// Ends a wait that was broken off within [`Partner::park`], for example by a cancellation of
    /// the thread. Passes on the notification that the waiter may have taken, and takes the mutex
    /// again. Notifies all waiters: a single one could be a thread that began to wait after the
    /// notification, which was meant for earlier waiters.
    ///
    /// Only for partners without a [key](Partner::key): it does not check whether the waiter was
    /// moved to the mutex.
    pub fn abandon<M: Partner<P>>(&self, mutex: &M) {
        debug_assert!(mutex.key().is_none());
        self.place.subtract_one();
        self.notify_all();
        mutex.leave();
        mutex.lock();
    }

    /// Whether a woken waiter has to make sure that the next sleeper on the mutex wakes up. If the
    /// mutex is free, this first wakes some sleepers.
    fn owes<M: Partner<P>>(&self, mutex: &M) -> bool {
        let Some(key) = mutex.key() else {
            return false;
        };
        if self.sequence.load(Relaxed) & MOVED == 0 {
            return false;
        }
        if mutex.is_locked() {
            return true;
        }
        // Relaxed here and below: this publishes nothing. The flag is cleared before the wake-ups,
        // so that a requeueing either comes before these or is refused.
        if self.sequence.fetch_and(!MOVED, Relaxed) & MOVED == 0 {
            return false;
        }
        // A model check sets `AT_ONCE` to 0 or 1, and then wakes one sleeper here.
        let some = C::AT_ONCE.clamp(1, PORTION);
        let more = P::unpark_in(key, some, OTHERS) == some;
        if more {
            self.sequence.fetch_or(MOVED, Relaxed);
        }
        more
    }

    /// Whether a thread may be waiting. If none is, a notification changes nothing.
    #[inline]
    pub fn is_waited_for(&self) -> bool {
        // Relaxed: see 2 at the top.
        self.sequence.load(Relaxed) & WAITERS != 0
    }

    /// Wakes one waiter. Costs a load if no thread waits, else a system call. Returns whether it
    /// has notified a waiter.
    #[inline]
    pub fn notify_one(&self) -> bool {
        // Relaxed: see 2 at the top.
        let seen = self.sequence.load(Relaxed);
        seen & WAITERS != 0 && self.notify_one_slow(seen)
    }

    /// Wakes all waiters: some at once, and each of the others when an earlier waiter releases the
    /// mutex. Costs a load if no thread waits, else a system call. Returns how many waiters it has
    /// notified.
    #[inline]
    pub fn notify_all(&self) -> u32 {
        match self.sequence.load(Relaxed) & WAITERS {
            0 => 0,
            _ => self.notify_all_slow(),
        }
    }

    // ---- notifying ----------------------------------------

    #[cold]
    #[inline(never)]
    fn notify_one_slow(&self, seen: u32) -> bool {
        // Read before the count changes: a waiter that sees the new count subtracts itself.
        let waiting = self.place.waiting();
        let next = |s: u32| (s & !(NEWCOMERS | SPINNER)).wrapping_add(ONE);
        let Some((seen, now)) = self.advance(seen, next) else {
            return false;
        };
        // See 4 at the top. In a forked child the flag may belong to a thread of the parent.
        let spinner = seen & SPINNER != 0;
        let for_sleepers = now / ONE % SLEEPERS_PERIOD == 0;
        if spinner && !for_sleepers && !P::forked() {
            return true;
        }
        let woken = P::unpark_in(self.key(), 1, EVERY_SET) != 0;
        if !woken {
            // Relaxed: this publishes nothing. See 3 at the top.
            let _ = self
                .sequence
                .compare_exchange(now, now & !WAITERS, Relaxed, Relaxed);
        }
        let notified = woken || waiting != 0 && !P::forked();
        if notified {
            self.place.subtract_one();
        }
        spinner || notified
    }

    #[cold]
    #[inline(never)]
    fn notify_all_slow(&self) -> u32 {
        // As in `notify_one_slow`.
        let waiting = self.place.take_waiting();
        let seen = self.sequence.load(Relaxed);
        let next = |s: u32| (s & !FLAGS | s & LASTING).wrapping_add(ONE);
        let Some((seen, _)) = self.advance(seen, next) else {
            return 0;
        };
        let reached = self.wake_or_move_all();
        let notified = match P::forked() {
            false => reached.max(waiting),
            true => reached,
        };
        notified + u32::from(seen & SPINNER != 0)
    }

    /// Wakes all sleepers, or wakes some and moves the others to the mutex. Returns how many there
    /// were.
    fn wake_or_move_all(&self) -> u32 {
        // Announce nothing unless there are more sleepers: otherwise all woken waiters would set a
        // flag that no sleeper needs.
        let woken = P::unpark_some(self.key(), C::AT_ONCE);
        if woken <= C::AT_ONCE {
            return woken;
        }
        let now = self.announce_requeueing();
        let others = match self.place.mutex(self.key()) {
            None => P::unpark_in(self.key(), u32::MAX, EVERY_SET),
            Some(to) => P::requeue_but(1, self.key(), now, to, || self.sequence.load(Relaxed)),
        };
        C::AT_ONCE + others
    }

    /// Announces that waiters may sleep on the mutex from now on, by `MOVED` and a new count. A
    /// waiter that the requeueing wakes sees `MOVED`. Returns the word.
    fn announce_requeueing(&self) -> u32 {
        let mut seen = self.sequence.load(Relaxed);
        loop {
            // Clear the flags again: if they were already set, a later registration would not
            // change the word, and the requeueing would not notice it.
            let now = (seen & !FLAGS | seen & VAIN | MOVED).wrapping_add(ONE);
            // The orderings are those in `advance`.
            match self.sequence.compare_exchange(seen, now, AcqRel, Relaxed) {
                Ok(_) => return now,
                Err(other) => seen = other,
            }
        }
    }

    /// Changes the sequence if a thread waits. Returns the old and the new word.
    fn advance(&self, mut seen: u32, next: impl Fn(u32) -> u32) -> Option<(u32, u32)> {
        while seen & WAITERS != 0 {
            // Release, for waiters that read the word instead of sleeping. Acquire pairs with
            // `register`, for a waiter that uses a second mutex.
            match self
                .sequence
                .compare_exchange(seen, next(seen), AcqRel, Relaxed)
            {
                Ok(_) => return Some((seen, next(seen))),
                Err(now) => seen = now,
            }
        }
        None
    }

    /// The address at which waiters sleep.
    fn key(&self) -> *const u32 {
        (self as *const Self).cast()
    }

    /// The distance from here to the mutex; `FAR` if waiters cannot be moved to it.
    fn distance<M: Partner<P>>(&self, mutex: &M) -> u32 {
        mutex
            .key()
            .map_or(FAR, |key| place::distance(self.key(), key))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
