//! Waiter slots: where a thread waits.
//!
//! A kernel keeps queue nodes per CPU, because a CPU that queues cannot be preempted. A thread can
//! be preempted, so each thread gets a **slot** when it first queues: a dense index that it keeps
//! until it ends, and that is then recycled. A slot holds four **nodes**, for two reasons: a signal
//! handler may queue for another lock while its thread is queued, and a waiter that timed out
//! leaves its node behind in the queue for a while.
//!
//! A node is named by a 16-bit [`Id`], not by a pointer. An id fits into the lock word, needs no
//! `unsafe`, and stays valid across `fork`.
//!
//! ```text
//!   Id   15 ........... 2   1 0
//!        slot number >= 1   node within the slot       0 = none
//! ```
//!
//! # States of a node: its `state` word
//!
//! | value | name | meaning |
//! | --- | --- | --- |
//! | 0 | `WAITING` | the owner spins on this word |
//! | 1 | `GO` | the owner is the head; there is no secondary queue |
//! | 2 | `PARKED` | the owner sleeps on this word |
//! | 3 | `ABANDONED` | the owner timed out and has left; skip the node |
//! | >= 4 | an [`Id`] | the owner is the head; this is the tail of the secondary queue |
//!
//! `GO` and an id may be combined with bits from 16 on. These tell the new head how to approach the
//! lock first; only the lock that set them reads them.
//!
//! | from | to | by | how |
//! | --- | --- | --- | --- |
//! | any | `WAITING` | the owner, before it queues | store |
//! | `WAITING` | `PARKED` | the owner | compare-and-swap |
//! | `PARKED` | `WAITING` | the owner, roused | compare-and-swap |
//! | `WAITING`, `PARKED` | `ABANDONED` | the owner | compare-and-swap |
//! | `WAITING`, `PARKED` | `GO` or an id | the previous head | store, or swap if guarded |
//!
//! # Guarded and drowsy waiters
//!
//! Headship is handed over by a plain store, which may overwrite `PARKED` or `ABANDONED`. Two marks
//! make that safe:
//!
//! * A waiter is **guarded** if it may leave, or is likely to sleep soon. The link by which its
//!   predecessor names it says so, and the previous head has read that link anyway. Headship then
//!   passes by a read-modify-write that checks `state`.
//! * A waiter is **drowsy** from before it falls asleep on `state` until it is awake again. Its
//!   node says so. If the waiter is not guarded, the previous head checks this after its store, and
//!   wakes it. Any thread may **rouse** a drowsy waiter, so that it is awake when headship arrives:
//!
//! | `drowsy` | name | set by | meaning |
//! | --- | --- | --- | --- |
//! | 0 | `AWAKE` | owner | not about to sleep, or the node is free |
//! | 1 | `DROWSY` | owner | may be asleep on `state` |
//! | 2 | `ROUSED` | any thread | has to wake up, rouse its local waiters, and spin again |
//!
//! A thread rouses by a compare-and-swap from `DROWSY`, and then unparks the owner.
//!
//! # States of a slot
//!
//! ```text
//!   free --claim--> in use: 1 reference for the owner (a thread, or one slow path)
//!    ^                      + 1 for each abandoned node still in a queue
//!    +------ last reference dropped: by the ending thread, or by the thread that reaps the last
//!            abandoned node
//! ```
//!
//! Claiming is lock-free and takes O(slots / 32) steps, once per thread.

use crate::atomic::{Atomic, Atomics, ConstAtomics, Ordering::*};

/// Nodes per slot.
pub(crate) const NESTING: usize = 4;
/// The most slots that an [`Id`] can name. A thread without a slot tries to lock and backs off.
pub const MAX_SLOTS: usize = (1 << 14) - 1;
/// The domain of a priority waiter, which must not be set aside. Domains of CPUs are below it.
pub const PRIORITY: u16 = u16::MAX >> 1;
/// A [`Node`] preference: none is inherited, and the new head prefers its own domain.
pub(crate) const NO_PREFERENCE: u16 = u16::MAX;

/// A value of a node's `state`: the owner spins.
pub const WAITING: u32 = 0;
/// A value of a node's `state`: the owner is the head.
pub const GO: u32 = 1;
/// A value of a node's `state`: the owner sleeps.
pub const PARKED: u32 = 2;
/// A value of a node's `state`: the owner has left.
pub const ABANDONED: u32 = 3;
/// The first of the bits of `state` that tell a new head how to approach the lock.
pub(crate) const APPROACH: u32 = 16;

// Values of `drowsy`; see the table at the top.
pub(crate) const AWAKE: u8 = 0;
pub(crate) const DROWSY: u8 = 1;
pub(crate) const ROUSED: u8 = 2;

/// The name of a node. Never 0, so that 0 can mean "none".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Id(u16);

