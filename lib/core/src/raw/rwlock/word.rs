//! The state word. Nothing else touches it. Pure functions say what becomes of a word, one for each
//! group of rows of the table in [`rwlock`](super).

use crate::platform::{Atomic, Ordering, Ordering::*, Platform, const_fn, zero};

/// A writer holds the lock, or waits for announced readers (`REVOKING`).
pub(super) const WRITER: u32 = 1;
/// An upgradable reader holds the lock. It is not counted.
pub(super) const UPGRADABLE: u32 = 2;
/// The upgradable reader waits until the others have left. It has to be woken.
pub(super) const UPGRADING: u32 = 4;
/// A waiter at the front goes next: only waiters at the front and readers that pass writers enter.
pub(super) const REQUEST: u32 = 8;
/// On a lock that is not free: a waiter at the front sleeps, and the release that leaves the lock
/// to it wakes one. On a free lock it means nothing, since the wake-up has been sent: the last
/// reader leaves by an addition, which cannot clear the flag. A thread that enters a free lock
/// clears it.
pub(super) const FRONT_SLEEPS: u32 = 16;
/// Readers sleep.
pub(super) const READERS_SLEEP: u32 = 32;
/// Readers may announce themselves in the table, unless `WRITER`, `REQUEST` or `UPGRADING` is set.
pub(super) const BIASED: u32 = 64;
/// The writer has ended the bias, and waits for announced readers. While it does, the readers that
/// are counted hold the lock; under a writer without this flag they wait.
pub(super) const REVOKING: u32 = 128;
/// Set by a waiter that watches the lock, cleared by the next holder that leaves by a
/// compare-and-swap.
pub(super) const WATCHED: u32 = 256;
/// The process, in a chain of forks, in which waiters left their marks: `REQUEST`, `FRONT_SLEEPS`,
/// and the count while a writer holds the lock. Marks of another process are void.
const GENERATION: u32 = 512 + 1024;
/// One reader. Without `WRITER`, or with `REVOKING`, it holds the lock. Otherwise it waits, and
/// holds the lock as soon as the writer releases it.
pub(super) const READER: u32 = 2048;
const COUNT: u32 = !(READER - 1);
/// There are never more readers. A larger count has been decremented below zero, and is put right
/// soon. See [`is_full`].
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

/// Whether the counted readers can be decremented by one.
#[inline]
pub(super) fn counts(seen: u32) -> bool {
    (READER..=LIMIT).contains(&count(seen))
}

pub(super) fn generation<P: Platform>() -> u32 {
    (u32::from(P::forks()) << GENERATION.trailing_zeros()) & GENERATION
}

/// Whether the waiters' marks are of this process.
fn is_ours<P: Platform>(seen: u32) -> bool {
    seen & GENERATION == generation::<P>()
}

/// Whether a waiter of this process goes next.
pub(super) fn is_requested<P: Platform>(seen: u32) -> bool {
    seen & REQUEST != 0 && is_ours::<P>(seen)
}

/// A writer holds the lock, and has waited for all announced readers. All readers that are counted
/// now wait for this writer.
#[inline]
pub(super) fn is_written(seen: u32) -> bool {
    seen & (WRITER | REVOKING) == WRITER
}

/// More readers have left by the count than were counted: others are announced in their place.
#[inline]
pub(super) fn is_below_zero(seen: u32) -> bool {
    count(seen) > LIMIT
}

/// The lock is full: no more readers can be counted. Who finds that gives up, since readers that
/// leave wake nobody, and leaked ones never leave.
///
/// A writer and an upgradable reader are not counted, but may go on as readers without a look at
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

/// As [`is_full`], for a waiter in the queue. An upgradable reader may go on as a reader later.
#[inline]
pub(super) fn is_full_for(seen: u32, want: Want) -> bool {
    want == Want::Upgradable && is_full(seen)
}

/// Nobody holds the lock, apart from announced readers, which the word does not show.
#[inline]
pub(super) fn is_free(seen: u32) -> bool {
    seen & (WRITER | UPGRADABLE | COUNT) == 0
}

/// The word without the marks of another process, ready for one of this process.
fn marked<P: Platform>(seen: u32) -> u32 {
    if is_ours::<P>(seen) {
        return seen;
    }
    let waiting = is_written(seen);
    let void = REQUEST | FRONT_SLEEPS | GENERATION | if waiting { COUNT } else { 0 };
    seen & !void | generation::<P>()
}

