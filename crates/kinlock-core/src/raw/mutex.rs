//! The blocking mutex: four bytes. Running threads may barge; waiters stand in a queue.
//!
//! Sources: queued optimistic spinners and hand-off are from the Linux kernel's mutex (Long, 2013),
//! the cancellable queue from Zijlstra (2014), the active set from Dice's culling of waiters. New
//! here:
//!
//! * Waiters sleep in their place in the queue.
//! * The head of the queue learns how fast the lock cycles, and leaves a fast lock alone for a
//!   quantum. The lock and its data then stay in one cache.
//! * After its quantum the head requests a *hand-off*, and the next unlock hands the lock over to
//!   it.
//! * Where samples of the lock show that barging pays, threads barge beside the queue.
//!
//! # Terms
//!
//! * *Barging*: a running thread takes the lock past the queue.
//! * *Sample*: a count of unlocks, and whether the lock is free at its end. Each thread keeps a
//!   *prediction* for the lock it used last: whether the lock cycles fast, or barging pays, and a
//!   budget of barges until the next sample.
//! * *Cycle*: the time from one unlock to the next. A lock cycles *fast* if its holder takes it
//!   again before the cache line can reach a waiter.
//! * *Oversubscribed*: there are more threads than CPUs. Then only the members of the *active set*
//!   barge, and the others sleep in the queue. Membership ends after a number of waits. The member
//!   then announces a *vacancy*, which the head of the queue fills.
//! * *Hand-off request*: asks the next unlock to leave the lock held and pass it to the requester.
//!   It has a *mode* when an oversubscribed head makes it. *Share*: the holder leaves the active
//!   set if it has had to wait. *Exclusive*: the holder leaves it in any case.
//! * *Depart*: an oversubscribed head leaves the queue before it takes the lock, so that it does
//!   not wake its successor while it holds the lock.
//!
//! # The word
//!
//! ```text
//!   byte  0          1                    2 3
//!       locked     flags                spinners
//!       0 or 1     HANDOFF          1   the tail of the queue
//!                  PICKUP           2
//!                  SLEEPERS         4
//!                  HANDOFF_SLEEPS   8
//!                  SAMPLING        16
//!                  unlocks       0..7 times 32    1, 2 without SAMPLING: a mode
//! ```
//!
//! * `locked`: the lock is held. Taken by a compare-and-swap from 0, or handed over.
//! * `HANDOFF`: one waiter, the requester, has requested a hand-off. The next unlock leaves
//!   `locked` at 1 and replaces `HANDOFF` by `PICKUP`.
//! * `PICKUP`: the lock belongs to the requester, which has not noticed yet.
//! * `SLEEPERS`: a thread sleeps on the word. An unlock, or a pickup, wakes one of them.
//! * `HANDOFF_SLEEPS`: the requester sleeps on the word.
//! * `SAMPLING`: unlocks count themselves, up to 7.
//!
//! # Transitions
//!
//! (flags, locked); `f` = any other flags; letters refer to the notes below.
//!
//! | who | from | to | how |
//! | --- | --- | --- | --- |
//! | running thread takes the lock | (f, 0) | (f, 1) | compare-and-swap `locked` |
//! | holder unlocks | (f, 1) | (f, 0) | store `locked`, light fence, read `flags` |
//! | ... with `HANDOFF` | (HANDOFF, 1) | (PICKUP, 1) | compare-and-swap instead (a) |
//! | ... with `SAMPLING` | (SAMPLING + n, 1) | (SAMPLING + n + 1, 1) | compare-and-swap first (b) |
//! | ... with sleepers, after the store | (f + SLEEPERS, *) | (f, *) | fetch-and, unpark one |
//! | hand-off is requested | (f, *) | (f + HANDOFF, *) | compare-and-swap (c) |
//! | ... with a mode | (f, *) | (f + HANDOFF + mode, *) | the same, in place of the count (d) |
//! | sample is started | (f, *) | (f + SAMPLING + 0, *) | compare-and-swap (e) |
//! | vacancy is announced | (f, *) | (f + 0, *) | compare-and-swap, no `SAMPLING` (e) |
//! | vacancy is filled | (f + 0, *) | (f + 7, *) | compare-and-swap (f) |
//! | request is withdrawn | (f + HANDOFF, *) | (f, *) | compare-and-swap (g) |
//! | requester picks up | (f + PICKUP, 1) | (f, 1) | fetch-and, and wake a sleeper (h) |
//! | requester takes the lock | (f + HANDOFF, 1) | (f, 1) | fetch-and |
//! | waiter falls asleep | (f, 1) | (f + SLEEPERS, 1) | fetch-or, heavy fence, look again, park |
//! | woken waiter gives up | (f, *) | (f + SLEEPERS, *) | fetch-or, heavy fence, look again (i) |
//! | woken waiter has the lock | (f, 1) | (f + SLEEPERS, 1) | fetch-or (j) |
//!
//! Notes:
//!
//! * (a) Unparks the requester if `HANDOFF_SLEEPS` is set.
//! * (b) Tried once. After 7 unlocks `SAMPLING` is cleared and the count stays.
//! * (c) Made by the head, or by a thread that barges; not if `HANDOFF` or `PICKUP` is set.
//! * (d) Made by an oversubscribed head. When the request ends, in any way, the mode becomes 7
//!   unlocks.
//! * (e) Tried once; not if there is a mode.
//! * (f) Done by the head, or by the member that announced it, which then stays a member.
//! * (g) If the requester finds `PICKUP`, the lock is its own.
//! * (h) The requester wakes one since the hand-off, unlike a plain unlock, has woken none.
//! * (i) Also before a timed sleep. Wakes another sleeper if the lock is free.
//! * (j) For the other sleepers: this thread's unlock then wakes the next one.
//!
//! # Why no sleeper is forgotten
//!
//! 1. *Falling asleep against unlocking.* The sleeper sets its flag, executes a heavy fence and
//!    reads `locked`. The holder clears `locked`, executes a light fence and reads the flags. One
//!    of the two sees the other. Where the heavy fence is refused, and at first while
//!    oversubscribed, the sleep has a time limit: 200 us, twice as long each time.
//! 2. *A wake-up clears the flag for one sleeper.* If that one gets the lock, it sets the flag
//!    again. If it sleeps again, it sets the flag. If it gives up or starts a timed sleep, it sets
//!    the flag, and wakes another sleeper if the lock is free. A waiter that a condition variable
//!    has requeued here wakes up behind the queue. It passes the wake-up on while the lock is free,
//!    or takes the lock, or sets the flag as in 1 *before* it queues: the head in front of it may
//!    still sleep.
//! 3. *A request ends by one compare-and-swap of the holder or the requester, or by the requester
//!    as holder.* There is one requester at a time, and `PICKUP` is meant for it alone. It looks
//!    for `PICKUP` each time it looks at the word, and before it withdraws.
//! 4. *A hand-off to a requester that falls asleep.* Setting `HANDOFF_SLEEPS` and handing over
//!    change the same byte by read-modify-writes. Either the hand-off finds the flag and unparks,
//!    or the requester finds `PICKUP` before it parks, since the kernel compares the word.
//!
//! # Bounds
//!
//! The head of the queue requests a hand-off after its quantum; see [`SHORT_QUANTUM`] and
//! [`QUANTUM_WHEN_OVERSUBSCRIBED`]. The waiters behind it are served in order. Let a waiter have
//! `n` others before it, in the queue or beside it. It gets the lock after at most `n + 1` quanta
//! and critical sections, plus the time that `n + 1` threads take to wake up. This holds as long as
//! the scheduler runs the holder.
//!
//! * Before it queues, a waiter may barge for 8 us, or for 50 us while oversubscribed. It may then
//!   spend another 50 us with a hand-off request that is not served.
//! * While oversubscribed, some threads pass the queue for a while and may request hand-offs. A
//!   head departs before it takes a free lock or fills a vacancy. There is one request at a time,
//!   and the head's has no preference. A head whose quantum is over may find another thread's
//!   request standing. It then tries again after each hand-off.
//! * Where the lock is mostly free, heads depart one after the other. If the lock is then held for
//!   long, all that have departed compete for requests.
//! * Where the holder sleeps or does not run, a head waits a millisecond before it keeps its
//!   request while it sleeps.

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
use crate::platform::{
    Atomic, ConstAtomic, ConstPlatform, EVERY_SET, NEVER, Ordering::*, Platform,
};
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

