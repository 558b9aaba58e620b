//! The blocking mutex: four bytes. Running threads may barge. Waiters queue, and sleep in the
//! queue; only the waiter at its front spins, and follows a policy (`raw::contend`).
//!
//! Sources: queued optimistic spinners are from the Linux kernel's mutex (Long, 2013), the
//! cancellable queue from Zijlstra (2014), the hand-off from Zijlstra and Long (2016). A lock that
//! stays with its holder for a quantum is the idea of NUMA-aware locks (Dice, Kogan: CNA, 2019),
//! one level further in: here it stays with one core. Waiters sleep in their place in the queue, as
//! in Linux's paravirtual spinlock (Long, 2015). New here: the waiter at the front finds out
//! whether its lock is better shared or kept.
//!
//! `docs/guide/glossary.md` defines words such as *kept*, *idle*, *trial* and *hand-off request*.
//! `docs/guide/mutex.md` shows a whole wait in one drawing, and has the bounds on waiting.
//!
//! # The word
//!
//! ```text
//!   byte  0          1          2 3
//!         locked     flags      queue
//!         0 or 1     word.rs    the tail of the queue, in which waiters sleep
//! ```
//!
//! `locked`: the lock is held. A thread takes it by a compare-and-swap from 0, or it is handed
//! over. The first two bytes are called *the word* here, and all four are what a thread sleeps on.
//!
//! # Transitions
//!
//! A state is (flags, locked). `f` stands for any other flags, and letters refer to the notes
//! below. `HANDOFF` stands for the whole request: when the request ends, `REQUESTER_SLEEPS` and the
//! generation are cleared, too. [`Split`] changes the two bytes one after the other, [`Joined`] in
//! one step.
//!
//! | who | from | to | how |
//! | --- | --- | --- | --- |
//! | running thread takes the lock | (f, 0) | (f, 1) | compare-and-swap |
//! | holder unlocks | (f, 1) | (f, 0) | `Split`: store, light fence, read the flags |
//! | ... with `HANDOFF` | (f + HANDOFF, 1) | (f + PICKUP, 1) | compare-and-swap instead (a) |
//! | ... of another process (j) | (f + HANDOFF, 1) | (f, 1) | `Split`: a step before the unlock |
//! | ... with `WATCHED` | (f + WATCHED, 1) | (f, 1) | `Split`: a step before the unlock |
//! | ... with sleepers | (f + SLEEPERS, *) | (f, *) | unpark one, and a sleeping requester (g) |
//! | ... kept, and the queue is empty | (KEPT, 1) | (0, 0) | `Joined`, one unlock in 1024 (h) |
//! | front watches | (f, *) | (f + WATCHED, *) | fetch-or |
//! | front begins a trial | (f, *) | (f + KEPT, *) | fetch-or |
//! | front has taken an idle lock | (f + KEPT + WATCHED, 1) | (f, 1) | fetch-and, as holder |
//! | front ends a trial: held long, or no verdict | (f + KEPT + WATCHED, *) | (f, *) | fetch-and |
//! | hand-off is requested | (f, *) | (f + HANDOFF, *) | compare-and-swap (b) |
//! | requester falls asleep | (f + HANDOFF, *) | (f + HANDOFF + REQUESTER_SLEEPS, *) | 4. below |
//! | request is withdrawn | (f + HANDOFF, *) | (f, *) | compare-and-swap (c) |
//! | requester picks up | (f + PICKUP, 1) | (f, 1) | compare-and-swap, and wake a sleeper (d) |
//! | ... or another front waiter | (f + PICKUP, 1) | (f, 1) | likewise, after its patience (i) |
//! | requester takes the lock | (f + HANDOFF, 1) | (f, 1) | fetch-and (i) |
//! | waiter falls asleep | (f, 1) | (f + SLEEPERS, 1) | fetch-or, look again, park (1. below) |
//! | woken waiter gives up | (f, *) | (f + SLEEPERS, *) | fetch-or, look again (e) |
//! | woken waiter has the lock | (f, 1) | (f + SLEEPERS, 1) | fetch-or (f) |
//!
//! Notes:
//!
//! * (a) Unparks the requester if `REQUESTER_SLEEPS` is set.
//! * (b) The waiter at the front makes the request. It is refused while `PICKUP` is set or another
//!   request of this process stands, which is possible since waiters beside the queue request, too.
//!   A waiter that is refused polls for a moment. If it sees the lock free, it leaves the lock to
//!   the requester and goes to a timed sleep. If not, it sleeps until an unlock wakes it, or until
//!   its patience ends.
//! * (c) Only at a deadline. If the requester finds `PICKUP`, it picks the lock up, unless another
//!   waiter has (i).
//! * (d) The requester wakes another sleeper, since a hand-off, unlike a plain unlock, wakes none.
//! * (e) A waiter does this when it gives up, and before a timed sleep. It wakes another sleeper if
//!   the lock is free. With `Split` the holder may miss the flag. So a waiter that gives up wakes
//!   another sleeper in any case. So does a waiter before a timed sleep of more than a millisecond;
//!   before a shorter sleep it goes on owing the wake-up.
//! * (f) For the other sleepers: this thread's unlock then wakes the next of them.
//! * (g) With `Split` only, a request may come between the holder's look at the flags and its
//!   store. The requester may be giving up, so waking it does not replace waking another sleeper.
//! * (h) Contention may end before a waiter at the front finds the lock idle. With `Joined` each
//!   lock and each unlock then needs a second try because of `KEPT`, so about one unlock in 1024,
//!   by chance, clears it. If others still want the lock, and none of them was in the queue at that
//!   unlock, the lock is shared until the next trial, although it should be kept.
//! * (i) A requester that does not run must not keep others from the lock for as long as it is
//!   stopped. The waiter whose compare-and-swap clears `PICKUP` has the lock. A requester that
//!   comes too late finds neither `HANDOFF` nor `PICKUP`, and requests again. If a third waiter has
//!   made a request by then, the late requester cannot tell that request from its own: two threads
//!   are then requesters for one pickup. One gets it, and the other requests again. So a thread
//!   that ends a request wakes all threads that sleep as requesters, and so does a hand-off.
//! * (j) A request that was made in another process, before a fork: its requester does not exist
//!   here.
//!
//! # Why no sleeper is forgotten
//!
//! 1. *Falling asleep against unlocking.* With [`Split`] the sleeper sets its flag and asks for a
//!    heavy fence, and the kernel compares the word before the thread falls asleep. The holder
//!    clears `locked`, executes a light fence and reads the flags. At least one of the two sees
//!    what the other wrote. Until a heavy fence has covered the flag, each sleep lasts a
//!    millisecond at most. With [`Joined`] sleeper and holder change one atomic.
//! 2. *A wake-up clears the flag for one sleeper.* If the woken thread gets the lock or sleeps
//!    again, it sets the flag again. If it gives up or goes to a timed sleep, it passes the wake-up
//!    on, see (e). Until then it owes that wake-up: it may poll, watch, or wait for a hand-off, and
//!    each of these ends in one of the cases above. A waiter that a condition variable has requeued
//!    here is in no queue when it wakes up. It passes the wake-up on if the lock is free, or takes
//!    the lock. Otherwise it sets the flag *before* it queues, since the head that it then stands
//!    behind may still sleep. With `Split` it also wakes a waiter at the front.
//! 3. *A request ends by one compare-and-swap, of the holder, of the requester or of a waiter that
//!    picks up in its place, or by a fetch-and of the requester once it holds the lock.* Mostly
//!    there is one requester at a time, and `PICKUP` is meant for it alone. It looks for `PICKUP`
//!    each time it looks at the word, and before it withdraws. Note (i) says how there can be two.
//! 4. *A hand-off to a requester that falls asleep.* Setting `REQUESTER_SLEEPS` and handing over
//!    change the same byte by read-modify-writes. Either the hand-off finds the flag and unparks,
//!    or the requester finds `PICKUP` before it parks, since the kernel compares the word. The
//!    requester sets the flag only while its request stands, and a thread that ends the request
//!    clears the flag.

