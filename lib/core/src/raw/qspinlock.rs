//! The queued spinlock: four bytes, and a queue of waiters outside of them.
//!
//! Sources: the shape of the word (locked, pending, tail) and of the slow path come from the Linux
//! kernel's queued spinlock (Zijlstra, Long and others, 2014 to 2015). Parking and stealing follow
//! the idea of its paravirtual variant. This is an independent design for threads, which can be
//! preempted anywhere, exit, fork, and give up waiting. `cna` defines the order of the queue,
//! `docs/guide/spin.md` is an introduction, and `docs/notebook/spin.md` has measurements.
//!
//! # The word
//!
//! ```text
//!   byte  0          1           2 3
//!       locked    pending       tail
//!       0 or 1    PARKED   2    Id of the last waiter, 0 = the queue is empty
//!                 STEAL    4
//!                 EXTENDED 128
//!                 PENDING  one of the other bits
//! ```
//!
//! Three separate atomics stand side by side. Each is only accessed at its own size, so no access
//! mixes sizes. (The kernel compares all four bytes when a waiter falls asleep on them; see
//! [`Platform::park`].)
//!
//! * `locked` alone decides which thread holds the lock. A thread takes it by a compare-and-swap
//!   from 0. The other bytes only decide which thread tries next.
//! * `PENDING`: a waiter waits without a node, ahead of the queue. Which bit this is depends on the
//!   process, see "Fork".
//! * `PARKED`: the pending waiter, the head, or both sleep on the word. The next unlock wakes them.
//! * `STEAL`: the front waiter does not run, so a running thread may take a free lock before it.
//!   The front waiter is the pending waiter or, without one, the head.
//! * `EXTENDED`: the holder has asked for a longer time slice, which its unlock ends. Only with the
//!   knob [`slice_extension`](Tuning::slice_extension). A hint to the holder itself: the previous
//!   holder may clear this holder's bit with its own, and then this holder's next wait ends the
//!   extension.
//!
//! # Transitions
//!
//! A state is (tail, pending, locked). `n` = any tail, `p` = any pending byte, `*` = any value.
//! CAS = compare-and-swap.
//!
//! | event | from | to | how |
//! | --- | --- | --- | --- |
//! | fast path | (0, 0, 0) | (0, 0, 1) | read the other two; CAS `locked` |
//! | newcomer steals | (n, STEAL, 0) | (n, STEAL, 1) | read `pending`; CAS `locked` |
//! | newcomer becomes pending | (0, 0, 1) | (0, PENDING, 1) | CAS `pending`; undo if tail != 0 |
//! | pending waiter takes the lock | (n, PENDING, 0) | (n, 0, 1) | CAS `locked`; clear the bit |
//! | newcomer queues | (n, p, *) | (me, p, *) | swap `tail`; if n != 0, link to n |
//! | head takes the lock | (n, 0, 0) | (n, 0, 1) | see below |
//! | head, alone | (me, p, 1) | (0, p, 1) | CAS `tail` |
//! | head, not alone | (n, p, 1) | (n, p, 1) | grant headship to the next waiter |
//! | ... which may sleep | (n, p, 1) | (n, p + PARKED + STEAL, 1) | move its sleep, set bits |
//! | front waiter sleeps | (n, p, 1) | (n, p + PARKED + STEAL, 1) | fetch-or, fence, look, park |
//! | front waiter runs again | (n, p + STEAL, *) | (n, p, *) | fetch-and `pending` |
//! | holder unlocks | (n, p, 1) | (n, p, 0) | store `locked`, light fence, read `pending` |
//! | ... when `PARKED` was set | (n, p + PARKED, *) | (n, p, *) | fetch-and `pending`, unpark |
//! | holder asks for more time | (n, p, 1) | (n, p + EXTENDED, 1) | fetch-or |
//! | holder has unlocked | (n, p + EXTENDED, *) | (n, p, *) | the fetch-and that clears `PARKED` |
//!
//! A head takes the lock by a CAS of `locked`. Before that, it or an earlier head of the same queue
//! has read `pending`. `policy.rs` decides whether it first reads `locked`, too.
//!
//! # Fork
//!
//! In a forked child the word may name waiters that do not exist. The first newcomer finds that the
//! last node is [gone](crate::slots), and is the head. The children of a process, their children
//! and so on each set another bit for `PENDING`, while bits are left; later generations have no
//! pending waiters. So a child knows which bits to clear. `PARKED` and `STEAL` end as usual.
//!
//! With the knob [`stealing`](Tuning::stealing) off, no thread sets `STEAL` or steals. The other
//! transitions stay.
//!
//! # Why no wake-up is lost
//!
//! 1. *Falling asleep against unlocking* is a store-load race. The sleeper writes `PARKED`, then
//!    reads `locked`; the holder writes `locked`, then reads `PARKED`. Asymmetric fences keep the
//!    frequent side, the unlock, free of a barrier. So a thread that sets `PARKED` either executes
//!    a heavy fence and looks again, or holds the lock. A second waiter may rely on a `PARKED` that
//!    another waiter set and has not yet covered by its fence. Therefore a head that finds the lock
//!    free at a look, while a pending waiter is to go first, wakes that waiter. Without a heavy
//!    fence a sleeper wakes up by itself after a millisecond.
//! 2. *Granting headship to a parked waiter.* The head sets `PARKED` itself, while it holds the
//!    lock. Its own unlock comes later in program order and sees the bit. The head moves the
//!    waiter's sleep from the node to the word, so the unlock need not know which waiter it is.
//! 3. *Becoming pending against queueing.* The first waiter sets `PENDING`, then reads `tail`; a
//!    newcomer sets `tail`, then reads `PENDING`. All four accesses are sequentially consistent, so
//!    at least one side sees the other. The pending waiter steps back. A head that takes the lock
//!    without a look does not read `PENDING`. It relies on the holder that granted it headship:
//!    that holder saw the bit clear, or relied on its own granter. A head that no thread granted
//!    headship looks. The first head of each queue looks, and grants make what it saw visible to
//!    each later head; a thread that sets the bit while there is a queue clears it again.
//! 4. *A head asleep behind a pending waiter* waits for an unlock, and for that waiter to leave. If
//!    the pending waiter takes the lock, its own unlock comes later and finds the head's `PARKED`.
//!    If it leaves without the lock, it wakes the sleepers of `PARKED` (`leave_pending`).
//! 5. *Falling asleep in the queue against a grant* is another store-load race, with two solutions.
//!    A waiter that is likely to sleep, or may leave, is **guarded**. Its link says so, the granter
//!    has read the link (Acquire), and grants by compare-and-swap. Any other waiter **announces**
//!    its sleep: it writes `drowsy`, executes a heavy fence, and changes `WAITING` to `PARKED` by
//!    compare-and-swap. Its granter writes `state`, executes a light fence, and reads `drowsy`.
//!    Either the grant comes first, and the compare-and-swap fails. Or the granter sees `drowsy`,
//!    and moves the sleep as in 2, if there is one.
//!
//!    * The granter holds the lock until then. The waiter cannot leave without having had the lock,
//!      so it still waits for this lock, and the granter moves no sleep that belongs to another
//!      wait.
//!    * The plain store of the grant loses nothing: only a grant ends the wait of such a waiter,
//!      and only heads and the waiter itself write its state.
//!    * A waiter that wakes up clears `drowsy`, and announces each later sleep anew. A stale
//!      `drowsy` costs a system call and nothing else.
//!    * Without a heavy fence the sleeper wakes up by itself now and then, and finds the grant.
//! 6. *Rousing* wakes a waiter before its turn. Any thread may rouse any waiter, since rousing
//!    decides nothing. The thread changes `drowsy` from `DROWSY` to `ROUSED`, which a granter
//!    treats like `DROWSY`, and unparks. The sleeper itself changes `PARKED` to `WAITING`, unless
//!    headship has come. If the sleeper misses the rouse, its granter finds it as in 5.
//!
//! `STEAL` wakes no waiter: it only lets other threads try. A waiter that could try because of
//! `STEAL` is also woken by one of the events above. So the lock stays correct if `STEAL` is never
//! set.
//!
//! # Bounds on overtaking
//!
//! * A thread that saw no waiters in the word may take the lock after a waiter has queued. It can
//!   do so only once, since it sees the waiter the next time.
//! * Stealing lasts from when a front waiter falls asleep until it runs again. The next unlock
//!   wakes it, and it forbids stealing before it does anything else. If it has to sleep again, it
//!   permits stealing for [`STEAL_LIMIT_NS`] nanoseconds, counted from its first sleep.
//! * With the knob `stealing` off, only threads as in the first item overtake, and threads that
//!   wait without a node.

