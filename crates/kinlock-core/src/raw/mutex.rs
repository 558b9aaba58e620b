//! The blocking mutex: four bytes; whoever runs may take it, and whoever waits stands in a queue.
//!
//! Sources: queued optimistic spinners are from the Linux kernel's mutex (Long, 2013), their cancellable queue from Zijlstra (2014). What is new here: waiters sleep in
//! their place instead of starting over elsewhere; the head of the queue learns how fast the lock is cycling and leaves a fast one alone for a quantum, so that the lock
//! and its data stay where they are; and then it *claims* the lock, which the next unlock hands over to it. Where threads had better take turns they do so beside the queue.
//!
//! # The word
//!
//! ```text
//!   byte  0          1                    2 3
//!       locked     flags                spinners
//!       0 or 1     CLAIMED          1   the tail of the queue
//!                  GRANTED          2
//!                  SLEEPERS         4
//!                  CLAIMANT_SLEEPS  8
//!                  WATCHED         16
//!                  unlocks       0..7 times 32    1, 2 without WATCHED: a wish of the claimant
//! ```
//!
//! * `locked` decides who holds the lock, but for a grant: it is taken by a compare-and-swap from 0.
//! * `HANDOFF`: one waiter, the claimant, has waited for its quantum, or in vain for its turn. The next unlock hands the lock to it: `locked` stays 1 and `PICKUP` replaces `HANDOFF`.
//! * `SLEEPERS`: somebody sleeps on the word. Whoever unlocks, or is granted the lock, wakes one of them. `HANDOFF_SLEEPS`: the claimant does.
//! * `SAMPLING`: the head, or a newcomer beside the queue, wants to know how fast the lock cycles: unlocks count themselves, up to 7.
//!
//! # Transitions
//!
//! (flags, locked); `f` = any other flags.
//!
//! | who | from | to | how |
//! | --- | --- | --- | --- |
//! | anybody who runs | (f, 0) | (f, 1) | compare-and-swap `locked` |
//! | holder unlocks | (f, 1) | (f, 0) | store `locked`, light fence, read `flags` |
//! | ... and `HANDOFF` was set | (CLAIMED, 1) | (GRANTED, 1) | compare-and-swap `flags` instead of the store; unpark the claimant if it sleeps |
//! | ... and `SAMPLING` was set | (WATCHED + n unlocks, 1) | (WATCHED + n + 1, 1), after 7 (7, 1) | compare-and-swap before the store, tried once |
//! | ... and then somebody sleeps | (f + SLEEPERS, *) | (f, *) | fetch-and, unpark one |
//! | head, or newcomer beside the queue, claims | (f, *) | (f + CLAIMED, *) | compare-and-swap, unless CLAIMED or GRANTED is set |
//! | who has waited for a quantum in a crowd claims | (f, *) | (f + CLAIMED + a wish, *) | the same compare-and-swap, in place of what was counted; granted or not, 7 unlocks are left of a wish |
//! | who watches | (f, *) | (f + WATCHED + 0 unlocks, *) | compare-and-swap, unless there is a wish; tried once |
//! | who leaves its seat for the head says so | (f, *) | (f without WATCHED and unlocks, *) | compare-and-swap, unless there is a wish; tried once |
//! | head of a crowd takes that seat, or nobody does and its owner keeps it | (f, *) | (f + 7 unlocks, *) | fetch-or, and then it takes or claims the lock |
//! | claimant withdraws | (f + CLAIMED, *) | (f, *) | compare-and-swap; if it finds GRANTED the lock is its own |
//! | claimant gets the lock | (f + GRANTED, 1) or (f + CLAIMED, 1) | (f, 1) | fetch-and, after it has seen GRANTED or taken `locked`; if granted, and somebody sleeps, it wakes one as an unlock does |
//! | head, or who was, falls asleep | (f, 1) | (f + SLEEPERS, 1) | fetch-or, heavy fence, look again, park |
//! | who has been woken naps, or gives up | (f, *) | (f + SLEEPERS, *) | fetch-or, heavy fence, look again, and wake another if it is free |
//! | who has slept gets the lock | (f, 1) | (f + SLEEPERS, 1) | fetch-or: there may be others, and its own unlock comes later |
//!
//! # Why nobody is forgotten
//!
//! 1. *Falling asleep against unlocking*: the sleeper sets its flag, executes a heavy fence and looks at `locked`; the holder clears `locked` and then, after a light
//!    fence, looks at the flags. One of the two sees the other. Without the fence, where it is refused and at first in a crowd, the sleep has an end: 200 us, twice as long each time.
//! 2. *A wake-up clears the flag for one sleeper.* That one gets the lock and sets the flag again; or sleeps again and sets it; or gives up or naps, sets it, and wakes another if the lock is free.
//!    A waiter of a condition variable that was moved here wakes up behind the queue, not at its front: it passes the wake-up on while the lock is free, or takes the lock, or
//!    sets the flag as in 1 *before* it queues, since the head whose wake-up it has taken may sleep in front of it.
//! 3. *A claim is granted, withdrawn or used up, each by one compare-and-swap or by its claimant while it holds the lock.* There is one claimant at a time, and `PICKUP` is meant for it alone. A
//!    waiter that has claimed looks for `PICKUP` whenever it looks at all, and before it withdraws.
//! 4. *A grant to a claimant that falls asleep*: setting `HANDOFF_SLEEPS` and granting change the same byte by read-modify-writes. Either the grant finds the flag and unparks, or the
//!    claimant finds `PICKUP` in the word before it parks, since the kernel compares the word.
//!
//! # Bounds
//!
//! The head of the queue claims after its quantum; see [`QUANTUM_WHEN_CROWDED`] and [`SHORT_QUANTUM`]. Those behind it are served in the order of the queue. So a waiter with `n` before it
//! when it joins the queue, in the queue or beside it, gets the lock after at most `n + 1` quanta and critical sections, and the time that `n + 1` threads take to wake up; as long as the
//! scheduler runs the holder.
//!
//! * Before it joins the queue it may spend some microseconds beside it with looks and tries; 8 us, or 50 with more threads than CPUs, while others are granted the lock that came as it did; and
//!   50 us with a claim that is not served.
//! * With more threads than CPUs some pass the queue for a while, and may claim; and a head leaves the queue before it takes a free lock or a seat. There is one claim at a time and none has
//!   preference: a head whose quantum is over, or that has left, may find somebody else's, and tries again each time that one is granted.
//! * Where the lock is mostly free then, heads leave one after the other. If it is held for long from just that moment on, there are as many of those to compete for claims as have left.
//! * Where the holder sleeps or does not run a head counts a millisecond before it keeps its claim in its sleep.

