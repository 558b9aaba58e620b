//! A pool of objects of one size, with free lists per ID.

use core::fmt;
use core::mem::{MaybeUninit, align_of, size_of};
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};
use std::alloc::{Layout, alloc, dealloc};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::domain::Domain;
use super::error::BuildError;
use super::lists::Lists;
use super::sequence::{Node, Pushed};
use crate::probe::{Probe, Sound};

/// How many free objects move at a time between an ID's list and the shared one.
const BATCH: usize = 32;
/// How many bytes of free places an ID's list keeps. Places that go through the shared list come to
/// other CPUs, and each costs a cache miss or two there.
const KEPT: usize = 64 << 10;
/// The least number of places that an ID's list keeps. A thread that alternately allocates and
/// frees near a full batch then moves nothing.
const LEAST: usize = 2 * BATCH;
/// How many places the first slab of a growing pool has. Each further slab has as many as all
/// earlier slabs together, up to [`LARGEST`].
const SMALLEST: usize = 2 * BATCH;
const LARGEST: usize = 1 << 14;

/// Memory for objects of one size, allocated and freed mostly per CPU.
///
/// Free places are in lists per ID, of up to 64 KiB or 64 places, whichever is more; with a fixed
/// capacity, of up to half of an ID's share of it, or 64. Excess places go to a shared list in
/// batches of 32, and come back in batches. Places that were never used are also allocated in
/// batches, so an object's memory is first written by its first user and lies on that thread's NUMA
/// node. When all that is exhausted, a [growing](Self::growing) pool takes a new slab of places
/// from the global allocator. In one of [fixed](Self::new) size a thread takes over another ID's
/// list ([stealing](super::Stack)). Slabs are freed with the pool.
///
/// | backend | allocate, free |
/// | --- | --- |
/// | restartable | one restartable sequence |
/// | lease | enter, a swap and a store on a line of the ID's own, leave |
///
/// An object may be freed by any thread. Not for signal handlers: moving batches takes a lock. Not
/// for the child of a fork if another thread was using the pool at that moment: a list may be half
/// changed, and the shared list's lock may be held by a thread that the child does not have.
///
/// The thread that gets a place sees what the last owner did before it freed the place.
///
/// ```
/// use kinlock_ids::{Domain, Pool};
///
/// let pool = Pool::new(&Domain::auto(), 1000)?;
/// let mut object = pool.insert([0u8; 256]).map_err(|full| full.to_string())?;
/// object[0] = 1;
/// drop(object); // Its place is free again.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// In a static, objects live as long as they like:
///
/// ```
/// use kinlock_ids::{Domain, Pool, Pooled};
/// use std::sync::LazyLock;
///
/// static NODES: LazyLock<Pool<[u64; 8]>> =
///     LazyLock::new(|| Pool::growing(&Domain::auto()).expect("address space"));
/// let node: Pooled<'static, _> = NODES.insert([0; 8]).expect("memory");
/// std::thread::spawn(move || drop(node)).join().unwrap();
/// ```
pub struct Pool<T>(Probed<T, Sound>);

impl<T> Pool<T> {
    /// A pool for `capacity` objects.
    ///
    /// # Errors
    ///
    /// [`BuildError::Memory`] if there is no memory or address space.
    pub fn new(domain: &Domain, capacity: usize) -> Result<Self, BuildError> {
        Probed::new(domain, capacity).map(Pool)
    }

    /// A pool without places. It takes memory when it needs some, and keeps it.
    ///
    /// # Errors
    ///
    /// [`BuildError::Memory`] if there is no address space for the lists.
    ///
    /// ```
    /// use kinlock_ids::{Domain, Pool};
    ///
    /// let pool = Pool::growing(&Domain::auto())?;
    /// let objects: Vec<_> = (0..1000).map_while(|i| pool.insert(i).ok()).collect();
    /// assert_eq!(objects.len(), 1000);
    /// # Ok::<(), kinlock_ids::BuildError>(())
    /// ```
    pub fn growing(domain: &Domain) -> Result<Self, BuildError> {
        Probed::with_at_most(domain, usize::MAX).map(Pool)
    }

