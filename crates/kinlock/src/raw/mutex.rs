//! The blocking mutex: four bytes; whoever runs may take it, and whoever waits stands in a queue.
//!
//! Sources: queued optimistic spinners are from the Linux kernel's mutex (Long, 2013), their cancellable queue from Zijlstra (2014). What is new here: waiters sleep in
//! their place instead of starting over elsewhere; the head of the queue learns how fast the lock is cycling and leaves a fast one alone for a quantum, so that the lock
//! and its data stay where they are; and then it *claims* the lock, which the next unlock hands over to it.
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
//!                  unlocks       0..7 times 32
//! ```
//!
//! * `locked` decides who holds the lock, but for a grant: it is taken by a compare-and-swap from 0.
//! * `CLAIMED`: one waiter, the claimant, has waited for its quantum. The next unlock hands the lock to it: `locked` stays 1 and `GRANTED` replaces `CLAIMED`.
//! * `SLEEPERS`: somebody sleeps on the word. Whoever unlocks wakes one of them. `CLAIMANT_SLEEPS`: the claimant does.
//! * `WATCHED`: the head wants to know how fast the lock cycles: unlocks count themselves, up to 7.
//!
//! # Transitions
//!
//! (flags, locked); `f` = any other flags.
//!
//! | who | from | to | how |
//! | --- | --- | --- | --- |
//! | anybody who runs | (f, 0) | (f, 1) | compare-and-swap `locked` |
//! | holder unlocks | (f, 1) | (f, 0) | store `locked`, light fence, read `flags` |
//! | ... and `CLAIMED` was set | (CLAIMED, 1) | (GRANTED, 1) | compare-and-swap `flags` instead of the store; unpark the claimant if it sleeps |
//! | ... and `WATCHED` was set | (WATCHED + n unlocks, 1) | (WATCHED + n + 1, 1) | fetch-add before the store |
//! | ... and then somebody sleeps | (f + SLEEPERS, *) | (f, *) | fetch-and, unpark one |
//! | head claims | (f, *) | (f + CLAIMED, *) | compare-and-swap, unless CLAIMED or GRANTED is set |
//! | claimant withdraws | (f + CLAIMED, *) | (f, *) | compare-and-swap; if it finds GRANTED the lock is its own |
//! | claimant gets the lock | (f + GRANTED, 1) or (f + CLAIMED, 1) | (f, 1) | fetch-and, after it has seen GRANTED or taken `locked` |
//! | head falls asleep | (f, 1) | (f + SLEEPERS, 1) | fetch-or, heavy fence, look again, park |
//! | who has slept gets the lock | (f, 1) | (f + SLEEPERS, 1) | fetch-or: there may be others, and its own unlock comes later |
//!
//! # Why nobody is forgotten
//!
//! 1. *Falling asleep against unlocking*: the sleeper sets its flag, executes a heavy fence and looks at `locked`; the holder clears `locked` and then, after a light
//!    fence, looks at the flags. One of the two sees the other.
//! 2. *A wake-up clears the flag for one sleeper.* That one gets the lock and sets the flag again; or sleeps again and sets it; or gives up, sets it, and wakes another if the lock is free.
//!    A waiter of a condition variable that was moved here wakes up behind the queue, not at its front: it passes the wake-up on while the lock is free, or takes the lock, or
//!    sets the flag as in 1 *before* it queues, since the head whose wake-up it has taken may sleep in front of it.
//! 3. *A claim is granted, withdrawn or used up, each by one compare-and-swap or by its claimant while it holds the lock.* There is one claimant at a time, and `GRANTED` is meant for it alone. A
//!    waiter that has claimed looks for `GRANTED` whenever it looks at all, and before it withdraws.
//! 4. *A grant to a claimant that falls asleep*: setting `CLAIMANT_SLEEPS` and granting change the same byte by read-modify-writes. Either the grant finds the flag and unparks, or the
//!    claimant finds `GRANTED` in the word before it parks, since the kernel compares the word.
//!
//! # Bounds
//!
//! The head of the queue claims after its quantum; see [`QUANTUM_WHEN_CROWDED`] and [`SHORT_QUANTUM`]. Those behind it are served in the order of the queue. So a waiter with `n` before it
//! gets the lock after at most `n + 1` quanta and critical sections, and the time that `n + 1` threads take to wake up; as long as the scheduler runs the holder. Where the holder sleeps or does not run a head counts a millisecond before it keeps its claim in its sleep.