impl Id {
    /// Decodes a tail or next field; 0 is none.
    #[inline]
    pub fn decode(raw: u16) -> Option<Id> {
        (raw != 0).then_some(Id(raw))
    }

    /// The encoding; at least 4.
    #[inline]
    pub fn encode(self) -> u16 {
        self.0
    }

    pub(crate) fn slot(self) -> u16 {
        self.0 >> 2
    }
}

/// A waiter as its predecessor's `next` names it: its node, its domain, and whether it is guarded.
///
/// A head can thus choose the next head without reading the nodes on which waiters spin.
///
/// ```text
///   31 .......... 17   16        15 ....... 0
///   domain             guarded   Id
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link(u32);

impl Link {
    const GUARDED: u32 = 1 << 16;
    const DOMAIN: u32 = 17;

    /// `domain` is that of the waiter's CPU, or [`PRIORITY`].
    pub(crate) fn new(id: Id, guarded: bool, domain: u16) -> Self {
        debug_assert!(domain <= PRIORITY);
        let guarded = if guarded { Self::GUARDED } else { 0 };
        Link(id.0 as u32 | guarded | (domain as u32) << Self::DOMAIN)
    }

    /// Decodes a `next` field; 0 is none.
    #[inline]
    pub(crate) fn decode(raw: u32) -> Option<Link> {
        (raw != 0).then_some(Link(raw))
    }

    #[inline]
    pub(crate) fn encode(self) -> u32 {
        self.0
    }

    #[inline]
    pub(crate) fn id(self) -> Id {
        Id(self.0 as u16)
    }

    #[inline]
    pub(crate) fn domain(self) -> u16 {
        (self.0 >> Self::DOMAIN) as u16
    }

    /// See "Guarded and drowsy waiters".
    #[inline]
    pub(crate) fn is_guarded(self) -> bool {
        self.0 & Self::GUARDED != 0
    }
}

/// The tail of the secondary queue that a node's `state` word carries.
#[inline]
pub(crate) fn secondary_in(state: u32) -> Option<Id> {
    let name = state as u16;
    if name as u32 > ABANDONED {
        Id::decode(name)
    } else {
        None
    }
}

/// One waiter's place in a queue, alone in its cache line.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Node<P: Atomics> {
    /// See the tables at the top.
    pub(crate) state: P::AtomicU32,
    /// When the secondary queue became non-empty. Passed from head to head.
    pub(crate) since: P::AtomicU32,
    /// Hand-offs since then, and whether the first waiter of the secondary queue has been roused.
    /// Passed from head to head.
    pub(crate) run: P::AtomicU32,
    /// A [`Link`] to the next waiter of the primary or secondary queue; 0 = none yet.
    pub(crate) next: P::AtomicU32,
    /// The waiter's locality domain, or [`PRIORITY`].
    pub(crate) domain: P::AtomicU16,
    /// The domain to prefer, inherited from the previous head, or [`NO_PREFERENCE`].
    pub(crate) preference: P::AtomicU16,
    /// The waiter before this one, in a queue that waiters can leave; 0 = none.
    pub(crate) previous: P::AtomicU16,
    /// The CPU on which the waiter ran when it queued.
    pub(crate) cpu: P::AtomicU16,
    /// A copy of the predecessor's `cpu`.
    pub(crate) predecessor_cpu: P::AtomicU16,
    /// Whether this waiter may time out.
    pub(crate) timed: P::AtomicU8,
    /// See the last table at the top.
    pub(crate) drowsy: P::AtomicU8,
    /// Whether the node is in use: by its owner, or because it is abandoned in a queue.
    busy: P::AtomicU8,
}

impl<P: Atomics> Node<P> {
    fn new() -> Self {
        Node {
            state: Atomic::new(0),
            since: Atomic::new(0),
            run: Atomic::new(0),
            next: Atomic::new(0),
            domain: Atomic::new(0),
            preference: Atomic::new(0),
            previous: Atomic::new(0),
            cpu: Atomic::new(0),
            predecessor_cpu: Atomic::new(0),
            timed: Atomic::new(0),
            drowsy: Atomic::new(0),
            busy: Atomic::new(0),
        }
    }

    /// Makes the node ready to be queued. Relaxed: publishing its id releases these stores.
    pub(crate) fn prepare(&self, domain: u16, timed: bool) {
        self.state.store(WAITING, Relaxed);
        self.next.store(0, Relaxed);
        self.domain.store(domain, Relaxed);
        self.preference.store(NO_PREFERENCE, Relaxed);
        self.timed.store(timed as u8, Relaxed);
    }
}

/// A thread's nodes. Aligned to a pair of cache lines, which some CPUs fetch together.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Slot<P: Atomics> {
    nodes: [Node<P>; NESTING],
    /// See "States of a slot".
    references: P::AtomicU8,
    /// As a node's `cpu`, for the thread's last wait; in a cache line that is seldom written.
    cpu: P::AtomicU16,
    /// What a mutex predicts for the thread's next wait.
    note: P::AtomicU32,
}