/// The bits of a sample: a vacancy (0), a count, or a mode. A full count also marks a filled
/// vacancy or the end of a mode.
const SAMPLE: u8 = SAMPLING | UNLOCKS;
/// A mode: the holder leaves the active set if it has had to wait for the lock since it joined.
const SHARE: u8 = UNLOCK;
/// A mode: the holder leaves the active set in any case. No sample leaves so low a count without
/// `SAMPLING`.
const EXCLUSIVE: u8 = 2 * UNLOCK;

/// The mode of the hand-off request, or 0.
fn request_mode(flags: u8) -> u8 {
    match flags & SAMPLE {
        mode @ (SHARE | EXCLUSIVE) => mode,
        _ => 0,
    }
}

/// The flags after the mode has been read, or the request withdrawn.
fn without_mode(flags: u8) -> u8 {
    if request_mode(flags) == 0 {
        flags
    } else {
        flags | UNLOCKS
    }
}

/// The park set of the requester, and that of all other sleepers.
const REQUESTER: u32 = 1 << 31;
pub(super) const OTHERS: u32 = EVERY_SET & !REQUESTER;

/// How long a head waits for a lock that does not cycle fast before it requests a hand-off, in
/// nanoseconds. A hand-off costs some transfers of a cache line, which is little beside it.
pub const SHORT_QUANTUM: u64 = 8_000;
/// How many [quanta](Tuning::quantum) a head waits while oversubscribed. A hand-off then costs
/// wake-ups of the threads behind.
pub const QUANTUM_WHEN_OVERSUBSCRIBED: u64 = 8;

