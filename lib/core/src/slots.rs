//! Waiter slots: where a thread waits.
//!
//! A kernel keeps queue nodes per CPU, because it disables preemption while it queues. A thread can
//! be preempted, so each thread gets a **slot** when it first queues: a dense index that the thread
//! keeps until it ends, and that is then recycled. A slot holds four **nodes**, for two reasons: a
//! signal handler may queue for another lock while its thread is queued, and the node of a waiter
//! that timed out stays in the queue for a while.
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
//! `GO` and an id may be combined with bits from 16 on. These tell the new head how to first try to
//! get the lock; only the lock that set them reads them.
//!
//! | from | to | by | how |
//! | --- | --- | --- | --- |
//! | any | `WAITING` | the owner, before it queues | store |
//! | `WAITING` | `PARKED` | the owner | compare-and-swap |
//! | `PARKED` | `WAITING` | the owner, roused | compare-and-swap |
//! | `WAITING`, `PARKED` | `ABANDONED` | the owner | compare-and-swap |
//! | `WAITING`, `PARKED` | `GO` or an id | last head | store; guarded, or OSQ: conditional |
//!
//! # Guarded and drowsy waiters
//!
//! Headship is handed over by a plain store, which may overwrite `PARKED` or `ABANDONED`. Two marks
//! make that safe:
//!
//! * A waiter is **guarded** if it may leave, or is likely to sleep soon. Its predecessor's link to
//!   it says so, and the previous head has read that link anyway. Headship then passes by a
//!   read-modify-write that checks `state`.
//! * A waiter is **drowsy** from before it falls asleep on `state` until it is awake again. Its
//!   node says so. If the waiter is not guarded, the previous head checks `drowsy` after its store,
//!   and wakes the waiter. Any thread may **rouse** a drowsy waiter, so that it is awake when
//!   headship arrives:
//!
//! | `drowsy` | name | set by | meaning |
//! | --- | --- | --- | --- |
//! | 0 | `AWAKE` | owner | not about to sleep, or the node is free |
//! | 1 | `DROWSY` | owner | may be asleep on `state` |
//! | 2 | `ROUSED` | any thread | has to wake up, rouse its local waiters, and spin again |
//!
//! A thread rouses by a compare-and-swap from `DROWSY`, and then unparks the owner.
//!
//! # Late links and gone nodes
//!
//! A newcomer swaps the tail, and then links itself behind its predecessor: it changes the
//! predecessor's `next` from 0 by compare-and-swap. It may be preempted between the two. A head
//! that leaves at that moment does not wait for the link, since it may hold the lock. It changes
//! its `next` from 0 to `GONE` and leaves its node behind. The newcomer finds `GONE` when it links
//! itself: it is the head now, and reaps the node.
//!
//! The child of a fork marks the nodes of the parent's waiters in the same way. So the first
//! newcomer that finds such a waiter before it, which does not exist in the child, is the head at
//! once.
//!
//! A thread **pins** a node first if it will look at the node, or check whether the tail names it,
//! when others may already reap it. A pinned node is not used again.
//!
//! # States of a slot
//!
//! ```text
//!   free --claim--> in use: 1 reference for the owner (a thread, or one slow path)
//!    ^                      + 1 for each abandoned or gone node not yet reaped
//!    +------ last reference dropped: by the ending thread, or by the thread that reaps the last
//!            such node
//! ```
//!
//! Claiming is lock-free and takes O(slots / 32) steps, once per thread.
//!
//! # Several copies of this code in one process
//!
//! The copies may share slots, and the rows of [`visible_readers`](crate::visible_readers). Raise
//! [`MEANING`] with each change of what these contain.

#[cfg(not(loom))]
mod table;

#[cfg(not(loom))]
pub use table::Table;

use crate::atomic::{Atomic, Atomics, Ordering::*, const_fn, zero};

