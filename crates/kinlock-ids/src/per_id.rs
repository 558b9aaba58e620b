//! Any value, once per ID.

use core::cell::UnsafeCell;
use core::fmt;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering::*};

use super::domain::{Domain, Lease};
use super::error::BuildError;
use super::sequence::Slots;

/// A `T` for every ID of a domain with leases, made at the first use of the ID with this structure.
///
/// The holder of an ID has the value to itself, so `T` need not be `Sync`. The next holder sees
/// what the last one did. Each value has cache lines of its own (a multiple of 128 bytes) and never
/// moves. The CPU that first holds the ID writes it first, so it lies on that CPU's NUMA node if
/// the kernel places pages at first touch. IDs that are never used cost address space only.
///
/// ```
/// use kinlock_ids::{Domain, PerId};
/// use std::cell::RefCell;
///
/// let domain = Domain::builder().max_ids(64).build()?;
/// let logs = PerId::new(&domain, || RefCell::new(Vec::new()))?;
/// std::thread::scope(|s| {
///     for i in 0..4 {
///         let (domain, logs) = (&domain, &logs);
///         s.spawn(move || {
///             let lease = domain.enter().unwrap();
///             logs.get(&lease).borrow_mut().push(i);
///         });
///     }
/// });
/// assert_eq!(logs.into_values().map(|log| log.into_inner().len()).sum::<usize>(), 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Invariants
///
/// 1. The slots were allocated for this structure: zeroed, a `Slot<T>` for each ID, returned when
///    it is dropped.
/// 2. A slot has a value if its state is `READY`. The value is made and accessed by the holder of
///    the ID, on one thread.
pub struct PerId<T> {
    slots: Slots,
    domain: Domain,
    make: Box<dyn Fn() -> T + Send + Sync>,
}

#[repr(C)]
struct Slot<T> {
    state: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

const FRESH: u32 = 0;
const READY: u32 = 1;
/// The value was moved out.
const TAKEN: u32 = 2;

// SAFETY: values are accessed by one thread at a time, one after the other (invariant 2).
unsafe impl<T: Send> Send for PerId<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for PerId<T> {}

impl<T> PerId<T> {
    /// A structure without values. `make` makes each one later, on a thread that holds the ID.
    ///
    /// # Errors
    ///
    /// * [`BuildError::Unleased`] if the domain is restartable: there IDs are not held.
    /// * [`BuildError::Memory`] if there is no address space, or if `T` has an alignment above 128.
    pub fn new(
        domain: &Domain,
        make: impl Fn() -> T + Send + Sync + 'static,
    ) -> Result<Self, BuildError> {
        if domain.leased().is_none() {
            return Err(BuildError::Unleased);
        }
        if align_of::<Slot<T>>() > super::arena::LINE {
            return Err(BuildError::Memory);
        }
        Ok(PerId {
            slots: domain.allocate(size_of::<Slot<T>>())?,
            domain: domain.clone(),
            make: Box::new(make),
        })
    }

    /// The value of the lease's ID. O(1); the first call for an ID runs `make`.
    ///
    /// # Panics
    ///
    /// If the lease is of another domain, or if `make` panics. In that case the next call runs
    /// `make` again.
    #[inline]
    pub fn get<'l>(&'l self, lease: &'l Lease<'_>) -> &'l T {
        assert!(lease.is_of(&self.domain), "a lease of another domain");
        let slot = self.slot(lease.id());
        // Relaxed: the ID was released and acquired since the last holder wrote.
        if slot.state.load(Relaxed) == FRESH {
            self.fill(slot);
        }
        // SAFETY: invariant 2: it is ready. The lease is neither `Send` nor `Sync`, so it stays on
        // this thread for as long as the reference lives.
        unsafe { (*slot.value.get()).assume_init_ref() }
    }

    /// The values of those IDs that have one, in ascending order of IDs.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let slots = (0..self.slots.limit).map(|id| self.slot(id));
        let ready = slots.filter(|slot| slot.state.load(Relaxed) == READY);
        // SAFETY: invariant 2; access is exclusive (`&mut self`), and slots are distinct.
        ready.map(|slot| unsafe { (*slot.value.get()).assume_init_mut() })
    }

    /// As [`values_mut`](Self::values_mut), by value.
    pub fn into_values(self) -> impl Iterator<Item = T> {
        let slots = (0..self.slots.limit).map(|id| self.slot(id));
        let ready = slots.filter(|slot| slot.state.load(Relaxed) == READY);
        let take = |slot: &Slot<T>| {
            slot.state.store(TAKEN, Relaxed);
            // SAFETY: invariant 2; access is exclusive (`self`), and the slot does not have it any
            // more.
            unsafe { (*slot.value.get()).assume_init_read() }
        };
        let values: Vec<T> = ready.map(take).collect();
        values.into_iter()
    }

    #[cold]
    #[inline(never)]
    fn fill(&self, slot: &Slot<T>) {
        let value = (self.make)();
        // `make` may itself have made the value of this ID.
        if slot.state.load(Relaxed) == FRESH {
            // SAFETY: invariant 2: we hold the ID, and there is no value yet, so no reference to
            // one.
            unsafe { (*slot.value.get()).write(value) };
            slot.state.store(READY, Relaxed);
        }
    }

    #[inline]
    fn slot(&self, id: u32) -> &Slot<T> {
        // SAFETY: invariant 1; zero is a slot without a value.
        unsafe { self.slots.of(id).cast::<Slot<T>>().as_ref() }
    }
}

impl<T> Drop for PerId<T> {
    fn drop(&mut self) {
        for id in 0..self.slots.limit {
            let slot = self.slot(id);
            let state = slot.state.load(Relaxed);
            if state == READY {
                // SAFETY: invariant 2; access is exclusive.
                unsafe { (*slot.value.get()).assume_init_drop() };
            }
            if state != FRESH {
                // SAFETY: invariant 1; access is exclusive, and there is no value any more.
                unsafe { self.slots.of(id).write_bytes(0, size_of::<Slot<T>>()) };
            }
        }
        self.domain.free(self.slots, size_of::<Slot<T>>());
    }
}

impl<T> fmt::Debug for PerId<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerId")
            .field("domain", &self.domain)
            .finish_non_exhaustive()
    }
}