mod barging;
mod classifier;
mod cna_queue;
mod front;
mod handoff;
mod prediction;
mod sleep;
mod wait;

use core::marker::PhantomData;

use self::prediction::StoredPrediction;
use super::osq::{self, Osq, PredecessorCpu, Watch};
use super::waiter::Waiter;
use crate::events::Event;
use crate::platform::{ANYBODY, Atomic, ConstAtomic, ConstPlatform, NEVER, Ordering::*, Platform};
use crate::tuning::Tuning;

const FREE: u8 = 0;
const HELD: u8 = 1;

const HANDOFF: u8 = 1;
const PICKUP: u8 = 2;
const SLEEPERS: u8 = 4;
const HANDOFF_SLEEPS: u8 = 8;
const SAMPLING: u8 = 16;
const UNLOCK: u8 = 32;
const UNLOCKS: u8 = 7 * UNLOCK;

/// All that a look at the lock changes: nothing yet, or *room*; a count; a count that is full, or has come to its end; or a wish.
const SAMPLE: u8 = SAMPLING | UNLOCKS;
/// What a claimant that comes out of a crowded queue wishes of the holder: to leave its seat among those who take turns, if that is contended; ...
const SHARE: u8 = UNLOCK;
/// ... and in any case. Nobody counts so few unlocks without `SAMPLING`.
const EXCLUSIVE: u8 = 2 * UNLOCK;

/// What the claimant wishes, or 0.
fn request_mode(flags: u8) -> u8 {
    match flags & SAMPLE {
        request_mode @ (SHARE | EXCLUSIVE) => request_mode,
        _ => 0,
    }
}