/// Version of the data that copies of this code share besides the words of locks: the fields of
/// nodes and slots, what algorithms write to them, and entries of rows. Copies with different
/// numbers use separate tables.
///
/// The version of the crate is not enough, since two builds of it may come from different commits,
/// nor are the sizes of the types.
pub const MEANING: u64 = 5;

/// Nodes per slot.
pub(crate) const NESTING: usize = 4;
/// The most slots that an [`Id`] can name. A thread without a slot does not queue.
pub const MAX_SLOTS: usize = (1 << 14) - 1;
/// The domain of a priority waiter, which must not be set aside. Domains of CPUs are below it.
pub const PRIORITY: u16 = u16::MAX >> 1;
/// A [`Node`]'s `preference` if none is inherited: the new head prefers its own domain.
pub(crate) const NO_PREFERENCE: u16 = u16::MAX;

/// A value of a node's `state`: the owner spins.
pub const WAITING: u32 = 0;
/// A value of a node's `state`: the owner is the head.
pub const GO: u32 = 1;
/// A value of a node's `state`: the owner sleeps.
pub const PARKED: u32 = 2;
/// A value of a node's `state`: the owner has left.
pub const ABANDONED: u32 = 3;
/// A value of a node's `next`: the owner was the head and has left, or does not exist in this child
/// of a fork.
pub(crate) const GONE: u32 = 1;
/// The lowest of the bits of `state` that tell a new head how to first try to get the lock.
pub(crate) const APPROACH: u32 = 16;

// Values of `drowsy`; see the table at the top.
pub(crate) const AWAKE: u8 = 0;
pub(crate) const DROWSY: u8 = 1;
pub(crate) const ROUSED: u8 = 2;

// Values of `busy`.
const FREE: u8 = 0;
const BUSY: u8 = 1;
/// The node was busy when the process forked, so that a queue may name it in this child.
const LEFT_OVER: u8 = 2;

/// The name of a node. Never 0, so that 0 can mean "none".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Id(u16);

impl Id {
    /// Decodes a tail or the id in a link; 0 is none.
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

    /// `domain` is the locality domain of the waiter's CPU, or [`PRIORITY`].
    pub(crate) fn new(id: Id, guarded: bool, domain: u16) -> Self {
        debug_assert!(domain <= PRIORITY);
        let guarded = if guarded { Self::GUARDED } else { 0 };
        Link(id.0 as u32 | guarded | (domain as u32) << Self::DOMAIN)
    }

    /// Decodes a `next` field; 0 and [`GONE`] are none.
    #[inline]
    pub(crate) fn decode(raw: u32) -> Option<Link> {
        (raw > GONE).then_some(Link(raw))
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

    /// Whether headship has to pass by a read-modify-write; see "Guarded and drowsy waiters".
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
    /// Hand-offs since `since`, and whether the first waiter of the secondary queue has been
    /// roused. Passed from head to head.
    pub(crate) run: P::AtomicU32,
    /// A [`Link`] to the next waiter of the primary or secondary queue; 0 = none yet, or [`GONE`].
    pub(crate) next: P::AtomicU32,
    /// The waiter's locality domain, or [`PRIORITY`].
    pub(crate) domain: P::AtomicU16,
    /// The domain to prefer, inherited from the previous head, or [`NO_PREFERENCE`].
    pub(crate) preference: P::AtomicU16,
    /// The waiter before this one, in a queue that waiters can leave; 0 = none.
    pub(crate) previous: P::AtomicU16,
    /// About how many waiters had queued before this one since the queue was last empty, modulo
    /// 2^16. Only locks whose waiters follow the policy (`raw::contend`) number them.
    pub(crate) number: P::AtomicU16,
    /// Whether this waiter may time out. Only the spinlock reads it.
    pub(crate) timed: P::AtomicU8,
    /// See the last table at the top.
    pub(crate) drowsy: P::AtomicU8,
    /// [`FREE`], [`BUSY`] (in use by its owner, or left behind in a queue) or [`LEFT_OVER`].
    busy: P::AtomicU8,
    /// How many threads will still look at the node, although others may reap it.
    pins: P::AtomicU8,
}

impl<P: Atomics> Node<P> {
    const_fn! {
        const fn new() -> Self {
            Node {
                state: zero!(),
                since: zero!(),
                run: zero!(),
                next: zero!(),
                domain: zero!(),
                preference: zero!(),
                previous: zero!(),
                number: zero!(),
                timed: zero!(),
                drowsy: zero!(),
                busy: zero!(),
                pins: zero!(),
            }
        }
    }

