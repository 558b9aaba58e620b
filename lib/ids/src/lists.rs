//! A list of nodes per ID, and a shared one behind a lock. [`Stack`](super::Stack) and
//! [`Pool`](super::Pool) are built on it.
//!
//! ```text
//!   slot of an ID:   gate | head -> node -> node -> ...   accessed with that ID
//!   shared:          chains, behind a mutex               overflow; leftovers; threads without ID
//! ```
//!
//! # Access to a slot
//!
//! | gate | restartable | lease |
//! | --- | --- | --- |
//! | 0 | sequences with the ID may run | free |
//! | 1 | a thief accesses it: sequences do nothing | the ID's holder or a thief accesses it |
//!
//! With restartable sequences only thieves close the gate, and they hold the mutex of the shared
//! list: one thief at a time. After closing the gate a thief makes the kernel restart all sequences
//! (`membarrier`, some microseconds). From then on the thief alone accesses the list. It reopens
//! the gate by a `Release` store, which pairs with the acquiring load of the gate in each sequence:
//! a sequence that sees the gate open sees the head that the thief has left.
//!
//! With leases the gate is a lock that is nearly always free: acquired by a swap (`Acquire`),
//! released by a store (`Release`). A thread that finds it locked does not wait, but uses the
//! shared list.
//!
//! # Stealing
//!
//! A thief takes the whole list of one victim and keeps one node. The others become the thief's own
//! list, or go to the shared list if its own is not empty any more. So a consumer whose producer
//! runs with another ID steals once per batch.
//!
//! # Invariants
//!
//! 1. Nodes in lists are live, and in one list only. A node that was popped or is not pushed yet
//!    belongs to the caller. So do nodes that are linked to each other and in no list: a *chain*,
//!    whose last link is null.
//! 2. The slots were allocated for these lists: zeroed, a [`Slot`] for each ID.
//! 3. A slot's head is accessed as the table says. Other threads may only check whether it is null.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};

use super::area::{self, Reach};
use super::domain::Domain;
use super::error::BuildError;
use super::sequence::{self, GATE, HEAD, Node, Pushed, STRETCH, Slots};
use crate::probe::Probe;
use kinlock::Mutex;
use kinlock_linux::native::futex;

/// The layout that sequences access by the offsets [`GATE`] and [`HEAD`].
#[repr(C)]
struct Slot {
    gate: AtomicU64,
    head: AtomicPtr<Node>,
}

const _: () =
    assert!(core::mem::offset_of!(Slot, gate) == GATE && core::mem::offset_of!(Slot, head) == HEAD);

const OPEN: u64 = 0;
const CLOSED: u64 = 1;
const SIZE: usize = size_of::<Slot>();
const _: () = assert!(SIZE <= STRETCH);

#[derive(Debug)]
pub(super) struct Lists<P: Probe> {
    slots: Slots,
    domain: Domain,
    restartable: bool,
    /// None with leases.
    reach: Reach,
    shared: Shared,
    /// How many lists were stolen.
    steals: AtomicUsize,
    probe: core::marker::PhantomData<P>,
}

/// The newest chain of the shared list, in cache lines of its own. In a shared chain, the depth of
/// the first node is replaced by the address of the next older chain: a thread that takes the chain
/// removes this node from it.
#[repr(align(128))]
#[derive(Debug)]
struct Shared(Mutex<*mut Node>);

// SAFETY: shared nodes belong to the holder of the mutex (invariant 1); the values in them are
// `Send`, as the types of their users require. Slots are accessed as invariant 3 says, by any
// thread.
unsafe impl<P: Probe> Send for Lists<P> {}
// SAFETY: as above.
unsafe impl<P: Probe> Sync for Lists<P> {}

impl<P: Probe> Lists<P> {
    pub(super) fn new(domain: &Domain) -> Result<Self, BuildError> {
        let restartable = domain.leased().is_none();
        Ok(Lists {
            slots: domain.allocate(SIZE)?,
            restartable,
            reach: Reach::new(restartable),
            domain: domain.clone(),
            shared: Shared(Mutex::new(ptr::null_mut())),
            steals: AtomicUsize::new(0),
            probe: core::marker::PhantomData,
        })
    }

    pub(super) fn domain(&self) -> &Domain {
        &self.domain
    }

    /// How many lists were stolen so far.
    pub(super) fn steals(&self) -> usize {
        self.steals.load(Relaxed)
    }

    /// Pushes on the calling thread's list, unless that has `most` nodes.
    ///
    /// # Safety
    ///
    /// Invariant 1.
    #[inline]
    pub(super) unsafe fn push(&self, node: NonNull<Node>, most: usize) -> Pushed {
        if let Some(area) = self.reach.area() {
            // SAFETY: invariants 1 and 2, and those of `sequence`; `SIZE` is at most a stretch.
            return unsafe { sequence::push::<P>(area, &self.slots, node, most) };
        }
        // SAFETY: by the caller.
        unsafe { self.push_otherwise(node, most) }
    }

