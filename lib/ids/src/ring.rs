//! A bounded queue per ID.
//!
//! # Invariants
//!
//! 1. The slots were allocated for this ring: zeroed, a [`Header`] and `mask + 1` elements for each
//!    ID, which is what `sequence` requires of a ring.
//! 2. The elements from `first` to `end`, at their numbers modulo `mask + 1`, have values. Each
//!    belongs to the ring until `first` passes it.
//! 3. A slot is accessed by a restartable sequence with its ID; with leases, by the thread that has
//!    closed its gate; with restartable sequences, by a thread that holds the mutex, has closed the
//!    gate and has restarted all sequences; or with `&mut self`. Other threads only compare `first`
//!    with `end`.

use core::fmt;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use std::collections::VecDeque;

use super::area::{self, Area, Reach};
use super::arena::LINE;
use super::domain::Domain;
use super::error::BuildError;
use super::lists::{CLOSED, OPEN, at, with_room};
use super::pool::Full;
use super::sequence::{self, END, Element, FIRST, GATE, Moved, Slots};
use crate::probe::{Probe, Sound};
use kinlock::{Mutex, MutexGuard};
use kinlock_linux::native::futex;

/// A queue without a contended end: every CPU pushes and pops on its own. First in, first out per
/// ID, and bounded per ID.
///
/// For values that are collected per CPU and then taken together, or handled on the CPU where they
/// came up: events of a trace, jobs, memory to free later. Values lie in the ring itself: a push
/// with an ID allocates nothing.
///
/// A thread that migrates leaves its values behind, and [`pop`](Self::pop) finds what was pushed
/// with the ID that the thread has now. [`steal`](Self::steal) and [`drain`](Self::drain) take the
/// values of other IDs.
///
/// | backend | `push`, `pop` | `steal`, `drain` |
/// | --- | --- | --- |
/// | restartable | one restartable sequence, which copies the value | one `membarrier` |
/// | lease | enter, a swap, a store on lines of the ID's own, leave | a swap and a store per ID |
///
/// The `membarrier` costs some microseconds, and an interrupt for every CPU that runs the process.
/// The longer a value takes to copy, the likelier its sequence starts again: above some kilobytes,
/// push a box.
///
/// # Guarantees
///
/// * A pushed value is popped once, or dropped with the ring. The popping thread sees what the
///   pushing thread did before.
/// * Values of one ID leave in the order in which they were pushed. There is no order between IDs.
///   Threads without an ID share one more queue, of the same capacity, behind a mutex.
/// * `push` and `pop` wait for a `steal` or `drain` that is taking values of their ID, and for the
///   mutex if they use the shared queue.
/// * Not for signal handlers: taking values from other IDs holds a lock.
/// * Not for the child of a fork if another thread was using the ring at that moment; the child
///   must not even drop it.
///
/// ```
/// use kinlock_ids::{Domain, Ring};
///
/// let events = Ring::new(&Domain::auto(), 1024)?;
/// std::thread::scope(|s| {
///     for thread in 0..4 {
///         let events = &events;
///         s.spawn(move || events.push((thread, "started")));
///     }
/// });
/// assert_eq!(events.drain().len(), 4);
/// # Ok::<(), kinlock_ids::BuildError>(())
/// ```
pub struct Ring<T>(Probed<T, Sound>);

impl<T> Ring<T> {
    /// An empty ring for `capacity` values of each ID, rounded up to a power of two.
    ///
    /// # Errors
    ///
    /// [`BuildError::Memory`] if there is no address space, or if `T` has an alignment above 128.
    pub fn new(domain: &Domain, capacity: usize) -> Result<Self, BuildError> {
        Probed::new(domain, capacity).map(Ring)
    }

