//! Any value, once per ID.

use core::cell::UnsafeCell;
use core::fmt;
use core::iter::successors;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*, fence};

use super::area;
use super::domain::{Domain, Lease};
use super::error::BuildError;
use super::sequence::{self, Slots};
use crate::probe::Sound;

/// A `T` for every ID of a domain, made at the first use of the ID with this structure.
///
/// [`with`](Self::with) works with both backends. While it runs, no other thread has the value, so
/// `T` need not be `Sync`. The next thread that gets the value sees what the last one did. Each
/// value has cache lines of its own (a multiple of 128 bytes) and never moves. The CPU that first
/// has the ID writes it first, so it lies on that CPU's NUMA node if the kernel places pages at
/// first touch. IDs that are never used cost address space only.
///
/// ```
/// use kinlock_ids::{Domain, PerId};
/// use std::cell::RefCell;
///
/// let logs = PerId::new(&Domain::auto(), || RefCell::new(Vec::new()))?;
/// std::thread::scope(|s| {
///     for i in 0..4 {
///         let logs = &logs;
///         s.spawn(move || logs.with(|log| log.borrow_mut().push(i)));
///     }
/// });
/// assert_eq!(logs.into_values().map(|log| log.into_inner().len()).sum::<usize>(), 4);
/// # Ok::<(), kinlock_ids::BuildError>(())
/// ```
///
/// # How a value is had without holding its ID
///
/// With restartable sequences a thread can be preempted inside `with`, and another may get its ID.
/// So each value has a claim: a sequence sets the claim if it is clear, and the end of `with`
/// clears it. A thread that finds the claim set (the thread that set it was preempted, or is this
/// one, in a nested call) takes a *spare* value, from a list that only grows. There are as many
/// spares as there ever were such calls at the same time. With leases `with` enters, and takes a
/// spare if there is no ID. The list has no lock: in the child of a fork, a lock that another
/// thread held would stay locked.
///
/// # Invariants
///
/// 1. The slots were allocated for this structure: zeroed, a `Slot<T>` for each ID, returned when
///    it is dropped. Spares are boxes made into pointers, never removed before the drop. A spare's
///    `older` is written before the spare is in the list, and never changes.
/// 2. A slot has a value if its state is `READY`. The value is made by the thread that has the
///    slot, on one thread. A thread has a slot while it holds the slot's ID by a lease, or from
///    when it has set the slot's claim until it clears it. In a domain of one backend only one of
///    the two happens; spares are only claimed.
/// 3. Only a thread that runs with the slot's ID, in a restartable sequence, sets its claim, and
///    only if that is clear. Only the thread that has set it clears it. A spare's claim is set by
///    compare-and-swap.
pub struct PerId<T> {
    slots: Slots,
    domain: Domain,
    make: Box<dyn Fn() -> T + Send + Sync>,
    /// The newest spare; null = none.
    spares: AtomicPtr<Spare<T>>,
}

struct Spare<T> {
    slot: Slot<T>,
    /// The spare that was made before this one; null = none.
    older: *const Spare<T>,
}

#[repr(C)]
struct Slot<T> {
    claim: AtomicU64,
    state: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// The offset of the claim in a slot.
const CLAIM: usize = 0;
const _: () = assert!(core::mem::offset_of!(Slot<u8>, claim) == CLAIM);

const FRESH: u32 = 0;
const READY: u32 = 1;
/// The value was moved out.
const TAKEN: u32 = 2;

// SAFETY: values are accessed by one thread at a time, one after the other (invariant 2), unless
// they are `Sync` (`for_each`).
unsafe impl<T: Send> Send for PerId<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for PerId<T> {}

/// A claim that was set by this thread.
struct Claimed<'s, T>(&'s Slot<T>);

impl<T> Drop for Claimed<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the fence, or the compare-and-swap, of the next thread.
        self.0.claim.store(0, Release);
    }
}

impl<T> PerId<T> {
    /// A structure without values. `make` makes each one later, on a thread that has the ID.
    ///
    /// # Errors
    ///
    /// [`BuildError::Memory`] if there is no address space, or if `T` has an alignment above 128.
    pub fn new(
        domain: &Domain,
        make: impl Fn() -> T + Send + Sync + 'static,
    ) -> Result<Self, BuildError> {
        if align_of::<Slot<T>>() > super::arena::LINE {
            return Err(BuildError::Memory);
        }
        Ok(PerId {
            slots: domain.allocate(size_of::<Slot<T>>())?,
            domain: domain.clone(),
            make: Box::new(make),
            spares: AtomicPtr::new(ptr::null_mut()),
        })
    }

