//! Counters that every CPU adds to on its own.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::*};

use super::area::{self, Area, Reach};
use super::domain::{Domain, Lease};
use super::error::BuildError;
use super::sequence::{self, Slots};
use crate::probe::{Probe, Sound};

/// A counter for many writers and few readers: one word per ID, changed without a locked
/// instruction.
///
/// | backend | `add` |
/// | --- | --- |
/// | restartable | one restartable sequence |
/// | lease | enter, load, store, leave; [`add_with`](Self::add_with): a load and a store |
///
/// A thread without an ID adds to one word that all such threads share, with a locked instruction.
/// A thread has no ID if all are held, if the kernel refuses it restartable sequences, or if it
/// runs its last destructors. The sum is right in any case.
///
/// A counter takes 128 bytes of each ID. Several counters are smaller as a [`CounterArray`].
///
/// # Guarantees
///
/// * No addition is lost. [`sum`](Self::sum) includes every addition that happened before the call,
///   none that happens after it, and any subset of the concurrent ones: it is not a snapshot. Sums
///   read by one thread do not decrease unless an addition wraps ("adds a negative number").
/// * Additions are `Relaxed`: they order nothing else.
/// * Adding is async-signal-safe once the thread has added to a counter of that domain. It then
///   allocates nothing and makes no system call.
/// * The child of a fork goes on with a copy.
///
/// ```
/// use kinlock_ids::{Counter, Domain};
///
/// let requests = Counter::new(&Domain::auto())?;
/// std::thread::scope(|s| {
///     for _ in 0..4 {
///         s.spawn(|| (0..1000).for_each(|_| requests.add(1)));
///     }
/// });
/// assert_eq!(requests.sum(), 4000);
/// # Ok::<(), kinlock_ids::BuildError>(())
/// ```
pub struct Counter {
    words: Words<Sound>,
}

impl Counter {
    /// A counter at 0.
    ///
    /// # Errors
    ///
    /// [`BuildError::Memory`] if there is no address space.
    pub fn new(domain: &Domain) -> Result<Self, BuildError> {
        Words::new(domain, 1).map(|words| Counter { words })
    }

    /// Adds `n`, wrapping at 2^64. O(1).
    #[inline]
    pub fn add(&self, n: u64) {
        // SAFETY: there is a word.
        unsafe { self.words.add(0, n) };
    }

    /// Adds `n` under a lease of this counter's domain: a load and a store. With a lease of another
    /// domain this is [`add`](Self::add). A signal handler must not use the lease of the code that
    /// it interrupts.
    ///
    /// ```
    /// use kinlock_ids::{Counter, Domain};
    ///
    /// let domain = Domain::builder().max_ids(32).build()?;
    /// let bytes = Counter::new(&domain)?;
    /// let lease = domain.enter()?;
    /// (0..10).for_each(|_| bytes.add_with(&lease, 100));
    /// assert_eq!(bytes.sum(), 1000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn add_with(&self, lease: &Lease<'_>, n: u64) {
        // SAFETY: there is a word.
        unsafe { self.words.add_with(lease, 0, n) };
    }

    /// The sum of all additions, wrapping; see the [guarantees](Self#guarantees).
    /// O([`Domain::max_ids`]): one load for each possible ID.
    pub fn sum(&self) -> u64 {
        self.words.sum(0)
    }

    /// What code in another language needs to add by a sequence of its own; `None` where
    /// [`add`](Self::add) is not the usual sequence. See [`Parts`].
    #[doc(hidden)]
    pub fn parts(&self) -> Option<Parts> {
        let distance = self.words.reach.common()?;
        let Slots { base, shift, limit } = self.words.slots;
        Some(Parts {
            area: distance,
            base,
            shift,
            limit,
        })
    }

    /// The domain that the counter was made for.
    pub fn domain(&self) -> &Domain {
        &self.words.domain
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counter")
            .field("sum", &self.sum())
            .finish_non_exhaustive()
    }
}

/// How a counter's words are found, as long as the counter lives: the word of ID `id` is at `base +
/// (id << shift)`, if `id` is below `limit`. The area of each thread is `area` bytes from its
/// thread pointer; it may be unregistered, so that a sequence has to look at the CPU in it. Only a
/// sequence with the ID may write the word.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// The distance of the C library's areas.
    pub area: isize,
    /// The word of ID 0.
    pub base: NonNull<u8>,
    /// The distance of two words, as a shift.
    pub shift: u32,
    /// How many IDs have a word.
    pub limit: u32,
}