impl<P: Atomics> Slot<P> {
    /// A free slot, for platforms whose atomics no constant can hold.
    pub fn new() -> Self {
        Slot {
            nodes: core::array::from_fn(|_| Node::new()),
            references: Atomic::new(0),
            cpu: Atomic::new(0),
            note: Atomic::new(0),
        }
    }
}

impl<P: Atomics> Default for Slot<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: ConstAtomics> Slot<P> {
    /// A free slot: all zeros.
    pub const FREE: Self = {
        use crate::atomic::ConstAtomic;
        Slot {
            nodes: [const {
                Node {
                    state: P::AtomicU32::ZERO,
                    since: P::AtomicU32::ZERO,
                    run: P::AtomicU32::ZERO,
                    next: P::AtomicU32::ZERO,
                    domain: P::AtomicU16::ZERO,
                    preference: P::AtomicU16::ZERO,
                    previous: P::AtomicU16::ZERO,
                    cpu: P::AtomicU16::ZERO,
                    predecessor_cpu: P::AtomicU16::ZERO,
                    timed: P::AtomicU8::ZERO,
                    drowsy: P::AtomicU8::ZERO,
                    busy: P::AtomicU8::ZERO,
                }
            }; NESTING],
            references: P::AtomicU8::ZERO,
            cpu: P::AtomicU16::ZERO,
            note: P::AtomicU32::ZERO,
        }
    };
}

/// The table of slots shared by all locks of a platform.
#[derive(Debug)]
pub struct Waiters<P: Atomics> {
    slots: &'static [Slot<P>],
    /// One bit per slot.
    claimed: &'static [P::AtomicU32],
    /// How many slots are claimed.
    in_use: &'static P::AtomicU32,
}

impl<P: Atomics> Waiters<P> {
    /// A table over the platform's storage.
    ///
    /// # Panics
    ///
    /// If there are more than [`MAX_SLOTS`] slots, or fewer bits in `claimed` than slots.
    pub const fn new(
        slots: &'static [Slot<P>],
        claimed: &'static [P::AtomicU32],
        in_use: &'static P::AtomicU32,
    ) -> Self {
        assert!(slots.len() <= MAX_SLOTS && claimed.len() * 32 >= slots.len());
        Waiters {
            slots,
            claimed,
            in_use,
        }
    }

