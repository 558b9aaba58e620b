//! Open sections in a singly linked list, in order of generation, without a lock.
//!
//! # Shape
//!
//! ```text
//!   head            a               b            last = newest
//!   {7, a} ------> {9, b} -------> {12, none}
//!    7 has passed   donated: was 8
//! ```
//!
//! An element is a place's pair {generation, next}. The head is an element of its own that never leaves; its generation is the newest that has passed. Generations strictly increase along the
//! list. A mark in the pair freezes it: whoever changes the pair of another expects it unmarked.
//!
//! # States of an element
//!
//! | state | pair | changed by |
//! | --- | --- | --- |
//! | away | marked; or zero, if never used | its owner, who begins: stores {generation, none, marked}, then swings the last element's pair to it |
//! | joining | {g, none, marked}, in the list | its owner: stores {g, none} |
//! | open | {g, next}, in the list | a newcomer, if last: {g, none} to {g, newcomer}. The successor, if it ends: {g, successor} to {successor's generation, its next}: that is the *donation*. The owner: marks it |
//! | leaving | {g, next, marked}, in the list | its owner: swings the predecessor to {g, next} and is away; or, if that fails, takes the mark back |
//!
//! # Why it is right
//!
//! 1. *Unmarked means in the list*, since an element is marked whenever it is away. (Elements that were never used are never looked at.)
//! 2. *An unmarked {g, none} is the last element, and there is only one moment in time at which it can be replaced by {g, newcomer}*: newcomers get generations
//!    above all in the list, so that a pair {g, none} which has been replaced does not come back: not with the same g.
//! 3. *The predecessor of an element changes only by that element's own end, or by the end of the predecessor.* The latter marks the predecessor first. So an end that finds its predecessor's pair unmarked
//!    and unchanged by its compare-and-swap takes itself out of the list, and nobody else.
//! 4. *The generation is read after the mark is set.* A donation that came before is in it; one that would come later fails.
//! 5. *A walker may be led astray*: an element on its way ends, and begins again at the end of the list. It then walks on from there, and may miss its predecessor, and starts over. It never walks
//!    in circles, since generations increase along what it walks; it is stopped after as many steps as there are places.
//!
//! # Progress
//!
//! The window between mark and unmark is a few instructions long; a thread that is preempted in it makes all who come by start over. A kernel forbids preemption there. Here, who starts over pauses, then
//! yields its CPU, then sleeps for moments, so that also a thread of lower priority comes to its end; and who has started over often enough to begin lines up for the *starter lock*, as then all do who begin. So whoever begins is overtaken by a bounded number of others: by those who had
//! looked at the starter lock before, and by ends. Of the ends, that of the oldest section cannot fail: its predecessor is the head, which is never marked.

// Invariants cited by `SAFETY` comments:
// 1. The starter lock is released by the thread that took it, once.

use super::{Backend, Begun, Config, Counts, Fault, NearWrap, Place};
use core::marker::PhantomData;
use kinlock_core::platform::{Atomic, Ordering::*, Platform};
use kinlock_core::raw::mutex::QueuedMutex;

/// A pair as it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The generation.
    pub generation: u64,
    /// The next element's place; 0: none.
    pub next: u16,
    /// Whether the element is marked.
    pub marked: bool,
}

/// A pair {generation, next} with a mark, changed in one step.
pub trait Pair: Send + Sync + 'static {
    /// The name of the list with such pairs.
    const NAME: &'static str;
    /// The newest generation that it can hold.
    const NEWEST: u64;

    /// An element that was never used, or a head.
    fn new(generation: u64) -> Self;
    /// Reads it, as it was at one moment if it is unmarked. Acquires.
    fn load(&self) -> Seen;
    /// Reads the generation alone. Acquires.
    fn generation(&self) -> u64;
    /// Changes it from `current`, which is unmarked, to `new`; whether it was `current`. Acquires and releases.
    fn exchange(&self, current: Seen, new: Seen) -> bool;
    /// Marks it, which is not marked, and reads it as it was then. Acquires. For its owner only.
    fn mark(&self) -> Seen;
    /// Writes it while it is marked, or unmarks it. Releases.
    fn publish(&self, new: Seen);
}

