//! The condition variable: eight bytes. Waiters sleep on a count of notifications; one of them
//! spins first; a broadcast moves sleepers to the mutex.
//!
//! Sources: sleeping on a count with a futex and requeueing onto the mutex are common knowledge
//! (Drepper, "Futexes Are Tricky", 2011; Denis-Courmont, 2020, for the plain count). New here:
//!
//! * The count tells what kind of notification there was. Only waiters that may have been requeued
//!   keep up the chain of wake-ups.
//! * The mutex is named by its distance, so no address is stored.
//! * A waiter that registers late may catch a wake-up meant for another. It passes the wake-up on.
//! * One waiter at a time spins for as long as sleeping would cost. Threads that alternate quickly
//!   then do without the kernel, and while oversubscribed no CPU goes to sleep.
//!
//! # The two words
//!
//! ```text
//!   sequence                                   mutex
//!   bit 0      WAITERS    a thread waits       the distance from here to the mutex
//!       1      NEWCOMERS  ... and registered   in units of four bytes,
//!                         after the last       or NONE (0), FAR, SEVERAL
//!                         notification
//!       2      SPINNER    ... and spins on
//!                         the count
//!       3      VAIN       the last spinner
//!                         spun in vain
//!       4..31  count: 1 for each notify_one,
//!              1 or 65 for each notify_all
//! ```
//!
//! # Transitions of `sequence`
//!
//! (count, SPINNER, NEWCOMERS, WAITERS); a waiter's *ticket* `t` is the count with which it
//! registered. `VAIN` is a hint.
//!
//! | who | from | to | how |
//! | --- | --- | --- | --- |
//! | waiter registers, holding the mutex | (c, s, *, *) | (t = c, s, 1, 1) | fetch-or (a) |
//! | waiter spins, after releasing it | (t, 0, *, *) | (t, 1, *, *) | compare-and-swap (b) |
//! | ... in vain | (t, 1, *, *) | (t, 0, *, *) | compare-and-swap, while the count is t |
//! | waiter sleeps | (t, *, *, *) | | park while the word is what it last read |
//! | `notify_one`, no waiter | (c, 0, 0, 0) | | load |
//! | `notify_one` | (c, 0, *, 1) | (c + 1, 0, 0, 1) | compare-and-swap, then unpark one |
//! | ... and none slept | (c + 1, 0, 0, 1) | (c + 1, 0, 0, 0) | compare-and-swap, tried once |
//! | `notify_one`, with a spinner | (c, 1, *, 1) | (c + 1, 0, 0, 1) | compare-and-swap (c) |
//! | `notify_all` | (c, *, *, 1) | (c + 1, 0, 0, 0) | compare-and-swap, then wake up to 16 |
//! | ... and more sleep | (c, *, *, *) | (c + 64, 0, 0, 0) | compare-and-swap, then requeue (d) |
//!
//! * (a) Not needed if both flags are set, unless `mutex` is or becomes `SEVERAL`.
//! * (b) Then it waits for another count.
//! * (c) If c + 1 is a multiple of 64, then also unpark one.
//! * (d) Wakes one and requeues the others, if the word is still the same.
//!
//! # Why no notification is lost
//!
//! 1. *A waiter between registering and sleeping* is on neither list. But any notification changes
//!    the word, and the kernel compares it: such a waiter does not fall asleep.
//! 2. *A thread that changes the condition under the mutex finds the waiter registered*, since the
//!    waiter registered while it held the mutex. So a relaxed load can tell that nobody waits.
//! 3. *`WAITERS` is cleared only when nobody can be asleep*, or by a `notify_all`, which goes on
//!    until all are awake or sleep on the mutex. Suppose a `notify_one` has woken nobody. Waiters
//!    that registered before do not fall asleep, by 1. A waiter that registers after sets
//!    `NEWCOMERS`, and the clearing compare-and-swap fails.
//! 4. *The spinner takes a notification by seeing the count move on.* It owns `SPINNER` from the
//!    compare-and-swap that sets it to the one that changes the count or clears it. So a
//!    `notify_one` that clears it has a taker: the spinner does not sleep before its own
//!    compare-and-swap has checked the count. No other waiter need be woken.
//! 5. *A wake-up caught by a latecomer.* A wake-up is sent after the count has changed. A waiter
//!    that registers in between may catch it in place of one for which it was meant. It was woken
//!    and finds the count unchanged, which otherwise happens only by chance. It then notifies all.
//!    If a spinner's notification moves the count on meanwhile, the latecomer keeps the wake-up:
//!    that notification came while it waited, too.
//! 6. *A wake-up caught by a waiter whose time is up.* The platform tells whether a sleep was ended
//!    by a wake-up or by the clock. A woken waiter counts as notified, however late it is. A waiter
//!    that was not woken has taken nothing from others.
//!
//! # Why no requeued waiter is forgotten
//!
//! Sleepers on the mutex's word are woken by unlocks that find its `SLEEPERS` flag. Requeueing does
//! not set the flag, since it must not touch a mutex that it does not hold. Instead a thread that
//! is awake always owes the flag. The waiter that the requeueing wakes sets the flag when it has
//! the mutex. Its unlock clears the flag and wakes the next sleeper, which then owes the flag.
//!
//! A waiter whose time is up was not woken and owes nothing. A woken waiter compares the
//! count with its ticket: only if it grew by 64 or more can there have been a requeueing broadcast.
//! Otherwise the waiter was not on the mutex's word and owes nothing. So a `notify_one` costs no
//! needless wake-up.
//!
//! # Why nobody is requeued onto a mutex that it does not use
//!
//! `mutex` goes from `NONE` to a distance or to `FAR`, and from a distance to `SEVERAL`, never
//! back. A waiter sleeps as one of a distance only if it found that distance. A broadcast that then
//! still finds `NONE` wakes all waiters.
//!
//! A waiter that finds or makes `mutex` `SEVERAL` changes `sequence` after that by a
//! read-modify-write, whatever its flags are. Either this comes before the one by which a broadcast
//! announces its requeueing. Then the broadcast sees `SEVERAL` and wakes all. Or it comes after.
//! Then the word is not the announced one, whose flags were cleared, and the kernel refuses to
//! requeue. The count does not change: a spinner would take another count for a notification, and
//! leave its flag behind.
//!
//! # Memory
//!
//! A notifier reads `sequence` again after it has woken a waiter. So a condition variable must
//! outlive the calls that notify it. A waiter that has the mutex may free it if all notifiers hold
//! the mutex.

