//! Open sections in a singly linked list, in order of generation. There is no lock for the list;
//! each element has a lock bit, its mark.
//!
//! # Shape
//!
//! ```text
//!   head            a               b            last = newest
//!   {7, a} ------> {9, b} -------> {12, none}
//!    7 has passed   donated: was 8
//! ```
//!
//! An element is a place's pair {generation, next}. The head is an element of its own that never
//! leaves; its generation is the newest that has passed. Generations strictly increase along the
//! list. A mark in a pair freezes it: the compare-and-swap by which another thread would change it
//! expects an unmarked pair, and fails.
//!
//! # States of an element
//!
//! | state | pair | the owner's next step |
//! | --- | --- | --- |
//! | away | marked, or zero if never used | begin: stores {g, none, marked}, links it last |
//! | joining | {g, none, marked}, linked | stores {g, none} |
//! | open | {g, next}, linked | end: finds the predecessor, marks its own pair |
//! | leaving | {g, next, marked}, linked | predecessor := {g, next}; or unmarks |
//!
//! Other threads change the pair of an open element only:
//!
//! * A newcomer, if the element is the last: {g, none} becomes {g, newcomer}.
//! * The successor, if that ends: {g, successor} becomes {successor's generation, its next}. This
//!   is the *donation* of the successor's generation.
//!
//! # Correctness
//!
//! 1. *An unmarked element is in the list*: an element is marked whenever it is away. (Elements
//!    that were never used are never reached.)
//! 2. *A pair {g, none} that was replaced by {g, newcomer} does not come back with the same g*,
//!    since a newcomer's generation is above all in the list. So the compare-and-swap of a newcomer
//!    succeeds only on the last element of the list.
//! 3. *An end unlinks its own element and no other.* Two operations can change which element is the
//!    predecessor: the element's own end, and the end of the predecessor. The end of the
//!    predecessor marks it first. So if the compare-and-swap of an end succeeds, the pair was
//!    unmarked and unchanged, and its element was still the predecessor.
//! 4. *The generation is read after the mark is set.* An earlier donation is in it; a later one
//!    fails.
//! 5. *A walk may miss its target.* While a walk reads an element, that element may leave the list
//!    and join it again at the end. The walk goes on from there, misses its target, and starts
//!    over. It never cycles, since generations increase along it. It stops after as many steps as
//!    there are places.
//!
//! # Progress
//!
//! The mark is a lock bit. It is held for a few instructions. A thread that is preempted in between
//! stops all beginners and the ends of its neighbours: each thread that meets the mark starts over.
//! A kernel would forbid preemption there. Here a thread that starts over first pauses, then yields
//! its CPU, then uses timed sleeps, so that a preempted thread of lower priority can also finish.
//!
//! A begin that has started over often enough queues for the *starter lock*, and from then on all
//! begins do. Only ends, and begins that had checked the starter lock before, can then overtake
//! it, so their number is bounded. The end of the oldest section cannot fail, since its predecessor
//! is the head, which is never marked.

// Invariants cited by `SAFETY` comments:
// 1. The starter lock is released once, by the thread that acquired it.
// 2. `keep_only` is called in the child of a fork, on its only thread. The list consists of
//    atomics, so that no memory is at risk if it is called elsewhere.

use super::{Backend, Config, Counts, NearWrap, Places};
use core::marker::PhantomData;
use kinlock_core::platform::{Atomic, Ordering::*, Platform};
use kinlock_core::raw::mutex::QueuedMutex;

/// The value of a pair, as it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The generation.
    pub generation: u64,
    /// The next element's place; 0 = none.
    pub next: u16,
    /// Whether the element is marked.
    pub marked: bool,
}

/// A pair {generation, next} with a mark, changed in one step.
pub trait Pair: Send + Sync + 'static {
    /// The name of the list with such pairs.
    const NAME: &'static str;
    /// The largest generation that it can hold.
    const NEWEST: u64;

    /// An element that was never used, or a head.
    fn new(generation: u64) -> Self;
    /// Reads the pair. If it is unmarked, the parts belong to one moment. Acquires.
    fn load(&self) -> Seen;
    /// Reads the generation alone. Acquires.
    fn generation(&self) -> u64;
    /// Replaces `current`, which is unmarked, by `new`. Returns whether the pair was `current`.
    /// Acquires and releases.
    fn exchange(&self, current: Seen, new: Seen) -> bool;
    /// Marks the pair, which is unmarked, and returns its value at that moment. Acquires. For the
    /// owner only.
    fn mark(&self) -> Seen;
    /// Writes the pair while it is marked, or unmarks it. Releases.
    fn publish(&self, new: Seen);
}