    /// Pushes a value behind the others of the calling thread's ID. O(1).
    ///
    /// # Errors
    ///
    /// [`Full`], with the value, if there are as many as the [`capacity`](Self::capacity).
    ///
    /// ```
    /// use kinlock_ids::{Domain, Ring};
    ///
    /// let domain = Domain::builder().max_ids(32).build()?;
    /// let ring = Ring::new(&domain, 2)?;
    /// assert!(ring.push(1).is_ok() && ring.push(2).is_ok());
    /// assert_eq!(ring.push(3).unwrap_err().0, 3);
    /// assert_eq!((ring.pop(), ring.pop(), ring.pop()), (Some(1), Some(2), None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn push(&self, value: T) -> Result<(), Full<T>> {
        self.0.push(value)
    }

    /// Pops the oldest value of the calling thread's ID; if there is none, of the queue that
    /// threads without an ID share. `None` if each of the two was empty at some moment of the call.
    /// O(1).
    #[inline]
    pub fn pop(&self) -> Option<T> {
        self.0.pop()
    }

    /// Takes the values of one ID that has any, oldest first. The search begins after the calling
    /// thread's own ID, with leases at ID 0. Where no ID has any, takes those of threads without an
    /// ID. Empty also if the ID that was found had lost its values meanwhile, or, with leases, is
    /// in use. O([`Domain::max_ids`] + number of values).
    ///
    /// ```
    /// use kinlock_ids::{Domain, Ring};
    ///
    /// let jobs = Ring::new(&Domain::auto(), 64)?;
    /// std::thread::scope(|s| s.spawn(|| jobs.push("job")).join().unwrap()).unwrap();
    /// let job = jobs.pop().or_else(|| jobs.steal().pop());
    /// assert_eq!(job, Some("job"));
    /// # Ok::<(), kinlock_ids::BuildError>(())
    /// ```
    pub fn steal(&self) -> Vec<T> {
        self.0.steal()
    }

    /// Takes the values of all IDs: those of each ID oldest first, then those of threads without an
    /// ID. With leases, an ID in use at that moment is passed over. Values that are pushed
    /// meanwhile may stay; all values of IDs do if the kernel has come to refuse `membarrier`.
    /// O([`Domain::max_ids`] + number of values).
    pub fn drain(&self) -> Vec<T> {
        self.0.drain()
    }

    /// How many values of one ID the ring can hold.
    pub fn capacity(&self) -> usize {
        self.0.mask + 1
    }

    /// The domain that the ring was made for.
    pub fn domain(&self) -> &Domain {
        &self.0.domain
    }
}

impl<T> fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("capacity", &self.capacity())
            .field("domain", self.domain())
            .finish_non_exhaustive()
    }
}

/// A [`Ring`] with the sequences of any [`Probe`].
#[derive(Debug)]
pub struct Probed<T, P: Probe> {
    slots: Slots,
    mask: usize,
    domain: Domain,
    restartable: bool,
    /// None with leases, or if the slots are not near each other.
    reach: Reach,
    shared: Shared<T>,
    probe: PhantomData<P>,
}

/// The layout that sequences access by [`GATE`], [`FIRST`] and [`END`].
#[repr(C)]
struct Header {
    gate: AtomicU64,
    first: AtomicU64,
    end: AtomicU64,
}

const _: () = assert!(
    core::mem::offset_of!(Header, gate) == GATE
        && core::mem::offset_of!(Header, first) == FIRST
        && core::mem::offset_of!(Header, end) == END
);

/// The values of threads without an ID, in cache lines of their own.
#[repr(align(128))]
#[derive(Debug)]
struct Shared<T> {
    queue: Mutex<VecDeque<T>>,
    /// The length of the queue, written under the mutex.
    len: AtomicUsize,
}

// SAFETY: values are moved in by one thread and out by another.
unsafe impl<T: Send, P: Probe> Send for Probed<T, P> {}
// SAFETY: as above: a shared ring gives no references to values.
unsafe impl<T: Send, P: Probe> Sync for Probed<T, P> {}

