//! What a CPU (or a member) remembers: one word, and the time of its mark.
//!
//! | state | means | has the ID |
//! | --- | --- | --- |
//! | nothing | never had one, or it has moved along with a thread | no |
//! | recent(i) | had `i` last; a lease may hold it, another record may keep it, or it may be free | no |
//! | lent(i) | a lease holds `i`, and brings it back; the word is that lease's | the lease |
//! | kept(i) | `i` waits for whoever comes next on the CPU | yes |
//! | marked(i) | as kept, and somebody has seen it idle since the time of the mark | yes |
//!
//! | from | to | by | how | then |
//! | --- | --- | --- | --- | --- |
//! | kept(i), marked(i) | lent(i) | acquisition on the CPU (fast path) | exchange | `i` is held |
//! | lent(i) | kept(i) | release on the CPU by that lease (fast path) | store | `i` is kept |
//! | lent(i) | recent(i) | release by that lease elsewhere, or of an ID above the limit | store | `i` is kept elsewhere, or free |
//! | nothing, recent(j) | lent(i) | acquisition of `i` from elsewhere, on the CPU | exchange | `i` is held |
//! | nothing, recent(j) | kept(i) | release on the CPU by a lease from elsewhere | exchange | `i` is kept |
//! | kept(j), marked(j), `j` at or above the limit | lent(i), kept(i) | the same two | exchange | `j` is freed |
//! | kept(i) | marked(i) | somebody who looks for idle IDs, or a scheduler: first step of the hand-shake | exchange | |
//! | kept(i), marked(i) | recent(i) | somebody who needs an ID, or frees old ones: second step | exchange | `i` is held by them |
//! | kept(i), marked(i) | nothing | migration, or a member that leaves | exchange | `i` is held, then kept elsewhere or freed |
//!
//! "Exchange" is a compare-and-swap of the whole word. Whoever moves a word away from kept or marked has the ID from then on; so the owner that takes its ID back and whoever takes it away cannot both succeed.
//! Nobody but the lease writes a word that is lent: so its release needs no more than a store. A second thread of that CPU gets an ID that is lent by no record.
//!
//! A count in the word goes up whenever the record gives its ID up. So two equal words at two times mean that the ID has not been kept in between; see `raw/ids/proof.rs`.

use kinlock_core::platform::{Atomic, Platform};

/// One CPU's or member's. All zeros: nothing.
///
/// Two cache lines, which some CPUs fetch together.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Record<P: Platform> {
    /// See [`Word`].
    pub(super) word: P::AtomicU64,
    /// When it was last marked, in nanoseconds; says something in state marked only, and may then be early or late.
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

/// Bits 0 to 23: the ID. 24 to 26: the state. From 27 on: how often an ID was given up, modulo 2^37.
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

    pub(super) fn is_lent(self) -> bool {
        self.0 & STATE == LENT
    }

    /// The recent ID, if the state is that.
    pub(super) fn recent(self) -> Option<u32> {
        (self.0 & STATE == RECENT).then_some(self.id())
    }

    pub(super) fn is_nothing(self) -> bool {
        self.0 & STATE == 0
    }

    /// After giving the kept ID to a lease.
    #[inline]
    pub(super) fn lent(self) -> Word {
        self.lending(self.id())
    }

    /// After getting the lent ID back.
    #[inline]
    pub(super) fn kept(self) -> Word {
        self.with(KEPT, self.id())
    }

    /// After the kept or lent ID has gone elsewhere.
    pub(super) fn given_up(self) -> Word {
        self.with(RECENT, self.id()).counted()
    }

    /// After `id` came from elsewhere, and a lease holds it.
    #[inline]
    pub(super) fn lending(self, id: u32) -> Word {
        self.with(LENT, id).counted()
    }

    /// After being given `id`.
    pub(super) fn keeping(self, id: u32) -> Word {
        let word = self.with(KEPT, id);
        // An ID above the limit may have been there.
        if self.keeps() { word.counted() } else { word }
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

    #[inline]
    fn with(self, state: u64, id: u32) -> Word {
        Word(self.0 & !(STATE | ID) | state | id as u64)
    }

    #[inline]
    fn counted(self) -> Word {
        Word(self.0.wrapping_add(COUNT))
    }
}
