//! Random schedules for delayed invalidation: the library's backends on the simulated machine, disturbed wherever the contracts allow it.
//!
//! | property | what is demanded |
//! | --- | --- |
//! | exclusion | whoever has waited for a tag finds every section ended whose generation is not newer |
//! | contract | generations are above those of all sections that had begun before; what has passed stays passed; in the end nothing is open and everything has passed |
//! | completion | every thread comes to an end: so no wait is for a section that began later |
//! | progress | where nobody is preempted, beginning a section seldom starts over: a bound for all such schedules together |
//! | reach | somebody slept, and three sections were open at a time |

use super::{Outcome, Replay, Subject, draw};
use crate::random::Random;
use crate::report::Property;
use kinlock_core::config::Tuning;
use kinlock_core::platform::{Atomic, NEVER, Platform};
use kinlock_core::raw::mutex::{MutexConfig, Queue};
use kinlock_core::raw::osq::PredecessorCpu;
use kinlock_invalidation::raw::{
    Backend, Config, Domain, Fault, Locked, Member, Packed, PackedPair, Pair, Place, Slots,
    Tally as Counted,
};
use kinlock_sim::platform::SimU64;
use kinlock_sim::schedule::say;
use kinlock_sim::{Placement, Schedule, Sim, Stuck};
use std::cell::{Cell, OnceCell, RefCell};

/// A backend that is explored.
#[derive(Clone, Copy, Debug)]
pub struct Specimen {
    /// Its name in reports.
    pub name: &'static str,
    /// What its defect violates, if it is broken on purpose.
    pub defect: Option<Property>,
    place: fn(places: usize) -> &'static dyn Sections,
}

/// All of them.
pub const ALL: &[Specimen] = &[
    specimen("packed", None, packed::<SOUND>),
    specimen("locked", None, |places| {
        let backend = <Locked<Sim, Kind<SOUND>>>::new(0);
        put::<Kind<SOUND>, _>(places, backend, Member::new)
    }),
    specimen("slots", None, |places| {
        let backend = Slots::<Sim, Kind<SOUND>>::new(0);
        put::<Kind<SOUND>, _>(places, backend, || SimU64::new(0))
    }),
    specimen(
        "busted-donation",
        Some(Property::Contract),
        packed::<GENERATION>,
    ),
    specimen("busted-wakeup", Some(Property::Completion), packed::<WAKE>),
    specimen("busted-mark", Some(Property::Progress), packed::<EARLY>),
];

const fn specimen(
    name: &'static str,
    defect: Option<Property>,
    place: fn(usize) -> &'static dyn Sections,
) -> Specimen {
    Specimen {
        name,
        defect,
        place,
    }
}

const SOUND: u8 = 0;
const GENERATION: u8 = 1;
const WAKE: u8 = 2;
const EARLY: u8 = 3;

#[derive(Clone, Copy, Debug)]
struct Kind<const FAULT: u8>;

impl<const FAULT: u8> MutexConfig for Kind<FAULT> {
    fn tuning() -> Tuning {
        Tuning::DEFAULT
    }

    fn queue() -> Queue {
        Queue::Osq(PredecessorCpu::Cached)
    }
}

impl<const FAULT: u8> Config for Kind<FAULT> {
    type Mutex = Self;
    const PATIENCE: u32 = 8;
    const LOOKS: u32 = 4;
    const FAULT: Fault = match FAULT {
        GENERATION => Fault::GenerationReadBeforeMark,
        WAKE => Fault::WakeLost,
        EARLY => Fault::MarkedEarly,
        _ => Fault::None,
    };
}

/// What is asked of a domain.
trait Sections {
    fn begin(&self, me: u16) -> u64;
    fn end(&self, me: u16);
    fn passed(&self, generation: u64) -> bool;
    fn wait(&self, generation: u64, until: u64) -> bool;
    fn newest(&self) -> u64;
    fn tally(&self) -> Counted;
    fn open(&self) -> usize;
}

type Places<B> = &'static [Place<Sim, <B as Backend<Sim>>::Link>];

struct Put<C: Config, B: Backend<Sim>>(Domain<Sim, C, B, Places<B>>);