impl<T, P: Probe> Probed<T, P> {
    /// As [`Ring::new`].
    ///
    /// # Errors
    ///
    /// [`BuildError::Memory`].
    pub fn new(domain: &Domain, capacity: usize) -> Result<Self, BuildError> {
        let capacity = capacity.max(1).checked_next_power_of_two();
        let size = capacity.and_then(Self::size);
        let fits = align_of::<Element<T>>() <= LINE;
        let (Some(capacity), Some(size), true) = (capacity, size, fits) else {
            return Err(BuildError::Memory);
        };
        let slots = domain.allocate(size)?;
        let restartable = domain.leased().is_none();
        let near = restartable && slots.are_near();
        Ok(Probed {
            slots,
            mask: capacity - 1,
            restartable,
            reach: Reach::new(near),
            domain: domain.clone(),
            shared: Shared {
                queue: Mutex::new(VecDeque::new()),
                len: AtomicUsize::new(0),
            },
            probe: PhantomData,
        })
    }

    /// The size of a slot with `elements` elements.
    fn size(elements: usize) -> Option<usize> {
        let bytes = elements.checked_mul(Element::<T>::BYTES)?;
        bytes.checked_add(Element::<T>::AT)
    }

    /// As [`Ring::push`].
    ///
    /// # Errors
    ///
    /// [`Full`].
    #[inline]
    pub fn push(&self, value: T) -> Result<(), Full<T>> {
        let Some(area) = self.reach.area() else {
            return self.push_slowly(value, None);
        };
        let mut value = Element::new(value);
        // SAFETY: `reach` has an area only if so.
        let moved = unsafe { self.transfer_restartable::<1, 1>(area, &mut value) };
        if moved == Moved::Done {
            return Ok(());
        }
        // SAFETY: the element has a value, and keeps it unless it is pushed.
        self.push_slowly(unsafe { value.0.assume_init() }, Some(moved))
    }

    /// As [`Ring::pop`].
    #[inline]
    pub fn pop(&self) -> Option<T> {
        let Some(area) = self.reach.area() else {
            return self.pop_slowly(None);
        };
        let mut value = Element(MaybeUninit::uninit());
        // SAFETY: `reach` has an area only if so.
        let moved = unsafe { self.transfer_restartable::<0, 1>(area, &mut value) };
        if moved == Moved::Done {
            // SAFETY: a value was moved to it.
            return Some(unsafe { value.0.assume_init() });
        }
        if moved == Moved::Refused && self.shared.len.load(Relaxed) == 0 {
            return None;
        }
        self.pop_slowly(Some(moved))
    }

    /// As [`Ring::steal`].
    pub fn steal(&self) -> Vec<T> {
        self.take(1)
    }

    /// As [`Ring::drain`].
    pub fn drain(&self) -> Vec<T> {
        self.take(usize::MAX)
    }

    /// With `PUSH` = 1 moves `value` into the ring of the calling thread's ID, else the oldest one
    /// to it. After `Done` it belongs to the ring, or to the caller.
    ///
    /// # Safety
    ///
    /// The backend is the restartable one. With `NEAR` = 1 the slots are near each other.
    #[inline]
    unsafe fn transfer_restartable<const PUSH: usize, const NEAR: usize>(
        &self,
        area: Area,
        value: &mut Element<T>,
    ) -> Moved {
        // SAFETY: invariant 1, and those of `sequence`, by the caller.
        unsafe { sequence::ring::<P, T, PUSH, NEAR>(area, &self.slots, self.mask, value) }
    }

    /// As `push`, after an attempt that was not `Done`, if there was one.
    #[inline(never)]
    fn push_slowly(&self, value: T, tried: Option<Moved>) -> Result<(), Full<T>> {
        let mut value = Element::new(value);
        let moved = self.transfer::<1>(&mut value, tried);
        if moved == Moved::Done {
            return Ok(());
        }
        // SAFETY: the element has a value, and keeps it unless it is pushed.
        let value = unsafe { value.0.assume_init() };
        match moved {
            Moved::OutOfRange => self.push_shared(value),
            _ => Err(Full(value)),
        }
    }

    /// As `pop`, after an attempt that was not `Done`, if there was one.
    #[inline(never)]
    fn pop_slowly(&self, tried: Option<Moved>) -> Option<T> {
        let mut value = Element(MaybeUninit::uninit());
        match self.transfer::<0>(&mut value, tried) {
            // SAFETY: a value was moved to it.
            Moved::Done => Some(unsafe { value.0.assume_init() }),
            _ => self.pop_shared(),
        }
    }

