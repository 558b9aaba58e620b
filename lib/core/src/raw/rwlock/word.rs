//! The state word. No other code accesses it. Pure functions compute the new word, one for each
//! group of rows of the table in [`rwlock`](super).

use crate::platform::{Atomic, Ordering, Ordering::*, Platform, const_fn, zero};

/// A writer holds the lock, or has taken it and waits for announced readers (`REVOKING`).
pub(super) const WRITER: u32 = 1;
/// An upgradable reader, which is not counted, holds the lock.
pub(super) const UPGRADABLE: u32 = 2;
/// The upgradable reader waits until the other readers have left. The last of them has to wake it.
pub(super) const UPGRADING: u32 = 4;
/// A waiter at the front goes next: only waiters at the front and readers that pass writers enter.
pub(super) const REQUEST: u32 = 8;
/// On a lock that is not free: a waiter at the front sleeps, and the release that makes the lock
/// free for it wakes such a waiter. On a free lock the flag means nothing, since the wake-up has
/// been sent: the last reader leaves by an addition, which cannot clear the flag. A thread that
/// enters a free lock clears it.
pub(super) const FRONT_SLEEPS: u32 = 16;
/// Readers sleep.
pub(super) const READERS_SLEEP: u32 = 32;
/// Readers may announce themselves in the table, unless `WRITER`, `REQUEST` or `UPGRADING` is set.
pub(super) const BIASED: u32 = 64;
/// The writer has ended the bias, and waits for announced readers. While this flag is set, counted
/// readers hold the lock; without it, counted readers wait for the writer.
pub(super) const REVOKING: u32 = 128;
/// Set by a waiter that watches the lock, cleared by the next holder that leaves by a
/// compare-and-swap.
pub(super) const WATCHED: u32 = 256;
/// The process, in a chain of forks, in which waiters left their marks: `REQUEST`, `FRONT_SLEEPS`,
/// and the count while a writer holds the lock. Marks of another process are void.
const GENERATION: u32 = 512 + 1024;
/// One counted reader. Without `WRITER`, or with `REVOKING`, it holds the lock. Otherwise it waits,
/// and holds the lock as soon as the writer releases it.
pub(super) const READER: u32 = 2048;
const COUNT: u32 = !(READER - 1);
/// The most readers that can be counted. A larger count was decremented below zero, and is
/// corrected soon. See [`is_full`].
pub(super) const LIMIT: u32 = (COUNT / 2) & COUNT;

/// What a waiter in the queue wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Want {
    Write,
    Upgradable,
}

#[inline]
pub(super) fn count(seen: u32) -> u32 {
    seen & COUNT
}

/// Whether the count can be decremented by one.
#[inline]
pub(super) fn counts(seen: u32) -> bool {
    (READER..=LIMIT).contains(&count(seen))
}

pub(super) fn generation<P: Platform>() -> u32 {
    (u32::from(P::forks()) << GENERATION.trailing_zeros()) & GENERATION
}

/// Whether waiters of this process left the marks.
fn is_ours<P: Platform>(seen: u32) -> bool {
    seen & GENERATION == generation::<P>()
}

/// Whether a waiter of this process goes next.
pub(super) fn is_requested<P: Platform>(seen: u32) -> bool {
    seen & REQUEST != 0 && is_ours::<P>(seen)
}

/// A writer holds the lock, and no longer waits for announced readers. All counted readers wait for
/// this writer.
#[inline]
pub(super) fn is_written(seen: u32) -> bool {
    seen & (WRITER | REVOKING) == WRITER
}

/// More readers have left by the count than were counted: other readers are announced in their
/// place.
#[inline]
pub(super) fn is_below_zero(seen: u32) -> bool {
    count(seen) > LIMIT
}

/// The lock is full: no more readers can be counted. A waiter that finds this gives up, since
/// readers that leave a full lock wake no waiter for that, and leaked readers never leave.
///
/// A writer and an upgradable reader are not counted, but may go on as a reader without a look at
/// the count. So one place is kept for them.
#[inline]
pub(super) fn is_full(seen: u32) -> bool {
    let kept = if seen & (WRITER | UPGRADABLE) != 0 {
        READER
    } else {
        0
    };
    (LIMIT - kept..=LIMIT).contains(&count(seen))
}