mod front;
mod policy;
mod queue;
mod steal;
mod timing;

use core::marker::PhantomData;

use super::config::LockConfig;
use crate::events::Event;
use crate::platform::{Atomic, NEVER, Ordering::*, Platform, const_fn, zero};
use crate::raw::waiter::expired;
use crate::tuning::Tuning;

pub use timing::STEAL_LIMIT_NS;

const PARKED: u8 = 2;
const STEAL: u8 = 4;
const EXTENDED: u8 = 128;
const PENDING: u8 = !(PARKED | STEAL | EXTENDED);

/// The bit of [`PENDING`] that this process sets: 1 in the first process, 8 to 64 in the next
/// generations of forks, then none.
fn pending_bit<P: Platform>() -> u8 {
    match P::forks() {
        0 => 1,
        forks => (4_u32 << forks.min(5)) as u8 & PENDING,
    }
}

/// The queued spinlock, generic over where it runs and how it is configured.
///
/// All-zero memory is an unlocked lock. The lock owns nothing outside its four bytes.
///
/// It must not move while it is held or waited for. It must stay valid until
/// [`unlock`](Self::unlock) has returned, even if another thread has taken the lock in between.
///
/// Uncontended, `lock` costs one compare-and-swap and `unlock` one store. Contended, waiters spin
/// on cache lines of their own, and look at the lock every 50 us. Each hand-off moves a constant
/// number of lines.
#[repr(C, align(4))]
#[derive(Debug)]
pub struct QueuedSpinLock<P: Platform, C: LockConfig> {
    locked: P::AtomicU8,
    pending: P::AtomicU8,
    tail: P::AtomicU16,
    config: PhantomData<C>,
}

