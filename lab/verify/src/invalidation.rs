//! Domains of delayed invalidation for the torture: the library's domain with each backend, and
//! broken ones.

/// Defects, as the library's own tests have them.
#[path = "../../../lib/invalidation/tests/defects/mod.rs"]
pub(crate) mod defects;
mod torture;

use self::defects::{TornTicket, WakeLost};
use crate::report::{Findings, Property};
use crate::specimen::named;
use kinlock_core::platform::{Atomic, Atomics, NEVER};
use kinlock_invalidation::Backend;
use kinlock_invalidation::raw::{Backend as RawBackend, Config, Domain, Place, Slots};
use kinlock_linux::Native;
use kinlock_measure::workloads::pages::{Ours, Protection};
use std::sync::Mutex;
use std::thread::ThreadId;
use torture::torture;

/// A domain in which no thread waits: the defect that the oracle of
/// [`pages`](kinlock_measure::workloads::pages) is meant to catch.
struct NoWait;

impl Protection for NoWait {
    type Mark = ();
    type Section<'a> = ();

    fn begin(&self) {}
    fn mark(&self, (): &(), (): &()) {}
    fn end<'a>(&self, (): (), _: impl Iterator<Item = &'a ()>) {}
    fn wait(&self, (): &()) {}
}

/// The configuration of the library's domains.
#[derive(Clone, Copy, Debug)]
struct Configured;

impl Config for Configured {}

/// The sound backend that the broken ones wrap.
fn slots() -> Slots<Native> {
    Slots::new(0)
}

type Slot = <Native as Atomics>::AtomicU64;
type Places = Box<[Place<Native, Slot>]>;

/// A broken domain: a [defect](defects) around the sound one.
struct Broken<B: RawBackend<Native, Link = Slot>> {
    domain: Domain<Native, Configured, B, Places>,
    /// For each place, the thread that has it.
    places: Mutex<Vec<ThreadId>>,
}

impl<B: RawBackend<Native, Link = Slot>> Broken<B> {
    fn new(backend: B, threads: usize) -> Self {
        let place = |_| Place::new(Atomic::new(0));
        Broken {
            domain: Domain::new(backend, (0..threads).map(place).collect()),
            places: Mutex::new(Vec::new()),
        }
    }

    fn place(&self) -> u16 {
        let me = std::thread::current().id();
        let mut places = self.places.lock().expect("nobody panics");
        let known = places.iter().position(|&thread| thread == me);
        let place = known.unwrap_or_else(|| {
            places.push(me);
            places.len() - 1
        });
        place as u16 + 1
    }
}

impl<B: RawBackend<Native, Link = Slot>> Protection for Broken<B> {
    type Mark = std::sync::atomic::AtomicU64;
    type Section<'a> = (u16, u64);

    fn begin(&self) -> (u16, u64) {
        let place = self.place();
        let generation = self.domain.begin(place, || 0);
        (place, generation.expect("generations are left"))
    }

    fn mark(&self, &(_, generation): &(u16, u64), mark: &Self::Mark) {
        mark.fetch_max(generation, std::sync::atomic::Ordering::Relaxed);
    }

    fn end<'a>(&self, (place, _): (u16, u64), _: impl Iterator<Item = &'a Self::Mark>) {
        self.domain.end(place);
    }

    fn wait(&self, mark: &Self::Mark) {
        let generation = mark.load(std::sync::atomic::Ordering::Relaxed);
        assert!(self.domain.wait(generation, NEVER));
    }

    fn generation(&self, &(_, generation): &(u16, u64)) -> Option<u64> {
        Some(generation)
    }
}

/// A domain that is tortured.
#[derive(Clone, Copy, Debug)]
pub struct Specimen {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// What its defect violates, if it is broken on purpose.
    pub defect: Option<Property>,
    /// Tortures the domain: `pages` by [`pages`](kinlock_measure::workloads::pages), otherwise by
    /// generations.
    torture: fn(&Context, pages: bool) -> Findings,
}

/// All domains that are tortured.
pub static ALL: &[Specimen] = &[
    specimen("locked", None, |context, pages| {
        torture(Ours::new(Backend::Locked), pages, context)
    }),
    specimen("slots", None, |context, pages| {
        torture(Ours::new(Backend::Slots), pages, context)
    }),
    specimen(
        "busted-wait",
        Some(Property::Exclusion),
        |context, pages| torture(NoWait, pages, context),
    ),
    specimen(
        "busted-ticket",
        Some(Property::Contract),
        |context, pages| {
            let domain = Broken::new(TornTicket(slots()), context.orders.threads);
            torture(domain, pages, context)
        },
    ),
    specimen(
        "busted-wakeup",
        Some(Property::Completion),
        |context, pages| {
            let domain = Broken::new(WakeLost(slots()), context.orders.threads);
            torture(domain, pages, context)
        },
    ),
];

named!(Specimen, "backend", ALL);

type Context = crate::plan::Context<Specimen>;

const fn specimen(
    name: &'static str,
    defect: Option<Property>,
    torture: fn(&Context, bool) -> Findings,
) -> Specimen {
    Specimen {
        name,
        defect,
        torture,
    }
}
