//! The record of a CPU or a member: one word, and the time of its mark.
//!
//! | state | means | has the ID |
//! | --- | --- | --- |
//! | nothing | never had an ID, or a thread that went elsewhere has taken it away | no |
//! | recent(i) | had `i` last; `i` may be held, kept by another record, or free | no |
//! | lent(i) | a lease holds `i` and brings it back; the lease owns the word | the lease |
//! | kept(i) | `i` waits for the next acquisition on the CPU | yes |
//! | marked(i) | as kept, and seen idle since the time of the mark | yes |
//!
//! | from | to | by | how | then `i` is |
//! | --- | --- | --- | --- | --- |
//! | kept(i), marked(i) | lent(i) | acquisition here (fast path) | CAS | held |
//! | lent(i) | kept(i) | release here by that lease (fast path) | store | kept |
//! | lent(i) | nothing | any other release by that lease | store | kept elsewhere, or free |
//! | nothing, recent(j) | lent(i) | acquisition here; `i` from elsewhere | CAS | held |
//! | nothing, recent(j) | kept(i) | release here by a lease from elsewhere | CAS | kept |
//! | kept(j), marked(j); j >= limit | lent(i), kept(i) | the last two; frees `j` | CAS | as there |
//! | kept(i) | marked(i) | search for idle IDs, or a scheduler: step 1 | CAS | kept |
//! | kept(i), marked(i) | recent(i) | search for an ID, or reclaim: step 2 | CAS | held |
//!
//! CAS is a compare-and-swap of the whole word. The thread that moves a word away from kept or
//! marked has the ID from then on. So when an owner takes its ID back while another thread takes it
//! away, only one of them succeeds; steps 1 and 2 are a hand-shake with the owner. Only the lease
//! writes a word in state lent, so its release needs no more than a store. A second thread of that
//! CPU gets an ID that no record lent.

use kinlock_core::platform::{Atomic, Platform};

/// The record of one CPU or member. All zeros: nothing.
///
/// Two cache lines, which some CPUs fetch together.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Record<P: Platform> {
    /// See [`Word`].
    pub(super) word: P::AtomicU32,
    /// When the record was last marked, in nanoseconds. Meaningful in state marked only, and even
    /// then perhaps too early or too late.
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

/// Bits 0 to 23: the ID. 24 to 26: the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Word(pub u32);

const ID: u32 = (1 << 24) - 1;
const STATE: u32 = 7 << 24;
const RECENT: u32 = 1 << 24;
const LENT: u32 = 2 << 24;
const KEPT: u32 = 4 << 24;
const MARKED: u32 = 5 << 24;

impl Word {
    /// Without an ID.
    pub(super) const NOTHING: Word = Word(0);

    /// A lease holds `id`.
    #[inline]
    pub(super) fn lent(id: u32) -> Word {
        Word(LENT | id)
    }

    /// `id` waits for the next acquisition.
    #[inline]
    pub(super) fn kept(id: u32) -> Word {
        Word(KEPT | id)
    }

    /// `id` has gone elsewhere.
    pub(super) fn had(id: u32) -> Word {
        Word(RECENT | id)
    }

    /// The same ID, kept and seen idle.
    pub(super) fn marked(self) -> Word {
        Word(MARKED | self.id())
    }

    /// The ID. Meaningless in state nothing.
    #[inline]
    pub(super) fn id(self) -> u32 {
        self.0 & ID
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
}