/// What is fixed about a mutex at compile time, and where it finds its knobs.
pub trait MutexConfig: Copy + core::fmt::Debug + Send + Sync + 'static {
    /// Whether waiters may sleep, where the platform can.
    const PARK: bool = true;
    /// Whether the waiter at the front polls the lock and takes it as soon as it is free, as
    /// spinners of a kernel do: no samples, no quantum, no hand-offs. For comparisons; waits are
    /// not bounded.
    const POLLS: bool = false;
    /// How long a spinner in the queue waits before it looks at its predecessor's CPU, in
    /// nanoseconds.
    const LOOK_AROUND: u64 = osq::LOOK_AROUND;
    /// How a thread barges. For checks, which explore each try as a choice.
    #[doc(hidden)]
    const BARGING: BargeTries = BargeTries::DEFAULT;
    /// How an oversubscribed head finds out that the lock is mostly free; `None`: not at all. For
    /// checks, which explore each sample as a choice.
    #[doc(hidden)]
    const FREE_SAMPLES: Option<FreeRule> = Some(FreeRule::DEFAULT);
    /// A deliberate defect, for showing that a check can fail.
    #[doc(hidden)]
    const FAULT: MutexFault = MutexFault::None;

    /// The run-time knobs. Called once or twice per slow path.
    fn tuning() -> Tuning;

    /// The barging budget for a lock of which nothing is known yet; `None`: none before a sample.
    /// For checks, which are too short for learning.
    #[doc(hidden)]
    fn initial_budget() -> Option<u16> {
        None
    }

    /// How waiters queue. All waits for a lock must agree.
    fn queue() -> Queue {
        Queue::Osq(PredecessorCpu::Cached)
    }
}

/// How a thread barges.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct BargeTries {
    /// How many tries a round has. After a round the thread requests a hand-off.
    pub tries: u32,
    /// How many pauses follow each try.
    pub pauses: u32,
    /// How many rounds there are at most where the request is refused because a pickup is due. The
    /// rounds last some microseconds, less than a head waits before its request. While
    /// oversubscribed they go on for 50 us instead.
    pub rounds: u32,
}

impl BargeTries {
    /// As measured; docs/decisions tells what other numbers do.
    pub const DEFAULT: Self = BargeTries {
        tries: 10,
        pauses: 1,
        rounds: 8,
    };
}

/// When a lock counts as mostly free: after so many samples that find it free, and more for each
/// that finds it taken, unless there are too many of those.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct FreeRule {
    /// How many samples must find it free.
    pub enough: u32,
    /// How many more for each sample that finds it taken.
    pub per_taken: u32,
    /// How many samples that find it taken decide that it is not mostly free.
    pub too_often: u32,
}

impl FreeRule {
    /// With independent samples, the answer is yes for seven in eight series if the lock is held an
    /// eighth of the time, for one in twelve at one half, for one in four thousand at seven
    /// eighths.
    pub const DEFAULT: Self = FreeRule {
        enough: 4,
        per_taken: 3,
        too_often: 3,
    };
}

/// How waiters queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// Not at all: every waiter looks at the word.
    Unqueued,
    /// First in, first out, and waiters that give up leave; see [`osq`].
    Osq(PredecessorCpu),
    /// Local waiters first as [tuned](Tuning::reorder), in the queue of the
    /// [spinlock](super::qspinlock).
    Cna,
}

/// Deliberate defects, each caught by the check meant for it.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MutexFault {
    /// A correct mutex.
    None,
    /// Unlocking does not wake.
    MissingWake,
    /// A sleeper does not look again after it has set its flag.
    LostWakeup,
    /// A hand-off releases the lock as well.
    DoubleHandOff,
    /// A requester that withdraws does not look for a pickup.
    LeakyCancel,
    /// Unlocking does not publish the critical section.
    RelaxedUnlock,
    /// A thread that has requested a hand-off beside the queue keeps the request when it queues.
    QueuedRequest,
    /// A waiter that a broadcast has requeued here queues without setting the flag for the sleepers
    /// in front of it.
    SilentRequeue,
}

