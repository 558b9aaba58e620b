//! A platform with one of the [defects](Defect), made from a sound one: for checks.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. `Sabotaged<P, _>` passes on what its caller promises to `P`, whose table of slots it shares.

use crate::defect::Defect;
use crate::events::Event;
use crate::platform::{Atomics, NEVER, Platform};
use crate::slots::Waiters;
use crate::visible_readers::{Row, VisibleReaders};
use core::marker::PhantomData;

/// The platform `P` with the defect of this number, as in `Sabotaged<P, { Defect::X as u8 }>`.
#[derive(Clone, Copy, Debug)]
pub struct Sabotaged<P, const DEFECT: u8>(PhantomData<P>);

impl<P: Platform, const DEFECT: u8> Atomics for Sabotaged<P, DEFECT> {
    type AtomicU8 = P::AtomicU8;
    type AtomicU16 = P::AtomicU16;
    type AtomicU32 = P::AtomicU32;
    type AtomicU64 = P::AtomicU64;
}

impl<P: Platform, const DEFECT: u8> Platform for Sabotaged<P, DEFECT> {
    const DEFECT: Defect = Defect::numbered(DEFECT);

    type Clock = P::Clock;
    type Spinning = P::Spinning;
    type Parking = P::Parking;
    type Fences = P::Fences;
    type Place = P::Place;

    /// Unlimited with nearly all defects: a waiter that gives up would mask a lost wake-up.
    fn patience() -> u64 {
        match Self::DEFECT {
            Defect::None | Defect::MutexSilentEnd => P::patience(),
            _ => NEVER,
        }
    }

    unsafe fn keep_slot(slot: u16) -> bool {
        // SAFETY: invariant 1.
        unsafe { P::keep_slot(slot) }
    }

    fn waiters() -> &'static Waiters<Self> {
        P::waiters().of_platform()
    }

    fn visible_readers() -> Option<&'static VisibleReaders<Self>> {
        Some(P::visible_readers()?.of_platform())
    }

    fn row() -> Option<&'static Row<Self>> {
        Some(P::row()?.of_platform())
    }

    #[inline]
    fn kept_slot() -> u16 {
        P::kept_slot()
    }

    fn on_foreign_readers(lock: *const u32) {
        P::on_foreign_readers(lock);
    }

    #[inline]
    fn count(event: Event) {
        P::count(event);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Native;

    #[test]
    fn a_sabotaged_platform_has_the_defect_and_the_tables_of_the_sound_one() {
        type Broken = Sabotaged<Native, { Defect::MutexMissingWake as u8 }>;
        assert_eq!(Native::DEFECT, Defect::None);
        assert_eq!(Broken::DEFECT, Defect::MutexMissingWake);
        let place = Broken::waiters().take_node().expect("a slot is free");
        assert_ne!(Native::kept_slot(), 0);
        drop(place);
        for (number, defect) in Defect::ALL.into_iter().enumerate() {
            assert_eq!(Defect::numbered(number as u8), defect);
        }
    }
}
