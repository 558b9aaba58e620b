//! Waiter slots: where a thread waits.
//!
//! A kernel keeps queue nodes per CPU, because a CPU that queues cannot be preempted. Threads can, so each thread
//! gets a **slot** the first time it queues: a dense index, kept until the thread ends and then recycled. A slot
//! holds [`NESTING`] **nodes**, because a signal handler may queue for another lock while its thread is queued, and
//! because a waiter that timed out leaves its node behind in the queue for a while.
//!
//! Nodes are named by a 16-bit [`Id`], not by a pointer: that is what fits into the lock word, it needs no `unsafe`,
//! and it survives `fork`.
//!
//! ```text
//!   Id   15 ........... 2   1 0
//!        slot number >= 1   node within the slot       0 = nobody
//! ```
//!
//! # States of a node's `state` word
//!
//! | value | name | set by | meaning |
//! | --- | --- | --- | --- |
//! | 0 | [`WAITING`] | owner, before it queues; by compare-and-swap from `PARKED` the head, to wake it ahead of its turn, or the owner, roused | spinning on this word |
//! | 1 | [`GO`] | the previous head, by a store, or by compare-and-swap or swap if the waiter is guarded | headship is yours; there is no secondary queue |
//! | 2 | [`PARKED`] | owner, by compare-and-swap from `WAITING` | asleep on this word |
//! | 3 | [`ABANDONED`] | owner, by compare-and-swap from `WAITING` or `PARKED` | timed out and gone; skip me |
//! | >= 4 | an [`Id`] | as `GO` | headship is yours; this is the tail of the secondary queue |
//! | one of the two, more from bit 16 on | | as `GO` | the same, and how to try to get the lock first: the lock's own business |
//!
//! # Guarded and drowsy
//!
//! Headship is handed over by a plain store, which may overwrite `PARKED` or `ABANDONED`. Two bits say when that must not
//! happen, or has to be looked after:
//!
//! * A waiter is **guarded** if it may leave, or is likely to sleep soon. It says so in the link by which its predecessor
//!   names it, which whoever grants has read anyway. Headship is then handed over with a look at `state`.
//! * Any other waiter is **drowsy** from before it falls asleep on `state` until it is awake again. It says so in its node. Whoever has
//!   stored headship there looks, and wakes. A drowsy waiter can be **roused** by anybody, to be awake when its turn comes:
//!
//! | `drowsy` | name | set by | meaning |
//! | --- | --- | --- | --- |
//! | 0 | `AWAKE` | owner | not about to sleep, or guarded, or nobody waits here |
//! | 1 | `DROWSY` | owner, before it falls asleep | may be asleep on `state` |
//! | 2 | `ROUSED` | anybody, by compare-and-swap from `DROWSY`, who then unparks | shall wake up, rouse its kin, and spin again |
//!
//! # Life of a slot
//!
//! ```text
//!   free --claim--> in use: 1 reference for the owner (a thread, or one slow path)
//!    ^                      + 1 for each abandoned node still in some queue
//!    +------ last reference dropped: by the ending thread, or by whoever reaps the last abandoned node
//! ```
//!
//! Claiming is lock-free and takes O(slots / 32) steps, once per thread.

use crate::atomic::{Atomic, Atomics, ConstAtomics, Ordering::*};

/// Nodes per slot.
pub const NESTING: usize = 4;
/// The most slots that an [`Id`] can name. Threads beyond that lock by bounded try-lock and back-off.
pub const MAX_SLOTS: usize = (1 << 14) - 1;
/// The domain of a waiter that must not be set aside, in its [`Node`] and in links to it. Those of CPUs are below.
pub const PRIORITY: u16 = u16::MAX >> 1;
/// [`Node`] preference: none inherited, the new head prefers its own domain.
pub(crate) const NO_PREFERENCE: u16 = u16::MAX;

