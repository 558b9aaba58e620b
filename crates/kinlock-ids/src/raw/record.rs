//! The record of a CPU or a member: one word, and the time of its mark.
//!
//! | state | means | has the ID |
//! | --- | --- | --- |
//! | nothing | never had an ID, or it has moved along with a thread | no |
//! | recent(i) | had `i` last; `i` may be held, kept by another record, or free | no |
//! | lent(i) | a lease holds `i` and brings it back; the lease owns the word | the lease |
//! | kept(i) | `i` waits for the next acquisition on the CPU | yes |
//! | marked(i) | as kept, and seen idle since the time of the mark | yes |
//!
//! | from | to | by | how | then `i` is |
//! | --- | --- | --- | --- | --- |
//! | kept(i), marked(i) | lent(i) | acquisition here (fast path) | CAS | held |
//! | lent(i) | kept(i) | release here by that lease (fast path) | store | kept |
//! | lent(i) | recent(i) | any other release by that lease | store | kept elsewhere, or free |
//! | nothing, recent(j) | lent(i) | acquisition here; `i` from elsewhere | CAS | held |
//! | nothing, recent(j) | kept(i) | release here by a lease from elsewhere | CAS | kept |
//! | kept(j), marked(j); j >= limit | lent(i), kept(i) | the last two; frees `j` | CAS | as there |
//! | kept(i) | marked(i) | search for idle IDs, or a scheduler: step 1 | CAS | kept |
//! | kept(i), marked(i) | recent(i) | search for an ID, or reclaim: step 2 | CAS | held |
//! | kept(i), marked(i) | nothing | migration, or a member that leaves | CAS | moved or freed |
//!
//! CAS is a compare-and-swap of the whole word. The thread that moves a word away from kept or
//! marked has the ID from then on. So when an owner takes its ID back while another thread takes it
//! away, only one of them succeeds; steps 1 and 2 are a hand-shake with the owner. Only the lease
//! writes a word in state lent, so its release needs no more than a store. A second thread of that
//! CPU gets an ID that no record lent.
//!
//! A count in the word goes up whenever the record gives its ID up. So two equal words at two times
//! mean that the ID has not been kept in between; see `proof.rs`.

use kinlock_core::platform::{Atomic, Platform};

/// The record of one CPU or member. All zeros: nothing.
///
/// Two cache lines, which some CPUs fetch together.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Record<P: Platform> {
    /// See [`Word`].
    pub(super) word: P::AtomicU64,
    /// When it was last marked, in nanoseconds. Meaningful in state marked only, and may be early
    /// or late then.
    pub(super) marked_at: P::AtomicU64,
}

impl<P: Platform> Default for Record<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Platform> Record<P> {
    /// A record in state nothing.
    pub fn new() -> Self {
        Record {
            word: Atomic::new(0),
            marked_at: Atomic::new(0),
        }
    }
}

/// Bits 0 to 23: the ID. 24 to 26: the state. From 27 on: how many times an ID was given up, modulo
/// 2^37.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Word(pub u64);

const ID: u64 = (1 << 24) - 1;
const STATE: u64 = 7 << 24;
const RECENT: u64 = 1 << 24;
const LENT: u64 = 2 << 24;
const KEPT: u64 = 4 << 24;
const MARKED: u64 = 5 << 24;
const COUNT: u64 = 1 << 27;

impl Word {
    /// The ID. Meaningless in state nothing.
    #[inline]
    pub(super) fn id(self) -> u32 {
        (self.0 & ID) as u32
    }

    /// Whether the state is kept or marked.
    #[inline]
    pub(super) fn keeps(self) -> bool {
        self.0 & KEPT != 0
    }

    pub(super) fn is_marked(self) -> bool {
        self.0 & STATE == MARKED
    }

    /// Whether the state is kept(`id`) or marked(`id`).
    pub(super) fn keeps_id(self, id: u32) -> bool {
        self.keeps() && self.id() == id
    }

    pub(super) fn is_lent(self) -> bool {
        self.0 & STATE == LENT
    }

    /// The ID, in state recent.
    pub(super) fn recent(self) -> Option<u32> {
        (self.0 & STATE == RECENT).then_some(self.id())
    }

    pub(super) fn is_nothing(self) -> bool {
        self.0 & STATE == 0
    }

    /// The word after lending the kept ID to a lease.
    #[inline]
    pub(super) fn lent(self) -> Word {
        self.lending(self.id())
    }

    /// The word after getting the lent ID back.
    #[inline]
    pub(super) fn kept(self) -> Word {
        self.with(KEPT, self.id())
    }

    /// The word after the kept or lent ID has gone elsewhere.
    pub(super) fn given_up(self) -> Word {
        self.with(RECENT, self.id()).counted()
    }

    /// The word after `id` came from elsewhere and a lease holds it.
    #[inline]
    pub(super) fn lending(self, id: u32) -> Word {
        self.with(LENT, id).counted()
    }

    /// The word after being handed `id`.
    pub(super) fn keeping(self, id: u32) -> Word {
        let word = self.with(KEPT, id);
        // An ID above the limit may have been there; it is given up.
        if self.keeps() { word.counted() } else { word }
    }

    pub(super) fn marked(self) -> Word {
        self.with(MARKED, self.id())
    }

    /// The word after the ID has moved along.
    pub(super) fn emptied(self) -> Word {
        self.with(0, 0).counted()
    }

    /// How many times an ID was given up.
    pub(super) fn count(self) -> u64 {
        self.0 / COUNT
    }

    #[inline]
    fn with(self, state: u64, id: u32) -> Word {
        Word(self.0 & !(STATE | ID) | state | id as u64)
    }

    #[inline]
    fn counted(self) -> Word {
        Word(self.0.wrapping_add(COUNT))
    }
}