/// Several counters side by side: each takes eight bytes of each ID. Each has the
/// [guarantees](Counter#guarantees) of a [`Counter`]; two counters are not read at the same
/// instant.
///
/// For counters that the same code counts up: the counters of a module, the buckets of a histogram.
/// They share cache lines with each other, but not with other IDs.
///
/// ```
/// use kinlock_ids::{CounterArray, Domain};
///
/// const OK: usize = 0;
/// const FAILED: usize = 1;
/// let replies = CounterArray::new(&Domain::auto(), 2)?;
/// replies.add(OK, 1);
/// replies.add(FAILED, 1);
/// replies.add(OK, 1);
/// assert_eq!(replies.sums(), [2, 1]);
/// # Ok::<(), kinlock_ids::BuildError>(())
/// ```
pub struct CounterArray {
    words: Words<Sound>,
}

impl CounterArray {
    /// `len` counters at 0. Takes `8 * len` bytes of each ID, rounded up to a multiple of 128.
    ///
    /// # Errors
    ///
    /// [`BuildError::Memory`] if there is no address space.
    pub fn new(domain: &Domain, len: usize) -> Result<Self, BuildError> {
        Words::new(domain, len).map(|words| CounterArray { words })
    }

    /// Adds `n` to a counter, wrapping at 2^64. O(1).
    ///
    /// # Panics
    ///
    /// If there is no counter `index`.
    #[inline]
    pub fn add(&self, index: usize, n: u64) {
        self.words.check(index);
        // SAFETY: just checked.
        unsafe { self.words.add(index, n) };
    }

    /// Like [`add`](Self::add), under a lease; see [`Counter::add_with`].
    ///
    /// # Panics
    ///
    /// If there is no counter `index`.
    #[inline]
    pub fn add_with(&self, lease: &Lease<'_>, index: usize, n: u64) {
        self.words.check(index);
        // SAFETY: just checked.
        unsafe { self.words.add_with(lease, index, n) };
    }

    /// The sum of all additions to one counter. O([`Domain::max_ids`]).
    ///
    /// # Panics
    ///
    /// If there is no counter `index`.
    pub fn sum(&self, index: usize) -> u64 {
        self.words.sum(index)
    }

    /// The sums of all counters. O([`Domain::max_ids`] * [`len`](Self::len)).
    pub fn sums(&self) -> Vec<u64> {
        (0..self.len()).map(|index| self.sum(index)).collect()
    }

    /// How many counters there are.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.words.len
    }

    /// The domain that the counters were made for.
    pub fn domain(&self) -> &Domain {
        &self.words.domain
    }
}

impl fmt::Debug for CounterArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CounterArray")
            .field("sums", &self.sums())
            .finish_non_exhaustive()
    }
}

/// A [`Counter`] with the sequences of any [`Probe`].
#[derive(Debug)]
pub struct Probed<P: Probe>(Words<P>);

impl<P: Probe> Probed<P> {
    /// Like [`Counter::new`].
    ///
    /// # Errors
    ///
    /// [`BuildError::Memory`].
    pub fn new(domain: &Domain) -> Result<Self, BuildError> {
        Words::new(domain, 1).map(Probed)
    }

    /// Like [`Counter::add`].
    #[inline]
    pub fn add(&self, n: u64) {
        // SAFETY: there is a word.
        unsafe { self.0.add(0, n) };
    }

    /// Like [`Counter::sum`].
    pub fn sum(&self) -> u64 {
        self.0.sum(0)
    }
}

/// Some words for each ID, to which threads add.
///
/// # Invariants
///
/// 1. The slots were allocated for these words, and are returned when they are dropped. Each has
///    `len` words, written only with the ID of the slot: in a restartable sequence, or under a
///    lease.
#[derive(Debug)]
pub(super) struct Words<P: Probe> {
    slots: Slots,
    len: usize,
    /// None if additions are no sequences, or if the slots are not near each other.
    reach: Reach,
    domain: Domain,
    /// For threads without an ID.
    shared: Box<[Line]>,
    probe: PhantomData<P>,
}

/// Cache lines of its own, so that threads without an ID do not slow down readers of other data.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Line([AtomicU64; LINE]);

const LINE: usize = 16;
const WORD: usize = size_of::<AtomicU64>();

// SAFETY: the slots are accessed as invariant 1 says, by any thread; the rest is `Send` and `Sync`.
unsafe impl<P: Probe> Send for Words<P> {}
// SAFETY: as above.
unsafe impl<P: Probe> Sync for Words<P> {}

impl<P: Probe> Words<P> {
    pub(super) fn new(domain: &Domain, len: usize) -> Result<Self, BuildError> {
        let size = len.checked_mul(WORD).ok_or(BuildError::Memory)?;
        let slots = domain.allocate(size)?;
        let sequences = domain.leased().is_none() && slots.are_near();
        Ok(Words {
            slots,
            len,
            reach: Reach::new(sequences),
            domain: domain.clone(),
            shared: (0..len.div_ceil(LINE)).map(|_| Line::default()).collect(),
            probe: PhantomData,
        })
    }

