//! A counter that every CPU adds to on its own.

use core::sync::atomic::{AtomicU64, Ordering::*};

use super::area;
use super::domain::{Domain, Lease};
use super::error::BuildError;
use super::sequence::{self, Probe, Slots, Sound};

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
///
/// # Invariants
///
/// 1. The slots were allocated for this counter, and are returned when it is dropped. Each has one
///    word, written only with the ID of the slot: in a restartable sequence, or under a lease.
#[derive(Debug)]
pub struct Counter<P: Probe = Sound> {
    slots: Slots,
    domain: Domain,
    restartable: bool,
    shared: Shared,
    probe: core::marker::PhantomData<P>,
}

/// In lines of its own, so that threads without an ID do not disturb readers of the other fields.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Shared(AtomicU64);

const SIZE: usize = size_of::<AtomicU64>();

// SAFETY: the slots are accessed as invariant 1 says, by any thread; the rest is `Send` and `Sync`.
unsafe impl<P: Probe> Send for Counter<P> {}
// SAFETY: as above.
unsafe impl<P: Probe> Sync for Counter<P> {}

impl Counter {
    /// A counter at 0.
    ///
    /// # Errors
    ///
    /// [`BuildError::Memory`] if there is no address space.
    pub fn new(domain: &Domain) -> Result<Self, BuildError> {
        Self::probed(domain)
    }
}

impl<P: Probe> Counter<P> {
    /// As [`new`](Counter::new), for tests.
    ///
    /// # Errors
    ///
    /// [`BuildError::Memory`].
    pub fn probed(domain: &Domain) -> Result<Self, BuildError> {
        Ok(Counter {
            slots: domain.allocate(SIZE)?,
            restartable: domain.leased().is_none(),
            domain: domain.clone(),
            shared: Shared::default(),
            probe: core::marker::PhantomData,
        })
    }

    /// Adds `n`, wrapping at 2^64.
    #[inline]
    pub fn add(&self, n: u64) {
        if self.restartable {
            if let Some(area) = area::current() {
                // SAFETY: invariant 1, and invariant 1 of `sequence`.
                if unsafe { sequence::add::<P>(area, &self.slots, n) }.is_ok() {
                    return;
                }
            }
            return self.add_shared(n);
        }
        match self.domain.enter() {
            Ok(lease) => self.add_to(lease.id(), n),
            Err(_) => self.add_shared(n),
        }
    }

    /// Adds `n` under a lease of this counter's domain. A lease of another domain works as
    /// [`add`](Self::add) does. A signal handler must not use the lease of the code that it
    /// interrupts.
    #[inline]
    pub fn add_with(&self, lease: &Lease<'_>, n: u64) {
        if lease.is_of(&self.domain) {
            self.add_to(lease.id(), n);
        } else {
            self.add(n);
        }
    }

    /// The sum of all additions, wrapping; see the [guarantees](Self#guarantees).
    /// O([`Domain::max_ids`]): one load for each possible ID.
    pub fn sum(&self) -> u64 {
        let own = (0..self.slots.limit).map(|id| self.word(id).load(Relaxed));
        own.fold(self.shared.0.load(Relaxed), u64::wrapping_add)
    }

    /// The domain that the counter was made for.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// A load and a store suffice: no other thread writes this word.
    #[inline]
    fn add_to(&self, id: u32, n: u64) {
        let word = self.word(id);
        // Relaxed: the next holder of the ID sees the store because the ID is released and acquired
        // in between. A reader that sums up asks for no order.
        word.store(word.load(Relaxed).wrapping_add(n), Relaxed);
    }

    #[cold]
    #[inline(never)]
    fn add_shared(&self, n: u64) {
        self.shared.0.fetch_add(n, Relaxed);
    }

    #[inline]
    fn word(&self, id: u32) -> &AtomicU64 {
        // SAFETY: invariant 1; zeroed memory is a word.
        unsafe { self.slots.of(id).cast::<AtomicU64>().as_ref() }
    }
}

impl<P: Probe> Drop for Counter<P> {
    fn drop(&mut self) {
        for id in 0..self.slots.limit {
            let word = self.word(id);
            // A page that was only read has no memory, and must not get any here.
            if word.load(Relaxed) != 0 {
                word.store(0, Relaxed);
            }
        }
        self.domain.free(self.slots, SIZE);
    }
}