/// Whether the lock is full for a waiter in the queue. A writer does not mind; an upgradable reader
/// may go on as a reader later.
#[inline]
pub(super) fn is_full_for(seen: u32, want: Want) -> bool {
    want == Want::Upgradable && is_full(seen)
}

/// No thread holds the lock, apart from announced readers, which the word does not show.
#[inline]
pub(super) fn is_free(seen: u32) -> bool {
    seen & (WRITER | UPGRADABLE | COUNT) == 0
}

/// The word without marks of another process, and with this process's generation, ready for a mark.
fn marked<P: Platform>(seen: u32) -> u32 {
    if is_ours::<P>(seen) {
        return seen;
    }
    let waiting = is_written(seen);
    let void = REQUEST | FRONT_SLEEPS | GENERATION | if waiting { COUNT } else { 0 };
    seen & !void | generation::<P>()
}

/// The word, without its generation if it has no mark to which the generation belongs.
#[inline]
fn settled(word: u32) -> u32 {
    let waiting = is_written(word) && count(word) != 0;
    let kept = word & (REQUEST | FRONT_SLEEPS) != 0 || waiting;
    if kept { word } else { word & !GENERATION }
}

/// Whether a reader that saw the word `seen` may count itself by a fetch-and-add, which succeeds
/// whatever the word is by then. It may if only the count has to change: there must be no
/// generation to write, and no `FRONT_SLEEPS` of a free lock to clear. The count stays below
/// [`LIMIT`] as long as fewer than half of [`LIMIT`] readers add themselves at once.
pub(super) fn may_add<P: Platform>(seen: u32) -> bool {
    let woken = is_free(seen) && seen & FRONT_SLEEPS != 0;
    generation::<P>() == 0 && seen & GENERATION == 0 && !woken && count(seen) < LIMIT / 2
}

/// The state of a reader that has counted itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Counted {
    /// The reader holds the lock.
    Reads,
    /// The reader holds the lock as soon as the writer has left.
    Registered,
}

impl Counted {
    /// The state of a reader that has counted itself and found the word `before`.
    #[inline]
    pub(super) fn at(before: u32) -> Self {
        match is_written(before) {
            true => Counted::Registered,
            false => Counted::Reads,
        }
    }
}

/// A reader enters. `passing`: the reader passes waiting writers.
pub(super) fn with_reader<P: Platform>(seen: u32, passing: bool) -> Option<u32> {
    let waited_for = seen & UPGRADING != 0 || is_requested::<P>(seen);
    let written = seen & WRITER != 0 && !(passing && seen & REVOKING != 0);
    if written || waited_for && !passing || is_full(seen) {
        return None;
    }
    // The thread that made the lock free has already woken the sleeper that the flag announces.
    let woken = if is_free(seen) { FRONT_SLEEPS } else { 0 };
    Some(settled(seen & !woken).wrapping_add(READER))
}

/// A reader can neither enter nor register: another thread goes next.
pub(super) fn is_refused<P: Platform>(seen: u32, passing: bool) -> bool {
    let entered = with_reader::<P>(seen, passing).is_some();
    // A reader does not sleep because the lock is full: it gives up.
    !entered && with_registered::<P>(seen).is_none() && !is_full(seen)
}

/// A waiting reader registers, and holds the lock when the writer releases it.
pub(super) fn with_registered<P: Platform>(seen: u32) -> Option<u32> {
    let word = marked::<P>(seen);
    // The first comparison is for a count below zero, for which `is_full` is false.
    let has_room = count(word) < LIMIT && !is_full(word);
    (is_written(seen) && has_room).then_some(word.wrapping_add(READER))
}

/// A waiting reader withdraws, or a counted reader leaves.
///
/// Subtracts with wrapping, as readers add with wrapping: after one unlock too many the count is
/// wrong in any case, but a thread must not panic here, where others wait for it.
#[inline]
pub(super) fn without_registered(seen: u32) -> u32 {
    settled(seen & !WATCHED).wrapping_sub(READER)
}