/// Spinning on the node.
pub const WAITING: u32 = 0;
/// Headship is handed over and there is no secondary queue.
pub const GO: u32 = 1;
/// Asleep on the node.
pub const PARKED: u32 = 2;
/// The waiter timed out; its node is passed over.
pub const ABANDONED: u32 = 3;
/// From this bit on a word by which headship is passed says something to the heir that is the lock's own business.
pub(crate) const APPROACH: u32 = 16;

/// Not about to sleep.
pub(crate) const AWAKE: u8 = 0;
/// May be asleep on `state`.
pub(crate) const DROWSY: u8 = 1;
/// Shall wake up and rouse its kin, since their turn is near.
pub(crate) const ROUSED: u8 = 2;

/// Names a node: never 0, so that 0 can mean "nobody".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Id(u16);

impl Id {
    /// Decodes a tail or next field; 0 is nobody.
    #[inline]
    pub fn decode(raw: u16) -> Option<Id> {
        (raw != 0).then_some(Id(raw))
    }

    /// The encoding, never 0 to 3.
    #[inline]
    pub fn encode(self) -> u16 {
        self.0
    }

    pub(crate) fn slot(self) -> u16 {
        self.0 >> 2
    }
}

/// A waiter as its predecessor's `next` names it: who it is, where it runs, and how headship is to be handed to it. So its node,
/// which it spins on, need not be read to choose it.
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

    /// `domain`: that of the waiter's CPU, or [`PRIORITY`].
    pub(crate) fn new(id: Id, guarded: bool, domain: u16) -> Self {
        debug_assert!(domain <= PRIORITY);
        let guarded = if guarded { Self::GUARDED } else { 0 };
        Link(id.0 as u32 | guarded | (domain as u32) << Self::DOMAIN)
    }

    /// Decodes a `next` field; 0 is nobody.
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

    /// See "Guarded and drowsy".
    #[inline]
    pub(crate) fn is_guarded(self) -> bool {
        self.0 & Self::GUARDED != 0
    }
}

/// The tail of a secondary queue as carried by a node's `state` word.
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
    /// See the table above. Written by the owner while it is `WAITING` or `PARKED`, once by the previous head.
    pub(crate) state: P::AtomicU32,
    /// When the secondary queue became non-empty; passed from head to head.
    pub(crate) since: P::AtomicU32,
    /// Hand-offs since then, and whether the first of the secondary queue has been roused; passed from head to head.
    pub(crate) run: P::AtomicU32,
    /// A [`Link`] to the next waiter of the primary or secondary queue, 0 = none yet.
    pub(crate) next: P::AtomicU32,
    /// The waiter's locality domain, or [`PRIORITY`].
    pub(crate) domain: P::AtomicU16,
    /// The domain to prefer, inherited from the previous head, or [`NO_PREFERENCE`].
    pub(crate) preference: P::AtomicU16,
    /// The waiter before this one, in a queue that waiters can leave; 0 = none.
    pub(crate) previous: P::AtomicU16,
    /// Where the waiter ran when it queued.
    pub(crate) cpu: P::AtomicU16,
    /// A copy of the predecessor's `cpu`.
    pub(crate) predecessor_cpu: P::AtomicU16,
    /// Whether this waiter may time out.
    pub(crate) timed: P::AtomicU8,
    /// See the second table above.
    pub(crate) drowsy: P::AtomicU8,
    /// Whether the node is in use: by its owner, or abandoned in a queue.
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

/// A thread's nodes. Two slots never share a pair of cache lines, which some CPUs fetch together.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Slot<P: Atomics> {
    nodes: [Node<P>; NESTING],
    /// See "Life of a slot".
    references: P::AtomicU8,
    /// Where the thread ran when it last queued: as a node's `cpu`, in a line that is seldom written.
    cpu: P::AtomicU16,
    /// A note of the thread for itself, until it waits the next time.
    note: P::AtomicU32,
}