    /// Pushes with leases, and at a thread's first use of an area of its own.
    ///
    /// # Safety
    ///
    /// Invariant 1.
    #[inline(never)]
    unsafe fn push_otherwise(&self, node: NonNull<Node>, most: usize) -> Pushed {
        if self.restartable {
            return match area::current() {
                // SAFETY: as above.
                Some(area) => unsafe { sequence::push::<P>(area, &self.slots, node, most) },
                None => Pushed::Refused,
            };
        }
        self.at_own(|slot| {
            let below = slot.head.load(Relaxed);
            // SAFETY: invariants 1 and 3: the list is ours to access, and `node` is the caller's.
            unsafe {
                let depth = below.as_ref().map_or(0, |below| below.depth) + 1;
                if depth > most {
                    return Pushed::Full;
                }
                node.write(Node { next: below, depth });
            }
            // Release pairs with the Acquire in `steal`, which reads the head without the gate.
            slot.head.store(node.as_ptr(), Release);
            Pushed::Done
        })
        .unwrap_or(Pushed::Refused)
    }

    /// Pops from the calling thread's list.
    #[inline]
    pub(super) fn pop(&self) -> Option<NonNull<Node>> {
        if let Some(area) = self.reach.area() {
            // SAFETY: invariants 1 and 2, and those of `sequence`; `SIZE` is at most a stretch.
            return unsafe { sequence::pop::<P>(area, &self.slots) };
        }
        self.pop_otherwise()
    }

    /// Pops with leases, and at a thread's first use of an area of its own.
    #[inline(never)]
    fn pop_otherwise(&self) -> Option<NonNull<Node>> {
        if self.restartable {
            // SAFETY: as above.
            return unsafe { sequence::pop::<P>(area::current()?, &self.slots) };
        }
        self.at_own(|slot| {
            let node = NonNull::new(slot.head.load(Relaxed))?;
            // SAFETY: invariants 1 and 3.
            slot.head.store(unsafe { node.as_ref() }.next, Relaxed);
            Some(node)
        })
        .flatten()
    }