/// The flags when that has been heard, or is not wished any more.
fn without_mode(flags: u8) -> u8 {
    if request_mode(flags) == 0 {
        flags
    } else {
        flags | UNLOCKS
    }
}

/// The set of sleepers of which the claimant is the only member, and that of all others.
const REQUESTER: u32 = 1 << 31;
pub(super) const OTHERS: u32 = ANYBODY & !REQUESTER;

/// How long a waiter at the head waits for a lock that does not cycle fast before it claims it, in nanoseconds: some transfers of a cache line, so that what a
/// hand-over costs is small beside it.
pub const SHORT_QUANTUM: u64 = 8_000;
/// How many [quanta](Tuning::quantum) a waiter at the head waits while there are more waiters than CPUs. A hand-over then costs wake-ups of the threads behind.
pub const QUANTUM_WHEN_CROWDED: u64 = 8;

/// What is fixed about a mutex at compile time, and where it finds its knobs.
pub trait MutexConfig: Copy + core::fmt::Debug + Send + Sync + 'static {
    /// Whether waiters may sleep, where the platform can.
    const PARK: bool = true;
    /// Whether whoever is at the front looks at the lock all the time and takes it whenever it is free, as spinners of a kernel do: without learning how fast it
    /// cycles, without a quantum, without claims. For comparisons; no bound on waits holds then.
    const POLLS: bool = false;
    /// How long a spinner in the queue waits before it looks at its predecessor's CPU, in nanoseconds.
    const LOOK_AROUND: u64 = osq::LOOK_AROUND;
    /// How a newcomer takes its turn beside the queue. For checks, to which each try is a choice more.
    #[doc(hidden)]
    const PASSING: Passing = Passing::DEFAULT;
    /// How a head of a crowd finds out that the lock is mostly free, and whoever waits may as well run; `None`: not at all. For checks, to which each look is a choice more.
    #[doc(hidden)]
    const FREE_LOOKS: Option<FreeLooks> = Some(FreeLooks::DEFAULT);
    /// A deliberate defect, for showing that a check can fail.
    #[doc(hidden)]
    const FAULT: MutexFault = MutexFault::None;

    /// The run-time knobs. Called once or twice per slow path.
    fn tuning() -> Tuning;

    /// In how many waits a lock of which nothing is known yet is taken in turns before it is looked at; `None`: turns are not taken before that has been learned. For checks,
    /// which have no time for waiters to learn.
    #[doc(hidden)]
    fn turns_at_first() -> Option<u16> {
        None
    }

    /// How waiters stand in line. All waits for a lock must agree.
    fn queue() -> Queue {
        Queue::Osq(PredecessorCpu::Cached)
    }
}

/// How a newcomer takes its turn beside the queue.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Passing {
    /// How often it tries before it claims the lock.
    pub tries: u32,
    /// How many pauses it makes after each try.
    pub pauses: u32,
    /// How often it makes those tries at most where it cannot claim the lock, since a grant is on its way: some microseconds, and no longer than until a head that learns
    /// nothing would claim. With more threads than CPUs it goes on for 50 us, however often that is.
    pub rounds: u32,
}

impl Passing {
    /// As measured; docs/decisions.md tells what other numbers do.
    pub const DEFAULT: Self = Passing {
        tries: 10,
        pauses: 1,
        rounds: 8,
    };
}

/// When a lock that is looked at now and then is mostly free: after so many looks that find it free, and more for each that has found it taken, unless that is too often.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct FreeLooks {
    /// How many looks are to find it free.
    pub enough: u32,
    /// How many more for each look that has found it taken.
    pub per_taken: u32,
    /// How many looks that find it taken say that it is not.
    pub too_often: u32,
}

impl FreeLooks {
    /// If looks do not depend on each other: of a lock that is held for an eighth of the time seven in eight such series say yes, of one that is held for half of it one in twelve, of one that is held for seven
    /// eighths of it one in four thousand.
    pub const DEFAULT: Self = FreeLooks {
        enough: 4,
        per_taken: 3,
        too_often: 3,
    };
}

/// How waiters stand in line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// Not at all: everybody looks at the word.
    Unqueued,
    /// First in, first out, and whoever gives up leaves; see [`osq`].
    Osq(PredecessorCpu),
    /// Kin first as [tuned](Tuning::reorder), in the queue of the [spinlock](super::qspinlock).
    Cna,
}