/// The list of open sections.
// `repr(C)`: the head first, so that it shares its line with the starter lock and the gate.
#[repr(C)]
#[derive(Debug)]
pub struct List<P: Platform, Q, C: Config> {
    /// The element before the first.
    pub head: Q,
    pub(super) starter: QueuedMutex<P, C::Mutex>,
    config: PhantomData<C>,
}

impl<P: Platform, Q: Pair, C: Config> List<P, Q, C> {
    /// An empty list in which this generation and all before have passed.
    pub fn new(generation: u64) -> Self {
        List {
            head: Q::new(generation),
            starter: QueuedMutex::default(),
            config: PhantomData,
        }
    }

    /// The last element, its value, and the number of elements before it. `None`: an element is
    /// marked.
    #[inline]
    fn last<'a>(&'a self, places: Places<'a, P, Q>) -> Option<(&'a Q, Seen, usize)> {
        let mut at = &self.head;
        for steps in 0..=places.all.len() {
            let seen = at.load();
            match seen {
                Seen { marked: true, .. } => return None,
                Seen { next: 0, .. } => return Some((at, seen, steps)),
                Seen { next, .. } => at = places.link(next),
            }
        }
        None
    }

    /// The element before `me`, and its value. `None`: an element is marked, or the walk missed it.
    #[inline]
    pub fn predecessor<'a>(&'a self, places: Places<'a, P, Q>, me: u16) -> Option<(&'a Q, Seen)> {
        let mut at = &self.head;
        for _ in 0..=places.all.len() {
            let seen = at.load();
            match seen {
                Seen { marked: true, .. } | Seen { next: 0, .. } => return None,
                Seen { next, .. } if next == me => return Some((at, seen)),
                Seen { next, .. } => at = places.link(next),
            }
        }
        None
    }

    /// Tries to begin. Returns the generation, or `None`: start over.
    #[inline]
    fn try_begin(
        &self,
        places: Places<'_, P, Q>,
        counts: &Counts<P>,
        me: u16,
    ) -> Result<Option<u64>, NearWrap> {
        let Some((last, seen, open)) = self.last(places) else {
            return Ok(None);
        };
        if seen.generation >= Q::NEWEST {
            return Err(NearWrap);
        }
        let own = places.link(me);
        let generation = seen.generation + 1;
        let mine = |marked| Seen {
            generation,
            next: 0,
            marked,
        };
        own.publish(mine(true));
        if !last.exchange(seen, Seen { next: me, ..seen }) {
            return Ok(None);
        }
        own.publish(mine(false));
        counts.saw_queue(open as u64 + 1);
        Ok(Some(generation))
    }

    #[cold]
    #[inline(never)]
    fn begin_slow(
        &self,
        places: Places<'_, P, Q>,
        counts: &Counts<P>,
        me: u16,
    ) -> Result<u64, NearWrap> {
        let mut restarts = 0;
        let mut queued = false;
        let begun = loop {
            if !queued && (restarts >= C::PATIENCE || self.starter.is_locked()) {
                self.starter.lock();
                queued = true;
            }
            pause::<P>(restarts);
            match self.try_begin(places, counts, me) {
                Ok(None) => restarts += 1,
                Ok(Some(generation)) => break Ok(generation),
                Err(error) => break Err(error),
            }
        };
        if queued {
            // SAFETY: invariant 1: acquired above, by this thread.
            unsafe { self.starter.unlock() };
        }
        // Plus the failed attempt before this function.
        counts
            .begin_restarts
            .fetch_add(restarts as u64 + 1, Relaxed);
        begun
    }

    /// Tries to end. Returns to which generation the head has advanced, if it has, or `None`: start
    /// over.
    #[inline]
    fn try_end(&self, places: Places<'_, P, Q>, me: u16) -> Option<Option<u64>> {
        let own = places.link(me);
        let (before, seen) = self.predecessor(places, me)?;
        let mine = own.mark();
        if before.exchange(seen, mine) {
            return Some(core::ptr::eq(before, &self.head).then_some(mine.generation));
        }
        own.publish(mine);
        None
    }

    #[cold]
    #[inline(never)]
    fn end_slow(&self, places: Places<'_, P, Q>, counts: &Counts<P>, me: u16) -> Option<u64> {
        let mut restarts = 1;
        loop {
            pause::<P>(restarts);
            if let Some(advanced) = self.try_end(places, me) {
                counts.end_restarts.fetch_add(restarts as u64, Relaxed);
                return advanced;
            }
            restarts += 1;
        }
    }
}