use core::marker::PhantomData;

use super::mutex::{MutexConfig, OTHERS, QueuedMutex};
use crate::events::Event;
use crate::platform::{Atomic, ConstAtomic, ConstPlatform, NEVER, Ordering::*, Parked, Platform};

const WAITERS: u32 = 1;
const NEWCOMERS: u32 = 2;
const SPINNER: u32 = 4;
const VAIN: u32 = 8;
const REGISTERED: u32 = WAITERS | NEWCOMERS;
const FLAGS: u32 = REGISTERED | SPINNER | VAIN;
/// What a notification adds to the sequence, whose count wraps around after 2^28. `ALL` marks a
/// broadcast that may have requeued. Few waiters sleep through as many calls of `notify_one`, so
/// few take such calls for a broadcast and do a requeued waiter's duty in vain.
const ONE: u32 = FLAGS + 1;
const ALL: u32 = 64 * ONE;
/// Sleepers get one notification in so many even if there is always a spinner to take it.
const SLEEPERS_PERIOD: u32 = 64 * ONE;

/// How long a waiter spins before it sleeps, in nanoseconds: about what sleeping and waking up cost
/// two threads in system calls and switches.
const SPIN: u64 = 50_000;
/// After a spin in vain, one waiter in so many tries whether spinning pays again.
const RETRY: u32 = 16;