/// Deliberate defects, each to be caught by the check meant for it.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MutexFault {
    /// A correct mutex.
    None,
    /// Unlocking does not wake.
    MissingWake,
    /// A sleeper does not look again after it has said that it sleeps.
    LostWakeup,
    /// An unlock that grants releases as well.
    DoubleHandOff,
    /// A claimant that withdraws does not look whether the lock was granted meanwhile.
    LeakyCancel,
    /// Unlocking does not publish the critical section.
    RelaxedUnlock,
    /// Who has claimed beside the queue takes the claim along into the queue.
    QueuedClaim,
    /// A waiter that a broadcast has moved here queues without saying that somebody may sleep in front of it.
    SilentRequeue,
}

/// The mutex, generic over where it runs and how it is configured.
///
/// All-zero memory is an unlocked mutex. It owns nothing outside its four bytes.
///
/// It must stay where it is and stay valid until [`unlock`](Self::unlock) has returned, also if another thread has
/// taken the lock in between.
#[repr(C, align(4))]
#[derive(Debug)]
pub struct QueuedMutex<P: Platform, C: MutexConfig> {
    locked: P::AtomicU8,
    flags: P::AtomicU8,
    spinners: Osq<P>,
    config: PhantomData<C>,
}

impl<P: ConstPlatform, C: MutexConfig> QueuedMutex<P, C> {
    /// An unlocked mutex, in a constant.
    pub const UNLOCKED: Self = QueuedMutex {
        locked: P::AtomicU8::ZERO,
        flags: P::AtomicU8::ZERO,
        spinners: Osq::EMPTY,
        config: PhantomData,
    };
}

impl<P: Platform, C: MutexConfig> Default for QueuedMutex<P, C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Platform, C: MutexConfig> QueuedMutex<P, C> {
    /// An unlocked mutex. Where the platform allows, [`UNLOCKED`](Self::UNLOCKED) is the same as a constant.
    pub fn new() -> Self {
        QueuedMutex {
            locked: Atomic::new(FREE),
            flags: Atomic::new(0),
            spinners: Osq::new(),
            config: PhantomData,
        }
    }

    /// Takes the lock, waiting for as long as it takes. Acquires what the previous holder released.
    ///
    /// Taking a lock that the thread already holds waits for ever.
    #[inline]
    pub fn lock(&self) {
        // Without a look: between two threads the line is mostly away, and a look and then an exchange would be two transfers. Where the lock is held, a try or the queue's
        // exchange on the same line would follow the look all the same.
        if !self.take() {
            self.lock_contended();
        }
    }

    /// Takes the lock if nobody holds it, whoever may be waiting for it.
    #[inline]
    pub fn try_lock(&self) -> bool {
        // Look first: who tries again and again would take the line away from the holder each time.
        self.locked.load(Relaxed) == FREE && self.take()
    }

    /// Takes the lock, or gives up and returns `false` once [`Platform::now`] has reached `deadline`.
    #[inline]
    pub fn lock_until(&self, deadline: u64) -> bool {
        self.take() || self.lock_slow(deadline, None)
    }

    /// Releases the lock.
    ///
    /// # Safety
    ///
    /// The lock must be held, and the right to release it must be the caller's.
    #[inline]
    pub unsafe fn unlock(&self) {
        // If others have tried meanwhile, the line is away. To look at the flags would fetch it, and to store would then fetch it again, for writing.
        P::prefetch_for_writing(&self.locked);
        // Relaxed: who claims or watches later is served by the next unlock.
        if self.flags.glance(Relaxed) & (HANDOFF | SAMPLING) != 0 && self.unlock_observed() {
            return;
        }
        self.locked.store(
            FREE,
            if matches!(C::FAULT, MutexFault::RelaxedUnlock) {
                Relaxed
            } else {
                Release
            },
        );
        if P::CAN_PARK && C::PARK {
            // Pairs with the heavy fence in `sleep_on_word`.
            P::light_fence();
            if self.flags.glance(Relaxed) & (SLEEPERS | HANDOFF_SLEEPS) != 0 {
                self.wake();
            }
        }
    }