    /// Like [`insert`](Self::insert); the object keeps the pool alive.
    ///
    /// # Errors
    ///
    /// Those of [`insert`](Self::insert).
    ///
    /// ```
    /// use kinlock_ids::{Domain, Pool};
    /// use std::sync::Arc;
    ///
    /// let pool = Arc::new(Pool::growing(&Domain::auto())?);
    /// let object = pool.insert_owned(7).map_err(|full| full.to_string())?;
    /// drop(pool);
    /// assert_eq!(*object, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert_owned(self: &Arc<Self>, object: T) -> Result<PooledArc<T>, Full<T>>
    where
        T: 'static,
    {
        let object = self.insert(object)?;
        // SAFETY: the `Arc` in the same struct keeps the pool, which has a fixed address, and is
        // dropped after the object.
        let object = unsafe { core::mem::transmute::<Pooled<'_, T>, Pooled<'static, T>>(object) };
        let _pool = Arc::clone(self);
        Ok(PooledArc { object, _pool })
    }

    /// Puts an object into the pool. O(1), but for stealing, which is O([`Domain::max_ids`]).
    ///
    /// # Errors
    ///
    /// [`Full`], with the object, if no free place was available at some moment of the call. Places
    /// in a list that another thread is accessing count as taken.
    #[inline]
    pub fn insert(&self, object: T) -> Result<Pooled<'_, T>, Full<T>> {
        self.0.insert(object).map(Pooled)
    }

    /// How many objects the pool can hold. If it grows: how many it has memory for now. O(1), under
    /// the lock of the slabs.
    pub fn capacity(&self) -> usize {
        self.0.slabs().capacity
    }

    /// How many lists were stolen so far.
    pub fn steals(&self) -> usize {
        self.0.steals()
    }

    /// The domain that the pool was made for.
    pub fn domain(&self) -> &Domain {
        self.0.lists.domain()
    }
}

impl<T> fmt::Debug for Pool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("domain", self.domain())
            .finish_non_exhaustive()
    }
}

/// A [`Pool`] with the sequences of any [`Probe`].
///
/// # Invariants
///
/// 1. A slab is an allocation of `len` places of type `Place<T>`, freed with the pool. The places
///    of the last slab from `used` on were never used.
/// 2. A place that was used is in `lists`, or has an object that one [`Pooled`] owns, or belongs to
///    a thread that is moving it between these states.
#[derive(Debug)]
pub struct Probed<T, P: Probe> {
    lists: Lists<P>,
    slabs: Padded<T>,
    /// How many places there may be.
    most: usize,
    /// How many places an ID's list keeps.
    kept: usize,
}

/// In cache lines of its own.
#[repr(align(128))]
#[derive(Debug)]
struct Padded<T>(Mutex<Slabs<T>>);

#[derive(Debug)]
struct Slabs<T> {
    last: Option<Box<Slab<T>>>,
    /// How many places of the last slab were used.
    used: usize,
    /// How many places all slabs have.
    capacity: usize,
}

/// The memory of some places (invariant 1 of the pool).
#[derive(Debug)]
struct Slab<T> {
    memory: NonNull<Place<T>>,
    layout: Layout,
    len: usize,
    /// The slab that was made before this one.
    before: Option<Box<Slab<T>>>,
}

/// A place: free, or with an object.
#[repr(C)]
union Place<T> {
    free: core::mem::ManuallyDrop<Node>,
    object: core::mem::ManuallyDrop<MaybeUninit<T>>,
}

// SAFETY: objects are moved in by one thread and out by another; free places have no owner.
unsafe impl<T: Send, P: Probe> Send for Probed<T, P> {}
// SAFETY: as above. A shared pool gives no references to objects; their owners do.
unsafe impl<T: Send, P: Probe> Sync for Probed<T, P> {}

impl<T> Slab<T> {
    /// A slab of `len` places, if there is memory.
    fn new(len: usize) -> Option<Box<Self>> {
        let layout = Layout::array::<Place<T>>(len).ok().filter(|_| len > 0)?;
        // SAFETY: the size is not 0, since a place is not smaller than a node.
        let memory = NonNull::new(unsafe { alloc(layout) })?.cast();
        Some(Box::new(Slab {
            memory,
            layout,
            len,
            before: None,
        }))
    }
}