/// The mutex, generic over where it runs and how it is configured.
///
/// All-zero memory is an unlocked mutex. It owns nothing outside its four bytes.
///
/// It must not move or be freed before [`unlock`](Self::unlock) has returned, even if another
/// thread has taken the lock in between.
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
    /// An unlocked mutex. Where the platform allows, [`UNLOCKED`](Self::UNLOCKED) is the same as a
    /// constant.
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
        // No load first. Between two threads the line is mostly away, and a load and an exchange
        // would be two transfers. Where the lock is held, an exchange on the same line follows in
        // any case.
        if !self.take() {
            self.lock_contended();
        }
    }

    /// Takes the lock if it is free, past all waiters.
    #[inline]
    pub fn try_lock(&self) -> bool {
        // Load first: a thread that tries again and again would take the line from the holder each
        // time.
        self.locked.load(Relaxed) == FREE && self.take()
    }

    /// Takes the lock, or gives up and returns `false` once [`Platform::now`] has reached
    /// `deadline`.
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
        // If others have tried meanwhile, the line is away. Without this, the load of the flags
        // would fetch it once and the store a second time, for writing.
        P::prefetch_for_writing(&self.locked);
        // Relaxed: a later request or sample is served by the next unlock.
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

    /// Whether the lock is held at this moment.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.locked.load(Relaxed) != FREE
    }

    /// Whether a thread queues, sleeps on the word or has requested a hand-off at this moment.
    #[inline]
    pub fn is_contended(&self) -> bool {
        self.spinners.last() != 0
            || self.flags.load(Relaxed) & (SLEEPERS | HANDOFF_SLEEPS | HANDOFF | PICKUP) != 0
    }

    /// Makes it an unlocked mutex in a forked child, where its holder and waiters do not exist. No
    /// other thread may use it meanwhile.
    pub fn reset_in_child(&self) {
        self.spinners.tail().store(0, Relaxed);
        self.flags.store(0, Relaxed);
        self.locked.store(FREE, Relaxed);
    }

    /// The address at which waiters sleep.
    pub(super) fn key(&self) -> *const u32 {
        (self as *const Self).cast()
    }

    /// Takes the lock if it is free. Even a failing exchange takes the line from the holder.
    #[inline]
    fn take(&self) -> bool {
        self.locked
            .compare_exchange(FREE, HELD, Acquire, Relaxed)
            .is_ok()
    }

    // ---- unlocking with a waiter at the front ---------------------------------------------

    /// Counts the unlock if there is a sample, and hands the lock over if that is requested
    /// (`true`).
    #[cold]
    #[inline(never)]
    fn unlock_observed(&self) -> bool {
        let flags = self.flags.load(Relaxed);
        if flags & SAMPLING != 0 {
            // Only the holder counts. If a waiter changes the flags meanwhile, the unlock is not
            // counted.
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

    /// Hands the lock to the requester. `false`: the request has been withdrawn.
    fn hand_over(&self) -> bool {
        let mut flags = self.flags.load(Relaxed);
        while flags & HANDOFF != 0 {
            let handed_over = without_mode(flags) & !(HANDOFF | HANDOFF_SLEEPS) | PICKUP;
            // Release: `flags` publishes the critical section here instead of `locked`. Only
            // waiters change it, each a few times: the loop ends.
            match self
                .flags
                .compare_exchange(flags, handed_over, Release, Relaxed)
            {
                Ok(_) => {
                    P::count(Event::Pickup);
                    if flags & HANDOFF_SLEEPS != 0 && C::FAULT != MutexFault::MissingWake {
                        P::unpark_in(self.key(), 1, REQUESTER);
                    }
                    let mode = request_mode(flags);
                    if C::PARK && P::CAN_PARK && mode != 0 {
                        self.give_up_membership(mode == EXCLUSIVE);
                    }
                    return C::FAULT != MutexFault::DoubleHandOff;
                }
                Err(seen) => flags = seen,
            }
        }
        false
    }

    /// While oversubscribed: takes this thread out of the active set, since the requester joins it.
    fn give_up_membership(&self, exclusive: bool) {
        let cell = P::waiters()
            .own_prediction_cell()
            .filter(|_| P::oversubscribed());
        let prediction =
            cell.and_then(|cell| StoredPrediction(cell.load(Relaxed)).for_lock(self.key()));
        if let (Some(cell), Some(mut prediction)) = (cell, prediction) {
            if exclusive {
                prediction.leave_active_set();
            } else {
                prediction.give_up_if_contended();
            }
            cell.store(StoredPrediction::new(self.key(), prediction).0, Relaxed);
        }
    }

    /// Wakes the requester, or else one of the other sleepers on the word.
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