    /// Calls `action` with the value of the ID with which the thread runs, or with a spare one; see
    /// [above](Self#how-a-value-is-had-without-holding-its-id). Which value that is has no meaning;
    /// only all values together have one. A nested call gets another value.
    ///
    /// O(1); the first call for a value runs `make`. Not for signal handlers. In the child of a
    /// fork, a value that another thread had at that moment is left alone by this method, and may
    /// be half changed.
    ///
    /// # Panics
    ///
    /// If `make` or `action` do. The value then stays as it is.
    ///
    /// ```
    /// use kinlock_ids::{Domain, PerId};
    /// use std::cell::Cell;
    ///
    /// let longest = PerId::new(&Domain::auto(), || Cell::new(0u64))?;
    /// longest.with(|longest| longest.set(longest.get().max(17)));
    /// assert_eq!(longest.into_values().map(|longest| longest.get()).max(), Some(17));
    /// # Ok::<(), kinlock_ids::BuildError>(())
    /// ```
    #[inline]
    pub fn with<R>(&self, action: impl FnOnce(&T) -> R) -> R {
        if self.domain.leased().is_some() {
            if let Ok(lease) = self.domain.enter() {
                return action(self.get(&lease));
            }
        } else if let Some(claimed) = self.claim_own() {
            return action(self.value(claimed.0));
        }
        let claimed = self.claim_spare();
        action(self.value(claimed.0))
    }

