//! Seeded defects of delayed invalidation, each to be caught by the check meant for it.
//!
//! Each defect is a backend around the sound one that does one thing wrong, or a wrong way to end a
//! section. The algorithms contain no test for any of them.
//!
//! | defect | what |
//! | --- | --- |
//! | `WakeLost` | [`WakeLost`] around any backend |
//! | `GenerationReadBeforeMark` | [`GenerationReadBeforeMark`] instead of a [`List`] |
//! | `MarkedEarly` | [`MarkedEarly`] instead of a [`List`] |
//! | `BoundRespected` | [`BoundRespected`] instead of [`Slots`] |
//! | `ErasedLate` | [`end_erasing_late`] instead of [`Domain::end`] |

// Each of those that include this file uses a part of it.
#![allow(dead_code)]

use kinlock_core::platform::{Atomic, Atomics, Ordering::*, Platform};
use kinlock_invalidation::raw::{
    BOUND, Backend, Config, Counts, Domain, List, NearWrap, Pair, Place, Places, Seen, Slots, pause,
};
use std::ops::Deref;

/// What a defect leaves as it is.
macro_rules! as_inner {
    ($($method:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        #[inline]
        fn $method(&self, $($argument: $type),*) -> $result {
            self.0.$method($($argument),*)
        }
    )*};
    (the same) => {
        as_inner! {
            begin(places: Places<'_, P, Self::Link>, counts: &Counts<P>, me: u16)
                -> Result<u64, NearWrap>;
            newest_at_once(places: Places<'_, P, Self::Link>) -> Option<u64>;
            count_open(places: Places<'_, P, Self::Link>) -> u64;
            newest(places: Places<'_, P, Self::Link>) -> u64;
            look(link: &Self::Link) -> (u64, bool);
            keep_only(places: Places<'_, P, Self::Link>, survivor: Option<(u16, u64)>) -> ();
        }
    };
}

/// An end does not wake waiters.
#[derive(Debug)]
pub struct WakeLost<B>(
    /// The sound backend.
    pub B,
);

impl<P: Platform, B: Backend<P>> Backend<P> for WakeLost<B> {
    const NAME: &'static str = B::NAME;
    type Link = B::Link;

    as_inner!(the same);
    as_inner! {
        end(places: Places<'_, P, B::Link>, counts: &Counts<P>, me: u16) -> Option<u64>;
        passed(places: Places<'_, P, B::Link>, generation: u64) -> bool;
    }

    fn lets_pass(&self, _: Places<'_, P, B::Link>, _: u64, _: u64) -> bool {
        false
    }
}

/// An end marks its own element before it searches for its predecessor. Correct, but every
/// concurrent begin starts over.
pub type MarkedEarly<P, Q, C> = EarlyEnd<P, Q, C, true>;

/// An end reads its generation before it marks its element, and loses what a successor donates in
/// between.
pub type GenerationReadBeforeMark<P, Q, C> = EarlyEnd<P, Q, C, false>;

/// The defect `MarkedEarly` in this list.
pub fn marked_early<P: Platform, Q, C: Config>(list: List<P, Q, C>) -> MarkedEarly<P, Q, C> {
    EarlyEnd(list)
}

/// The defect `GenerationReadBeforeMark` in this list.
pub fn generation_read_before_mark<P: Platform, Q, C: Config>(
    list: List<P, Q, C>,
) -> GenerationReadBeforeMark<P, Q, C> {
    EarlyEnd(list)
}

/// A list whose ends mark their own element (`MARKS`), or else read it, before they search for its
/// predecessor.
#[derive(Debug)]
pub struct EarlyEnd<P: Platform, Q, C: Config, const MARKS: bool>(List<P, Q, C>);

impl<P: Platform, Q: Pair, C: Config, const MARKS: bool> EarlyEnd<P, Q, C, MARKS> {
    /// As the end of a sound list, but for the order.
    fn try_end(&self, places: Places<'_, P, Q>, me: u16) -> Option<Option<u64>> {
        let own = places.link(me);
        let early = if MARKS { own.mark() } else { own.load() };
        let Some((before, seen)) = self.0.predecessor(places, me) else {
            if MARKS {
                own.publish(early);
            }
            return None;
        };
        let mine = if MARKS { early } else { own.mark() };
        let generation = early.generation;
        if before.exchange(seen, Seen { generation, ..mine }) {
            return Some(core::ptr::eq(before, &self.0.head).then_some(generation));
        }
        own.publish(mine);
        None
    }
}

impl<P: Platform, Q: Pair, C: Config, const MARKS: bool> Backend<P> for EarlyEnd<P, Q, C, MARKS> {
    const NAME: &'static str = Q::NAME;
    type Link = Q;

    as_inner!(the same);
    as_inner! {
        passed(places: Places<'_, P, Q>, generation: u64) -> bool;
        lets_pass(places: Places<'_, P, Q>, ended: u64, awaited: u64) -> bool;
    }

    fn end(&self, places: Places<'_, P, Q>, counts: &Counts<P>, me: u16) -> Option<u64> {
        let mut restarts = 0;
        loop {
            if let Some(advanced) = self.try_end(places, me) {
                counts.end_restarts.fetch_add(restarts, Relaxed);
                return advanced;
            }
            restarts += 1;
            pause::<P>(restarts as u32);
        }
    }
}

/// A waiter respects the lower bound of a begin that has no ticket yet.
#[derive(Debug)]
pub struct BoundRespected<P: Platform>(
    /// The sound backend.
    pub Slots<P>,
);

type Slotted<'a, P> = Places<'a, P, <P as Atomics>::AtomicU64>;

impl<P: Platform> Backend<P> for BoundRespected<P> {
    const NAME: &'static str = "slots";
    type Link = P::AtomicU64;

    as_inner!(the same);
    as_inner! {
        end(places: Slotted<'_, P>, counts: &Counts<P>, me: u16) -> Option<u64>;
    }

    fn lets_pass(&self, places: Slotted<'_, P>, ended: u64, awaited: u64) -> bool {
        ended <= awaited && {
            self.0.ends.fetch_add(1, AcqRel);
            self.passed(places, awaited)
        }
    }

    fn passed(&self, places: Slotted<'_, P>, generation: u64) -> bool {
        if generation <= self.0.done.load(Acquire) {
            return true;
        }
        let ticket = self.0.newest(places);
        let slots = places.used().iter();
        let slots = slots.map(|place| place.link.load(Acquire) & !BOUND);
        self.0
            .advance(ticket, slots.filter(|&slot| slot != 0).min())
            >= generation
    }
}

/// As [`Domain::end`], but takes the awaited generation away after it has counted its wake-up.
pub fn end_erasing_late<P, C, B, S>(domain: &Domain<P, C, B, S>, me: u16)
where
    P: Platform,
    C: Config,
    B: Backend<P>,
    S: Deref<Target = [Place<P, B::Link>]>,
{
    if domain.end_quietly(me) {
        let (gate, counts) = domain.gate();
        gate.count_wake_up();
        gate.erase();
        gate.wake_all(counts);
    }
}
