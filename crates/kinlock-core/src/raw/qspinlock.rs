//! The queued spinlock: four bytes, and a queue of waiters outside of them.
//!
//! Source: the shape of the word (locked, pending, tail) and its slow path are those of the Linux kernel's queued
//! spinlock (Zijlstra, Long and others, 2014-2015); parking and stealing follow the idea of its paravirtual variant. This is
//! an independent design for threads, which can be preempted anywhere, exit, fork, and give up waiting.
//!
//! # The word
//!
//! ```text
//!   byte  0          1           2 3
//!       locked    pending       tail
//!       0 or 1    PENDING  1    Id of the last waiter, 0 = the queue is empty
//!                 PARKED   2
//!                 STEAL    4
//! ```
//!
//! Three separate atomics side by side: each is only ever accessed at its own size, so no access mixes sizes.
//! (The kernel compares all four bytes when a waiter falls asleep on them; see [`Platform::park`].)
//!
//! * `locked` alone decides who holds the lock: it is taken by a compare-and-swap from 0. Everything else is about who tries next.
//! * `PENDING`: one waiter waits without a node. It comes before the queue.
//! * `PARKED`: somebody sleeps on the word: the pending waiter, the head waiter, or both. Whoever unlocks wakes them.
//! * `STEAL`: the front waiter (the pending waiter; without one, the head waiter) is not running, so a running thread may take a free lock before it.
//!
//! # Transitions
//!
//! (tail, pending, locked); `n` = any tail, `p` = any pending byte, `*` = anything. "0/1" means that both occur.
//!
//! | who | from | to | how |
//! | --- | --- | --- | --- |
//! | newcomer, fast path | (0, 0, 0) | (0, 0, 1) | compare-and-swap `locked`, after reading the other two |
//! | newcomer, steals | (n, STEAL, 0) | (n, STEAL, 1) | compare-and-swap `locked`, after reading `pending` |
//! | newcomer, first waiter | (0, 0, 1) | (0, PENDING, 1) | compare-and-swap `pending`; undone if a tail has appeared |
//! | pending waiter takes the lock | (n, PENDING, 0) | (n, 0, 1) | compare-and-swap `locked`, then clear the bit |
//! | newcomer queues | (n, p, *) | (me, p, *) | swap `tail`; if n != 0, link to n |
//! | head takes the lock | (n, 0, 0) | (n, 0, 1) | compare-and-swap `locked`, after reading `pending`, or as its granter has; with or without a look at `locked` |
//! | head, alone | (me, p, 1) | (0, p, 1) | compare-and-swap `tail` |
//! | head, not alone | (n, p, 1) | (n, p, 1) | grant to the next; if that one may be asleep, move its sleep to the word and set `PARKED`, `STEAL` |
//! | front waiter falls asleep | (n, p, 1) | (n, p + PARKED + STEAL, 1) | fetch-or `pending`, heavy fence, look again, park |
//! | front waiter runs again | (n, p + STEAL, *) | (n, p, *) | fetch-and `pending` |
//! | holder unlocks | (n, p, 1) | (n, p, 0) | store `locked`, light fence, read `pending` |
//! | ... and `PARKED` was set | (n, p + PARKED, *) | (n, p, *) | fetch-and `pending`, unpark |
//!
//! With the knob [`stealing`](Tuning::stealing) off nobody sets `STEAL` and nobody steals; the other transitions stay.
//!
//! # Why nobody is forgotten
//!
//! 1. *Falling asleep against unlocking* is a store-load race on both sides: the sleeper writes `PARKED` then reads
//!    `locked`; the holder writes `locked` then reads `PARKED`. The asymmetric fences let the frequent side, the unlock, go without a
//!    barrier. Whoever sets `PARKED` therefore executes a heavy fence and looks again, or holds the lock. A waiter may have
//!    fallen asleep on a `PARKED` that somebody else is about to cover by such a fence; so a head that finds the lock free
//!    then, when it is the pending waiter's turn, wakes that one. Where the heavy fence is unavailable the sleeper wakes up by itself now and then.
//! 2. *A head that passes headship to a parked waiter* sets `PARKED` itself, while it holds the lock, so its own unlock
//!    comes later in program order and sees it. The heir's sleep is moved from its node to the word, so that the unlock need not know its name.
//! 3. *Pending against queueing*: the first waiter sets `PENDING` then reads `tail`; a newcomer sets `tail` then reads
//!    `PENDING`; all four are sequentially consistent, so at least one of the two sees the other, and the pending waiter is the one to step back.
//!    A head that takes the lock without a look does not read `PENDING`. It has been granted headship by a holder that saw the bit clear, and nobody sets it for good while there is
//!    a queue: the first head of each queue looks (nobody told it otherwise), and what it has seen each later one sees too, through the grants in between.
//! 4. *A head asleep behind a pending waiter* waits for an unlock and for that waiter to go. The waiter goes with the lock, and then its own
//!    unlock comes later and finds the head's `PARKED`; or without it, and then it wakes whom `PARKED` stands for (`leave_pending`).
//!
//! 5. *Falling asleep in the queue against a grant* is another store-load race. Whoever is likely to sleep, or may leave, is
//!    guarded: it says so in the link by which it queues, which a granter has read (Acquire), and is granted by compare-and-swap. Anybody else writes
//!    `drowsy` in its node, executes a heavy fence, and then falls asleep by compare-and-swap from `WAITING`; its granter writes `state`, executes
//!    a light fence, and then reads `drowsy`. So the grant comes before the compare-and-swap, which fails; or the granter, which may have overwritten
//!    `PARKED`, knows and moves the sleep to the word as in 2, if there is one. It holds the lock all the while. So the heir, which cannot leave without having had
//!    it, still waits for this lock: nobody else's sleep can be moved. Nothing but a grant ends the wait of such an heir, and only heads write its state besides
//!    itself, so the plain store overwrites nothing else. An heir that wakes up lowers `drowsy` and announces each later sleep anew. Seen too long, it costs a system call.
//!    Where the heavy fence is unavailable the sleeper wakes up by itself now and then, and finds the grant.
//! 6. *Roused*, ahead of one's turn: anybody may do that to anybody, since it decides nothing. It changes `drowsy` from one value to another that a granter takes for the same, and
//!    unparks; the sleeper then turns `PARKED` into `WAITING` itself, unless headship has come. If it is missed the sleeper is found as in 5.
//!
//! No wake-up rests on `STEAL`: it only lets others try. A waiter that `STEAL` would let try, and that must not for want of
//! it, waits for one of the events above. So `STEAL` need never be set.
//!
//! # Bounds on overtaking
//!
//! * A thread that saw the word free of waiters may take the lock after somebody queued: once, since it then sees them.
//! * Stealing lasts from when a front waiter sleeps until it runs again. It is woken by the next unlock, and once it
//!   runs it forbids stealing, before it does anything else. If it has to sleep again, it permits stealing only during the first [`STEAL_LIMIT`] nanoseconds of its time at the front.
//! * With the knob `stealing` off there is only the first of these, and threads that wait without a node.

