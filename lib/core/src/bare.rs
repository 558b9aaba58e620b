//! The platform of hardware without an operating system: waiters only spin, first in, first out.
//!
//! The crate `kinlock` without its feature `std` runs on this platform. A kernel that knows more
//! about its machine writes its own platform; see the example `bare_metal`.

use crate::config::{self, Decision, Domains, Settings, Source, Tuning};
use crate::events::{self, Event};
use crate::hardware;
use crate::platform::{Atomic, Atomics, Clock, Fences, Parking, Place, Platform, Spinning, Ticket};
use crate::slots::{Table, Waiters};
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// Hardware without an operating system.
#[derive(Clone, Copy, Debug)]
pub struct Bare;

/// The configuration of locks on this platform; see [`config`].
pub type AsConfigured = config::AsConfigured<Bare>;
/// Like [`AsConfigured`], but always first in, first out.
pub type Fifo = config::Fifo<Bare>;
/// Like [`Fifo`], but no thread overtakes a waiter that sleeps.
pub type InOrder = config::InOrder<Bare>;
/// Like [`AsConfigured`], but always NUMA-aware.
pub type NumaAware = config::NumaAware<Bare>;

/// How many waiters can queue at a time. Each of them occupies a CPU.
const SLOTS: usize = 1024;

static TABLE: Table<Bare, SLOTS, { SLOTS.div_ceil(32) }> = Table::new();
static WAITERS: Waiters<Bare> = TABLE.waiters();

/// The knobs in force.
pub fn tuning() -> Tuning {
    config::tuning::<Bare>()
}

/// Whether queues are reordered, and why.
pub fn decision() -> Decision {
    config::decision::<Bare>()
}

impl Atomics for Bare {
    type AtomicU8 = AtomicU8;
    type AtomicU16 = AtomicU16;
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
}

impl Clock for Bare {}

impl Spinning for Bare {
    type Clock = Self;

    #[inline]
    fn prefetch_for_writing<A: Atomic>(word: &A) {
        hardware::prefetch_for_writing(word);
    }
}

impl Parking for Bare {}

impl Fences for Bare {
    #[inline]
    fn light_fence() {
        hardware::light_fence();
    }

    // No waiter sleeps, so no fence is needed.
    fn heavy_fence(_: &mut Ticket) -> bool {
        false
    }
}

impl Place for Bare {}

impl Platform for Bare {
    type Clock = Self;
    type Spinning = Self;
    type Parking = Self;
    type Fences = Self;
    type Place = Self;

    #[inline]
    fn waiters() -> &'static Waiters<Self> {
        &WAITERS
    }

    #[inline]
    fn count(event: Event) {
        events::count(event, 1, || 0);
    }
}

/// There are no environment variables, and `auto` means off.
impl Source for Bare {
    fn settings() -> Settings {
        Settings::default()
    }

    fn domains() -> Option<Domains> {
        Some(Domains {
            automatic: Decision {
                reorder: false,
                reason: "without the feature `std` nothing is known of the machine",
            },
            mutexes_only: false,
            are_caches: false,
        })
    }

    fn kind_of_queue() -> &'static AtomicU8 {
        static KIND: AtomicU8 = AtomicU8::new(0);
        &KIND
    }
}