mod kin;

use core::marker::PhantomData;

use super::osq::{self, Osq, PredecessorCpu, Watch};
use super::waiter::Waiter;
use crate::config::Tuning;
use crate::events::Event;
use crate::platform::{ANYBODY, Atomic, ConstAtomic, ConstPlatform, NEVER, Ordering::*, Platform};

const FREE: u8 = 0;
const HELD: u8 = 1;

const CLAIMED: u8 = 1;
const GRANTED: u8 = 2;
const SLEEPERS: u8 = 4;
const CLAIMANT_SLEEPS: u8 = 8;
const WATCHED: u8 = 16;
const UNLOCK: u8 = 32;
const UNLOCKS: u8 = 7 * UNLOCK;

/// The set of sleepers of which the claimant is the only member, and that of all others.
const CLAIMANT: u32 = 1 << 31;
pub(super) const OTHERS: u32 = ANYBODY & !CLAIMANT;

/// How long a waiter at the head waits for a lock that does not cycle fast before it claims it, in nanoseconds: some transfers of a cache line, so that what a
/// hand-over costs is small beside it.
pub const SHORT_QUANTUM: u64 = 2_000;
/// How many [quanta](Tuning::quantum) a waiter at the head waits while there are more waiters than CPUs. A hand-over then costs wake-ups of the threads behind.
pub const QUANTUM_WHEN_CROWDED: u64 = 20;

/// A lock cycles fast if it is taken and released within so many nanoseconds. Then more than a thousand critical sections fit into a quantum, and
/// waiting for it is rarer than one in a thousand.
const FAST_CYCLE: u64 = 110;
/// How many unlocks in a row it takes to believe that.
const FAST_UNLOCKS: u64 = 3;

/// When to look at the lock first, in nanoseconds: about when a short critical section is over, ...
const FIRST_LOOK: u64 = 150;
/// ... and where the lock has cycled fast, or where more threads wait than there are CPUs: when it can have cycled so often.
const LATE_FIRST_LOOK: u64 = 700;
const SHORTEST_PAUSE: u64 = 50;

/// How long a waiter in the queue spins before it sleeps, in nanoseconds, and how long if there are more of them than CPUs.
const PATIENT: u64 = 1_000_000;
const HURRIED: u64 = 2_000;
/// How long a head, or a claimant, spins while nothing happens: about what it costs to sleep and wake up.
const STALLED: u64 = 50_000;
/// The same while there are more waiters than CPUs: the holder may have lost its CPU to us.
const STALLED_WHEN_CROWDED: u64 = 5_000;
/// How long a head naps between two looks at a lock that cycles fast, while there are more waiters than CPUs.
const NAP: u64 = 50_000;
/// How long a head has been there before it keeps its claim while it sleeps: the lock is then idle until it has woken up.
const STARVING: u64 = 1_000_000;

/// The first sleep where no heavy fence guarantees that a sleeper is noticed; later ones are longer, as by then the flag is seen by everybody.
const UNNOTICED_SLEEP: u64 = 200_000;

/// What is fixed about a mutex at compile time, and where it finds its knobs.
pub trait MutexConfig: Copy + core::fmt::Debug + Send + Sync + 'static {
    /// Whether waiters may sleep, where the platform can.
    const PARK: bool = true;
    /// Whether whoever is at the front looks at the lock all the time and takes it whenever it is free, as spinners of a kernel do: without learning how fast it
    /// cycles, without a quantum, without claims. For comparisons; no bound on waits holds then.
    const POLLS: bool = false;
    /// How long a spinner in the queue waits before it looks at its predecessor's CPU, in nanoseconds.
    const LOOK_AROUND: u64 = osq::LOOK_AROUND;
    /// A deliberate defect, for showing that a check can fail.
    #[doc(hidden)]
    const FAULT: MutexFault = MutexFault::None;

    /// The run-time knobs. Called once per slow path.
    fn tuning() -> Tuning;

    /// How waiters stand in line. All waits for a lock must agree.
    fn queue() -> Queue {
        Queue::Osq(PredecessorCpu::Cached)
    }
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

/// One wait, from its beginning to its end.
struct Wait {
    deadline: u64,
    tuning: Tuning,
    /// The longest run of other holders that a waiter at the head puts up with.
    quantum: u64,
    crowded: bool,
    /// Whether the lock cycles fast, as far as this thread knows.
    fast: bool,
    /// When the thread came to the front.
    since: u64,
    /// How long it has paused there.
    paused: u64,
    slept: bool,
    claimed: bool,
    unnoticed_sleep: u64,
}