/// No mutex yet.
const NONE: u32 = 0;
/// A mutex whose distance does not fit, or on which nobody sleeps.
const FAR: u32 = i32::MIN as u32;
/// There has been more than one mutex.
const SEVERAL: u32 = FAR + 1;

/// What is fixed about a condition variable at compile time.
pub trait CondvarConfig: Copy + core::fmt::Debug + Send + Sync + 'static {
    /// A deliberate defect, for showing that a check can fail.
    #[doc(hidden)]
    const FAULT: CondvarFault = CondvarFault::None;
    /// How many sleepers a broadcast wakes at once, before it wakes one more and requeues the
    /// others: about as many short critical sections as fit into the time of a wake-up. Fewer would
    /// leave the mutex idle, more would find it held and sleep again.
    const AT_ONCE: u32 = 16;
}

/// The configuration without a defect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Faultless;

impl CondvarConfig for Faultless {}

/// Deliberate defects, each caught by the check meant for it.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CondvarFault {
    /// A correct condition variable.
    None,
    /// A waiter falls asleep whatever has happened since it registered.
    BlindSleep,
    /// A notification wakes before it counts.
    LateCount,
    /// `notify_one` clears `WAITERS` without checking for newcomers.
    CarelessClear,
    /// A waiter that a broadcast has woken does not set the flag for the sleepers on the mutex.
    BrokenChain,
    /// A waiter whose time is up reports that although it was woken.
    SwallowedWake,
    /// A waiter that has spun in vain falls asleep without clearing `SPINNER`.
    LingeringSpinner,
    /// A broadcast that requeues leaves flags behind, so it does not notice waiters that register
    /// before the requeueing.
    StaleFlags,
}

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The time limit ended it: no wake-up came.
    TimeUp,
    /// The sequence had changed, and the waiter slept neither here nor on the mutex.
    Awake,
    /// A wake-up, here or perhaps on the mutex.
    Woken,
}

/// The condition variable, generic over where it runs.
///
/// All-zero memory is a fresh one. It owns nothing outside its eight bytes. It may be moved while
/// nobody waits. Broadcasts are then cheaper if the mutex moves with it.
#[repr(C, align(4))]
#[derive(Debug)]
pub struct QueuedCondvar<P: Platform, C: CondvarConfig = Faultless> {
    sequence: P::AtomicU32,
    mutex: P::AtomicU32,
    config: PhantomData<C>,
}

impl<P: ConstPlatform, C: CondvarConfig> QueuedCondvar<P, C> {
    /// A fresh condition variable, in a constant.
    pub const FRESH: Self = QueuedCondvar {
        sequence: P::AtomicU32::ZERO,
        mutex: P::AtomicU32::ZERO,
        config: PhantomData,
    };
}

impl<P: Platform, C: CondvarConfig> Default for QueuedCondvar<P, C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Platform, C: CondvarConfig> QueuedCondvar<P, C> {
    /// A fresh condition variable. Where the platform allows, [`FRESH`](Self::FRESH) is the same as
    /// a constant.
    pub fn new() -> Self {
        QueuedCondvar {
            sequence: Atomic::new(0),
            mutex: Atomic::new(NONE),
            config: PhantomData,
        }
    }

    /// Releases `mutex`, waits for a notification, and takes `mutex` again. May return without a
    /// notification.
    ///
    /// # Panics
    ///
    /// With `debug_assertions`, if a thread that uses another mutex is found asleep here. The mutex
    /// is then still held.
    ///
    /// # Safety
    ///
    /// The caller must hold `mutex`.
    pub unsafe fn wait<M: MutexConfig>(&self, mutex: &QueuedMutex<P, M>) {
        // SAFETY: as this function demands.
        unsafe { self.wait_by(mutex, || Some(NEVER)) };
    }

