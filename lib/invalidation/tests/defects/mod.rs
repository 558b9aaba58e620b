//! Seeded defects of delayed invalidation, each to be caught by the check meant for it.
//!
//! Each defect is a backend around the sound one that does one thing wrong, or a wrong way to end a
//! section. The algorithms contain no test for any of them.
//!
//! | defect | what |
//! | --- | --- |
//! | `WakeLost` | [`WakeLost`] around any backend |
//! | `TornTicket` | [`TornTicket`] instead of [`Slots`] |
//! | `BoundRespected` | [`BoundRespected`] instead of [`Slots`] |
//! | `ErasedLate` | [`end_erasing_late`] instead of [`Domain::end`] |

// Each file that includes this one uses a part of it.
#![allow(dead_code)]

use kinlock_core::platform::{Atomic, Atomics, Ordering::*, Platform};
use kinlock_invalidation::raw::{
    BOUND, Backend, Config, Counts, Domain, NearWrap, Place, Places, Slots,
};
use std::ops::Deref;

/// The methods that a defect leaves as they are.
macro_rules! as_inner {
    ($($method:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        #[inline]
        fn $method(&self, $($argument: $type),*) -> $result {
            self.0.$method($($argument),*)
        }
    )*};
    (the same) => {
        as_inner! {
            end(places: Places<'_, P, Self::Link>, me: u16) -> Option<u64>;
            count_open(places: Places<'_, P, Self::Link>) -> u64;
            newest() -> u64;
            look(link: &Self::Link) -> u64;
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
        begin(places: Places<'_, P, B::Link>, counts: &Counts<P>, me: u16)
            -> Result<u64, NearWrap>;
        passed(places: Places<'_, P, B::Link>, generation: u64) -> bool;
    }

    fn lets_pass(&self, _: Places<'_, P, B::Link>, _: u64, _: u64) -> bool {
        false
    }
}

type Slotted<'a, P> = Places<'a, P, <P as Atomics>::AtomicU64>;

/// A begin takes its ticket by a load and a store: two begins may get the same generation.
#[derive(Debug)]
pub struct TornTicket<P: Platform>(
    /// The sound backend.
    pub Slots<P>,
);

impl<P: Platform> Backend<P> for TornTicket<P> {
    const NAME: &'static str = "slots";
    type Link = P::AtomicU64;

    as_inner!(the same);
    as_inner! {
        passed(places: Slotted<'_, P>, generation: u64) -> bool;
        lets_pass(places: Slotted<'_, P>, ended: u64, awaited: u64) -> bool;
    }

    fn begin(&self, places: Slotted<'_, P>, _: &Counts<P>, me: u16) -> Result<u64, NearWrap> {
        let slot = places.link(me);
        slot.store((self.newest() + 1) | BOUND, Release);
        let generation = self.newest() + 1;
        self.0.ticket.store(generation, Release);
        slot.store(generation, Release);
        Ok(generation)
    }
}

/// A waiter respects the lower bound of a begin that has no ticket yet.
#[derive(Debug)]
pub struct BoundRespected<P: Platform>(
    /// The sound backend.
    pub Slots<P>,
);

impl<P: Platform> Backend<P> for BoundRespected<P> {
    const NAME: &'static str = "slots";
    type Link = P::AtomicU64;

    as_inner!(the same);
    as_inner! {
        begin(places: Slotted<'_, P>, counts: &Counts<P>, me: u16) -> Result<u64, NearWrap>;
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
        let ticket = self.0.newest();
        let slots = places.used().iter();
        let slots = slots.map(|place| place.link.load(Acquire) & !BOUND);
        self.0
            .advance(ticket, slots.filter(|&slot| slot != 0).min())
            >= generation
    }
}

/// Like [`Domain::end`], but erases the awaited generation after it has counted its wake-up.
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