    /// The node with this id.
    #[inline]
    pub(crate) fn node(&self, id: Id) -> &'static Node<P> {
        &self.slots[id.slot() as usize - 1].nodes[(id.0 & 3) as usize]
    }

    /// The CPU that the owner of the node last recorded in its slot.
    pub(crate) fn slot_cpu(&self, id: Id) -> u16 {
        self.slots[id.slot() as usize - 1].cpu.load(Relaxed)
    }

    pub(crate) fn set_slot_cpu(&self, id: Id, cpu: u16) {
        let slot = &self.slots[id.slot() as usize - 1];
        if slot.cpu.load(Relaxed) != cpu {
            slot.cpu.store(cpu, Relaxed);
        }
    }

    /// What a mutex predicts for the next wait of the thread that holds `slot` (never 0).
    #[inline]
    pub(crate) fn note(&self, slot: u16) -> &'static P::AtomicU32 {
        &self.slots[slot as usize - 1].note
    }

    /// Adds a reference to `slot`, so that it is not claimed anew.
    pub(crate) fn add_reference(&self, slot: u16) {
        self.slots[slot as usize - 1]
            .references
            .fetch_add(1, Relaxed);
    }

    /// Removes a reference that was added, where another is known to remain.
    pub(crate) fn take_back_reference(&self, slot: u16) {
        self.slots[slot as usize - 1]
            .references
            .fetch_add(u8::MAX, Relaxed);
    }

    /// How many slots are claimed: roughly how many threads have waited lately.
    pub fn in_use(&self) -> u32 {
        self.in_use.glance(Relaxed)
    }

    /// Gives `slot` back. The platform calls this when the thread that kept it ends.
    pub fn release(&self, slot: u16) {
        self.drop_reference(slot);
    }

    /// Frees a node that its owner abandoned, once it is in no queue.
    pub(crate) fn reap(&self, id: Id) {
        self.free(id);
        self.drop_reference(id.slot());
    }

    /// Frees the slots of threads that do not exist in the child of a fork.
    ///
    /// The exceptions are `kept` (0 = none) and slots that a queue may still name. The platform
    /// calls this in the child, before the child starts threads.
    pub fn reset_in_child(&self, kept: u16) {
        let mut left = 0;
        for (w, word) in self.claimed.iter().enumerate() {
            let mut bits = word.load(Relaxed);
            while bits != 0 {
                let slot = w * 32 + bits.trailing_zeros() as usize + 1;
                bits &= bits - 1;
                let s = &self.slots[slot - 1];
                // The queue of an inherited lock may name a busy node. Such a queue never advances,
                // but newcomers with a time limit link themselves to it. So a busy node is never
                // reused.
                let may_be_linked = s.nodes.iter().any(|n| n.busy.load(Relaxed) != 0);
                if slot == kept as usize || may_be_linked {
                    left += 1;
                } else {
                    word.fetch_and(!(1 << ((slot - 1) % 32)), Relaxed);
                }
            }
        }
        self.in_use.store(left, Relaxed);
    }

    /// Whether as many slots are claimed as [`in_use`](Self::in_use) says, and `kept` (0 = none) is
    /// one of them. Only for a process with a single thread and no queues.
    pub fn is_consistent(&self, kept: u16) -> bool {
        let claimed = |word: &P::AtomicU32| word.load(Relaxed);
        let count: u32 = self
            .claimed
            .iter()
            .map(|word| claimed(word).count_ones())
            .sum();
        let kept = match usize::from(kept) {
            0 => true,
            slot => claimed(&self.claimed[(slot - 1) / 32]) & 1 << ((slot - 1) % 32) != 0,
        };
        kept && count == self.in_use()
    }

    /// Claims the lowest free slot.
    pub(crate) fn claim(&self) -> Option<u16> {
        for (w, word) in self.claimed.iter().enumerate() {
            let mut seen = word.load(Relaxed);
            while seen != u32::MAX {
                let bit = (!seen).trailing_zeros();
                let slot = w * 32 + bit as usize + 1;
                if slot > self.slots.len() {
                    break;
                }
                // Acquire pairs with the release in `drop_reference`: the last user has finished
                // with the nodes.
                let was = word.fetch_or(1 << bit, Acquire);
                if was & (1 << bit) == 0 {
                    self.slots[slot - 1].references.store(1, Relaxed);
                    self.in_use.fetch_add(1, Relaxed);
                    return Some(slot as u16);
                }
                seen = was;
            }
        }
        None
    }

    /// Marks a free node of `slot` as busy, by compare-and-swap because a signal handler may
    /// intervene.
    pub(crate) fn free_node(&self, slot: u16) -> Option<Id> {
        let nodes = &self.slots[slot as usize - 1].nodes;
        // Acquire pairs with the release in `free`: the thread that reaped the node has finished.
        let free = nodes.iter().position(|n| {
            n.busy.load(Relaxed) == 0 && n.busy.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
        })?;
        Some(Id(slot << 2 | free as u16))
    }

    pub(crate) fn free(&self, id: Id) {
        self.node(id).busy.store(0, Release);
    }

    fn drop_reference(&self, slot: u16) {
        let i = slot as usize - 1;
        // AcqRel: all accesses of former users happen before the slot is claimed again.
        if self.slots[i].references.fetch_add(u8::MAX, AcqRel) == 1 {
            self.in_use.fetch_add(u32::MAX, Relaxed);
            self.claimed[i / 32].fetch_and(!(1 << (i % 32)), Release);
        }
    }
}

/// Storage for `SLOTS` slots. `WORDS` is at least `SLOTS / 32`, rounded up.
///
/// A free table is all zeros. A static one takes up to 384 bytes per slot, and an operating system
/// allocates them only for slots that have been used.
///
/// ```
/// use kinlock_core::Native;
/// use kinlock_core::slots::{Table, Waiters};
///
/// static TABLE: Table<Native, 64, 2> = Table::FREE;
/// static WAITERS: Waiters<Native> = TABLE.waiters();
/// assert_eq!(WAITERS.in_use(), 0);
/// ```
#[derive(Debug)]
pub struct Table<P: Atomics, const SLOTS: usize, const WORDS: usize> {
    slots: [Slot<P>; SLOTS],
    claimed: [P::AtomicU32; WORDS],
    in_use: P::AtomicU32,
}

impl<P: ConstAtomics, const SLOTS: usize, const WORDS: usize> Table<P, SLOTS, WORDS> {
    /// A table of free slots.
    pub const FREE: Self = {
        use crate::atomic::ConstAtomic;
        Table {
            slots: [const { Slot::FREE }; SLOTS],
            claimed: [const { P::AtomicU32::ZERO }; WORDS],
            in_use: P::AtomicU32::ZERO,
        }
    };
}

impl<P: Atomics, const SLOTS: usize, const WORDS: usize> Table<P, SLOTS, WORDS> {
    /// The table that locks use.
    pub const fn waiters(&'static self) -> Waiters<P> {
        Waiters::new(&self.slots, &self.claimed, &self.in_use)
    }
}
