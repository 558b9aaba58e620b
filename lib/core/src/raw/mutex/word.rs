//! The two bytes that say whether the lock is held and who wants it, in two layouts. Only the
//! methods here access them. The table in [`mutex`](super) shows all transitions.

use super::{OTHERS, Osq, REQUESTER};
use crate::events::Event;
use crate::platform::{Atomic, Ordering, Ordering::*, Platform, Ticket, zero};
use crate::raw::LockConfig;

/// A waiter, the requester, has requested a hand-off. The next unlock leaves the lock held and
/// replaces this flag with [`PICKUP`].
pub(super) const HANDOFF: u8 = 1;
/// The lock was handed over, and belongs to the requester, which has not noticed yet.
pub(super) const PICKUP: u8 = 2;
/// A thread other than a requester may sleep on the word, and needs a wake-up. An unlock or a
/// pickup clears the flag and wakes one sleeper, which owes the others a wake-up, and pays by
/// setting the flag again.
pub(super) const SLEEPERS: u8 = 4;
/// A requester sleeps on the word, or is about to. Set only while [`HANDOFF`] is set.
pub(super) const REQUESTER_SLEEPS: u8 = 8;
/// Set by the waiter at the front, cleared by the next unlock, or by a waiter that shares the lock.
/// So the front waiter learns of an unlock even if the lock is held again when it looks.
pub(super) const WATCHED: u8 = 16;
/// The lock is kept. Newcomers queue, and the waiter at the front watches before it takes the lock.
pub(super) const KEPT: u8 = 32;
/// The process that the request was made in, as its number in a chain of forks, modulo 4. A request
/// of another process is void, since its requester does not exist here: the next unlock clears it,
/// and another requester overwrites it.
pub(super) const GENERATION: u8 = 64 + 128;

/// All bits of a request. They are cleared together, even if another process made the request.
pub(super) const REQUEST: u8 = HANDOFF | REQUESTER_SLEEPS | GENERATION;

pub(super) const FREE: u8 = 0;
const HELD: u8 = 1;

/// The generation of this process, as it stands in a request.
pub(super) fn generation<P: Platform>() -> u8 {
    P::forks() << GENERATION.trailing_zeros()
}

/// Whether a waiter of this process has requested a hand-off.
pub(super) fn is_requested<P: Platform>(flags: u8) -> bool {
    flags & HANDOFF != 0 && flags & GENERATION == generation::<P>()
}

/// What an unlock makes of the flags, apart from `SLEEPERS`.
fn after_unlock<P: Platform>(flags: u8) -> u8 {
    let ended = if flags & HANDOFF != 0 { REQUEST } else { 0 };
    let begun = if is_requested::<P>(flags) { PICKUP } else { 0 };
    flags & !(ended | WATCHED) | begun
}

/// How the two bytes lie in memory, and how they change.
///
/// A trait because no single layout has both: a release by a plain store, and memory that may be
/// freed as soon as another thread has the lock.
pub trait Layout<P: Platform>: core::fmt::Debug + Send + Sync + Sized + 'static {
    /// An unlocked word.
    #[cfg(not(loom))]
    const UNLOCKED: Self;

    /// Like the constant: loom's atomics cannot be made in constants.
    #[cfg(loom)]
    fn unlocked() -> Self;

    /// Takes the lock if it is free, and then returns `true`. Even a failed attempt takes the line
    /// from the holder.
    fn take(&self) -> bool;

    /// Whether the lock is held.
    fn is_held(&self) -> bool;

    /// Waits until the lock is seen free, for at most `nanos` nanoseconds.
    fn wait_until_free(&self, nanos: u64) -> bool;

    /// The flags, by a Relaxed load.
    fn flags(&self) -> u8;

    /// Sets flags.
    fn set(&self, flags: u8, order: Ordering);

    /// Clears flags, and returns all flags as they were before.
    fn clear(&self, flags: u8) -> u8;

    /// Replaces the flags with the result of `f`, unless that is `None`. Returns the flags as they
    /// were before: as `Err` if nothing was changed.
    ///
    /// It tries again whenever another thread has changed the same atomic. With [`Split`] only
    /// waiters change it, and unlocks that find a flag set, each a few times. With [`Joined`] every
    /// thread that takes or releases the lock does.
    fn fetch_update(&self, order: Ordering, f: impl Fn(u8) -> Option<u8>) -> Result<u8, u8>;

    /// Unlocks, or hands the lock over if that is requested, and wakes the threads that need it.
    /// `queue` is the lock's queue.
    fn unlock<C: LockConfig>(&self, key: *const u32, queue: &Osq<P>);

    /// Lock and flags are one atomic: the holder sees each flag that was set before it unlocks.
    const IS_ONE: bool = false;

    /// The fence between setting a sleeper's flag and looking at the lock: afterwards either the
    /// waiter sees the lock free, or the holder sees the flag. `false`: the platform refused the
    /// fence, so perhaps neither does; see [`Platform::heavy_fence`]. A layout of one atomic needs
    /// no fence.
    fn fence_after_flag(ticket: &mut Ticket) -> bool {
        Self::IS_ONE || P::heavy_fence(ticket)
    }

    /// The lock byte and the flags, in the order in which the kernel reads them.
    fn bytes(&self) -> [u8; 2];
}