    /// Whether somebody holds the lock at this moment.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.locked.load(Relaxed) != FREE
    }

    /// Whether somebody stands in line or sleeps on the word at this moment.
    #[inline]
    pub fn is_contended(&self) -> bool {
        self.spinners.last() != 0
            || self.flags.load(Relaxed) & (SLEEPERS | HANDOFF_SLEEPS | HANDOFF | PICKUP) != 0
    }

    /// Makes it an unlocked mutex in a forked child, where whoever held it or waited for it does not exist. Nobody else may use it meanwhile.
    pub fn reset_in_child(&self) {
        self.spinners.tail().store(0, Relaxed);
        self.flags.store(0, Relaxed);
        self.locked.store(FREE, Relaxed);
    }

    /// Where threads sleep that wait for this mutex.
    pub(super) fn key(&self) -> *const u32 {
        (self as *const Self).cast()
    }

    /// Takes the lock if it is free. A failing exchange takes the line away from the holder all the same.
    #[inline]
    fn take(&self) -> bool {
        self.locked
            .compare_exchange(FREE, HELD, Acquire, Relaxed)
            .is_ok()
    }

    // ---- unlocking with somebody at the front --------------------------------------------------------------

    /// Counts the unlock if that is wanted, and hands the lock to the claimant if there is one (`true`).
    #[cold]
    #[inline(never)]
    fn unlock_observed(&self) -> bool {
        let flags = self.flags.load(Relaxed);
        if flags & SAMPLING != 0 {
            // Nobody else counts while we hold the lock. If a waiter changes the flags meanwhile we do not count.
            let counted = match flags & UNLOCKS {
                UNLOCKS => flags & !SAMPLING,
                _ => flags + UNLOCK,
            };
            let _ = self
                .flags
                .compare_exchange(flags, counted, Relaxed, Relaxed);
        }
        flags & HANDOFF != 0 && self.hand_over()
    }

    /// `false`: the claimant has withdrawn.
    fn hand_over(&self) -> bool {
        let mut flags = self.flags.load(Relaxed);
        while flags & HANDOFF != 0 {
            let granted = without_mode(flags) & !(HANDOFF | HANDOFF_SLEEPS) | PICKUP;
            // Release: what `locked` would publish goes through `flags` this time. Only waiters change it, each a few times: the loop ends.
            match self
                .flags
                .compare_exchange(flags, granted, Release, Relaxed)
            {
                Ok(_) => {
                    P::count(Event::Grant);
                    if flags & HANDOFF_SLEEPS != 0 && C::FAULT != MutexFault::MissingWake {
                        P::unpark_in(self.key(), 1, REQUESTER);
                    }
                    let request_mode = request_mode(flags);
                    if C::PARK && P::CAN_PARK && request_mode != 0 {
                        self.give_up_membership(request_mode == EXCLUSIVE);
                    }
                    return C::FAULT != MutexFault::DoubleHandOff;
                }
                Err(seen) => flags = seen,
            }
        }
        false
    }

    /// In a crowd, has this thread queue at its next wait: somebody has come out of the queue who runs from now on.
    fn give_up_membership(&self, anyway: bool) {
        let cell = P::waiters().own_note().filter(|_| P::crowded());
        let prediction =
            cell.and_then(|cell| StoredPrediction(cell.load(Relaxed)).for_lock(self.key()));
        if let (Some(cell), Some(mut prediction)) = (cell, prediction) {
            if anyway {
                prediction.leave_active_set();
            } else {
                prediction.give_up_membership();
            }
            cell.store(StoredPrediction::new(self.key(), prediction).0, Relaxed);
        }
    }

    /// Wakes the claimant, or else one of the others who sleep on the word.
    #[cold]
    #[inline(never)]
    fn wake(&self) {
        if C::FAULT == MutexFault::MissingWake {
            return;
        }
        let flags = self.flags.load(Relaxed);
        let (flag, set) = if flags & HANDOFF_SLEEPS != 0 {
            (HANDOFF_SLEEPS, REQUESTER)
        } else {
            (SLEEPERS, OTHERS)
        };
        if self.flags.fetch_and(!flag, Relaxed) & flag != 0 {
            P::count(Event::Wake);
            P::unpark_in(self.key(), 1, set);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
