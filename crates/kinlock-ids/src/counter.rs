//! A counter that every CPU adds to on its own.

use core::sync::atomic::{AtomicU64, Ordering::*};

use super::area;
use super::domain::{BuildError, Domain, Lease};
use super::sequence::{self, Probe, Slots, Sound};

/// A counter for many writers and few readers: a word per ID, added to without a locked instruction.
///
/// | backend | `add` |
/// | --- | --- |
/// | restartable | one restartable sequence |
/// | lease | enter, a load and a store, leave; [`add_with`](Self::add_with) a lease: a load and a store |
///
/// Where a thread has no ID (all are held; the kernel refuses the thread restartable sequences; the thread is running its last destructors), it adds to one word that all such threads share, with a locked instruction. The sum is right in any case.
///
/// # Guarantees
///
/// * No addition is lost. [`sum`](Self::sum) has every addition that happened before the call, none that happens after it, and any subset of those that run meanwhile: it is not a snapshot. Sums of one thread do not decrease
///   as long as nobody adds a "negative" (wrapping) number.
/// * Additions are `Relaxed`: they order nothing else.
/// * Adding is async-signal-safe, if the thread has added to a counter of that domain before; it allocates nothing and makes no system call then. It can also be used in the child of a fork, which goes on with a copy.
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
/// 1. The slots were allocated for this counter, and are given back when it is dropped. Each holds one word, which only who has the ID writes: in a restartable sequence, or with a lease.
#[derive(Debug)]
pub struct Counter<P: Probe = Sound> {
    slots: Slots,
    domain: Domain,
    restartable: bool,
    shared: Shared,
    probe: core::marker::PhantomData<P>,
}

/// In lines of its own: a thread that has no ID should not disturb those that read the rest.
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
    /// [`BuildError::Memory`].
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

    /// Adds `n` under a lease of this counter's domain; under another domain's as [`add`](Self::add) does. A signal handler must not use the lease of the code that it interrupts.
    #[inline]
    pub fn add_with(&self, lease: &Lease<'_>, n: u64) {
        if lease.is_of(&self.domain) {
            self.add_to(lease.id(), n);
        } else {
            self.add(n);
        }
    }

    /// The sum of all additions, wrapping; see the [guarantees](Self#guarantees). One load for every ID that there can be.
    pub fn sum(&self) -> u64 {
        let own = (0..self.slots.limit).map(|id| self.word(id).load(Relaxed));
        own.fold(self.shared.0.load(Relaxed), u64::wrapping_add)
    }

    /// The domain.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// A load and a store: nobody else writes here.
    #[inline]
    fn add_to(&self, id: u32, n: u64) {
        let word = self.word(id);
        // Relaxed: who has the ID next sees it because the ID is released and acquired; who sums up wants no more.
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
            // Pages that were only read have no memory, and need none.
            if word.load(Relaxed) != 0 {
                word.store(0, Relaxed);
            }
        }
        self.domain.free(self.slots, SIZE);
    }
}