/// The unlocked word of a [`Layout`], as a constant or, under loom, as a function.
macro_rules! unlocked {
    ($word:expr) => {
        #[cfg(not(loom))]
        const UNLOCKED: Self = $word;
        #[cfg(loom)]
        fn unlocked() -> Self {
            $word
        }
    };
}

/// Lock and flags as two atomics. Releasing is a plain store; the holder then looks at the flags,
/// in memory that must still be there.
#[repr(C)]
#[derive(Debug)]
pub struct Split<P: Platform> {
    locked: P::AtomicU8,
    flags: P::AtomicU8,
}

impl<P: Platform> Layout<P> for Split<P> {
    unlocked!(Split {
        locked: zero!(),
        flags: zero!(),
    });

    #[inline]
    fn take(&self) -> bool {
        self.locked
            .compare_exchange(FREE, HELD, Acquire, Relaxed)
            .is_ok()
    }

    #[inline]
    fn is_held(&self) -> bool {
        self.locked.load(Relaxed) != FREE
    }

    fn wait_until_free(&self, nanos: u64) -> bool {
        P::wait_for(&self.locked, Relaxed, nanos, |locked| locked == FREE).is_ok()
    }

    fn flags(&self) -> u8 {
        self.flags.load(Relaxed)
    }

    fn set(&self, flags: u8, order: Ordering) {
        self.flags.fetch_or(flags, order);
    }

    fn clear(&self, flags: u8) -> u8 {
        self.flags.fetch_and(!flags, Relaxed)
    }

    fn fetch_update(&self, order: Ordering, f: impl Fn(u8) -> Option<u8>) -> Result<u8, u8> {
        self.flags.fetch_update(order, f)
    }

    #[inline]
    fn unlock<C: LockConfig>(&self, key: *const u32, _: &Osq<P>) {
        // If others have tried to take the lock, the line is with another CPU. Without this, the
        // load of the flags would fetch it once, and the store a second time, for writing.
        P::prefetch_for_writing(&self.locked);
        // Relaxed: a request or a watch that this load misses is served by the next unlock.
        match self.flags.glance(Relaxed) & (HANDOFF | WATCHED) {
            0 => self.set_free::<C>(key),
            _ => self.unlock_asked::<C>(key),
        }
    }

    fn bytes(&self) -> [u8; 2] {
        [self.locked.load(Relaxed), self.flags.load(Relaxed)]
    }
}

impl<P: Platform> Split<P> {
    #[inline]
    fn set_free<C: LockConfig>(&self, key: *const u32) {
        self.locked.store(FREE, Release);
        if P::CAN_PARK && C::PARK {
            // Pairs with the heavy fence in `fence_after_flag`.
            P::light_fence();
            if self.flags.glance(Relaxed) & (SLEEPERS | REQUESTER_SLEEPS) != 0 {
                self.wake(key);
            }
        }
    }

    /// Unlocks a watched lock, or one with a request: tells the watcher of the unlock, and hands
    /// the lock over if that is requested, else releases it.
    #[cold]
    #[inline(never)]
    fn unlock_asked<C: LockConfig>(&self, key: *const u32) {
        let asked = |flags| (flags & (HANDOFF | WATCHED) != 0).then(|| after_unlock::<P>(flags));
        // Release: on a hand-off `flags` publishes the critical section instead of `locked`.
        let unlocked = self.fetch_update(Release, asked);
        let handed = unlocked.is_ok_and(|before| finish_handoff::<P>(before, key));
        if !handed {
            self.set_free::<C>(key);
            P::end_slice();
        }
    }

    /// Wakes the requester, if it sleeps, and one of the other sleepers on the word. Waking the
    /// requester alone would not do: it may be giving up right now, and passes no wake-up on.
    #[cold]
    #[inline(never)]
    fn wake(&self, key: *const u32) {
        P::end_slice();
        let flags = self
            .flags
            .fetch_and(!(SLEEPERS | REQUESTER_SLEEPS), Relaxed);
        for (flag, set) in [(REQUESTER_SLEEPS, REQUESTER), (SLEEPERS, OTHERS)] {
            if flags & flag != 0 {
                wake::<P>(key, set);
            }
        }
    }
}