/// A writer or an upgradable reader enters. `front`: it is at the front.
///
/// For a writer this ends the bias: the writer must then look for announced readers.
pub(super) fn taken<P: Platform>(seen: u32, want: Want, front: bool) -> Option<u32> {
    let requested = is_requested::<P>(seen);
    let held = match want {
        Want::Write => !is_free(seen),
        Want::Upgradable => seen & (WRITER | UPGRADABLE) != 0,
    };
    if held || is_full_for(seen, want) || requested && !front {
        return None;
    }
    let mut word = seen;
    // The request is this waiter's own. Or another waiter made it and has not taken the lock yet,
    // and this waiter stands beside the queue. Or it was made in another process and means nothing
    // here.
    word &= !REQUEST;
    if front || is_free(seen) {
        word &= !FRONT_SLEEPS;
    }
    if front {
        // The caller wakes the sleeping readers, which then register or enter.
        word &= !READERS_SLEEP;
    }
    let word = match want {
        Want::Upgradable => word | UPGRADABLE,
        Want::Write if seen & BIASED != 0 => word & !BIASED | WRITER | REVOKING,
        Want::Write => word | WRITER,
    };
    Some(settled(word))
}

/// The waiter at the front goes next.
pub(super) fn with_request<P: Platform>(seen: u32) -> u32 {
    marked::<P>(seen) | REQUEST
}

/// The waiter at the front leaves the queue without the lock.
#[inline]
pub(super) fn without_front(seen: u32) -> u32 {
    settled(seen & !(REQUEST | FRONT_SLEEPS | READERS_SLEEP))
}

/// The waiter at the front is going to sleep.
pub(super) fn with_sleeping_front<P: Platform>(seen: u32) -> u32 {
    marked::<P>(seen) | FRONT_SLEEPS
}

/// What a writer becomes when it leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leave {
    /// It no longer holds the lock.
    Free,
    /// A reader.
    Reader,
    /// An upgradable reader.
    Upgradable,
    /// It no longer holds the lock, and restores the bias, since it has not waited for all
    /// announced readers.
    Biased,
    /// An upgradable reader that restores the bias, as in `Biased`.
    UpgradableBiased,
}

/// The writer leaves. Registered readers hold the lock now.
pub(super) fn after_writer<P: Platform>(seen: u32, leave: Leave) -> u32 {
    let word = marked::<P>(seen) & !(WRITER | REVOKING | WATCHED);
    let mut word = match leave {
        Leave::Free => word,
        Leave::Reader => word.wrapping_add(READER),
        Leave::Upgradable => word | UPGRADABLE,
        Leave::Biased => word | BIASED,
        Leave::UpgradableBiased => word | UPGRADABLE | BIASED,
    };
    if count(word) != 0 || word & REQUEST == 0 {
        word &= !READERS_SLEEP;
    }
    // The caller wakes the waiter at the front. If that waiter wants to write and readers have
    // registered, it finds them, and sets the flag again when it falls asleep. If it wants to read
    // upgradably, it can enter beside them.
    if word & UPGRADABLE == 0 {
        word &= !FRONT_SLEEPS;
    }
    settled(word)
}

/// The upgradable reader becomes a writer, once the other readers have left.
#[inline]
pub(super) fn upgraded(seen: u32) -> Option<u32> {
    let alone = seen & UPGRADABLE != 0 && count(seen) == 0;
    let word = seen & !(UPGRADABLE | UPGRADING | READERS_SLEEP) | WRITER;
    let revoking = word & !BIASED | REVOKING;
    alone.then_some(if seen & BIASED != 0 { revoking } else { word })
}

/// The upgradable reader leaves, or goes on as a reader.
pub(super) fn after_upgradable(seen: u32, leave: Leave) -> u32 {
    let readers = if leave == Leave::Reader { READER } else { 0 };
    settled((seen & !(UPGRADABLE | FRONT_SLEEPS | WATCHED)).wrapping_add(readers))
}

/// The last announced reader has left, and no counted reader has passed the writer.
#[inline]
pub(super) fn revoked(seen: u32) -> Option<u32> {
    (count(seen) == 0).then_some(seen & !(REVOKING | READERS_SLEEP))
}

