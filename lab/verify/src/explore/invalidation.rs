//! Random schedules for delayed invalidation: the library's backends on the simulated machine,
//! disturbed wherever the contracts allow it.
//!
//! | property | what is demanded |
//! | --- | --- |
//! | exclusion | when a wait for a tag ends, all sections up to its generation have ended |
//! | contract | a generation is above the generations of all sections that had begun before |
//! | | a generation that has passed stays passed |
//! | | in the end no section is open and everything has passed |
//! | completion | every thread comes to an end, so no wait is for a section that began later |
//! | reach | a thread slept, and three sections were open at a time |

use super::violation::{Failure, Violation};
use super::{Outcome, Replay, Subject, Tally, draw};
use crate::invalidation::defects::{TornTicket, WakeLost, end_erasing_late};
use crate::report::Property;
use crate::specimen::named;
use kinlock_core::platform::{Atomic, NEVER, Platform};
use kinlock_core::raw::LockConfig;
use kinlock_core::raw::mutex::QueueKind;
use kinlock_invalidation::raw::{Backend, Config, Domain, Locked, Member, Place, Slots};
use kinlock_measure::random::Random;
use kinlock_sim::platform::SimU64;
use kinlock_sim::schedule::say;
use kinlock_sim::{Placement, Schedule, Sim, Stuck};
use std::cell::{Cell, RefCell};

/// A backend that is explored.
#[derive(Clone, Copy, Debug)]
pub struct Specimen {
    /// Its name in reports.
    pub name: &'static str,
    /// What its defect violates, if it is broken on purpose.
    pub defect: Option<Property>,
    play: fn(&Replay<Specimen>, trace: bool) -> Outcome,
}

/// The backends that are explored, and broken ones.
pub static ALL: &[Specimen] = &[
    specimen("locked", None, |replay, trace| {
        play(replay, trace, locked, Member::new, Domain::end)
    }),
    specimen("slots", None, |replay, trace| {
        play(replay, trace, slots, slot, Domain::end)
    }),
    specimen(
        "busted-ticket",
        Some(Property::Contract),
        |replay, trace| play(replay, trace, || TornTicket(slots()), slot, Domain::end),
    ),
    specimen(
        "busted-wakeup",
        Some(Property::Completion),
        |replay, trace| play(replay, trace, || WakeLost(slots()), slot, Domain::end),
    ),
    specimen(
        "busted-erasure",
        Some(Property::Completion),
        |replay, trace| play(replay, trace, locked, Member::new, end_erasing_late),
    ),
];

named!(Specimen, "backend", ALL);

const fn specimen(
    name: &'static str,
    defect: Option<Property>,
    play: fn(&Replay<Specimen>, bool) -> Outcome,
) -> Specimen {
    Specimen { name, defect, play }
}

fn locked() -> Locked<Sim, Short> {
    Locked::new(0)
}

fn slots() -> Slots<Sim> {
    Slots::new(0)
}

fn slot() -> SimU64 {
    SimU64::new(0)
}

/// Waits spin and yield only a few times, so that more happens in a schedule.
#[derive(Clone, Copy, Debug)]
struct Short;

impl LockConfig for Short {
    fn queue() -> QueueKind {
        QueueKind::Osq
    }
}

impl Config for Short {
    const SPINS: u32 = 4;
    const YIELDS: u32 = 2;
}

/// The number of accesses after which a schedule counts as endless.
const MAX_ACCESSES: u64 = 5_000_000;

impl Subject for Specimen {
    fn play(replay: &Replay<Self>, trace: bool) -> Outcome {
        (replay.subject.play)(replay, trace)
    }

    fn reached(&self, tally: &Tally) -> (bool, String) {
        let [sections, slow_waits, queues] = tally.numbers();
        let detail = format!(
            "{sections} sections, {slow_waits} waits that slept, three or more open in {queues} \
             schedules"
        );
        (slow_waits > 0 && queues > 0, detail)
    }
}