    #[inline]
    fn check(&self, index: usize) {
        assert!(index < self.len, "no such counter");
    }

    /// # Safety
    ///
    /// `index` is below `len`.
    #[inline]
    pub(super) unsafe fn add(&self, index: usize, n: u64) {
        if let Some(area) = self.reach.area() {
            // SAFETY: by the caller.
            if unsafe { self.add_in::<1>(area, index, n) } {
                return;
            }
        }
        // SAFETY: by the caller.
        unsafe { self.add_otherwise(index, n) };
    }

    /// Adds by a sequence. Returns false if the thread has no ID, or the ID has no slot.
    ///
    /// # Safety
    ///
    /// `index` is below `len`, and the backend is the restartable one. With `NEAR` = 1 the slots
    /// are near each other.
    #[inline]
    unsafe fn add_in<const NEAR: usize>(&self, area: Area, index: usize, n: u64) -> bool {
        // SAFETY: invariant 1, and invariant 1 of `sequence`.
        unsafe { sequence::add::<P, NEAR>(area, &self.slots, index * WORD, n) }
    }

    /// Adds in the rarer cases: with leases, if the slots are not near each other, at a thread's
    /// first use of an area of its own, and for a thread without an ID.
    ///
    /// # Safety
    ///
    /// `index` is below `len`.
    #[inline(never)]
    unsafe fn add_otherwise(&self, index: usize, n: u64) {
        if self.domain.leased().is_some() {
            return match self.domain.enter() {
                Ok(lease) => self.add_to(lease.id(), index, n),
                Err(_) => self.add_shared(index, n),
            };
        }
        // SAFETY: by the caller.
        if !area::current().is_some_and(|area| unsafe { self.add_in::<0>(area, index, n) }) {
            self.add_shared(index, n);
        }
    }

    /// # Safety
    ///
    /// `index` is below `len`.
    #[inline]
    unsafe fn add_with(&self, lease: &Lease<'_>, index: usize, n: u64) {
        if lease.is_of(&self.domain) {
            self.add_to(lease.id(), index, n);
        } else {
            // SAFETY: by the caller.
            unsafe { self.add(index, n) };
        }
    }

    pub(super) fn sum(&self, index: usize) -> u64 {
        self.check(index);
        let own = (0..self.slots.limit).map(|id| self.word(id, index).load(Relaxed));
        own.fold(self.shared(index).load(Relaxed), u64::wrapping_add)
    }

    /// A load and a store suffice: no other thread writes this word.
    #[inline]
    fn add_to(&self, id: u32, index: usize, n: u64) {
        let word = self.word(id, index);
        // Relaxed: the next holder of the ID sees the store because the ID is released and acquired
        // in between. A reader that sums up asks for no order.
        word.store(word.load(Relaxed).wrapping_add(n), Relaxed);
    }

    #[cold]
    #[inline(never)]
    fn add_shared(&self, index: usize, n: u64) {
        self.shared(index).fetch_add(n, Relaxed);
    }

    fn shared(&self, index: usize) -> &AtomicU64 {
        &self.shared[index / LINE].0[index % LINE]
    }

    /// The word of an ID. Callers have checked that `index` is below `len`.
    #[inline]
    fn word(&self, id: u32, index: usize) -> &AtomicU64 {
        debug_assert!(index < self.len);
        // SAFETY: invariant 1; zeroed memory is a word.
        unsafe { self.slots.of(id).cast::<AtomicU64>().add(index).as_ref() }
    }
}

impl<P: Probe> Drop for Words<P> {
    fn drop(&mut self) {
        for id in 0..self.slots.limit {
            for index in 0..self.len {
                let word = self.word(id, index);
                // A page that was only read has no memory, and must not get any here.
                if word.load(Relaxed) != 0 {
                    word.store(0, Relaxed);
                }
            }
        }
        self.domain.free(self.slots, self.len * WORD);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sequence::STRETCH;

    #[test]
    fn sixty_four_counters_take_512_bytes_of_an_id() {
        let domain = Domain::builder().max_ids(32).build().unwrap();
        let make = || CounterArray::new(&domain, 64).unwrap();
        let (first, second) = (make(), make());
        let base = |counters: &CounterArray| counters.words.slots.base.addr().get();
        assert_eq!(base(&second) - base(&first), 512);
    }

    #[test]
    fn an_array_may_be_larger_than_a_stretch() {
        let counters = CounterArray::new(&Domain::auto(), 3 * STRETCH / WORD).unwrap();
        assert!(!counters.words.slots.are_near());
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| (0..counters.len()).for_each(|index| counters.add(index, 2)));
            }
        });
        assert!(counters.sums().iter().all(|&sum| sum == 6));
    }
}