    /// As [`wait`](Self::wait), but gives up and returns `false` once [`Platform::now`] has reached
    /// `deadline`.
    ///
    /// `true` does not prove a notification. `false` means that this waiter has not taken one from
    /// another. If the deadline has passed already, the mutex is released and taken again.
    ///
    /// # Safety
    ///
    /// The caller must hold `mutex`.
    pub unsafe fn wait_until<M: MutexConfig>(
        &self,
        mutex: &QueuedMutex<P, M>,
        deadline: u64,
    ) -> bool {
        let until = || (deadline == NEVER || P::now() < deadline).then_some(deadline);
        // SAFETY: as this function demands.
        unsafe { self.wait_by(mutex, until) }
    }

    /// As [`wait_until`](Self::wait_until), for any clock. `until` says up to which moment of
    /// [`Platform::now`] to wait before it is called again, or `None` if the time is up. The first
    /// call is made with the mutex held, later ones without it.
    ///
    /// # Safety
    ///
    /// The caller must hold `mutex`.
    pub unsafe fn wait_by<M: MutexConfig>(
        &self,
        mutex: &QueuedMutex<P, M>,
        mut until: impl FnMut() -> Option<u64>,
    ) -> bool {
        let Some(first) = until() else {
            // SAFETY: the caller holds the mutex.
            unsafe { mutex.unlock() };
            mutex.lock();
            return false;
        };
        let (ticket, may_be_moved) = self.register(self.distance(mutex));
        // SAFETY: the caller holds the mutex.
        unsafe { mutex.unlock() };
        let end = self.sleep(ticket, first, until);
        let owes = end == End::Woken && may_be_moved && self.since(ticket) >= ALL;
        if owes && C::FAULT != CondvarFault::BrokenChain {
            mutex.lock_after_sleep();
        } else {
            mutex.lock();
        }
        end != End::TimeUp
    }

    /// Wakes one waiter. Costs a load if nobody waits, else a system call.
    #[inline]
    pub fn notify_one(&self) {
        // Relaxed: see 2 at the top.
        let seen = self.sequence.load(Relaxed);
        if seen & WAITERS != 0 {
            self.notify_one_slow(seen);
        }
    }

    /// Wakes all waiters, one after the other: each as soon as the one before it releases the
    /// mutex. Costs a load if nobody waits, else a system call.
    #[inline]
    pub fn notify_all(&self) {
        if self.sequence.load(Relaxed) & WAITERS != 0 {
            self.notify_all_slow();
        }
    }

    // ---- notifying ----------------------------------------

    #[cold]
    #[inline(never)]
    fn notify_one_slow(&self, seen: u32) {
        if C::FAULT == CondvarFault::LateCount {
            P::unpark(self.key(), 1);
            self.advance(seen, |s| (s & !NEWCOMERS).wrapping_add(ONE));
            return;
        }
        let next = |s: u32| (s & !(NEWCOMERS | SPINNER)).wrapping_add(ONE);
        let Some((seen, now)) = self.advance(seen, next) else {
            return;
        };
        // See 4 at the top. In a forked child the flag may belong to a thread of the parent.
        let for_sleepers = now / ONE % (SLEEPERS_PERIOD / ONE) == 0;
        let taken = seen & SPINNER != 0 && !for_sleepers && !P::forked();
        if !taken && P::unpark_in(self.key(), 1, OTHERS) == 0 {
            if C::FAULT == CondvarFault::CarelessClear {
                self.sequence.fetch_and(!REGISTERED, Relaxed);
            }
            // Relaxed: this publishes nothing. See 3 at the top.
            let _ = self
                .sequence
                .compare_exchange(now, now & !WAITERS, Relaxed, Relaxed);
        }
    }