impl<P: Platform, C: LockConfig> Default for QueuedSpinLock<P, C> {
    fn default() -> Self {
        Self::new()
    }
}

/// The waiters that a newcomer saw at its one look at the word. The newcomer decides by that look
/// alone: newcomers and heads take the line from each other, so another look may be another
/// transfer.
#[derive(Clone, Copy)]
struct Seen {
    pending: u8,
    tail: u16,
}

/// What stays the same during one wait.
#[derive(Clone, Copy)]
struct Terms {
    tuning: Tuning,
    deadline: u64,
    /// More threads wait than there are CPUs, or this thread has lately lost its CPU while it spun:
    /// it should sleep soon.
    oversubscribed: bool,
}

impl<P: Platform, C: LockConfig> QueuedSpinLock<P, C> {
    const_fn! {
        /// An unlocked lock.
        pub const fn new() -> Self {
            QueuedSpinLock {
                locked: zero!(),
                pending: zero!(),
                tail: zero!(),
                config: PhantomData,
            }
        }
    }

    /// Takes the lock, and waits for as long as it takes. Acquires what the previous holder
    /// released.
    ///
    /// A thread that already holds the lock waits forever.
    #[inline]
    pub fn lock(&self) {
        self.lock_until(NEVER);
    }

    /// Takes the lock if no thread holds it or waits for it. Acquires like [`lock`](Self::lock).
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.try_at_once() || P::forked() && self.try_lock_in_child()
    }

    /// Takes the lock, or returns `false` once [`Platform::now`] has reached `deadline`. Acquires
    /// like [`lock`](Self::lock).
    #[inline]
    pub fn lock_until(&self, deadline: u64) -> bool {
        if self.pending.load(Relaxed) != 0 {
            self.lock_marked(deadline)
        } else if self.tail.load(Relaxed) != 0 {
            self.lock_queued(deadline)
        } else {
            self.try_take() || self.lock_held(deadline)
        }
    }

    /// Releases the lock: a later holder sees what the caller wrote before.
    ///
    /// # Safety
    ///
    /// The lock must be held, and the caller must have the right to release it.
    #[inline]
    pub unsafe fn unlock(&self) {
        self.locked.store(0, Release);
        if P::CAN_PARK && C::PARK {
            // Pairs with the heavy fence in `sleep_on_word`; see 1 above.
            P::light_fence();
            if self.pending.glance(Relaxed) & (PARKED | EXTENDED) != 0 {
                self.unlocked_marked();
            }
        }
    }

    /// Whether a thread holds the lock at this moment.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.locked.load(Relaxed) != 0
    }

    /// Whether a thread waits for the lock at this moment.
    #[inline]
    pub fn is_contended(&self) -> bool {
        self.tail.load(Relaxed) != 0 || self.pending.load(Relaxed) & PENDING != 0
    }

    /// Unlocks the lock in a forked child, in which its holder and its waiters do not exist.
    ///
    /// # Safety
    ///
    /// No other thread uses the lock during this call, and no thread that took it before relies on
    /// still holding it.
    pub unsafe fn reset_in_child(&self) {
        self.tail.store(0, Relaxed);
        self.pending.store(0, Relaxed);
        self.locked.store(0, Relaxed);
    }

    #[inline]
    fn try_at_once(&self) -> bool {
        self.pending.load(Relaxed) == 0 && self.tail.load(Relaxed) == 0 && self.try_take()
    }

    // The next three functions are for a newcomer that could not take the lock at once. They are
    // three since passing on what it saw would cost the fast path registers, and another look may
    // be another transfer of the line.

    /// The newcomer saw a mark in `pending`.
    #[cold]
    #[inline(never)]
    fn lock_marked(&self, deadline: u64) -> bool {
        self.lock_slow(self.look(), deadline)
    }

    /// The newcomer saw no mark, but a queue.
    #[cold]
    #[inline(never)]
    fn lock_queued(&self, deadline: u64) -> bool {
        let (pending, tail) = (0, self.tail.load(Relaxed));
        self.lock_slow(Seen { pending, tail }, deadline)
    }

    /// The newcomer saw no waiters.
    #[cold]
    #[inline(never)]
    fn lock_held(&self, deadline: u64) -> bool {
        let (pending, tail) = (0, 0);
        self.lock_slow(Seen { pending, tail }, deadline)
    }

    #[inline]
    fn look(&self) -> Seen {
        Seen {
            pending: self.pending.load(Relaxed),
            tail: self.tail.load(Relaxed),
        }
    }

    /// Takes the lock if a look finds it free. Looks first, since even a failed exchange takes the
    /// line away from all other CPUs.
    #[inline]
    fn try_take(&self) -> bool {
        self.locked.load(Relaxed) == 0 && self.take()
    }

    /// Takes the lock if it is free, without a look.
    #[inline]
    fn take(&self) -> bool {
        self.locked.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }

    fn lock_slow(&self, seen: Seen, deadline: u64) -> bool {
        P::count(Event::SlowPath);
        // A waiter needs no time slice extension.
        P::end_slice();
        if P::forked() {
            self.forget_pending_of_parent();
        }
        let tuning = C::tuning_of_spinlock();
        let taken = self.wait(seen, tuning, deadline);
        // Where waiters do not sleep, an unlock does not look for the bit.
        if taken && tuning.slice_extension && P::CAN_PARK && C::PARK {
            self.pending.fetch_or(EXTENDED, Relaxed);
            P::extend_slice();
        }
        taken
    }

    fn wait(&self, seen: Seen, tuning: Tuning, deadline: u64) -> bool {
        if expired(deadline, P::now) {
            return tuning.stealing && self.steal_permitted() && self.try_take();
        }
        // Read once, before other threads wait for this one.
        let oversubscribed = P::CAN_PARK && C::PARK && P::oversubscribed();
        if tuning.stealing && self.steal(seen, oversubscribed) {
            P::count(Event::Steal);
            return true;
        }
        let terms = Terms {
            tuning,
            deadline,
            oversubscribed,
        };
        if C::PENDING_BIT && self.become_pending(seen) {
            return self.wait_pending(terms);
        }
        match P::waiters().take_node() {
            Some(waiter) => self.queue(waiter, terms),
            None => self.lock_beside(deadline),
        }
    }

    fn word(&self) -> (u8, u8, u16) {
        (
            self.locked.load(Relaxed),
            self.pending.load(Relaxed),
            self.tail.load(Relaxed),
        )
    }

    fn word_key(&self) -> *const u32 {
        (self as *const Self).cast()
    }
}