impl<P: Platform, Q: Pair, C: Config> Backend<P> for List<P, Q, C> {
    const NAME: &'static str = Q::NAME;
    type Link = Q;

    #[inline]
    fn begin(
        &self,
        places: Places<'_, P, Q>,
        counts: &Counts<P>,
        me: u16,
    ) -> Result<u64, NearWrap> {
        let mut generation = None;
        if !self.starter.is_locked() {
            generation = self.try_begin(places, counts, me)?;
        }
        match generation {
            Some(generation) => Ok(generation),
            None => self.begin_slow(places, counts, me),
        }
    }

    #[inline]
    fn end(&self, places: Places<'_, P, Q>, counts: &Counts<P>, me: u16) -> Option<u64> {
        match self.try_end(places, me) {
            Some(advanced) => advanced,
            None => self.end_slow(places, counts, me),
        }
    }

    #[inline]
    fn passed(&self, _: Places<'_, P, Q>, generation: u64) -> bool {
        generation <= self.head.generation()
    }

    fn newest(&self, places: Places<'_, P, Q>) -> u64 {
        let mut restarts = 0;
        loop {
            if let Some((_, seen, _)) = self.last(places) {
                return seen.generation;
            }
            pause::<P>(restarts);
            restarts += 1;
        }
    }

    fn newest_at_once(&self, places: Places<'_, P, Q>) -> Option<u64> {
        let mut walks = (0..WALKS_FOR_NEWEST).map(|_| self.last(places));
        walks.find_map(|last| last.map(|(_, seen, _)| seen.generation))
    }

    fn look(&self, link: &Q) -> (u64, bool) {
        let seen = link.load();
        (seen.generation, seen.marked)
    }

    fn keep_only(&self, places: Places<'_, P, Q>, survivor: Option<(u16, u64)>) {
        let mut newest = self.head.generation();
        for place in places.used() {
            let seen = place.link.load();
            if seen.generation != 0 {
                newest = newest.max(seen.generation);
                place.link.publish(Seen {
                    marked: true,
                    ..seen
                });
            }
        }
        let head = |generation, next| Seen {
            generation,
            next,
            marked: false,
        };
        // A tag of an ended section has passed if it is older than the survivor, else it passes
        // with the survivor.
        match survivor {
            None => self.head.publish(head(newest, 0)),
            Some((place, begun)) => {
                places.link(place).publish(head(newest, 0));
                self.head.publish(head(begun - 1, place));
            }
        }
        // SAFETY: invariant 2.
        unsafe { self.starter.reset_in_child() };
    }
}

/// How many times to walk the list for its newest generation where the answer is optional.
const WALKS_FOR_NEWEST: u32 = 16;

/// Restarts up to this number pause, the next ones up to `YIELDS` yield, and later ones sleep.
const PAUSES: u32 = 16;
const YIELDS: u32 = 1000;
/// The length of a timed sleep in nanoseconds: about what falling asleep and waking up cost.
const TIMED_SLEEP: u64 = 50_000;

/// Waits before an operation starts over. The obstacle lasts a few instructions, unless its thread
/// is not running.
pub fn pause<P: Platform>(restarts: u32) {
    if restarts < PAUSES {
        for _ in 0..1 << (restarts / 4) {
            P::relax();
        }
    } else if restarts < YIELDS || !P::CAN_PARK {
        P::yield_now();
    } else {
        // A sleep, since a yield of a real-time thread lets only threads of the same priority run.
        let never_woken = 0;
        P::park(&raw const never_woken, 0, P::now() + TIMED_SLEEP, || 0);
    }
}
