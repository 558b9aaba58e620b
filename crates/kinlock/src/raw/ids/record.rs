//! What a CPU (or a member) remembers: one word, and the time of its mark.
//!
//! | state | means | owns the ID |
//! | --- | --- | --- |
//! | nothing | never had one, or it has moved along with a thread | no |
//! | recent(i) | had `i` last; a lease may hold it, another record may keep it, or it may be free | no |
//! | kept(i) | `i` waits for whoever comes next on the CPU | yes |
//! | marked(i) | as kept, and somebody has seen it idle since the time of the mark | yes |
//!
//! | from | to | by | then |
//! | --- | --- | --- | --- |
//! | kept(i), marked(i) | recent(i) | acquisition on the CPU (fast path) | `i` is held |
//! | recent(i) | kept(i) | release on the CPU by the lease that took `i` here (fast path) | `i` is kept |
//! | nothing, recent(j) | kept(i) | any other release on the CPU | `i` is kept |
//! | kept(j), marked(j), `j` at or above the limit | kept(i) | the same | `j` is freed, `i` is kept |
//! | nothing, recent(j) | recent(i) | acquisition of `i` from elsewhere, on the CPU | `i` is held |
//! | kept(i) | marked(i) | somebody who looks for idle IDs: first step of the hand-shake | |
//! | marked(i), kept(i) | recent(i) | somebody who needs an ID, or frees old ones: second step | `i` is held by them |
//! | kept(i), marked(i) | nothing | migration | `i` is held by the migrating, then kept elsewhere or freed |
//!
//! All by compare-and-swap of the whole word. Whoever moves a word away from kept or marked has the ID from then on; so the owner that takes its ID back and whoever takes it away cannot both succeed.
//!
//! A count in the word goes up whenever the record gives its ID up. So two equal words at two times mean that the ID has not been kept in between; see [`proof`](super::proof).

use crate::platform::{Atomic, Platform};

/// One CPU's or member's. All zeros: nothing.
///
/// Two cache lines, which some CPUs fetch together.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Record<P: Platform> {
    /// See [`Word`].
    pub(super) word: P::AtomicU64,
    /// When it was last marked, in nanoseconds; says something in state marked only, and may then be a moment too late.
    pub(super) marked_at: P::AtomicU64,
}

impl<P: Platform> Default for Record<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Platform> Record<P> {
    /// A record of nothing.
    pub fn new() -> Self {
        Record {
            word: Atomic::new(0),
            marked_at: Atomic::new(0),
        }
    }
}

/// Bits 0 to 23: the ID. 24 and 25: the state. From 26 on: how often an ID was given up, modulo 2^38.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Word(pub u64);

const ID: u64 = (1 << 24) - 1;
const STATE: u64 = 3 << 24;
const RECENT: u64 = 1 << 24;
const KEPT: u64 = 2 << 24;
const MARKED: u64 = 3 << 24;
const COUNT: u64 = 1 << 26;

impl Word {
    /// Says something in any state but nothing.
    #[inline]
    pub(super) fn id(self) -> u32 {
        (self.0 & ID) as u32
    }

    /// Whether it is kept or marked.
    #[inline]
    pub(super) fn keeps(self) -> bool {
        self.0 & KEPT != 0
    }

    pub(super) fn is_marked(self) -> bool {
        self.0 & STATE == MARKED
    }

    /// Whether it is kept or marked, and which.
    pub(super) fn keeps_id(self, id: u32) -> bool {
        self.keeps() && self.id() == id
    }

    /// The recent ID, if the state is that.
    pub(super) fn recent(self) -> Option<u32> {
        (self.0 & STATE == RECENT).then_some(self.id())
    }

    pub(super) fn is_nothing(self) -> bool {
        self.0 & STATE == 0
    }

    /// After giving the kept ID up.
    #[inline]
    pub(super) fn taken(self) -> Word {
        self.with(RECENT, self.id()).counted()
    }

    /// After being given the recent ID.
    #[inline]
    pub(super) fn kept(self) -> Word {
        self.with(KEPT, self.id())
    }

    /// After being given `id`.
    pub(super) fn keeping(self, id: u32) -> Word {
        let word = self.with(KEPT, id);
        // An ID above the limit may have been there.
        if self.keeps() { word.counted() } else { word }
    }

    /// After `id` came from elsewhere, and is held.
    pub(super) fn recalling(self, id: u32) -> Word {
        self.with(RECENT, id).counted()
    }

    pub(super) fn marked(self) -> Word {
        self.with(MARKED, self.id())
    }

    /// After the ID has moved along.
    pub(super) fn emptied(self) -> Word {
        self.with(0, 0).counted()
    }

    /// How often an ID was given up.
    pub(super) fn count(self) -> u64 {
        self.0 / COUNT
    }

    fn with(self, state: u64, id: u32) -> Word {
        Word(self.0 & !(STATE | ID) | state | id as u64)
    }

    fn counted(self) -> Word {
        Word(self.0.wrapping_add(COUNT))
    }
}