/// The four bytes as the kernel reads them.
fn compose((locked, pending, tail): (u8, u8, u16)) -> u32 {
    let [t0, t1] = tail.to_ne_bytes();
    u32::from_ne_bytes([locked, pending, t0, t1])
}

/// The key for threads that sleep until this word changes.
fn key<P: Platform>(word: &P::AtomicU32) -> *const u32 {
    (word as *const P::AtomicU32).cast()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Native;
    use crate::threads::Slices;

    #[derive(Clone, Copy, Debug)]
    struct Extending<const ON: bool>;

    impl<const ON: bool> LockConfig for Extending<ON> {
        fn tuning() -> Tuning {
            Tuning {
                slice_extension: ON,
                ..Tuning::DEFAULT
            }
        }
    }

    /// How many extensions a holder that has waited asks for, and what the word then shows.
    fn waited<const ON: bool>() -> (u32, u8) {
        let lock = QueuedSpinLock::<Native, Extending<ON>>::new();
        let slices = Slices::during(|| assert!(lock.lock_held(NEVER)));
        assert!(slices.ended >= 1, "a waiter has no use for an extension");
        let shown = lock.pending.load(Relaxed);
        assert!(!lock.is_contended() && lock.is_locked());
        let unlocked = Slices::during(|| {
            // SAFETY: held.
            unsafe { lock.unlock() }
        });
        assert_eq!(unlocked.ended, u32::from(ON));
        assert!(lock.try_lock(), "no mark is left");
        (slices.extended, shown)
    }

    #[test]
    fn a_holder_that_has_waited_asks_for_more_time_and_ends_that() {
        assert_eq!(waited::<false>(), (0, 0));
        assert_eq!(waited::<true>(), (1, EXTENDED));
    }

    #[test]
    fn an_uncontended_lock_asks_for_nothing() {
        let lock = QueuedSpinLock::<Native, Extending<true>>::new();
        let slices = Slices::during(|| {
            lock.lock();
            // SAFETY: held.
            unsafe { lock.unlock() }
        });
        assert_eq!((slices.extended, slices.ended), (0, 0));
    }

    /// The mark of a holder does not keep the first waiter from becoming the pending waiter.
    #[test]
    fn a_waiter_becomes_pending_beside_the_mark_of_a_holder() {
        let lock = QueuedSpinLock::<Native, Extending<true>>::new();
        assert!(lock.lock_held(NEVER));
        assert!(lock.become_pending(lock.look()));
        assert_eq!(lock.pending.load(Relaxed), EXTENDED | 1);
    }

    /// At the fork, the holder in the parent had released the lock, but not yet cleared its mark.
    #[test]
    fn a_mark_that_was_inherited_keeps_nobody_from_the_lock() {
        let lock = QueuedSpinLock::<Native, Extending<true>>::new();
        lock.pending.store(EXTENDED, Relaxed);
        assert!(lock.try_lock_in_child());
        assert!(!lock.try_lock_in_child(), "held");
        // SAFETY: held.
        unsafe { lock.unlock() };
        assert!(lock.try_lock(), "the unlock has cleared the mark");
    }

    /// In a child, too, a waiter leaves the mark of a holder alone.
    #[test]
    fn the_mark_of_a_holder_is_no_waiter_of_the_parent() {
        let lock = QueuedSpinLock::<Native, Extending<true>>::new();
        assert!(lock.lock_held(NEVER));
        lock.forget_pending_of_parent();
        assert_eq!(lock.pending.load(Relaxed), EXTENDED);
    }
}