    /// Makes the node ready to be queued. Relaxed: publishing its id releases these stores.
    pub(crate) fn prepare(&self, domain: u16, timed: bool) {
        self.state.store(WAITING, Relaxed);
        self.next.store(0, Relaxed);
        self.domain.store(domain, Relaxed);
        self.preference.store(NO_PREFERENCE, Relaxed);
        self.number.store(0, Relaxed);
        self.timed.store(timed as u8, Relaxed);
    }
}

impl<P: Atomics> Node<P> {
    /// Numbers the waiter as the one after `before`.
    pub(crate) fn number_after(&self, before: &Node<P>) {
        let number = before.number.load(Relaxed).wrapping_add(1);
        self.number.store(number, Relaxed);
    }
}

/// A thread's nodes. Aligned to two cache lines, since some CPUs fetch lines in pairs.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Slot<P: Atomics> {
    nodes: [Node<P>; NESTING],
    /// See "States of a slot".
    references: P::AtomicU8,
    /// How often the owner has halved its spins, see `raw::contend::spin`. A hint; the next owner
    /// of the slot inherits it.
    halvings: P::AtomicU8,
}

impl<P: Atomics> Slot<P> {
    const_fn! {
        /// A free slot: all zeros.
        pub const fn new() -> Self {
            Slot {
                nodes: [Node::new(), Node::new(), Node::new(), Node::new()],
                references: zero!(),
                halvings: zero!(),
            }
        }
    }
}

impl<P: Atomics> Slot<P> {
    /// Whether the owner waits in a queue. Looks only at the nodes up to the first free one, since
    /// a wait uses the first free node. Abandoned nodes do not count.
    fn is_waiting(&self) -> bool {
        let mut busy = self
            .nodes
            .iter()
            .map_while(|n| match n.busy.glance(Relaxed) {
                FREE => None,
                busy => Some(busy == BUSY && n.state.glance(Relaxed) != ABANDONED),
            });
        busy.any(|waits| waits)
    }
}