impl Wait {
    /// How long to spin while nothing happens.
    fn stalled(&self) -> u64 {
        if self.crowded {
            STALLED_WHEN_CROWDED
        } else {
            STALLED
        }
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
        if !self.try_lock() {
            self.lock_slow(NEVER);
        }
    }

    /// Takes the lock if nobody holds it, whoever may be waiting for it.
    #[inline]
    pub fn try_lock(&self) -> bool {
        // Look first, since even a failing exchange takes the line away from the holder.
        self.locked.load(Relaxed) == FREE && self.take()
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
        // Relaxed: who claims or watches later is served by the next unlock.
        if self.flags.glance(Relaxed) & (CLAIMED | WATCHED) != 0 && self.unlock_observed() {
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
            if self.flags.glance(Relaxed) & (SLEEPERS | CLAIMANT_SLEEPS) != 0 {
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
            || self.flags.load(Relaxed) & (SLEEPERS | CLAIMANT_SLEEPS | CLAIMED | GRANTED) != 0
    }

    /// Makes it an unlocked mutex in a forked child, where whoever held it or waited for it does not exist. Nobody else may use it meanwhile.
    pub(crate) fn reset_in_child(&self) {
        self.spinners.tail().store(0, Relaxed);
        self.flags.store(0, Relaxed);
        self.locked.store(FREE, Relaxed);
    }

    /// As [`lock`](Self::lock), for somebody who may have been woken in place of all who sleep on the word: sees to it that the next one wakes up.
    pub(super) fn lock_after_sleep(&self) {
        let parks = P::CAN_PARK && C::PARK;
        // While the lock is free the next one may as well wake up beside us: to wake one after the other leaves CPUs idle in between, and
        // those take long to come back. Whoever is woken has our duty then.
        let passed_on = parks && !self.is_locked() && P::unpark_in(self.key(), 1, OTHERS) != 0;
        let owes = parks && !passed_on;
        if owes && !self.try_lock() {
            // We may have to queue behind a head that sleeps on the word, and whose wake-up we have taken: say at once that somebody sleeps. As in `sleep_on_word`,
            // either the holder sees that, or we see the lock free.
            self.flags.fetch_or(SLEEPERS, SeqCst);
            if !P::heavy_fence() || !self.is_locked() {
                self.wake();
            }
            self.lock();
        } else if !owes {
            self.lock();
        }
        if owes {
            // Relaxed: our own unlock comes later.
            self.flags.fetch_or(SLEEPERS, Relaxed);
        }
    }

    /// Where threads sleep that wait for this mutex.
    pub(super) fn key(&self) -> *const u32 {
        (self as *const Self).cast()
    }

    /// Takes the lock if it is free, as it has just been seen.
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
        if flags & WATCHED != 0 {
            // Nobody else counts while we hold the lock; a head that starts to watch again meanwhile gets an odd first count at worst.
            if flags & UNLOCKS == UNLOCKS {
                self.flags.fetch_and(!WATCHED, Relaxed);
            } else {
                self.flags.fetch_add(UNLOCK, Relaxed);
            }
        }
        flags & CLAIMED != 0 && self.hand_over()
    }

    /// `false`: the claimant has withdrawn.
    fn hand_over(&self) -> bool {
        let mut flags = self.flags.load(Relaxed);
        while flags & CLAIMED != 0 {
            let granted = flags & !(CLAIMED | CLAIMANT_SLEEPS) | GRANTED;
            // Release: what `locked` would publish goes through `flags` this time. Only waiters change it, each a few times: the loop ends.
            match self
                .flags
                .compare_exchange(flags, granted, Release, Relaxed)
            {
                Ok(_) => {
                    P::count(Event::Grant);
                    if flags & CLAIMANT_SLEEPS != 0 && C::FAULT != MutexFault::MissingWake {
                        P::unpark_in(self.key(), 1, CLAIMANT);
                    }
                    return C::FAULT != MutexFault::DoubleHandOff;
                }
                Err(seen) => flags = seen,
            }
        }
        false
    }

    /// Wakes the claimant, or else one of the others who sleep on the word.
    #[cold]
    #[inline(never)]
    fn wake(&self) {
        if C::FAULT == MutexFault::MissingWake {
            return;
        }
        let flags = self.flags.load(Relaxed);
        let (flag, set) = if flags & CLAIMANT_SLEEPS != 0 {
            (CLAIMANT_SLEEPS, CLAIMANT)
        } else {
            (SLEEPERS, OTHERS)
        };
        if self.flags.fetch_and(!flag, Relaxed) & flag != 0 {
            P::count(Event::Wake);
            P::unpark_in(self.key(), 1, set);
        }
    }

    // ---- waiting -------------------------------------------------------------------------------------------

    #[cold]
    #[inline(never)]
    fn lock_slow(&self, deadline: u64) -> bool {
        P::count(Event::SlowPath);
        let place = P::waiters().enter();
        if place.is_none() {
            P::count(Event::SlotFallback);
        }
        let note = (self.key().addr() >> 2 << 1) as u32;
        let tuning = C::tuning();
        let mut wait = Wait {
            deadline,
            tuning,
            quantum: tuning.quantum.micros() as u64 * 1000,
            crowded: P::CAN_PARK && C::PARK && P::crowded(),
            fast: place.as_ref().is_some_and(|p| p.remembered() == note | 1),
            since: 0,
            paused: 0,
            slept: false,
            claimed: false,
            unnoticed_sleep: UNNOTICED_SLEEP,
        };
        // A slot of the thread's own stays its own when the node is gone.
        let taken = match place {
            Some(place) => {
                let (taken, place) = self.wait_in_queue(place, C::queue(), &mut wait);
                if let Some(place) = place {
                    place.remember(note | wait.fast as u32);
                }
                taken
            }
            None => self.wait_at_front(&mut wait),
        };
        if !taken {
            P::count(Event::Timeout);
        }
        taken
    }

    /// Returns also the place, if it is still ours.
    fn wait_in_queue(
        &self,
        place: Waiter<P>,
        queue: Queue,
        wait: &mut Wait,
    ) -> (bool, Option<Waiter<P>>) {
        // To queue means to sleep then. A lock that does not cycle fast may be free again in a moment.
        if wait.crowded && !self.cycles_fast() && self.glance() {
            return (self.finish(wait, true), Some(place));
        }
        let patience = match (P::CAN_PARK && C::PARK, wait.crowded) {
            (false, _) => NEVER,
            (_, true) => HURRIED,
            (_, false) => PATIENT,
        };
        let deadline = wait.deadline;
        match queue {
            Queue::Unqueued => (self.wait_at_front(wait), Some(place)),
            Queue::Osq(layout) => {
                let watch = Watch {
                    layout,
                    every: C::LOOK_AROUND,
                };
                let head = self.spinners.join(&place, watch, patience, deadline);
                let taken = if head {
                    self.wait_at_front(wait)
                } else {
                    self.finish(wait, false)
                };
                if head {
                    self.spinners.leave(&place);
                }
                (taken, Some(place))
            }
            Queue::Cna => {
                let tail = self.spinners.tail();
                match kin::join(tail, place, wait.tuning, patience, deadline) {
                    Some(turn) => {
                        let taken = self.wait_at_front(wait);
                        (taken, Some(turn.pass(tail)))
                    }
                    None => (self.finish(wait, false), None),
                }
            }
        }
    }

    /// Whether the last head to watch has seen so.
    fn cycles_fast(&self) -> bool {
        (self.flags.load(Relaxed) / UNLOCK) as u64 >= FAST_UNLOCKS
    }

    /// Looks at the lock now and then for a short while.
    fn glance(&self) -> bool {
        let (start, mut pause) = (P::now(), FIRST_LOOK);
        loop {
            P::back_off(pause);
            if self.try_lock() {
                return true;
            }
            if P::now().saturating_sub(start) >= HURRIED {
                return false;
            }
            pause *= 2;
        }
    }

    /// Waits until the lock is taken (`true`), or the time is up.
    fn wait_at_front(&self, wait: &mut Wait) -> bool {
        wait.since = P::now();
        loop {
            let taken = if wait.claimed {
                self.await_grant(wait)
            } else if C::POLLS {
                self.poll(wait)
            } else {
                self.try_lock() || self.observe(wait)
            };
            if taken || passed(wait.deadline, P::now) {
                return self.finish(wait, taken);
            }
            if P::CAN_PARK && C::PARK {
                self.sleep_on_word(wait);
            }
        }
    }

    /// Looks at the lock all the time until it is taken (`true`), or until that has taken long enough.
    fn poll(&self, wait: &Wait) -> bool {
        let mut until = wait.deadline;
        if P::CAN_PARK && C::PARK {
            until = until.min(P::now().saturating_add(PATIENT));
        }
        loop {
            let free = |locked| locked == FREE;
            if until == NEVER {
                P::wait(&self.locked, Relaxed, free);
            } else {
                let left = until.saturating_sub(P::now());
                let _ = P::wait_for(&self.locked, Relaxed, left, free);
            }
            if self.try_lock() {
                return true;
            }
            if passed(until, P::now) {
                return false;
            }
        }
    }

    /// Spins near the lock, learning how fast it cycles, until it is taken (`true`), or until nothing happens any more.
    fn observe(&self, wait: &mut Wait) -> bool {
        let start = P::now();
        let mut pause = if wait.fast || wait.crowded {
            LATE_FIRST_LOOK
        } else {
            FIRST_LOOK
        };
        let (mut looked, mut progress) = (start, start);
        let mut counted = 0;
        self.watch();
        loop {
            P::back_off(pause);
            let free = self.locked.load(Relaxed) == FREE;
            let unlocks = (self.flags.load(Relaxed) / UNLOCK) as u64;
            let now = P::now();
            wait.paused = wait.paused.saturating_add(pause);
            // From when we came to the front: who sleeps meanwhile shall not begin anew. Without a clock there are the pauses.
            let waited = now.saturating_sub(wait.since).max(wait.paused);
            if unlocks != counted {
                (progress, counted) = (now, unlocks);
            }
            // With more threads than CPUs any lock that its holder keeps taking is left alone: nobody else who is needed runs.
            let enough = wait.crowded || unlocks * FAST_CYCLE >= (now - looked).max(pause);
            wait.fast = unlocks >= FAST_UNLOCKS && enough;
            let quantum = match (wait.crowded, wait.fast) {
                (true, _) => wait.quantum * QUANTUM_WHEN_CROWDED,
                (false, true) => wait.quantum,
                (false, false) => wait.quantum.min(SHORT_QUANTUM),
            };
            let over = waited >= quantum;
            if free && (over || !wait.fast) && self.take() {
                return true;
            }
            if over && self.claim(wait) {
                return self.await_grant(wait);
            }
            if now - progress >= wait.stalled() || passed(wait.deadline, || now) {
                return false;
            }
            if !over && (!wait.crowded || wait.fast) {
                (looked, counted) = (now, 0);
                self.watch();
            }
            let left = quantum.saturating_sub(waited);
            if wait.crowded && wait.fast {
                self.nap(NAP.min(left), wait.deadline);
                pause = 0;
            } else {
                pause = if wait.fast {
                    left
                } else {
                    (pause * 2).min(left).min(wait.stalled())
                };
                let before_deadline = wait.deadline.saturating_sub(now);
                pause = pause.max(SHORTEST_PAUSE).min(before_deadline);
            }
        }
    }

    /// Has unlocks count themselves from now on. Tried once: if somebody else changes the flags, the next look is as good.
    fn watch(&self) {
        let flags = self.flags.load(Relaxed);
        let _ = self
            .flags
            .compare_exchange(flags, flags & !UNLOCKS | WATCHED, Relaxed, Relaxed);
    }

    /// Sleeps for a while where nobody wakes us.
    fn nap(&self, nanos: u64, deadline: u64) {
        let bed = P::AtomicU32::new(0);
        let until = P::now().saturating_add(nanos).min(deadline);
        P::park((&raw const bed).cast(), 0, until, || bed.load(Relaxed));
    }

    // ---- claims --------------------------------------------------------------------------------------------

    /// Asks the next unlock to hand the lock to us. `false`: somebody else has.
    fn claim(&self, wait: &mut Wait) -> bool {
        let mut flags = self.flags.load(Relaxed);
        // Only waiters change the flags, each a few times, and unlocks that count themselves, up to seven: the loop ends.
        while flags & (CLAIMED | GRANTED) == 0 {
            match self
                .flags
                .compare_exchange(flags, flags | CLAIMED, Relaxed, Relaxed)
            {
                Ok(_) => {
                    P::count(Event::Claim);
                    wait.claimed = true;
                    break;
                }
                Err(seen) => flags = seen,
            }
        }
        wait.claimed
    }

    /// Spins until the lock is ours, granted or taken (`true`), or nothing happens any more.
    fn await_grant(&self, wait: &mut Wait) -> bool {
        let start = P::now();
        loop {
            // Acquire pairs with the grant.
            if self.flags.load(Acquire) & GRANTED != 0 || self.try_lock() {
                return true;
            }
            P::back_off(SHORTEST_PAUSE);
            let now = P::now();
            if now - start >= wait.stalled() || passed(wait.deadline, || now) {
                let starving = now.saturating_sub(wait.since) >= STARVING;
                return !(starving && now < wait.deadline) && self.withdraw(wait);
            }
        }
    }

    /// Takes the claim back. Returns whether the lock is ours, because it had been granted.
    fn withdraw(&self, wait: &mut Wait) -> bool {
        let mut flags = self.flags.load(Relaxed);
        while flags & GRANTED == 0 || C::FAULT == MutexFault::LeakyCancel {
            let withdrawn = flags & !(CLAIMED | CLAIMANT_SLEEPS);
            match self
                .flags
                .compare_exchange(flags, withdrawn, Relaxed, Relaxed)
            {
                Ok(_) => {
                    wait.claimed = false;
                    return false;
                }
                Err(seen) => flags = seen,
            }
        }
        // Acquire pairs with the grant.
        self.flags.load(Acquire) & GRANTED != 0
    }

    /// Ends the wait: cleans up behind it, whether it has got the lock or not.
    fn finish(&self, wait: &mut Wait, mut taken: bool) -> bool {
        if wait.claimed && !taken {
            taken = self.withdraw(wait);
        }
        if taken {
            if wait.claimed {
                // Relaxed: we hold the lock, and whoever looks at these flags next does so in turn.
                self.flags
                    .fetch_and(!(CLAIMED | GRANTED | CLAIMANT_SLEEPS), Relaxed);
            }
            if wait.slept {
                self.flags.fetch_or(SLEEPERS, Relaxed);
            }
        } else if wait.slept {
            // We may have been woken in vain, in somebody else's place.
            self.flags.fetch_or(SLEEPERS, SeqCst);
            // Where no fence makes sure that the holder sees the flag, somebody is woken in vain perhaps.
            if !P::heavy_fence() || !self.is_locked() {
                self.wake();
            }
        }
        taken
    }

    // ---- sleeping ------------------------------------------------------------------------------------------

    /// Sleeps until an unlock wakes us, or until the lock is free or ours.
    fn sleep_on_word(&self, wait: &mut Wait) {
        P::count(Event::Park);
        wait.slept = true;
        let (flag, set) = if wait.claimed {
            (CLAIMANT_SLEEPS, CLAIMANT)
        } else {
            (SLEEPERS, OTHERS)
        };
        let fresh = self.flags.fetch_or(flag, SeqCst) & flag == 0;
        // Pairs with the light fence in `unlock`: either we see the lock free, or the holder sees the flag.
        let mut until = wait.deadline;
        if !P::heavy_fence() {
            if fresh {
                // Cleared since we have slept: again somebody may not have seen it.
                wait.unnoticed_sleep = UNNOTICED_SLEEP;
            }
            until = until.min(P::now().saturating_add(wait.unnoticed_sleep));
            wait.unnoticed_sleep = wait.unnoticed_sleep.saturating_mul(2);
        }
        loop {
            let (locked, flags, last) = self.word();
            let ours = wait.claimed && flags & GRANTED != 0;
            let can_act = locked == FREE && C::FAULT != MutexFault::LostWakeup || ours;
            if can_act || flags & flag == 0 || passed(until, P::now) {
                return;
            }
            P::park_in(
                self.key(),
                compose((locked, flags, last)),
                until,
                set,
                || compose(self.word()),
            );
        }
    }

    fn word(&self) -> (u8, u8, u16) {
        (
            self.locked.load(Relaxed),
            self.flags.load(Relaxed),
            self.spinners.last(),
        )
    }
}

/// The four bytes as the kernel reads them.
fn compose((locked, flags, last): (u8, u8, u16)) -> u32 {
    let [l0, l1] = last.to_ne_bytes();
    u32::from_ne_bytes([locked, flags, l0, l1])
}

fn passed(deadline: u64, now: impl Fn() -> u64) -> bool {
    deadline != NEVER && now() >= deadline
}