/// Lock and flags as one atomic. Releasing is one read-modify-write that returns the flags.
/// Afterwards only the address of the lock is used: another thread may free the memory as soon as
/// it has taken the lock.
#[repr(transparent)]
#[derive(Debug)]
pub struct Joined<P: Platform>(P::AtomicU16);

const HELD_WORD: u16 = word(HELD, 0);

/// The two bytes in the order that they have in [`Split`], on every machine.
const fn word(locked: u8, flags: u8) -> u16 {
    u16::from_ne_bytes([locked, flags])
}

fn flags_in(word: u16) -> u8 {
    word.to_ne_bytes()[1]
}

impl<P: Platform> Layout<P> for Joined<P> {
    const IS_ONE: bool = true;

    unlocked!(Joined(zero!()));

    #[inline]
    fn take(&self) -> bool {
        let mut seen = 0;
        while seen & HELD_WORD == 0 {
            let held = seen | HELD_WORD;
            match self.0.compare_exchange(seen, held, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    #[inline]
    fn is_held(&self) -> bool {
        self.0.load(Relaxed) & HELD_WORD != 0
    }

    fn wait_until_free(&self, nanos: u64) -> bool {
        P::wait_for(&self.0, Relaxed, nanos, |word| word & HELD_WORD == 0).is_ok()
    }

    fn flags(&self) -> u8 {
        flags_in(self.0.load(Relaxed))
    }

    fn set(&self, flags: u8, order: Ordering) {
        self.0.fetch_or(word(FREE, flags), order);
    }

    fn clear(&self, flags: u8) -> u8 {
        flags_in(self.0.fetch_and(!word(FREE, flags), Relaxed))
    }

    fn fetch_update(&self, order: Ordering, f: impl Fn(u8) -> Option<u8>) -> Result<u8, u8> {
        let change = |seen| Some(seen & HELD_WORD | word(FREE, f(flags_in(seen))?));
        let changed = self.0.fetch_update(order, change);
        changed.map(flags_in).map_err(flags_in)
    }

    #[inline]
    fn unlock<C: LockConfig>(&self, key: *const u32, queue: &Osq<P>) {
        let unlocked = self.0.compare_exchange(HELD_WORD, 0, Release, Relaxed);
        if unlocked.is_err() {
            self.unlock_flagged::<C>(key, queue);
        }
    }

    fn bytes(&self) -> [u8; 2] {
        self.0.load(Relaxed).to_ne_bytes()
    }
}

impl<P: Platform> Joined<P> {
    #[cold]
    #[inline(never)]
    fn unlock_flagged<C: LockConfig>(&self, key: *const u32, queue: &Osq<P>) {
        let forgets = C::TRIALS > 0 && P::random() % C::TRIALS == C::TRIALS - 1;
        let unlock = |seen| {
            let flags = flags_in(seen);
            // Only a waiter at the front finds out that a lock should no longer be kept, and
            // contention may end before one does. As long as the flag is set, each lock and each
            // unlock takes two tries. The queue may be read, since the lock is still held.
            if flags == KEPT && forgets && queue.last() == 0 {
                return Some(0);
            }
            let handed = is_requested::<P>(flags);
            // The requester of a hand-off wakes the next sleeper.
            let woken = if handed { 0 } else { SLEEPERS };
            Some(word(handed as u8, after_unlock::<P>(flags) & !woken))
        };
        let (Ok(seen) | Err(seen)) = self.0.fetch_update(Release, unlock);
        // From here on `self` may be gone.
        let flags = flags_in(seen);
        // No requester sleeps without a request.
        if finish_handoff::<P>(flags, key) {
            return;
        }
        P::end_slice();
        if flags & SLEEPERS != 0 {
            wake::<P>(key, OTHERS);
        }
    }
}

/// The end of an unlock that found the flags `before`. If the unlock was a hand-off (`true`),
/// counts it, and wakes the requester if it sleeps.
fn finish_handoff<P: Platform>(before: u8, key: *const u32) -> bool {
    let handed = is_requested::<P>(before);
    if handed {
        P::count(Event::Pickup);
        P::end_slice();
    }
    if handed && before & REQUESTER_SLEEPS != 0 {
        wake::<P>(key, REQUESTER);
    }
    handed
}

/// Wakes one sleeper of a set, or all threads that sleep as requesters: mostly there is one, see
/// `request_ended`.
pub(super) fn wake<P: Platform>(key: *const u32, set: u32) {
    P::count(Event::Wake);
    P::unpark_in(key, if set == REQUESTER { u32::MAX } else { 1 }, set);
}