/// The word without a generation, if it has no mark to which that belongs.
#[inline]
fn settled(word: u32) -> u32 {
    let waiting = is_written(word) && count(word) != 0;
    let kept = word & (REQUEST | FRONT_SLEEPS) != 0 || waiting;
    if kept { word } else { word & !GENERATION }
}

/// Whether a reader that saw the word `seen` may count itself by a fetch-and-add, which succeeds
/// whatever the word has become meanwhile. So nothing but the count may have to change: there is no
/// generation to be written, and no `FRONT_SLEEPS` of a free lock to be cleared. The count stays
/// below [`LIMIT`] as long as fewer than half of [`LIMIT`] readers add themselves at once.
pub(super) fn may_add<P: Platform>(seen: u32) -> bool {
    let woken = is_free(seen) && seen & FRONT_SLEEPS != 0;
    generation::<P>() == 0 && seen & GENERATION == 0 && !woken && count(seen) < LIMIT / 2
}

/// What has become of a reader that has counted itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Counted {
    /// It holds the lock.
    Reads,
    /// It holds the lock as soon as the writer has left.
    Registered,
}

impl Counted {
    /// What a reader is that has counted itself and found the word `before`.
    #[inline]
    pub(super) fn at(before: u32) -> Self {
        match is_written(before) {
            true => Counted::Registered,
            false => Counted::Reads,
        }
    }
}

/// A reader enters. `passing`: it passes waiting writers.
pub(super) fn with_reader<P: Platform>(seen: u32, passing: bool) -> Option<u32> {
    let waited_for = seen & UPGRADING != 0 || is_requested::<P>(seen);
    let written = seen & WRITER != 0 && !(passing && seen & REVOKING != 0);
    if written || waited_for && !passing || is_full(seen) {
        return None;
    }
    // Whoever made the lock free has already woken the sleeper that the flag announces.
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
    // `is_full` is false below zero, too.
    let has_room = count(word) < LIMIT && !is_full(word);
    (is_written(seen) && has_room).then_some(word.wrapping_add(READER))
}

/// A waiting reader withdraws, or a counted one leaves.
///
/// Subtracts with wrapping, as readers add: after one unlock too many the count is wrong in any
/// case, but a thread must not panic here, where others wait for it.
#[inline]
pub(super) fn without_registered(seen: u32) -> u32 {
    settled(seen & !WATCHED).wrapping_sub(READER)
}

/// A writer or an upgradable reader enters. `front`: it is at the front of the queue.
///
/// Ends the bias for a writer: it must look for announced readers.
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
    // The request is its own. Or it is another waiter's that has not come, and this one stands
    // beside the queue. Or it was made in another process and means nothing here.
    word &= !REQUEST;
    if front || is_free(seen) {
        word &= !FRONT_SLEEPS;
    }
    if front {
        // The new holder wakes the sleeping readers, which then register or enter.
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

/// What a writer leaves behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leave {
    /// Nothing.
    Free,
    /// It goes on as a reader.
    Reader,
    /// It goes on as an upgradable reader.
    Upgradable,
    /// Nothing, and the readers that it waited for go on announcing themselves.
    Biased,
    /// As `Biased`, and the writer goes on as an upgradable reader.
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
    // The waiter at the front is woken. If it wants to write and readers have registered, it finds
    // these, and sets the flag again when it falls asleep. If it wants to read upgradably, it can
    // enter with them.
    if word & UPGRADABLE == 0 {
        word &= !FRONT_SLEEPS;
    }
    settled(word)
}

/// The upgradable reader becomes a writer, once the others have left.
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

/// The last announced reader has left, and no counted one passes the writer.
#[inline]
pub(super) fn revoked(seen: u32) -> Option<u32> {
    (count(seen) == 0).then_some(seen & !(REVOKING | READERS_SLEEP))
}

/// Whether a look at the word allows to set the bias.
#[inline]
pub(super) fn may_be_biased(seen: u32) -> bool {
    // A waiter at the front would have to end it at once. A full lock has no more readers, neither
    // counted nor announced.
    let others = WRITER | UPGRADING | BIASED | REQUEST | FRONT_SLEEPS;
    seen & others == 0 && count(seen) != LIMIT
}

/// A holder that is about to leave wakes a waiter at the front, if one sleeps, which goes next.
/// Under a standing request a sleeper is the next already, and the release wakes it.
pub(super) fn with_called_front<P: Platform>(seen: u32) -> Option<u32> {
    let sleeps = seen & (FRONT_SLEEPS | REQUEST) == FRONT_SLEEPS && is_ours::<P>(seen);
    sleeps.then_some(seen & !FRONT_SLEEPS | REQUEST)
}