mod approach;
mod front;
mod queue;

use core::marker::PhantomData;

use super::waiter::{Id, PARKED as NODE_PARKED};
use crate::events::Event;
use crate::platform::{Atomic, ConstAtomic, ConstPlatform, NEVER, Ordering::*, Platform};
use crate::tuning::Tuning;

const PENDING: u8 = 1;
const PARKED: u8 = 2;
const STEAL: u8 = 4;

/// How long after coming to the front a waiter that falls asleep still lets others steal, in nanoseconds.
pub const STEAL_LIMIT: u64 = 10_000_000;

/// How long a waiter spins before it parks while every waiting thread can have a CPU, in nanoseconds: longer than it takes to wake all
/// waiters of a locality domain one after the other, or they all fall asleep again before their turn comes.
const PATIENT: u64 = 1_000_000;
/// The same while there are more of them than CPUs: a few hand-offs, or what falling asleep and waking costs.
const HURRIED: u64 = 5_000;

/// How long a newcomer waits for a chance to steal before it queues, in nanoseconds, and how often it tries.
const STEAL_PATIENCE: u64 = 2_000;
const STEAL_ATTEMPTS: u32 = 16;

/// How long a waiter sleeps at most where no heavy fence guarantees that it is noticed, in nanoseconds.
const UNNOTICED_SLEEP: u64 = 1_000_000;

/// What is fixed about a lock at compile time, and where it finds its knobs.
pub trait Config: Copy + core::fmt::Debug + Send + Sync + 'static {
    /// Whether the first waiter waits without a node. Model checks switch it off to reach the queue with two threads.
    const PENDING_BIT: bool = true;
    /// Whether waiters may sleep, where the platform can.
    const PARK: bool = true;
    /// Whether the queue does no more than what is published: a head looks at the word before it tries to take it, reads a waiter's domain in that one's node, and hands headship to
    /// another domain as soon as it knows no kin. For comparison.
    const AS_PUBLISHED: bool = false;
    /// A deliberate defect, for showing that a check can fail.
    #[doc(hidden)]
    const FAULT: Fault = Fault::None;

    /// The run-time knobs. Called once per slow path.
    fn tuning() -> Tuning;
}