    #[cold]
    #[inline(never)]
    fn notify_all_slow(&self) {
        let seen = self.sequence.load(Relaxed);
        let changed = self.advance(seen, |s| (s & !FLAGS | s & VAIN).wrapping_add(ONE));
        // Without more sleepers nothing is announced. Otherwise all woken waiters would set a flag
        // that no sleeper needs.
        if changed.is_none() || !P::unpark_some(self.key(), C::AT_ONCE) {
            return;
        }
        let now = self.announce_requeueing();
        match self.mutex.load(Relaxed) {
            NONE | FAR | SEVERAL => {
                P::unpark(self.key(), u32::MAX);
            }
            distance => {
                let to = self.key().wrapping_offset(distance as i32 as isize);
                P::requeue_but(1, self.key(), now, to, || self.sequence.load(Relaxed));
            }
        }
    }

    /// Announces by the count that waiters may sleep on the mutex from here on. A waiter that the
    /// requeueing wakes sees that. Returns the word.
    fn announce_requeueing(&self) -> u32 {
        let mut seen = self.sequence.load(Relaxed);
        loop {
            // Flags that were set again since they were cleared would hide later registrations from
            // the requeueing.
            let cleared = match C::FAULT {
                CondvarFault::StaleFlags => seen,
                _ => seen & !FLAGS | seen & VAIN,
            };
            let now = cleared.wrapping_add(ALL);
            // As in `advance`.
            match self.sequence.compare_exchange(seen, now, AcqRel, Relaxed) {
                Ok(_) => return now,
                Err(other) => seen = other,
            }
        }
    }