    /// Goes on until the gate is open.
    fn transfer<const PUSH: usize>(&self, value: &mut Element<T>, tried: Option<Moved>) -> Moved {
        let mut moved = tried;
        loop {
            match moved {
                Some(Moved::Closed) => {
                    // The thief that has closed the gate holds the mutex.
                    drop(self.shared.queue.lock());
                }
                Some(moved) => return moved,
                None => {}
            }
            moved = Some(if self.restartable {
                // SAFETY: the backend is the restartable one.
                area::current().map_or(Moved::OutOfRange, |area| unsafe {
                    self.transfer_restartable::<PUSH, 0>(area, value)
                })
            } else {
                self.transfer_leased::<PUSH>(value)
            });
        }
    }

    fn transfer_leased<const PUSH: usize>(&self, value: &mut Element<T>) -> Moved {
        let value = NonNull::from(value);
        let Ok(lease) = self.domain.enter() else {
            return Moved::OutOfRange;
        };
        let header = self.header(lease.id());
        let moved = at(&header.gate, || {
            let (first, end) = (header.first.load(Relaxed), header.end.load(Relaxed));
            let refused = if PUSH == 1 { self.mask as u64 + 1 } else { 0 };
            if end - first == refused {
                return Moved::Refused;
            }
            // SAFETY: invariants 2 and 3; the caller's element.
            unsafe {
                if PUSH == 1 {
                    self.place(lease.id(), end)
                        .copy_from_nonoverlapping(value, 1);
                    header.end.store(end + 1, Relaxed);
                } else {
                    value.copy_from_nonoverlapping(self.place(lease.id(), first), 1);
                    header.first.store(first + 1, Relaxed);
                }
            }
            Moved::Done
        });
        moved.unwrap_or(Moved::Closed)
    }

    fn push_shared(&self, value: T) -> Result<(), Full<T>> {
        with_room(&self.shared.queue, |queue| {
            if queue.len() > self.mask {
                return Err(Full(value));
            }
            queue.push_back(value);
            self.shared.len.store(queue.len(), Relaxed);
            Ok(())
        })
    }

    fn pop_shared(&self) -> Option<T> {
        if self.shared.len.load(Relaxed) == 0 {
            return None;
        }
        let mut queue = self.shared.queue.lock();
        let value = queue.pop_front();
        self.shared.len.store(queue.len(), Relaxed);
        value
    }

    /// Takes the values of up to `most` IDs that have any.
    #[cold]
    #[inline(never)]
    fn take(&self, most: usize) -> Vec<T> {
        let start = self.domain.momentary_id().map_or(0, |id| id + 1);
        let limit = self.slots.limit;
        let used = || {
            let ids = (0..limit).map(|step| (start + step) % limit);
            ids.filter(|&id| self.len_of(id) > 0).take(most)
        };
        let mut ids = Vec::with_capacity(limit as usize);
        let mut taken = Vec::new();
        let mut more = used().map(|id| self.len_of(id)).sum();
        // Memory is allocated without the lock and with open gates: an allocator may be what calls,
        // or wait for a thread that pushes. So an ID whose values do not fit comes in a next round.
        loop {
            taken.reserve(more + self.shared.len.load(Relaxed));
            let mut queue = self.shared.queue.lock();
            ids.extend(used());
            more = if self.restartable {
                self.take_restartable(&ids, &queue, &mut taken)
            } else {
                let empty = |&id: &u32| {
                    let left = at(&self.header(id).gate, || self.empty(id, &mut taken));
                    left.unwrap_or(0)
                };
                ids.iter().map(empty).sum()
            };
            if more == 0 && (most > 1 || taken.is_empty()) {
                if queue.len() <= taken.capacity() - taken.len() {
                    taken.extend(queue.drain(..));
                    self.shared.len.store(0, Relaxed);
                } else {
                    more = queue.len();
                }
            }
            drop(queue);
            if more == 0 {
                return taken;
            }
            ids.clear();
        }
    }