/// No waiter at the front slept. One that sleeps by now has found the request standing, and relies
/// on it.
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

    /// A reader enters a lock on which nobody waits.
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

    /// A counted reader leaves. Returns the word before.
    #[inline]
    pub(super) fn leave(&self) -> u32 {
        self.0.fetch_add(READER.wrapping_neg(), Release)
    }

    /// A reader counts itself. Returns the word before.
    #[inline]
    pub(super) fn add(&self) -> u32 {
        self.0.fetch_add(READER, Acquire)
    }

    /// A writer enters a lock that nobody holds, waits for or is announced at.
    #[inline]
    pub(super) fn take_idle(&self) -> bool {
        self.0.compare_exchange(0, WRITER, Acquire, Relaxed).is_ok()
    }

    /// A writer leaves a lock for which nobody waits.
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

    /// Clears flags. Returns the word before.
    #[inline]
    pub(super) fn clear(&self, flags: u32) -> u32 {
        self.0.fetch_and(!flags, Relaxed)
    }

    /// Waits for a word that `done` accepts, for at most `nanos` nanoseconds. False: there was
    /// none.
    #[inline]
    pub(super) fn wait_for(&self, nanos: u64, done: impl Fn(u32) -> bool) -> bool {
        P::wait_for(&self.0, Relaxed, nanos, done).is_ok()
    }
}

/// What waiters have found out, in two bytes beside the state. Only slow paths read them. `RARITY`
/// and `KEPT` may be outdated, which costs time only.
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
/// On average one read sets the bias after as many that could have done so as this goes into the
/// time of the revocation, in nanoseconds, rounded up to a power of two. Where there are many
/// readers, it is about how long each of them takes to count itself.
const REVOCATION_NS_PER_READ: u64 = 256;
/// After a revocation one read in 8 sets the bias, or fewer. One in 4096 does after the longest.
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

    /// A waiter comes that stands beside the queue. It counts itself before it marks the word as a
    /// sleeper, and that mark is a read-modify-write that releases. A thread that takes the lock or
    /// gives up changes the word, acquires, and looks here afterwards: one of the two sees the
    /// other.
    ///
    /// `false`: there are too many to be counted, so that no holder would know of this one.
    pub(super) fn come_beside(&self) -> bool {
        let come = |seen| {
            let beside = Self::beside(seen);
            let counted = seen & !(BESIDE | BESIDE_IN) | in_process::<P>() | beside;
            (beside < BESIDE).then(|| counted + ONE_BESIDE)
        };
        self.0.fetch_update(Relaxed, come).is_ok()
    }

    /// One that was counted leaves.
    pub(super) fn leave_beside(&self) {
        let leave = |seen| (Self::beside(seen) != 0).then(|| seen - ONE_BESIDE);
        let _ = self.0.fetch_update(Relaxed, leave);
    }

    /// Whether a waiter stands beside the queue.
    pub(super) fn has_beside(&self) -> bool {
        Self::beside(self.0.load(Relaxed)) != 0
    }

    /// A writer has waited for announced readers for `nanos` nanoseconds, until there were none or
    /// its time was up. The longer that was, the fewer reads set the bias again.
    pub(super) fn bias_ended(&self, nanos: u64) {
        let rarer = |seen| Some(seen & !RARITY | rarity_after(nanos));
        let _ = self.0.fetch_update(Relaxed, rarer);
    }

    /// Whether this read sets the bias, if it may. Decided by chance: a clock costs more, and a
    /// count would be one more word for which readers fight. Without a source of randomness every
    /// read sets it.
    #[inline]
    pub(super) fn sets_bias(&self) -> bool {
        let rarity = self.0.load(Relaxed) & RARITY;
        P::random() & ((1 << rarity) - 1) == 0
    }
}

/// What this process writes beside the number of those that wait.
fn in_process<P: Platform>() -> u16 {
    (u16::from(P::forks()) << BESIDE_IN.trailing_zeros()) & BESIDE_IN
}

/// How rare the reads are that set the bias after a revocation of `nanos` nanoseconds.
pub(super) fn rarity_after(nanos: u64) -> u16 {
    let doublings = u64::BITS - (nanos / REVOCATION_NS_PER_READ).leading_zeros();
    doublings.clamp(*RARITIES.start(), *RARITIES.end()) as u16
}