    /// Changes the sequence, unless nobody waits. Returns the old and the new word.
    fn advance(&self, mut seen: u32, next: impl Fn(u32) -> u32) -> Option<(u32, u32)> {
        while seen & WAITERS != 0 {
            // Release, for waiters that read the word instead of sleeping. Acquire pairs with
            // `register`, where the mutex has changed.
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

    // ---- waiting ----------------------------------------

    /// Makes this waiter known to notifiers. Returns the ticket, and whether the waiter may be
    /// requeued onto the mutex. The mutex must be held.
    fn register(&self, distance: u32) -> (u32, bool) {
        let mut known = self.mutex.load(Relaxed);
        if known == NONE {
            let first = self
                .mutex
                .compare_exchange(NONE, distance, Relaxed, Relaxed);
            known = first.err().unwrap_or(distance);
        }
        if known != distance && known != FAR && known != SEVERAL {
            self.mutex.store(SEVERAL, Relaxed);
            if cfg!(debug_assertions) {
                let others = P::unpark_in(self.key(), u32::MAX, OTHERS);
                assert!(
                    others == 0,
                    "a condition variable is used with two mutexes at the same time"
                );
            }
            known = SEVERAL;
        }
        // Relaxed: releasing the mutex publishes it. A stale value is an outdated ticket, and the
        // wait ends at once.
        let mut seen = self.sequence.load(Relaxed);
        // Where there are several mutexes, this Release pairs with `announce_requeueing`, whatever
        // the flags are.
        if known == SEVERAL || seen & REGISTERED != REGISTERED {
            seen = self.sequence.fetch_or(REGISTERED, Release);
        }
        (seen & !FLAGS, known == distance && distance != FAR)
    }

    /// Waits until the count is no longer `ticket`, or until `limit` says that the time is up.
    fn sleep(&self, ticket: u32, first: u64, mut limit: impl FnMut() -> Option<u64>) -> End {
        if self.spin(ticket, first) {
            return End::Awake;
        }
        let mut until = first;
        loop {
            // Acquire pairs with `advance`.
            let seen = self.sequence.load(Acquire);
            if seen & !FLAGS != ticket && C::FAULT != CondvarFault::BlindSleep {
                return End::Awake;
            }
            match self.sleep_once(seen, until) {
                Parked::Woken => {
                    P::count(Event::Notified);
                    if self.sequence.load(Acquire) & !FLAGS == ticket {
                        // See 5 at the top.
                        self.notify_all();
                    }
                    if C::FAULT == CondvarFault::SwallowedWake && limit().is_none() {
                        return End::TimeUp;
                    }
                    return End::Woken;
                }
                // Another count, or only another flag.
                Parked::Differed => {}
                Parked::Unwoken => match limit() {
                    Some(later) => until = later,
                    None => return End::TimeUp,
                },
            }
        }
    }

    /// Spins on the count for a while, unless another waiter does, or spinning was lately in vain.
    /// Returns whether the count has moved on.
    ///
    /// While oversubscribed the spinner yields its CPU to others. Spinning still pays: a CPU
    /// without a runnable thread falls asleep, and takes longer to wake up than a thread does.
    fn spin(&self, ticket: u32, until: u64) -> bool {
        if !P::CAN_PARK {
            return false;
        }
        // Acquire here and below pairs with `advance`.
        let mut seen = self.sequence.load(Acquire);
        loop {
            if seen & !FLAGS != ticket {
                return C::FAULT != CondvarFault::BlindSleep;
            }
            let vain = seen & VAIN != 0 && P::random() % RETRY != 0;
            if seen & SPINNER != 0 || vain {
                return false;
            }
            match self
                .sequence
                .compare_exchange(seen, seen | SPINNER, Relaxed, Acquire)
            {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        let nanos = match until {
            NEVER => SPIN,
            until => until.saturating_sub(P::now()).min(SPIN),
        };
        let moved_on = |s: u32| s & !FLAGS != ticket;
        let waited = match P::oversubscribed() {
            true => P::wait_yielding(&self.sequence, Acquire, nanos, moved_on),
            false => P::wait_for(&self.sequence, Acquire, nanos, moved_on),
        };
        match waited {
            Ok(now) => {
                P::count(Event::NotifiedSpinning);
                if now & VAIN != 0 {
                    self.sequence.fetch_and(!VAIN, Relaxed);
                }
                true
            }
            Err(now) => !self.stop_spinning(now, ticket),
        }
    }

    /// Clears `SPINNER`. `false`: the count has moved on just now.
    fn stop_spinning(&self, mut seen: u32, ticket: u32) -> bool {
        if C::FAULT == CondvarFault::LingeringSpinner {
            return true;
        }
        while seen & !FLAGS == ticket {
            // This waiter owns the flag as long as the count is the same: see 4 at the top.
            let without = seen & !SPINNER | VAIN;
            match self
                .sequence
                .compare_exchange(seen, without, Relaxed, Acquire)
            {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Sleeps at most until `until`, while the word is `seen`.
    fn sleep_once(&self, seen: u32, until: u64) -> Parked {
        if !P::CAN_PARK {
            let left = match until {
                NEVER => NEVER,
                until => until.saturating_sub(P::now()),
            };
            let other = |s: u32| s & !FLAGS != seen & !FLAGS;
            return match P::wait_for(&self.sequence, Acquire, left, other) {
                Ok(_) => Parked::Differed,
                Err(_) => Parked::Unwoken,
            };
        }
        P::count(Event::Park);
        // Never as the mutex's requester, if the waiter is requeued onto the mutex.
        P::park_in(self.key(), seen, until, OTHERS, || {
            if C::FAULT == CondvarFault::BlindSleep {
                seen
            } else {
                self.sequence.load(Relaxed)
            }
        })
    }

    /// What has been added to the sequence since `ticket` was given out.
    fn since(&self, ticket: u32) -> u32 {
        (self.sequence.load(Relaxed) & !FLAGS).wrapping_sub(ticket)
    }

    /// The address at which waiters sleep.
    fn key(&self) -> *const u32 {
        (self as *const Self).cast()
    }

    /// The distance from here to the mutex, in units of four bytes.
    fn distance<M: MutexConfig>(&self, mutex: &QueuedMutex<P, M>) -> u32 {
        if !P::CAN_PARK || !M::PARK {
            return FAR;
        }
        let bytes = mutex.key().addr().wrapping_sub(self.key().addr()) as isize;
        // Both are multiples of four bytes, and the distance is never 0.
        match i32::try_from(bytes / 4) {
            Ok(distance) if distance as u32 != FAR && distance as u32 != SEVERAL => distance as u32,
            _ => FAR,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