impl<T> Drop for Slab<T> {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.memory.cast().as_ptr(), self.layout) };
    }
}

impl<T> Slabs<T> {
    fn add(&mut self, mut slab: Box<Slab<T>>) {
        (self.used, self.capacity) = (0, self.capacity + slab.len);
        slab.before = self.last.take();
        self.last = Some(slab);
    }

    /// Up to a batch of places that were never used, linked and with depths.
    fn take(&mut self) -> Option<NonNull<Node>> {
        let &Slab { memory, len, .. } = self.last.as_deref()?;
        let (from, to) = (self.used, (self.used + BATCH).min(len));
        self.used = to;
        let mut chain: *mut Node = ptr::null_mut();
        for index in (from..to).rev() {
            // SAFETY: invariants 1 and 2: the places from `from` to `to` are ours.
            unsafe {
                let node = memory.add(index).cast::<Node>();
                node.write(Node {
                    next: chain,
                    depth: to - index,
                });
                chain = node.as_ptr();
            }
        }
        NonNull::new(chain)
    }
}

impl<T, P: Probe> Probed<T, P> {
    /// Like [`Pool::new`].
    ///
    /// # Errors
    ///
    /// [`BuildError::Memory`].
    pub fn new(domain: &Domain, capacity: usize) -> Result<Self, BuildError> {
        let pool = Self::with_at_most(domain, capacity)?;
        if capacity > 0 {
            let slab = Slab::new(capacity).ok_or(BuildError::Memory)?;
            pool.slabs().add(slab);
        }
        Ok(pool)
    }

    fn with_at_most(domain: &Domain, most: usize) -> Result<Self, BuildError> {
        let slabs = Slabs {
            last: None,
            used: 0,
            capacity: 0,
        };
        // Places in lists of other IDs can only be stolen: at most half of all places may be there.
        let share = most / (2 * domain.max_ids() as usize);
        Ok(Probed {
            lists: Lists::new(domain)?,
            slabs: Padded(Mutex::new(slabs)),
            most,
            kept: share.min(KEPT / size_of::<Place<T>>()).max(LEAST),
        })
    }

    fn slabs(&self) -> MutexGuard<'_, Slabs<T>> {
        self.slabs.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Like [`Pool::insert`].
    ///
    /// # Errors
    ///
    /// [`Full`].
    #[inline]
    pub fn insert(&self, object: T) -> Result<ProbedObject<'_, T, P>, Full<T>> {
        let Some(place) = self.lists.pop().or_else(|| self.refill()) else {
            return Err(Full(object));
        };
        let place = place.cast::<T>();
        // SAFETY: invariant 2: the place is ours now, and large enough and aligned for a `T`.
        unsafe { place.write(object) };
        Ok(ProbedObject { pool: self, place })
    }

    /// Like [`Pool::steals`].
    pub fn steals(&self) -> usize {
        self.lists.steals()
    }

    #[cold]
    #[inline(never)]
    fn refill(&self) -> Option<NonNull<Node>> {
        let shared = self.lists.pop_shared();
        shared
            .or_else(|| self.take_fresh())
            .or_else(|| self.lists.steal())
    }

    /// A place that was never used. The rest of a batch becomes the calling thread's list.
    fn take_fresh(&self) -> Option<NonNull<Node>> {
        // Allocated without the lock, and freed without it if another thread has added a slab.
        let mut slab = None;
        let chain = loop {
            let mut slabs = self.slabs();
            let chain = slabs.take();
            if chain.is_some() || slabs.capacity >= self.most {
                break chain;
            }
            if let Some(slab) = slab.take() {
                slabs.add(slab);
                continue;
            }
            let len = slabs.capacity.clamp(SMALLEST, LARGEST);
            drop(slabs);
            slab = Slab::new(len);
            if slab.is_none() {
                break None;
            }
        };
        // SAFETY: invariant 2: the chain is ours.
        chain.map(|chain| unsafe { self.lists.adopt(chain) })
    }

    #[inline]
    fn give_back(&self, place: NonNull<Node>) {
        // SAFETY: invariant 2: the owner of the place gives it up.
        let pushed = unsafe { self.lists.push(place, self.kept) };
        if pushed != Pushed::Done {
            self.give_back_slowly(place, pushed);
        }
    }

    #[cold]
    #[inline(never)]
    fn give_back_slowly(&self, place: NonNull<Node>, pushed: Pushed) {
        if pushed == Pushed::Full {
            self.lists.flush(BATCH);
            // SAFETY: as above. The thread may run with another ID by now, whose list may be full,
            // too; then the node goes to the shared list.
            if unsafe { self.lists.push(place, self.kept) } == Pushed::Done {
                return;
            }
        }
        // SAFETY: as above.
        unsafe { self.lists.push_shared(place) };
    }
}