    #[inline]
    fn claim_own(&self) -> Option<Claimed<'_, T>> {
        let area = area::current()?;
        // SAFETY: invariants 1 and 3, and those of `sequence`; the offset is that of the claim.
        let slot = unsafe { sequence::store_if_zero::<Sound, 0>(area, &self.slots, CLAIM, 1) }?;
        // Pairs with the Release of the thread that cleared the claim, which the sequence has read.
        fence(Acquire);
        // SAFETY: invariant 1.
        Some(Claimed(unsafe { slot.cast::<Slot<T>>().as_ref() }))
    }

    #[cold]
    #[inline(never)]
    fn claim_spare(&self) -> Claimed<'_, T> {
        // Acquire pairs with the Release of the thread that cleared the claim.
        let claim = |slot: &&Slot<T>| {
            slot.claim.load(Relaxed) == 0
                && slot.claim.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
        };
        if let Some(free) = self.spare_slots().find(claim) {
            return Claimed(free);
        }
        let mut newest = self.spares.load(Relaxed);
        let new = Box::into_raw(Box::new(Spare {
            slot: Slot {
                claim: AtomicU64::new(1),
                state: AtomicU32::new(FRESH),
                value: UnsafeCell::new(MaybeUninit::uninit()),
            },
            older: newest,
        }));
        // Release pairs with the Acquire in `spare_slots`.
        while let Err(now) = self.spares.compare_exchange(newest, new, Release, Relaxed) {
            newest = now;
            // SAFETY: invariant 1: it is not in the list yet, so that no other thread has it.
            unsafe { (*new).older = newest };
        }
        // SAFETY: invariant 1.
        Claimed(unsafe { &(*new).slot })
    }

    /// The spares that have been made, the newest first.
    fn spare_slots(&self) -> impl Iterator<Item = &Slot<T>> {
        // Acquire pairs with the Release by which each spare came into the list: the changes of
        // this pointer are read-modify-writes, so they form one release sequence.
        // SAFETY: invariant 1.
        let newest = unsafe { self.spares.load(Acquire).as_ref() };
        // SAFETY: invariant 1.
        let spares = successors(newest, |spare| unsafe { spare.older.as_ref() });
        spares.map(|spare| &spare.slot)
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
        // The lease is neither `Send` nor `Sync`, so the value stays on this thread for as long as
        // the reference lives.
        self.value(self.slot(lease.id()))
    }

    /// Calls `each` with all values that were made, while threads may be using them. For a `T` that
    /// can be shared: atomics, a mutex. O([`Domain::max_ids`]).
    ///
    /// ```
    /// use kinlock_ids::{Domain, PerId};
    /// use std::sync::Mutex;
    ///
    /// let names = PerId::new(&Domain::auto(), || Mutex::new(Vec::new()))?;
    /// names.with(|names| names.lock().unwrap().push("a"));
    /// let mut all = Vec::new();
    /// names.for_each(|names| all.extend(names.lock().unwrap().iter().copied()));
    /// assert_eq!(all, ["a"]);
    /// # Ok::<(), kinlock_ids::BuildError>(())
    /// ```
    pub fn for_each(&self, mut each: impl FnMut(&T))
    where
        T: Sync,
    {
        for slot in self.all_slots() {
            // Acquire pairs with the Release that published the value.
            if slot.state.load(Acquire) == READY {
                // SAFETY: invariant 2: it is there, and nobody takes it while this is borrowed.
                each(unsafe { (*slot.value.get()).assume_init_ref() });
            }
        }
    }

    /// The values that were made: first those of IDs, in ascending order of IDs, then the spare
    /// ones, the newest first. O([`Domain::max_ids`] + spare values).
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let ready = |slot: &&Slot<T>| slot.state.load(Relaxed) == READY;
        // SAFETY: invariant 2; access is exclusive (`&mut self`), and slots are distinct.
        let value = |slot: &Slot<T>| unsafe { &mut *slot.value.get().cast::<T>() };
        self.all_slots().filter(ready).map(value)
    }

    /// Like [`values_mut`](Self::values_mut), by value. Allocates a vector for them.
    pub fn into_values(self) -> impl Iterator<Item = T> {
        let ready = |slot: &&Slot<T>| slot.state.load(Relaxed) == READY;
        let take = |slot: &Slot<T>| {
            slot.state.store(TAKEN, Relaxed);
            // SAFETY: invariant 2; access is exclusive (`self`), and the slot does not have it any
            // more.
            unsafe { (*slot.value.get()).assume_init_read() }
        };
        let values: Vec<T> = self.all_slots().filter(ready).map(take).collect();
        values.into_iter()
    }

    fn all_slots(&self) -> impl Iterator<Item = &Slot<T>> {
        let slots = (0..self.slots.limit).map(|id| self.slot(id));
        slots.chain(self.spare_slots())
    }

    /// The value of a slot that the calling thread has.
    #[inline]
    fn value<'s>(&'s self, slot: &'s Slot<T>) -> &'s T {
        // Relaxed: the last thread that had the slot wrote it before it gave the slot up.
        if slot.state.load(Relaxed) == FRESH {
            self.fill(slot);
        }
        // SAFETY: invariant 2: it is ready.
        unsafe { (*slot.value.get()).assume_init_ref() }
    }

    #[cold]
    #[inline(never)]
    fn fill(&self, slot: &Slot<T>) {
        let value = (self.make)();
        // With a lease `make` may itself have made the value of this ID.
        if slot.state.load(Relaxed) == FRESH {
            // SAFETY: invariant 2: we have the slot, and there is no value yet, so no reference to
            // one.
            unsafe { (*slot.value.get()).write(value) };
            // Release: for `for_each`.
            slot.state.store(READY, Release);
        }
    }

    #[inline]
    fn slot(&self, id: u32) -> &Slot<T> {
        // SAFETY: invariant 1; zero is a slot without a value that nobody has claimed.
        unsafe { self.slots.of(id).cast::<Slot<T>>().as_ref() }
    }
}

impl<T> Drop for PerId<T> {
    fn drop(&mut self) {
        for slot in self.all_slots() {
            if slot.state.load(Relaxed) == READY {
                // SAFETY: invariant 2; access is exclusive.
                unsafe { (*slot.value.get()).assume_init_drop() };
            }
        }
        for id in 0..self.slots.limit {
            let slot = self.slot(id);
            // A claim without a value is left by a panic of `make` in the child of a fork.
            if slot.state.load(Relaxed) != FRESH || slot.claim.load(Relaxed) != 0 {
                // SAFETY: invariant 1; access is exclusive, and there is no value any more.
                unsafe { self.slots.of(id).write_bytes(0, size_of::<Slot<T>>()) };
            }
        }
        let mut next = *self.spares.get_mut();
        while !next.is_null() {
            // SAFETY: invariant 1; its value was dropped.
            next = unsafe { Box::from_raw(next) }.older.cast_mut();
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