    /// As `take`, of these IDs. The mutex is held, so this is the only thief. Returns how many
    /// values more there should be room for.
    fn take_restartable(
        &self,
        ids: &[u32],
        _alone: &MutexGuard<'_, VecDeque<T>>,
        to: &mut Vec<T>,
    ) -> usize {
        if ids.is_empty() {
            return 0;
        }
        let mut more = 0;
        let gates = || ids.iter().map(|&id| &self.header(id).gate);
        gates().for_each(|gate| gate.store(CLOSED, Relaxed));
        // A full barrier for all threads. Sequences that start later see the gates closed;
        // sequences under way start again, and see it.
        if futex::restart_sequences() {
            more = ids.iter().map(|&id| self.empty(id, to)).sum();
        }
        // Pairs with the acquiring load of the gate in each sequence.
        gates().for_each(|gate| gate.store(OPEN, Release));
        more
    }

    /// How many values an ID has. Never more than there is room for, even if a broken sequence has
    /// counted wrong.
    fn len_of(&self, id: u32) -> usize {
        let header = self.header(id);
        let (first, end) = (header.first.load(Relaxed), header.end.load(Relaxed));
        end.wrapping_sub(first).min(self.mask as u64 + 1) as usize
    }

    /// Moves all values of an ID, if there is room. If not, it returns how many may be there when
    /// they are asked for again. The caller has access to its slot (invariant 3).
    fn empty(&self, id: u32, to: &mut Vec<T>) -> usize {
        let header = self.header(id);
        let (first, end) = (header.first.load(Relaxed), header.end.load(Relaxed));
        let count = self.len_of(id);
        if count > to.capacity() - to.len() {
            return (2 * count).min(self.mask + 1);
        }
        for number in first..first + count as u64 {
            // SAFETY: invariant 2, and access by invariant 3. It leaves the ring below.
            to.push(unsafe { self.place(id, number).as_ref().0.assume_init_read() });
        }
        if count > 0 {
            header.first.store(end, Relaxed);
        }
        0
    }

    #[inline]
    fn header(&self, id: u32) -> &Header {
        // SAFETY: invariant 1; all zeros is an open gate and an empty ring.
        unsafe { self.slots.of(id).cast::<Header>().as_ref() }
    }

    /// Where the element with this number is.
    #[inline]
    fn place(&self, id: u32, number: u64) -> NonNull<Element<T>> {
        let index = number as usize & self.mask;
        // SAFETY: invariant 1.
        unsafe {
            let elements = self.slots.of(id).add(Element::<T>::AT);
            elements.cast::<Element<T>>().add(index)
        }
    }
}

impl<T, P: Probe> Drop for Probed<T, P> {
    fn drop(&mut self) {
        let mut values = Vec::new();
        for id in 0..self.slots.limit {
            let end = self.header(id).end.load(Acquire);
            values.reserve(self.len_of(id));
            self.empty(id, &mut values);
            // SAFETY: invariant 1: zeros, or what a sequence has written.
            let half_written = || unsafe {
                let words = self.place(id, 0).cast::<u64>();
                (0..Element::<T>::BYTES / 8).any(|at| words.add(at).read() != 0)
            };
            // The next user of this memory expects zeros. A page that was only read has no memory,
            // and must not get any here. In the child of a fork a gate may be closed.
            let closed = self.header(id).gate.load(Relaxed) != OPEN;
            if end != 0 || closed || self.restartable && half_written() {
                // A sequence that started again may have left another element behind the last.
                let written = (end as usize).saturating_add(1).min(self.mask + 1);
                let bytes = Self::size(written).unwrap_or(0);
                // SAFETY: invariant 1; access is exclusive, and the values were moved out.
                unsafe { self.slots.of(id).write_bytes(0, bytes) };
            }
        }
        // The elements that a defect has touched are not known.
        if P::RESTARTS {
            let size = Self::size(self.mask + 1).unwrap_or(0);
            self.domain.free(self.slots, size);
        }
    }
}