impl<T, P: Probe> Drop for Probed<T, P> {
    fn drop(&mut self) {
        // Owners of objects borrow the pool. A leaked object stays undropped.
        self.lists.drain(|_| ());
        let mut last = self.slabs().last.take();
        while let Some(mut slab) = last {
            last = slab.before.take();
        }
    }
}

/// An object in a [`Pool`]. Dropping this drops the object and frees its place. Any thread may do
/// so. O(1).
///
/// ```
/// use kinlock_ids::{Domain, Pool};
///
/// let pool = Pool::growing(&Domain::auto())?;
/// let mut object = pool.insert(vec![1]).map_err(|full| full.to_string())?;
/// object.push(2);
/// std::thread::scope(|s| s.spawn(move || assert_eq!(*object, [1, 2])).join().unwrap());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pooled<'p, T>(ProbedObject<'p, T, Sound>);

impl<T> Deref for Pooled<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Pooled<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: fmt::Debug> fmt::Debug for Pooled<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A [`Pooled`] of any [`Probe`].
#[derive(Debug)]
pub struct ProbedObject<'p, T, P: Probe> {
    pool: &'p Probed<T, P>,
    /// Has an object (invariant 2 of the pool).
    place: NonNull<T>,
}

// SAFETY: it owns the object.
unsafe impl<T: Send, P: Probe> Send for ProbedObject<'_, T, P> {}
// SAFETY: a shared reference gives shared references only.
unsafe impl<T: Sync, P: Probe> Sync for ProbedObject<'_, T, P> {}

impl<T, P: Probe> Deref for ProbedObject<'_, T, P> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: invariant 2 of the pool.
        unsafe { self.place.as_ref() }
    }
}

impl<T, P: Probe> DerefMut for ProbedObject<'_, T, P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: invariant 2 of the pool.
        unsafe { self.place.as_mut() }
    }
}

impl<T, P: Probe> Drop for ProbedObject<'_, T, P> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: invariant 2 of the pool: the object is there, and its owner ends here.
        unsafe { self.place.drop_in_place() };
        self.pool.give_back(self.place.cast());
    }
}

/// An object in a [`Pool`], which keeps the pool alive; see [`Pool::insert_owned`]. Dropping this
/// drops the object, frees its place, and drops the pool if nothing else keeps it alive.
pub struct PooledArc<T: 'static> {
    // The fields are dropped in this order.
    object: Pooled<'static, T>,
    _pool: Arc<Pool<T>>,
}

impl<T: 'static> Deref for PooledArc<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.object
    }
}

impl<T: 'static> DerefMut for PooledArc<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.object
    }
}

impl<T: fmt::Debug> fmt::Debug for PooledArc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A [`Pool`] has no free place and no memory for more. The object comes back.
///
/// ```
/// use kinlock_ids::{Domain, Full, Pool};
///
/// let pool = Pool::new(&Domain::auto(), 0)?;
/// let Err(Full(object)) = pool.insert("kept") else { unreachable!() };
/// assert_eq!(object, "kept");
/// # Ok::<(), kinlock_ids::BuildError>(())
/// ```
pub struct Full<T>(
    /// The object that was to be inserted.
    pub T,
);

impl<T> fmt::Debug for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Full(..)")
    }
}

impl<T> fmt::Display for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no place is free")
    }
}

impl<T> core::error::Error for Full<T> {}

/// A place has room for a node and for a `T`.
const _: () = assert!(
    size_of::<Place<u8>>() == size_of::<Node>() && align_of::<Place<u8>>() == align_of::<Node>()
);