/// Whether a reader that sees this word may set the bias.
#[inline]
pub(super) fn may_be_biased(seen: u32) -> bool {
    // A waiter at the front would have to end the bias at once. A full lock admits no more readers,
    // neither counted nor announced.
    let others = WRITER | UPGRADING | BIASED | REQUEST | FRONT_SLEEPS;
    seen & others == 0 && count(seen) != LIMIT
}

/// A holder that is about to leave makes a sleeping waiter at the front, if any, the next. If a
/// request stands, a sleeper already is the next, and the release wakes it.
pub(super) fn with_called_front<P: Platform>(seen: u32) -> Option<u32> {
    let sleeps = seen & (FRONT_SLEEPS | REQUEST) == FRONT_SLEEPS && is_ours::<P>(seen);
    sleeps.then_some(seen & !FRONT_SLEEPS | REQUEST)
}

/// Takes that request back, since no waiter at the front slept. A waiter that sleeps by now has
/// found the request standing, and relies on it.
pub(super) fn without_call<P: Platform>(seen: u32) -> Option<u32> {
    let standing = is_requested::<P>(seen) && seen & FRONT_SLEEPS == 0;
    standing.then(|| settled(seen & !(REQUEST | READERS_SLEEP)))
}

/// The word itself.
#[repr(transparent)]
#[derive(Debug)]
pub(super) struct State<P: Platform>(P::AtomicU32);

impl<P: Platform> State<P> {
    const_fn! {
        pub(super) const fn new() -> Self {
            State(zero!())
        }
    }

    #[inline]
    pub(super) fn load(&self, order: Ordering) -> u32 {
        self.0.load(order)
    }

    /// A reader enters a lock that no thread waits for.
    #[inline]
    pub(super) fn enter(&self, seen: u32) -> bool {
        const OTHERS: u32 = WRITER | UPGRADING | REQUEST | FRONT_SLEEPS;
        // The last place may be kept for an upgradable reader, see `is_full`.
        seen & OTHERS == 0
            && seen < LIMIT - READER
            && self
                .0
                .compare_exchange(seen, seen + READER, Acquire, Relaxed)
                .is_ok()
    }

    /// A counted reader leaves. Returns the previous word.
    #[inline]
    pub(super) fn leave(&self) -> u32 {
        self.0.fetch_add(READER.wrapping_neg(), Release)
    }

    /// A reader counts itself. Returns the previous word.
    #[inline]
    pub(super) fn add(&self) -> u32 {
        self.0.fetch_add(READER, Acquire)
    }

    /// A writer enters a lock that no thread holds, waits for or is announced at.
    #[inline]
    pub(super) fn take_idle(&self) -> bool {
        self.0.compare_exchange(0, WRITER, Acquire, Relaxed).is_ok()
    }

    /// A writer leaves a lock that no thread waits for.
    #[inline]
    pub(super) fn leave_idle(&self) -> bool {
        self.0.compare_exchange(WRITER, 0, Release, Relaxed).is_ok()
    }

    /// See [`Atomic::fetch_update`].
    #[inline]
    pub(super) fn fetch_update(
        &self,
        order: Ordering,
        f: impl Fn(u32) -> Option<u32>,
    ) -> Result<u32, u32> {
        self.0.fetch_update(order, f)
    }

    /// Sets flags.
    #[inline]
    pub(super) fn set(&self, flags: u32) {
        self.0.fetch_or(flags, Relaxed);
    }

    /// Clears flags. Returns the previous word.
    #[inline]
    pub(super) fn clear(&self, flags: u32) -> u32 {
        self.0.fetch_and(!flags, Relaxed)
    }

    /// Waits for a word that `done` accepts, for at most `nanos` nanoseconds. `false`: there was
    /// none.
    #[inline]
    pub(super) fn wait_for(&self, nanos: u64, done: impl Fn(u32) -> bool) -> bool {
        P::wait_for(&self.0, Relaxed, nanos, done).is_ok()
    }
}

/// What waiters have found out, in two bytes next to the state. Only slow paths read them. An
/// outdated `RARITY` or `KEPT` costs only time.
///
/// ```text
///   bit 0 .. 3   RARITY: one in 2^RARITY of the reads that may set the bias does so
///       4 .. 12  BESIDE: how many waiters stand beside the queue, 511 at most
///      13 .. 14  the process in which these wait; in another one there are none
///      15        KEPT: the lock stays with its holders, as in the mutex
/// ```
#[repr(transparent)]
#[derive(Debug)]
pub(super) struct Hints<P: Platform>(P::AtomicU16);