impl<C: Config, B: Backend<Sim>> Sections for Put<C, B> {
    fn begin(&self, me: u16) -> u64 {
        self.0.begin(me, || 0).expect("generations are left")
    }
    fn end(&self, me: u16) {
        self.0.end(me);
    }
    fn passed(&self, generation: u64) -> bool {
        self.0.passed(generation)
    }
    fn wait(&self, generation: u64, until: u64) -> bool {
        self.0.wait(generation, until)
    }
    fn newest(&self) -> u64 {
        self.0.newest()
    }
    fn tally(&self) -> Counted {
        self.0.tally()
    }
    fn open(&self) -> usize {
        self.0.sections().count()
    }
}

fn put<C: Config, B: Backend<Sim>>(
    places: usize,
    backend: B,
    link: impl Fn() -> B::Link,
) -> &'static dyn Sections {
    let places = kinlock_sim::place_slice(places, |_| Place::new(link()));
    kinlock_sim::place(Put::<C, B>(Domain::new(backend, places)))
}

fn packed<const FAULT: u8>(places: usize) -> &'static dyn Sections {
    let backend = Packed::<Sim, Kind<FAULT>>::new(0);
    put::<Kind<FAULT>, _>(places, backend, || PackedPair::new(0))
}

/// After so many accesses a schedule counts as endless.
const MAX_ACCESSES: u64 = 5_000_000;
/// How many restarts of those who begin there may be per section, where nobody is preempted: in the default schedules a sound list has 1.38, [`Fault::MarkedEarly`] 1.62.
pub const MOST_RESTARTS: f64 = 1.5;

/// What is counted in schedules.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    sections: u64,
    slow_waits: u64,
    longest_queue: u64,
    /// Where nobody is preempted: sections, and how often beginning one started over.
    calm_sections: u64,
    calm_restarts: u64,
}

impl super::Tally for Tally {
    fn merge(&mut self, other: &Self) {
        self.sections += other.sections;
        self.slow_waits += other.slow_waits;
        self.longest_queue = self.longest_queue.max(other.longest_queue);
        self.calm_sections += other.calm_sections;
        self.calm_restarts += other.calm_restarts;
    }
}

impl Subject for Specimen {
    type Tally = Tally;
    const KIND: &'static str = "backend";
    const ALL: &'static [Self] = ALL;

    fn name(&self) -> &'static str {
        self.name
    }

    fn defect(&self) -> Option<Property> {
        self.defect
    }

    fn scenarios(&self) -> Vec<&'static str> {
        vec!["mixed"]
    }

    fn play(replay: &Replay<Self>, trace: bool) -> Outcome<Tally> {
        let mut random = Random::new(replay.seed, 3);
        let drawn = 2 + random.below(7) as usize;
        let threads = replay.threads.unwrap_or(drawn);
        // With more threads than CPUs now and then: whoever is preempted between mark and unmark keeps the others waiting.
        let oversubscribed = random.one_in(4);
        let calm = !oversubscribed && random.one_in(3);
        let machine = draw::machine(&mut random, threads, oversubscribed);
        let clock_mhz = machine.costs.clock_mhz;
        let mut disturbance = draw::plain_disturbance(&mut random, &machine.costs);
        if calm {
            disturbance.one_in = 0;
        }
        disturbance.only = replay.only.clone();
        let mut schedule = Schedule::new(machine, threads, disturbance);
        schedule.max_accesses = MAX_ACCESSES;
        schedule.trace = trace;
        if oversubscribed {
            schedule.placement = Placement::Scheduled;
        }
        let rounds = 4 + random.below(8) as u32;
        let work = 1 << random.below(12);
        let place = replay.subject.place;
        let (played, (mut tally, failure)) = schedule.play(
            move || Shared::new(place(threads), rounds, work),
            Shared::body,
            |_, _| {},
            Shared::judge,
        );
        // The bound is for the usual numbers of threads.
        if !calm || replay.threads.is_some() {
            (tally.calm_sections, tally.calm_restarts) = (0, 0);
        }
        Outcome {
            played: Some(played),
            clock_mhz,
            tally,
            failure,
        }
    }

    fn judge(&self, tally: &Tally) -> Vec<(Property, bool, String)> {
        let restarts = tally.calm_restarts as f64 / tally.calm_sections as f64;
        let progress = (
            Property::Progress,
            restarts <= MOST_RESTARTS,
            format!("{restarts:.3} restarts per section, at most {MOST_RESTARTS}"),
        );
        let reach = (
            Property::Reach,
            tally.slow_waits > 0 && tally.longest_queue > 2,
            format!(
                "{} sections, {} waits that slept, up to {} open",
                tally.sections, tally.slow_waits, tally.longest_queue
            ),
        );
        if tally.calm_sections == 0 {
            vec![reach]
        } else {
            vec![progress, reach]
        }
    }
}