    /// Pushes on the shared list.
    ///
    /// # Safety
    ///
    /// Invariant 1.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn push_shared(&self, node: NonNull<Node>) {
        // SAFETY: invariant 1: the node is the caller's.
        unsafe {
            node.write(Node {
                next: ptr::null_mut(),
                depth: 1,
            });
        }
        self.share(node);
    }

    /// Adds a chain that belongs to the caller to the shared list.
    fn share(&self, mut chain: NonNull<Node>) {
        let mut newest = self.shared.0.lock();
        // SAFETY: invariant 1.
        unsafe { chain.as_mut() }.depth = newest.expose_provenance();
        *newest = chain.as_ptr();
    }

    /// Moves up to `count` nodes from the calling thread's list to the shared one, as one chain.
    #[cold]
    #[inline(never)]
    pub(super) fn flush(&self, count: usize) {
        let mut chain: *mut Node = ptr::null_mut();
        for depth in 1..=count {
            let Some(node) = self.pop() else {
                break;
            };
            // SAFETY: invariant 1: it was popped.
            unsafe { node.write(Node { next: chain, depth }) };
            chain = node.as_ptr();
        }
        if let Some(chain) = NonNull::new(chain) {
            self.share(chain);
        }
    }

    /// Pops a node of the shared list. The rest of its chain becomes the calling thread's list.
    #[cold]
    #[inline(never)]
    pub(super) fn pop_shared(&self) -> Option<NonNull<Node>> {
        let mut newest = self.shared.0.lock();
        let chain = NonNull::new(*newest)?;
        // SAFETY: invariant 1.
        *newest = unsafe { older_than(chain) };
        drop(newest);
        // SAFETY: invariant 1.
        Some(unsafe { self.adopt(chain) })
    }

    /// Takes over the list of another ID, and returns a node of it. `None` if each list was, at
    /// some moment during the call, empty or in use by another thread.
    #[cold]
    #[inline(never)]
    pub(super) fn steal(&self) -> Option<NonNull<Node>> {
        let start = self.domain.momentary_id().unwrap_or(0);
        for step in 0..self.slots.limit {
            let victim = (start + step) % self.slots.limit;
            let slot = self.slot(victim);
            if slot.head.load(Acquire).is_null() {
                continue;
            }
            let chain = if self.restartable {
                self.take_restartable(slot)
            } else {
                self.take_leased(slot)
            };
            if let Some(chain) = chain {
                self.steals.fetch_add(1, Relaxed);
                // SAFETY: invariant 1.
                return Some(unsafe { self.adopt(chain) });
            }
        }
        None
    }

    fn take_restartable(&self, slot: &Slot) -> Option<NonNull<Node>> {
        // One thief at a time.
        let _thief = self.shared.0.lock();
        slot.gate.store(CLOSED, Relaxed);
        // A full barrier for all threads. Sequences that start later see the gate closed; sequences
        // under way start again, and see it.
        let alone = futex::restart_sequences();
        let chain = if alone {
            let chain = slot.head.load(Relaxed);
            slot.head.store(ptr::null_mut(), Relaxed);
            chain
        } else {
            ptr::null_mut()
        };
        // Pairs with the acquiring load of the gate in each sequence.
        slot.gate.store(OPEN, Release);
        NonNull::new(chain)
    }

    fn take_leased(&self, slot: &Slot) -> Option<NonNull<Node>> {
        at(&slot.gate, || {
            let chain = slot.head.load(Relaxed);
            slot.head.store(ptr::null_mut(), Relaxed);
            NonNull::new(chain)
        })
        .flatten()
    }

    /// Takes over a chain with depths as in a list. Returns its first node. The others become the
    /// calling thread's list if that is empty, else they go to the shared one.
    ///
    /// # Safety
    ///
    /// Invariant 1.
    pub(super) unsafe fn adopt(&self, first: NonNull<Node>) -> NonNull<Node> {
        // SAFETY: by the caller.
        let others = unsafe { first.as_ref() }.next;
        if let Some(others) = NonNull::new(others) {
            if !self.set_own(others) {
                self.share(others);
            }
        }
        first
    }

    /// Makes these nodes the calling thread's list, if that is empty. Returns whether it was.
    fn set_own(&self, nodes: NonNull<Node>) -> bool {
        if self.restartable {
            const GATED: usize = 1;
            let Some(area) = area::current() else {
                return false;
            };
            let new = nodes.as_ptr().expose_provenance() as u64;
            // SAFETY: invariants 1 and 2, and those of `sequence`; the offset is that of a word of
            // the slot.
            let stored =
                unsafe { sequence::store_if_zero::<P, GATED>(area, &self.slots, HEAD, new) };
            return stored.is_some();
        }
        self.at_own(|slot| {
            let empty = slot.head.load(Relaxed).is_null();
            if empty {
                slot.head.store(nodes.as_ptr(), Release);
            }
            empty
        })
        .unwrap_or(false)
    }

    /// With leases: acquires an ID, and accesses its list. `None`: no ID, or the list is in use.
    #[inline]
    fn at_own<R>(&self, action: impl FnOnce(&Slot) -> R) -> Option<R> {
        let lease = self.domain.enter().ok()?;
        let slot = self.slot(lease.id());
        at(&slot.gate, || action(slot))
    }

    #[inline]
    fn slot(&self, id: u32) -> &Slot {
        // SAFETY: invariant 2; all zeros is a slot with an open gate and an empty list.
        unsafe { self.slots.of(id).cast::<Slot>().as_ref() }
    }

    /// Hands all nodes of all lists to `each`. Must be called before these lists are dropped.
    pub(super) fn drain(&mut self, mut each: impl FnMut(NonNull<Node>)) {
        let mut drain = |mut node: *mut Node| {
            while let Some(this) = NonNull::new(node) {
                // SAFETY: invariant 1, and exclusive access (`&mut self`). The link is read before
                // the node goes to `each`.
                node = unsafe { this.as_ref() }.next;
                each(this);
            }
        };
        let mut newest = core::mem::replace(self.shared.0.get_mut(), ptr::null_mut());
        while let Some(chain) = NonNull::new(newest) {
            // SAFETY: as above.
            newest = unsafe { older_than(chain) };
            drain(chain.as_ptr());
        }
        for id in 0..self.slots.limit {
            let head = self.slot(id).head.load(Acquire);
            // In the child of a fork the thread that closed the gate may not exist. The next user
            // of this memory expects zeros.
            if self.slot(id).gate.load(Relaxed) != OPEN {
                self.slot(id).gate.store(OPEN, Relaxed);
            }
            // A page that was only read has no memory, and must not get any here.
            if !head.is_null() {
                self.slot(id).head.store(ptr::null_mut(), Relaxed);
                drain(head);
            }
        }
    }
}

/// The chain that was shared before this one; null: none.
///
/// # Safety
///
/// The chain is shared, and the calling thread has the shared list.
unsafe fn older_than(chain: NonNull<Node>) -> *mut Node {
    // SAFETY: by the caller: another thread had exposed it.
    ptr::with_exposed_provenance_mut(unsafe { chain.as_ref() }.depth)
}

/// With leases: accesses a slot under its gate. `None` if another thread accesses it.
#[inline]
fn at<R>(gate: &AtomicU64, action: impl FnOnce() -> R) -> Option<R> {
    if gate.swap(CLOSED, Acquire) != OPEN {
        return None;
    }
    let result = action();
    gate.store(OPEN, Release);
    Some(result)
}

impl<P: Probe> Drop for Lists<P> {
    fn drop(&mut self) {
        // The lists were drained: all heads are null, and all gates are open.
        self.domain.free(self.slots, SIZE);
    }
}