/// Deliberate defects, each to be caught by the check meant for it.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A correct lock.
    None,
    /// The head waiter takes the lock whether it is free or not.
    NoExclusion,
    /// Setting waiters aside forgets those who were there before.
    LostSplice,
    /// The limit on local hand-offs is ignored.
    Starvation,
    /// Unlocking does not wake.
    LostWakeup,
    /// Unlocking does not publish the critical section.
    RelaxedUnlock,
    /// Who falls asleep in the queue does not say so.
    SilentSleeper,
    /// Whoever queues rouses the waiter before it. No defect, only more of what is allowed: nothing may come of it.
    Meddler,
    /// A sleeper whose time is up goes away without a word although it was made head meanwhile.
    RousedLeaves,
    /// A head tells its heir to take the lock without a look although a pending waiter is to come before it.
    Pushy,
}

/// The queued spinlock, generic over where it runs and how it is configured.
///
/// All-zero memory is an unlocked lock. The lock owns nothing outside its four bytes.
///
/// It must stay where it is and stay valid until [`unlock`](Self::unlock) has returned, also if another thread has
/// taken the lock in between.
#[repr(C, align(4))]
#[derive(Debug)]
pub struct QueuedSpinLock<P: Platform, C: Config> {
    locked: P::AtomicU8,
    pending: P::AtomicU8,
    tail: P::AtomicU16,
    config: PhantomData<C>,
}

impl<P: ConstPlatform, C: Config> QueuedSpinLock<P, C> {
    /// An unlocked lock, in a constant.
    pub const UNLOCKED: Self = QueuedSpinLock {
        locked: P::AtomicU8::ZERO,
        pending: P::AtomicU8::ZERO,
        tail: P::AtomicU16::ZERO,
        config: PhantomData,
    };
}

impl<P: Platform, C: Config> Default for QueuedSpinLock<P, C> {
    fn default() -> Self {
        Self::new()
    }
}

/// What holds for one wait from its beginning to its end.
#[derive(Clone, Copy)]
struct Terms {
    tuning: Tuning,
    deadline: u64,
    /// More threads wait than there are CPUs, so that some should sleep.
    oversubscribed: bool,
}

impl<P: Platform, C: Config> QueuedSpinLock<P, C> {
    /// An unlocked lock. Where the platform allows, [`UNLOCKED`](Self::UNLOCKED) is the same as a constant.
    pub fn new() -> Self {
        QueuedSpinLock {
            locked: Atomic::new(0),
            pending: Atomic::new(0),
            tail: Atomic::new(0),
            config: PhantomData,
        }
    }

    /// Takes the lock, waiting for as long as it takes. Acquires what the previous holder released.
    ///
    /// Taking a lock that the thread already holds waits for ever.
    #[inline]
    pub fn lock(&self) {
        if !self.try_lock() {
            self.lock_slow(NEVER);
        }
    }

