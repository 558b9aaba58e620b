//! Random schedules for delayed invalidation: the library's backends on the simulated machine, disturbed wherever the contracts allow it.
//!
//! | property | what is demanded |
//! | --- | --- |
//! | exclusion | whoever has waited for a tag finds every section ended whose generation is not newer |
//! | contract | generations are above those of all sections that had begun before; what has passed stays passed; in the end nothing is open and everything has passed |
//! | completion | every thread comes to an end: so no wait is for a section that began later |
//! | progress | where nobody is preempted, beginning a section seldom starts over: a bound for all such schedules together |
//!
//! A failing schedule is named by its seed: playing it again gives the same.

use super::draw;
use crate::random::Random;
use crate::report::{Check, Property, Report};
use kinlock::config::Tuning;
use kinlock::platform::{Atomic, NEVER, Platform};
use kinlock::raw::invalidation::{
    Backend, Config, Domain, Fault, Locked, Member, Packed, PackedPair, Pair, Place, Slots, Tally,
};
use kinlock::raw::mutex::{MutexConfig, Queue};
use kinlock::raw::osq::PredecessorCpu;
use kinlock_sim::platform::SimU64;
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
    fn tally(&self) -> Tally;
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
    fn tally(&self) -> Tally {
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

/// What is wanted of an exploration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Schedules at most; a broken backend is done when it is caught.
    pub schedules: u64,
    /// The seed of the first schedule; the next one has the next.
    pub seed: u64,
}

/// After so many accesses a schedule counts as endless.
const MAX_ACCESSES: u64 = 5_000_000;
/// How many restarts of those who begin there may be per section, where nobody is preempted: in the default schedules a sound list has 1.38, [`Fault::MarkedEarly`] 1.62.
pub const MOST_RESTARTS: f64 = 1.5;

/// Explores one backend.
pub fn explore(specimen: Specimen, settings: &Settings) -> Report {
    let mut report = Report::new();
    let mut sections = 0;
    let mut calm = (0, 0);
    let mut tally = Tally::default();
    let mut failure = None;
    let mut played = 0;
    for seed in settings.seed..settings.seed + settings.schedules {
        played += 1;
        let outcome = play(&specimen, seed);
        sections += outcome.sections;
        if outcome.calm {
            calm.0 += outcome.sections;
            calm.1 += outcome.tally.begin_restarts;
        }
        tally.begin_restarts += outcome.tally.begin_restarts;
        tally.end_restarts += outcome.tally.end_restarts;
        tally.waits += outcome.tally.waits;
        tally.slow_waits += outcome.tally.slow_waits;
        tally.longest_queue = tally.longest_queue.max(outcome.tally.longest_queue);
        if let Some((property, detail)) = outcome.violation {
            failure = Some((property, format!("seed {seed}: {detail}")));
            break;
        }
    }
    let restarts = calm.1 as f64 / (calm.0 as f64).max(1.0);
    let mut push = |property: Property, passed, detail| {
        report.push(Check {
            name: format!("{}/schedules/{}", specimen.name, property.name()),
            property,
            passed,
            detail,
        });
    };
    match failure {
        Some((property, detail)) => push(property, false, detail),
        None => {
            let detail = format!("{played} schedules, {sections} sections, {tally:?}: none failed");
            push(Property::Exclusion, true, detail);
            push(
                Property::Progress,
                restarts <= MOST_RESTARTS,
                format!("{restarts:.3} restarts per section, at most {MOST_RESTARTS}"),
            );
            let reached = tally.slow_waits > 0 && tally.longest_queue > 2;
            push(
                Property::Reach,
                reached,
                "sleepers, and queues of three".to_owned(),
            );
        }
    }
    if let Some(meant) = specimen.defect {
        let check = crate::plan::judge_catch(specimen.name, meant, &report.checks);
        report.push(check);
    }
    report
}

struct Outcome {
    sections: u64,
    /// Nobody was preempted.
    calm: bool,
    tally: Tally,
    violation: Option<(Property, String)>,
}

fn play(specimen: &Specimen, seed: u64) -> Outcome {
    let mut random = Random::new(seed, 3);
    let threads = 2 + random.below(7) as usize;
    // With more threads than CPUs now and then: whoever is preempted between mark and unmark keeps the others waiting.
    let oversubscribed = random.one_in(4);
    let calm = !oversubscribed && random.one_in(3);
    let machine = draw::machine(&mut random, threads, oversubscribed);
    let mut disturbance = draw::plain_disturbance(&mut random, &machine.costs);
    if calm {
        disturbance.one_in = 0;
    }
    let mut schedule = Schedule::new(machine, threads, disturbance);
    schedule.max_accesses = MAX_ACCESSES;
    if oversubscribed {
        schedule.placement = Placement::Scheduled;
    }
    let rounds = 4 + random.below(8) as u32;
    let work = 1 << random.below(12);
    let specimen = *specimen;
    let (_, mut outcome) = schedule.play(
        move || Shared::new((specimen.place)(threads), rounds, work),
        Shared::body,
        |_, _| {},
        Shared::judge,
    );
    outcome.calm = calm;
    outcome
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
        let generation = self.sections.begin(place);
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
        self.sections.end(place);
    }

    fn wait(&self, generation: u64, until: u64) {
        if !self.sections.wait(generation, until) {
            self.demand(Property::Contract, Sim::now() >= until, || {
                "a wait ended before its time".to_owned()
            });
            return;
        }
        self.has_passed(generation);
    }

    fn snapshot(&self) {
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

    fn judge(&self, end: &Result<(), Stuck>) -> Outcome {
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
        Outcome {
            sections: self.count.get(),
            calm: false,
            tally: self.sections.tally(),
            violation: self.violation.get().cloned(),
        }
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