impl<P: Atomics> Slot<P> {
    /// A free slot, where the platform cannot build one in a constant.
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
    /// If there are more than [`MAX_SLOTS`] slots, or not one bit of `claimed` for each.
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

    /// Where the owner of the node ran when it last said so; in the slot, not in the node.
    pub(crate) fn slot_cpu(&self, id: Id) -> u16 {
        self.slots[id.slot() as usize - 1].cpu.load(Relaxed)
    }

    pub(crate) fn set_slot_cpu(&self, id: Id, cpu: u16) {
        let slot = &self.slots[id.slot() as usize - 1];
        if slot.cpu.load(Relaxed) != cpu {
            slot.cpu.store(cpu, Relaxed);
        }
    }

    /// The note that the thread which holds `slot` (never 0) leaves itself between waits.
    #[inline]
    pub(crate) fn note(&self, slot: u16) -> &'static P::AtomicU32 {
        &self.slots[slot as usize - 1].note
    }

    /// Counts one more reason why `slot` must not be claimed anew.
    pub(crate) fn add_reference(&self, slot: u16) {
        self.slots[slot as usize - 1]
            .references
            .fetch_add(1, Relaxed);
    }

    /// Takes back a reference that was added, when another is known to remain.
    pub(crate) fn take_back_reference(&self, slot: u16) {
        self.slots[slot as usize - 1]
            .references
            .fetch_add(u8::MAX, Relaxed);
    }

    /// How many slots are claimed now: about how many threads have waited lately.
    pub fn in_use(&self) -> u32 {
        self.in_use.glance(Relaxed)
    }

    /// Gives `slot` back. Called by the platform when the thread that kept it ends.
    pub fn release(&self, slot: u16) {
        self.drop_reference(slot);
    }

    /// Frees a node that its owner abandoned, after it has been passed over and has left every queue.
    pub(crate) fn reap(&self, id: Id) {
        self.free(id);
        self.drop_reference(id.slot());
    }

    /// Frees the slots of threads that do not exist in a forked child: all but `kept` (0 = none), and but those that a
    /// queue may still name. To be called by the platform in the child, before it starts threads.
    pub fn reset_in_child(&self, kept: u16) {
        let mut left = 0;
        for (w, word) in self.claimed.iter().enumerate() {
            let mut bits = word.load(Relaxed);
            while bits != 0 {
                let slot = w * 32 + bits.trailing_zeros() as usize + 1;
                bits &= bits - 1;
                let s = &self.slots[slot - 1];
                // A queue of a lock that the child inherits may still name a busy node; such a queue does not move any more,
                // but newcomers with a time limit link themselves to it. So what may be linked is never used again.
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
    /// one of them. Only for a process that has one thread, and no queues, at the moment.
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
                // Acquire pairs with the release in `drop_reference`: the last user is done with the nodes.
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

    /// Marks a free node of `slot` as busy. Not by a load and a store, since a signal handler may come between.
    pub(crate) fn free_node(&self, slot: u16) -> Option<Id> {
        let nodes = &self.slots[slot as usize - 1].nodes;
        // Acquire pairs with the release in `free`: whoever reaped the node is done with it.
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
        // AcqRel: what every former user did to the nodes happens before the slot is claimed again.
        if self.slots[i].references.fetch_add(u8::MAX, AcqRel) == 1 {
            self.in_use.fetch_add(u32::MAX, Relaxed);
            self.claimed[i / 32].fetch_and(!(1 << (i % 32)), Release);
        }
    }
}

/// The storage of a table of `SLOTS` slots; `WORDS` is at least a thirty-second of that.
///
/// All zeros, so that a static one occupies memory only for the slots that are used:
/// `SLOTS` times 384 bytes at most.
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
    /// The slots.
    pub const fn waiters(&'static self) -> Waiters<P> {
        Waiters::new(&self.slots, &self.claimed, &self.in_use)
    }
}