    /// Takes the lock if nobody holds it or waits for it.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.pending.load(Relaxed) == 0 && self.tail.load(Relaxed) == 0 && self.try_take()
    }

    /// Takes the lock, or gives up and returns `false` once [`Platform::now`] has reached `deadline`.
    #[inline]
    pub fn lock_until(&self, deadline: u64) -> bool {
        self.try_lock() || self.lock_slow(deadline)
    }

    /// Releases the lock.
    ///
    /// # Safety
    ///
    /// The lock must be held, and the right to release it must be the caller's.
    #[inline]
    pub unsafe fn unlock(&self) {
        self.locked.store(
            0,
            if matches!(C::FAULT, Fault::RelaxedUnlock) {
                Relaxed
            } else {
                Release
            },
        );
        if P::CAN_PARK && C::PARK && !matches!(C::FAULT, Fault::LostWakeup) {
            // Pairs with the heavy fence in `sleep_on_word`.
            P::light_fence();
            if self.pending.glance(Relaxed) & PARKED != 0 {
                self.wake_sleepers();
            }
        }
    }

    /// Whether somebody holds the lock at this moment.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.locked.load(Relaxed) != 0
    }

    /// Whether somebody waits for the lock at this moment.
    #[inline]
    pub fn is_contended(&self) -> bool {
        self.tail.load(Relaxed) != 0 || self.pending.load(Relaxed) & PENDING != 0
    }

    /// Makes it an unlocked lock in a forked child, where whoever held it or waited for it does not exist. Nobody else may use it meanwhile.
    pub fn reset_in_child(&self) {
        self.tail.store(0, Relaxed);
        self.pending.store(0, Relaxed);
        self.locked.store(0, Relaxed);
    }

    /// For all but a head that was told otherwise: looks first, since even a failing exchange takes the line away from everybody.
    #[inline]
    fn try_take(&self) -> bool {
        self.locked.load(Relaxed) == 0 && self.take()
    }

    /// Takes the lock if it is free.
    #[inline]
    fn take(&self) -> bool {
        self.locked.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self, deadline: u64) -> bool {
        P::count(Event::SlowPath);
        let tuning = C::tuning();
        if passed(deadline, P::now) {
            return tuning.stealing && self.steal_permitted() && self.try_take();
        }
        // Asked once, here, since nobody waits for the answer yet.
        let oversubscribed = P::CAN_PARK && C::PARK && P::oversubscribed();
        if tuning.stealing && self.steal(oversubscribed) {
            P::count(Event::Steal);
            return true;
        }
        let terms = Terms {
            tuning,
            deadline,
            oversubscribed,
        };
        if C::PENDING_BIT && self.become_pending() {
            return self.wait_pending(terms);
        }
        match P::waiters().enter() {
            Some(waiter) => self.queue(waiter, terms),
            None => self.lock_without_node(deadline),
        }
    }

    /// Takes the lock before a front waiter that does not run. Tries for a moment: to queue behind sleepers means to
    /// sleep, and costs more than a few short critical sections.
    fn steal(&self, oversubscribed: bool) -> bool {
        for _ in 0..STEAL_ATTEMPTS {
            // The last look costs a cache line of somebody else's.
            let hopeful = self.steal_permitted() || oversubscribed && self.last_waiter_sleeps();
            if !hopeful {
                return false;
            }
            // A front waiter that runs is about to take the lock and to make a sleeper head.
            let permitted = P::wait_for(&self.pending, Relaxed, STEAL_PATIENCE, |p| p & STEAL != 0);
            let free = P::wait_for(&self.locked, Relaxed, STEAL_PATIENCE, |l| l == 0);
            if permitted.is_err() || free.is_err() {
                return false;
            }
            if self.steal_permitted() && self.try_take() {
                return true;
            }
        }
        false
    }

    fn steal_permitted(&self) -> bool {
        self.pending.load(Relaxed) & STEAL != 0
    }

    fn last_waiter_sleeps(&self) -> bool {
        let last = Id::decode(self.tail.load(Relaxed));
        last.is_some_and(|id| P::waiters().node(id).state.load(Relaxed) == NODE_PARKED)
    }

    // ---- without a node ------------------------------------------------------------------------------------

    /// More nesting or more threads than there are nodes: tries again and again, with growing pauses, and takes the
    /// lock whenever it is free. Slower, and unfair to both sides, but never wrong.
    #[cold]
    fn lock_without_node(&self, deadline: u64) -> bool {
        P::count(Event::SlotFallback);
        let mut pause = 1u32;
        let asleep = P::AtomicU32::new(0);
        loop {
            if self.try_take() {
                return true;
            }
            if passed(deadline, P::now) {
                P::count(Event::Timeout);
                return false;
            }
            if pause < 1 << 8 || !P::CAN_PARK {
                for _ in 0..pause {
                    P::relax();
                }
            } else {
                // Nobody knows of us: sleep for a while on a word of our own.
                let until = P::now() + (pause as u64) * 100;
                P::park(key::<P>(&asleep), 0, until.min(deadline), || {
                    asleep.load(Relaxed)
                });
            }
            pause = (pause * 2).min(1 << 10);
        }
    }

    // ---- the word as a whole -------------------------------------------------------------------------------

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

/// Where a thread sleeps that waits for this word to change.
fn key<P: Platform>(word: &P::AtomicU32) -> *const u32 {
    (word as *const P::AtomicU32).cast()
}

/// How long to spin before parking; [`NEVER`] if nobody parks.
fn spin_limit<P: Platform, C: Config>(oversubscribed: bool) -> u64 {
    match (P::CAN_PARK && C::PARK, oversubscribed) {
        (false, _) => NEVER,
        (_, true) => HURRIED,
        (_, false) => PATIENT,
    }
}

/// When a sleep ends by itself. `noticed`: whether a fence guarantees that it is ended before.
fn sleep_limit(noticed: bool, deadline: u64, now: fn() -> u64) -> u64 {
    if noticed {
        deadline
    } else {
        deadline.min(now() + UNNOTICED_SLEEP)
    }
}

/// Time left before `deadline`, without a look at the clock if there is none.
fn left(deadline: u64, now: fn() -> u64) -> u64 {
    if deadline == NEVER {
        NEVER
    } else {
        deadline.saturating_sub(now())
    }
}

fn passed(deadline: u64, now: fn() -> u64) -> bool {
    deadline != NEVER && now() >= deadline
}