fn play<B: Backend<Sim>>(
    replay: &Replay<Specimen>,
    trace: bool,
    backend: fn() -> B,
    link: fn() -> B::Link,
    end: fn(&Explored<B>, u16),
) -> Outcome {
    let mut random = Random::stream(replay.seed, 3);
    let drawn = 2 + random.below(7) as usize;
    let threads = replay.threads.unwrap_or(drawn);
    // With more threads than CPUs in one of four schedules: a thread that is preempted in a
    // critical section keeps the others waiting.
    let oversubscribed = random.one_in(4);
    let machine = draw::machine(&mut random, threads, oversubscribed);
    let disturbance = draw::plain_disturbance(&mut random, &machine.costs);
    let mut schedule = Schedule::new(machine, threads, disturbance);
    schedule.max_accesses = MAX_ACCESSES;
    if oversubscribed {
        schedule.placement = Placement::Scheduled;
    }
    let rounds = 4 + random.below(8) as u32;
    let work = 1 << random.below(12);
    replay.play(
        schedule,
        trace,
        move || {
            let backend = backend();
            let places = kinlock_sim::place_slice(threads, |_| Place::new(link()));
            let domain = kinlock_sim::place(Domain::new(backend, places));
            Shared {
                domain,
                end,
                rounds,
                work,
                open: RefCell::default(),
                begun: Cell::new(0),
                passed: Cell::new(0),
                count: Cell::new(0),
                tag: Cell::new(0),
                violation: Violation::default(),
            }
        },
        [Shared::body, |_, _| ()],
        Shared::judge,
    )
}

type Places<B> = &'static [Place<Sim, <B as Backend<Sim>>::Link>];
type Explored<B> = Domain<Sim, Short, B, Places<B>>;

/// What the threads of a schedule share. Watching takes no simulated time.
struct Shared<B: Backend<Sim> + 'static> {
    domain: &'static Explored<B>,
    /// Ends a section.
    end: fn(&Explored<B>, u16),
    rounds: u32,
    work: u64,
    /// Generations of sections that have begun, and have not ended.
    open: RefCell<Vec<u64>>,
    /// The newest generation of a section that has begun, and the newest one that was seen passed.
    begun: Cell<u64>,
    passed: Cell<u64>,
    count: Cell<u64>,
    /// The newest generation that was used as a tag.
    tag: Cell<u64>,
    violation: Violation,
}

impl<B: Backend<Sim>> Shared<B> {
    fn body(&self, me: usize) {
        let place = me as u16 + 1;
        for _ in 0..self.rounds {
            if self.violation.is_some() {
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
        let generation = self.domain.begin(place, || 0);
        let generation = generation.expect("generations are left");
        say("has begun it");
        self.contract(generation > before, || {
            format!("generation {generation} after {before}")
        });
        self.begun.set(self.begun.get().max(generation));
        self.open.borrow_mut().push(generation);
        self.count.set(self.count.get() + 1);
        self.tag.set(generation);
        self.work();
        let passed = self.domain.passed(generation);
        self.violation.demand(Property::Exclusion, !passed, || {
            format!("generation {generation} has passed while its section is open")
        });
        // From here on the section may end at any moment.
        let mut open = self.open.borrow_mut();
        let at = open.iter().position(|&one| one == generation);
        open.swap_remove(at.expect("it was put there"));
        drop(open);
        say("ends its section");
        (self.end)(self.domain, place);
        say("has ended it");
    }

    fn wait(&self, generation: u64, until: u64) {
        say("waits for a tag");
        if !self.domain.wait(generation, until) {
            self.contract(Sim::now() >= until, || {
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
        let newest = self.domain.newest();
        self.contract(newest >= before, || {
            format!("a snapshot of {newest} does not cover {before}")
        });
        self.wait(newest, NEVER);
    }

    fn has_passed(&self, generation: u64) {
        let open = self.open.borrow().iter().copied().min();
        let ended = open.is_none_or(|oldest| oldest > generation);
        self.violation.demand(Property::Exclusion, ended, || {
            format!("generation {generation} has passed, but {open:?} is open")
        });
        self.passed.set(self.passed.get().max(generation));
        let oldest = self.passed.get();
        let still = self.domain.passed(oldest);
        self.contract(still, || format!("generation {oldest} has passed no more"));
    }

    fn judge(&self, end: &Result<(), Stuck>) -> (Tally, Option<Failure>) {
        let begun = self.begun.get();
        let demand = |property, holds, what: String| {
            self.violation.demand_at_end(property, holds, || what);
        };
        if let Err(stuck) = end {
            demand(Property::Completion, false, stuck.to_string());
        } else {
            let what = "all threads have ended, but a section is open".to_owned();
            demand(
                Property::Contract,
                self.domain.sections().count() == 0,
                what,
            );
            let what = format!("no section is open, but generation {begun} has not passed");
            demand(Property::Contract, self.domain.passed(begun), what);
        }
        let counted = self.domain.tally();
        let tally = Tally(vec![
            self.count.get(),
            counted.slow_waits,
            u64::from(counted.longest_queue > 2),
        ]);
        (tally, self.violation.get())
    }

    fn work(&self) {
        kinlock_sim::compute((Sim::random() as u64 % self.work) as f64);
    }

    fn contract(&self, holds: bool, what: impl FnOnce() -> String) {
        self.violation.demand(Property::Contract, holds, what);
    }
}