/// The list.
// `repr(C)`: the head first, so that it shares its line with the starter lock and the gate.
#[repr(C)]
#[derive(Debug)]
pub struct List<P: Platform, Q, C: Config> {
    head: Q,
    pub(super) starter: QueuedMutex<P, C::Mutex>,
    config: PhantomData<C>,
}

impl<P: Platform, Q: Pair, C: Config> List<P, Q, C> {
    /// An empty list in which this generation and all before have passed.
    pub fn new(generation: u64) -> Self {
        List {
            head: Q::new(generation),
            starter: QueuedMutex::new(),
            config: PhantomData,
        }
    }

    #[inline]
    fn element<'a>(&'a self, places: &'a [Place<P, Q>], next: u16) -> &'a Q {
        &places[next as usize - 1].link
    }

    /// The last element, as it was seen, and how many elements there are before the end. `None`: something is marked.
    #[inline]
    fn last<'a>(&'a self, places: &'a [Place<P, Q>]) -> Option<(&'a Q, Seen, usize)> {
        let mut at = &self.head;
        for steps in 0..=places.len() {
            let seen = at.load();
            match seen {
                Seen { marked: true, .. } => return None,
                Seen { next: 0, .. } => return Some((at, seen, steps)),
                Seen { next, .. } => at = self.element(places, next),
            }
        }
        None
    }

    /// The element before `me`, as it was seen. `None`: something is marked, or the way missed it.
    #[inline]
    pub(super) fn predecessor<'a>(
        &'a self,
        places: &'a [Place<P, Q>],
        me: u16,
    ) -> Option<(&'a Q, Seen)> {
        let mut at = &self.head;
        for _ in 0..=places.len() {
            let seen = at.load();
            match seen {
                Seen { marked: true, .. } | Seen { next: 0, .. } => return None,
                Seen { next, .. } if next == me => return Some((at, seen)),
                Seen { next, .. } => at = self.element(places, next),
            }
        }
        None
    }

    /// Tries to begin: the generation. `None`: start over.
    #[inline]
    fn try_begin(
        &self,
        places: &[Place<P, Q>],
        counts: &Counts<P>,
        me: u16,
    ) -> Result<Option<u64>, NearWrap> {
        let Some((last, seen, open)) = self.last(places) else {
            return Ok(None);
        };
        if seen.generation >= Q::NEWEST {
            return Err(NearWrap);
        }
        let own = self.element(places, me);
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
        places: &[Place<P, Q>],
        counts: &Counts<P>,
        me: u16,
    ) -> Result<u64, NearWrap> {
        let mut restarts = 0;
        let mut lined_up = false;
        let begun = loop {
            if !lined_up && (restarts >= C::PATIENCE || self.starter.is_locked()) {
                self.starter.lock();
                lined_up = true;
            }
            pause::<P>(restarts);
            match self.try_begin(places, counts, me) {
                Ok(None) => restarts += 1,
                Ok(Some(generation)) => break Ok(generation),
                Err(error) => break Err(error),
            }
        };
        if lined_up {
            // SAFETY: invariant 1: taken above, by this thread.
            unsafe { self.starter.unlock() };
        }
        // The attempt that led here counts too.
        counts
            .begin_restarts
            .fetch_add(restarts as u64 + 1, Relaxed);
        begun
    }

    /// Tries to end. Whether the head has advanced; `None`: start over.
    #[inline]
    fn try_end(&self, places: &[Place<P, Q>], me: u16) -> Option<bool> {
        let own = self.element(places, me);
        let marks_early = matches!(C::FAULT, Fault::MarkedEarly);
        let early = match C::FAULT {
            Fault::None | Fault::WakeLost => None,
            Fault::MarkedEarly => Some(own.mark()),
            Fault::GenerationReadBeforeMark => Some(own.load()),
        };
        let Some((before, seen)) = self.predecessor(places, me) else {
            if let Some(own_seen) = early.filter(|_| marks_early) {
                own.publish(own_seen);
            }
            return None;
        };
        let (mine, generation) = match early {
            Some(marked) if marks_early => (marked, marked.generation),
            Some(stale) => (own.mark(), stale.generation),
            None => {
                let marked = own.mark();
                (marked, marked.generation)
            }
        };
        if before.exchange(seen, Seen { generation, ..mine }) {
            return Some(core::ptr::eq(before, &self.head));
        }
        own.publish(mine);
        None
    }

    #[cold]
    #[inline(never)]
    fn end_slow(&self, places: &[Place<P, Q>], counts: &Counts<P>, me: u16) -> bool {
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
        places: &[Place<P, Q>],
        counts: &Counts<P>,
        me: u16,
    ) -> Result<Begun, NearWrap> {
        let mut generation = None;
        if !self.starter.is_locked() {
            generation = self.try_begin(places, counts, me)?;
        }
        let generation = match generation {
            Some(generation) => generation,
            None => self.begin_slow(places, counts, me)?,
        };
        Ok(Begun {
            generation,
            lets_pass: false,
        })
    }

    #[inline]
    fn end(&self, places: &[Place<P, Q>], counts: &Counts<P>, me: u16) -> bool {
        match self.try_end(places, me) {
            Some(advanced) => advanced,
            None => self.end_slow(places, counts, me),
        }
    }

    #[inline]
    fn passed(&self, _: &[Place<P, Q>], generation: u64) -> bool {
        generation <= self.head.generation()
    }

    fn newest(&self, places: &[Place<P, Q>]) -> u64 {
        let mut restarts = 0;
        loop {
            if let Some((_, seen, _)) = self.last(places) {
                return seen.generation;
            }
            pause::<P>(restarts);
            restarts += 1;
        }
    }

    fn newest_at_once(&self, places: &[Place<P, Q>]) -> Option<u64> {
        let mut looks = (0..LOOKS_AT_NEWEST).map(|_| self.last(places));
        looks.find_map(|last| last.map(|(_, seen, _)| seen.generation))
    }

    fn keep_only(&self, places: &[Place<P, Q>], survivor: Option<(u16, u64)>) {
        let mut newest = self.head.generation();
        for place in places {
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
        // Whatever was tagged by sections that are gone has passed if it is older than the survivor, and else passes with it.
        match survivor {
            None => self.head.publish(head(newest, 0)),
            Some((place, begun)) => {
                self.element(places, place).publish(head(newest, 0));
                self.head.publish(head(begun - 1, place));
            }
        }
        self.starter.reset_in_child();
    }
}

/// How often to walk along the list for its newest generation, where that need not be known.
const LOOKS_AT_NEWEST: u32 = 16;

/// How often to pause before yielding, and how often to start over at all before sleeping.
const PAUSES: u32 = 16;
const YIELDS: u32 = 1000;
/// How long to sleep then, in nanoseconds: about what falling asleep and waking up cost.
const NAP: u64 = 50_000;

/// Before starting over: what is in the way takes a few instructions, unless its thread does not run.
fn pause<P: Platform>(restarts: u32) {
    if restarts < PAUSES {
        for _ in 0..1 << (restarts / 4) {
            P::relax();
        }
    } else if restarts < YIELDS || !P::CAN_PARK {
        P::yield_now();
    } else {
        // A real-time thread yields to its equals only, and the one in the way may be none.
        let nobody_wakes = 0;
        P::park(&raw const nobody_wakes, 0, P::now() + NAP, || 0);
    }
}