impl<P: Atomics> Default for Slot<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// The table of slots shared by all locks of a platform.
#[repr(C)]
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

    /// Adds a reference to `slot`, so that the slot stays claimed.
    pub(crate) fn add_reference(&self, slot: u16) {
        self.slots[slot as usize - 1]
            .references
            .fetch_add(1, Relaxed);
    }

    /// Removes a reference when another is known to remain.
    pub(crate) fn take_back_reference(&self, slot: u16) {
        self.slots[slot as usize - 1]
            .references
            .fetch_add(u8::MAX, Relaxed);
    }

    /// How often the owner of a slot has halved its spins. `None`: the thread has no slot.
    pub(crate) fn halvings(&self, slot: u16) -> Option<&P::AtomicU8> {
        (slot != 0).then(|| &self.slots[slot as usize - 1].halvings)
    }

    /// How many slots are claimed: roughly the number of living threads that have ever queued.
    pub fn in_use(&self) -> u32 {
        self.in_use.glance(Relaxed)
    }

    /// Numbers a waiter that is about to queue as if it came right behind the waiter that `tail`
    /// names now. It [corrects](Node::number_after) its number once it has queued. So waiters that
    /// queue behind it at the same moment, and read its number before the correction, are off by a
    /// few at most.
    pub(crate) fn number(&self, node: &Node<P>, tail: &P::AtomicU16) {
        if let Some(last) = Id::decode(tail.load(Relaxed)) {
            node.number_after(self.node(last));
        }
    }

    /// About how many waiters have queued behind the waiter of `node` in the queue with this
    /// `tail`, including waiters that have left since. At most the number of claimed slots.
    pub(crate) fn followers(&self, node: &Node<P>, tail: &P::AtomicU16) -> u32 {
        let last = Id::decode(tail.load(Relaxed));
        let last = last.map_or(0, |last| self.node(last).number.load(Relaxed));
        let since = last.wrapping_sub(node.number.load(Relaxed));
        u32::from(since).min(self.in_use())
    }

    /// How many threads wait in queues now, at most `most`, not counting the owner of slot `but` (0
    /// = none). Not exact: threads come and go during the count.
    ///
    /// Reads a cache line of each claimed slot, which the owner may be writing. So platforms call
    /// this seldom and keep the result. The alternative, a counter, would be written twice per
    /// wait, by every CPU.
    ///
    /// Counts only in these `words` of 32 slots each, and only as long as `left`, the number of
    /// claimed slots that were not looked at, is not 0.
    pub fn waiting_in(
        &self,
        words: core::ops::Range<usize>,
        left: &mut u32,
        most: u32,
        but: u16,
    ) -> u32 {
        let mut waiting = 0;
        let (from, many) = (words.start, words.len());
        for (w, word) in self.claimed.iter().enumerate().skip(from).take(many) {
            // The lowest free slot is claimed first, so claimed slots are at the beginning.
            if *left == 0 || waiting >= most {
                break;
            }
            let mut bits = word.glance(Relaxed);
            while bits != 0 {
                let slot = w * 32 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                *left = left.saturating_sub(1);
                waiting += u32::from(slot + 1 != usize::from(but) && self.slots[slot].is_waiting());
            }
        }
        waiting.min(most)
    }

    /// Gives `slot` back. The platform calls this when the thread that kept it ends.
    ///
    /// # Safety
    ///
    /// The slot belongs to the caller, which no longer uses it. Otherwise locks would give two
    /// threads one place to wait.
    pub unsafe fn release(&self, slot: u16) {
        self.drop_reference(slot);
    }

    /// Frees a node that its owner left behind, once it is in no queue.
    pub(crate) fn reap(&self, id: Id) {
        self.free(id);
        self.drop_reference(id.slot());
    }

    /// Links a waiter behind `before`, whose `next` is 0 or [`GONE`]. `true`: the node was gone and
    /// has been reaped, and the waiter is the new head.
    ///
    /// Not a swap: a waiter that leaves must not find itself linked behind a node that is gone.
    pub(crate) fn link(&self, before: Id, waiter: Link) -> bool {
        // Release publishes the waiter's node. Acquire pairs with the release in `mark_gone`.
        let next = &self.node(before).next;
        let gone = next
            .compare_exchange(0, waiter.encode(), AcqRel, Acquire)
            .is_err();
        if gone {
            self.reap(before);
        }
        gone
    }

    /// Leaves the node of a head to the newcomer whose link is late. `false`: the link has come.
    pub(crate) fn mark_gone(&self, id: Id) -> bool {
        // Release pairs with the acquire in `link`, and acquire with the release there.
        let next = &self.node(id).next;
        next.compare_exchange(0, GONE, AcqRel, Relaxed).is_ok()
    }

    /// Keeps the node from being used again until [`unpin`](Self::unpin). Relaxed: the write that
    /// lets other threads reap the node comes later, and releases this one.
    pub(crate) fn pin(&self, id: Id) {
        self.node(id).pins.fetch_add(1, Relaxed);
    }

    /// Ends a pin. Release pairs with the acquire in `claim_node`.
    pub(crate) fn unpin(&self, id: Id) {
        self.node(id).pins.fetch_add(u8::MAX, Release);
    }

    /// Frees the slots of threads that do not exist in the child of a fork.
    ///
    /// Slots that the forking thread keeps stay claimed, and so do slots with nodes that a queue
    /// may still name; such nodes are marked as gone. The platform calls this in the child, before
    /// the child starts threads.
    ///
    /// # Safety
    ///
    /// The process has a single thread, which waits nowhere and keeps no slot but those that
    /// `is_kept` names.
    pub unsafe fn reset_in_child(&self, is_kept: impl Fn(u16) -> bool) {
        let mut left = 0;
        for (w, word) in self.claimed.iter().enumerate() {
            let mut bits = word.load(Relaxed);
            while bits != 0 {
                let slot = w * 32 + bits.trailing_zeros() as usize + 1;
                bits &= bits - 1;
                let s = &self.slots[slot - 1];
                // The queue of an inherited lock may name a busy node. The newcomer that finds the
                // node reaps it. None of these nodes is the forking thread's, since that waits
                // nowhere.
                let mut references = is_kept(slot as u16) as u8;
                for node in s.nodes.iter().filter(|n| n.busy.load(Relaxed) != FREE) {
                    node.next.store(GONE, Relaxed);
                    node.busy.store(LEFT_OVER, Relaxed);
                    references += 1;
                }
                for node in &s.nodes {
                    node.pins.store(0, Relaxed);
                }
                s.references.store(references, Relaxed);
                if references > 0 {
                    left += 1;
                } else {
                    word.fetch_and(!(1 << ((slot - 1) % 32)), Relaxed);
                }
            }
        }
        self.in_use.store(left, Relaxed);
    }

    /// Whether [`in_use`](Self::in_use) is the number of claimed slots, and slot `kept` (0 = none)
    /// is claimed. Only for a process with a single thread and no queues.
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
    pub fn claim(&self) -> Option<u16> {
        for (w, word) in self.claimed.iter().enumerate() {
            let mut seen = word.load(Relaxed);
            while seen != u32::MAX {
                let bit = (!seen).trailing_zeros();
                let slot = w * 32 + bit as usize + 1;
                if slot > self.slots.len() {
                    break;
                }
                // Acquire pairs with the release in `drop_reference`: the last user no longer
                // accesses the nodes.
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

    /// Marks a free node of `slot` that is not pinned as busy, by compare-and-swap because a signal
    /// handler may intervene.
    pub fn claim_node(&self, slot: u16) -> Option<Id> {
        let nodes = &self.slots[slot as usize - 1].nodes;
        // Acquire pairs with the release in `free` and `unpin`: the threads that reaped the node or
        // pinned it no longer access it. A pin is set before the node can be reaped, so it is seen
        // here.
        let claim = |n: &Node<P>| {
            n.busy.load(Relaxed) == FREE
                && n.busy
                    .compare_exchange(FREE, BUSY, Acquire, Relaxed)
                    .is_ok()
                && (n.pins.load(Acquire) == 0 || {
                    n.busy.store(FREE, Release);
                    false
                })
        };
        let free = nodes.iter().position(claim)?;
        Some(Id(slot << 2 | free as u16))
    }

    /// Whether the owner of the node already waits with an earlier node of its slot, and so runs a
    /// signal handler. Nodes that are abandoned or gone do not count. For the first node, which
    /// nearly all waits use, this reads nothing.
    pub(crate) fn is_nested(&self, id: Id) -> bool {
        let (slot, number) = (id.slot() as usize - 1, (id.encode() & 3) as usize);
        self.slots[slot].nodes[..number].iter().any(|node| {
            node.busy.load(Relaxed) == BUSY
                && node.state.load(Relaxed) != ABANDONED
                && node.next.load(Relaxed) != GONE
        })
    }

    pub(crate) fn free(&self, id: Id) {
        self.node(id).busy.store(FREE, Release);
    }

    pub(crate) fn drop_reference(&self, slot: u16) {
        let i = slot as usize - 1;
        // AcqRel: all accesses by earlier users happen before the slot is claimed again.
        if self.slots[i].references.fetch_add(u8::MAX, AcqRel) == 1 {
            self.in_use.fetch_add(u32::MAX, Relaxed);
            self.claimed[i / 32].fetch_and(!(1 << (i % 32)), Release);
        }
    }
}