const KEPT: u16 = 1 << 15;
const RARITY: u16 = 0xf;
const ONE_BESIDE: u16 = 1 << 4;
const BESIDE: u16 = 511 * ONE_BESIDE;
const BESIDE_IN: u16 = 3 << 13;
/// After a revocation, one eligible read in N sets the bias again, on average, where N is the time
/// of the revocation divided by this, rounded up to a power of two. With many readers this is about
/// how long each of them takes to count itself, in nanoseconds.
const REVOCATION_NS_PER_READ: u64 = 256;
/// The bounds of N as powers of two: after the shortest revocations one read in 8 sets the bias,
/// after the longest one in 4096.
const RARITIES: core::ops::RangeInclusive<u32> = 3..=12;

impl<P: Platform> Hints<P> {
    const_fn! {
        pub(super) const fn new() -> Self {
            Hints(zero!())
        }
    }

    #[inline]
    pub(super) fn is_kept(&self) -> bool {
        self.0.load(Relaxed) & KEPT != 0
    }

    #[inline]
    pub(super) fn keep(&self) {
        self.0.fetch_or(KEPT, Relaxed);
    }

    #[inline]
    pub(super) fn share(&self) {
        self.0.fetch_and(!KEPT, Relaxed);
    }

    fn beside(seen: u16) -> u16 {
        let ours = seen & BESIDE_IN == in_process::<P>();
        if ours { seen & BESIDE } else { 0 }
    }

    /// Counts a waiter that comes to stand beside the queue. The waiter does this before it sets
    /// its sleeper's mark in the word, by a read-modify-write that releases. A thread that takes
    /// the lock or gives up changes the word, acquires, and looks here afterwards: either it sees
    /// this waiter counted, or the waiter sees its change of the word.
    ///
    /// `false`: there are too many to count, so that no holder would know of this waiter.
    pub(super) fn come_beside(&self) -> bool {
        let come = |seen| {
            let beside = Self::beside(seen);
            let counted = seen & !(BESIDE | BESIDE_IN) | in_process::<P>() | beside;
            (beside < BESIDE).then(|| counted + ONE_BESIDE)
        };
        self.0.fetch_update(Relaxed, come).is_ok()
    }

    /// A waiter that was counted leaves.
    pub(super) fn leave_beside(&self) {
        let leave = |seen| (Self::beside(seen) != 0).then(|| seen - ONE_BESIDE);
        let _ = self.0.fetch_update(Relaxed, leave);
    }

    /// Whether a waiter stands beside the queue.
    pub(super) fn has_beside(&self) -> bool {
        Self::beside(self.0.load(Relaxed)) != 0
    }

    /// Records that a writer has waited for announced readers for `nanos` nanoseconds, until none
    /// was left or its time was up. The longer the wait, the fewer reads set the bias again.
    pub(super) fn bias_ended(&self, nanos: u64) {
        let rarer = |seen| Some(seen & !RARITY | rarity_after(nanos));
        let _ = self.0.fetch_update(Relaxed, rarer);
    }

    /// Whether this read sets the bias, if it may. Chance decides: reading a clock costs more, and
    /// readers would contend for a count. Without a source of randomness every read sets the bias.
    #[inline]
    pub(super) fn sets_bias(&self) -> bool {
        let rarity = self.0.load(Relaxed) & RARITY;
        P::random() & ((1 << rarity) - 1) == 0
    }
}

/// This process's number, as it stands next to the number of waiters beside the queue.
fn in_process<P: Platform>() -> u16 {
    (u16::from(P::forks()) << BESIDE_IN.trailing_zeros()) & BESIDE_IN
}

/// The `RARITY` after a revocation of `nanos` nanoseconds.
pub(super) fn rarity_after(nanos: u64) -> u16 {
    let doublings = u64::BITS - (nanos / REVOCATION_NS_PER_READ).leading_zeros();
    doublings.clamp(*RARITIES.start(), *RARITIES.end()) as u16
}