/// What the threads of a schedule share. Watching takes no simulated time.
struct Shared {
    sections: &'static dyn Sections,
    rounds: u32,
    work: u64,
    /// Generations of sections that have begun, and have not ended.
    open: RefCell<Vec<u64>>,
    /// The newest generation of a section that has begun, and the newest one that was seen passed.
    begun: Cell<u64>,
    passed: Cell<u64>,
    count: Cell<u64>,
    /// The newest generation that a thing was tagged with.
    tag: Cell<u64>,
    violation: OnceCell<(Property, String)>,
}

impl Shared {
    fn new(sections: &'static dyn Sections, rounds: u32, work: u64) -> Self {
        Shared {
            sections,
            rounds,
            work,
            open: RefCell::default(),
            begun: Cell::new(0),
            passed: Cell::new(0),
            count: Cell::new(0),
            tag: Cell::new(0),
            violation: OnceCell::new(),
        }
    }

    fn body(&self, me: usize) {
        let place = me as u16 + 1;
        for _ in 0..self.rounds {
            if self.violation.get().is_some() {
                return;
            }
            self.work();
            match Sim::random() % 8 {
                0 => self.wait(self.tag.get(), NEVER),
                1 => self.wait(self.tag.get(), Sim::now() + (1 << (Sim::random() % 20))),
                2 => self.snapshot(),
                _ => self.section(place),
            }
        }
    }

    fn section(&self, place: u16) {
        let before = self.begun.get();
        say("begins a section");
        let generation = self.sections.begin(place);
        say("has begun it");
        self.demand(Property::Contract, generation > before, || {
            format!("generation {generation} after {before}")
        });
        self.begun.set(self.begun.get().max(generation));
        self.open.borrow_mut().push(generation);
        self.count.set(self.count.get() + 1);
        self.tag.set(generation);
        self.work();
        let passed = self.sections.passed(generation);
        self.demand(Property::Exclusion, !passed, || {
            format!("generation {generation} has passed while its section is open")
        });
        // From here on it may end at any moment.
        let mut open = self.open.borrow_mut();
        let at = open.iter().position(|&one| one == generation);
        open.swap_remove(at.expect("it was put there"));
        drop(open);
        say("ends its section");
        self.sections.end(place);
        say("has ended it");
    }

    fn wait(&self, generation: u64, until: u64) {
        say("waits for a tag");
        if !self.sections.wait(generation, until) {
            self.demand(Property::Contract, Sim::now() >= until, || {
                "a wait ended before its time".to_owned()
            });
            return;
        }
        say("has waited");
        self.has_passed(generation);
    }

    fn snapshot(&self) {
        say("takes a snapshot");
        let before = self.begun.get();
        let newest = self.sections.newest();
        self.demand(Property::Contract, newest >= before, || {
            format!("a snapshot of {newest} does not cover {before}")
        });
        self.wait(newest, NEVER);
    }

    fn has_passed(&self, generation: u64) {
        let open = self.open.borrow().iter().copied().min();
        self.demand(
            Property::Exclusion,
            open.is_none_or(|oldest| oldest > generation),
            || format!("generation {generation} has passed, but {open:?} is open"),
        );
        self.passed.set(self.passed.get().max(generation));
        let oldest = self.passed.get();
        let still = self.sections.passed(oldest);
        self.demand(Property::Contract, still, || {
            format!("generation {oldest} has passed no more")
        });
    }

    fn judge(&self, end: &Result<(), Stuck>) -> (Tally, Option<(Property, String)>) {
        let begun = self.begun.get();
        if let Err(stuck) = end {
            self.demand(Property::Completion, false, || stuck.to_string());
        } else {
            self.demand(Property::Contract, self.sections.open() == 0, || {
                "all threads have ended, but a section is open".to_owned()
            });
            self.demand(Property::Contract, self.sections.passed(begun), || {
                format!("no section is open, but generation {begun} has not passed")
            });
        }
        let counted = self.sections.tally();
        let tally = Tally {
            sections: self.count.get(),
            slow_waits: counted.slow_waits,
            longest_queue: counted.longest_queue,
            calm_sections: self.count.get(),
            calm_restarts: counted.begin_restarts,
        };
        (tally, self.violation.get().cloned())
    }

    fn work(&self) {
        kinlock_sim::compute((Sim::random() as u64 % self.work) as f64);
    }

    fn demand(&self, property: Property, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            let _ = self.violation.set((property, what()));
        }
    }
}