mod fair;
mod wait;
mod word;

use super::config::LockConfig;
pub use super::contend::QueueKind;
use super::osq::Osq;
use crate::events::Event;
use crate::platform::{Atomic, EVERY_SET, NEVER, Ordering::*, Parked, Platform, Ticket, const_fn};
use core::marker::PhantomData;
use word::{HANDOFF, PICKUP, SLEEPERS};
pub use word::{Joined, Layout, Split};

/// The park sets. [`REQUESTER`]: the requester. [`FRONT`]: waiters that follow the policy, at the
/// front of the queue or beside it. [`NOTIFIED`]: threads that a condition variable has moved here,
/// or has woken and that sleep in [`QueuedMutex::lock_notified`]. [`OTHERS`]: all sets but the
/// requester's.
const REQUESTER: u32 = 1 << 31;
const FRONT: u32 = 1 << 30;
pub(super) const NOTIFIED: u32 = OTHERS & !FRONT;
pub(super) const OTHERS: u32 = EVERY_SET & !REQUESTER;

/// The mutex, generic over where it runs, how it is configured, and how its word is laid out.
///
/// All-zero memory is an unlocked mutex. It owns nothing outside its four bytes.
///
/// With [`Split`] it must not move or be freed before [`unlock`](Self::unlock) has returned, even
/// if another thread has taken the lock in between. With [`Joined`] it may be freed as soon as
/// another thread has taken the lock.
#[repr(C, align(4))]
#[derive(Debug)]
pub struct QueuedMutex<P: Platform, C: LockConfig, L: Layout<P> = Split<P>> {
    word: L,
    queue: Osq<P>,
    config: PhantomData<C>,
}

impl<P: Platform, C: LockConfig, L: Layout<P>> Default for QueuedMutex<P, C, L> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Platform, C: LockConfig, L: Layout<P>> QueuedMutex<P, C, L> {
    const_fn! {
        /// An unlocked mutex.
        pub const fn new() -> Self {
            QueuedMutex {
                #[cfg(not(loom))]
                word: L::UNLOCKED,
                #[cfg(loom)]
                word: L::unlocked(),
                queue: Osq::new(),
                config: PhantomData,
            }
        }
    }

    /// Takes the lock, waiting for as long as it takes. Acquires what the previous holder released.
    ///
    /// A thread that takes a lock which it already holds waits forever.
    #[inline]
    pub fn lock(&self) {
        // No load first: if two threads alternate, the line is mostly with the other CPU, and a
        // load and an exchange would be two transfers.
        if !self.word.take() {
            self.lock_slow(NEVER);
        }
    }

    /// Takes the lock if it is free, past all waiters: the first step of [`lock`](Self::lock), for
    /// a caller that does something before the second step, [`queue_until`](Self::queue_until).
    #[inline]
    pub fn lock_at_once(&self) -> bool {
        self.word.take()
    }

    /// The second step of locking: waits, as [`lock_until`](Self::lock_until) does after its first
    /// attempt.
    pub fn queue_until(&self, deadline: u64) -> bool {
        self.lock_slow(deadline)
    }

    /// Takes the lock if it is free, past all waiters.
    #[inline]
    pub fn try_lock(&self) -> bool {
        // Load first: otherwise a thread that calls this in a loop would take the line from the
        // holder each time.
        !self.word.is_held() && self.word.take()
    }

    /// Takes the lock, or gives up and returns `false` once [`Platform::now`] has reached
    /// `deadline`.
    #[inline]
    pub fn lock_until(&self, deadline: u64) -> bool {
        self.word.take() || self.lock_slow(deadline)
    }

    /// Releases the lock.
    ///
    /// # Safety
    ///
    /// The lock must be held, and the right to release it must be the caller's.
    #[inline]
    pub unsafe fn unlock(&self) {
        self.word.unlock::<C>(self.key(), &self.queue);
    }

    /// Whether the lock is held at this moment.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.word.is_held()
    }

    /// Whether a thread queues, sleeps on the word or has requested a hand-off at this moment.
    #[inline]
    pub fn is_contended(&self) -> bool {
        self.queue.last() != 0 || self.word.flags() & (SLEEPERS | HANDOFF | PICKUP) != 0
    }

    /// Resets the mutex to unlocked in a forked child, where its holder and waiters do not exist.
    ///
    /// # Safety
    ///
    /// No other thread uses the lock during this call, and no thread that took it before relies on
    /// still holding it.
    pub unsafe fn reset_in_child(&self) {
        self.queue.tail().store(0, Relaxed);
        self.word.clear(u8::MAX);
        // An unlock that finds no flags only clears `locked`, which changes nothing if it is clear.
        self.word.unlock::<C>(self.key(), &self.queue);
    }

    /// The address at which waiters sleep.
    pub(super) fn key(&self) -> *const u32 {
        (self as *const Self).cast()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
