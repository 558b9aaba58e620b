//! Random schedules of concurrency IDs: unique holders, the bound on IDs, nothing lost, and that everybody comes to an end.
//!
//! Threads hold on CPUs that they choose at random, nest, move while they hold, age and reclaim, join and leave, and are preempted before any access. What is violated
//! comes with the seed of the schedule, which gives the same again.

use kinlock::platform::Platform;
use kinlock::raw::ids::{AGE, BLOCK, Block, Held, IdAllocator, IdConfig, Policy, Record};
use kinlock_sim::{Disturbance, Machine, Schedule, Sim, place_slice};
use std::cell::RefCell;
use std::sync::OnceLock;

/// What a schedule violates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Violation {
    /// Two threads held one ID.
    Shared,
    /// An ID was neither free nor held nor kept.
    Lost,
    /// An ID was at or above the limit and the number of threads that were on their way; or the next one that is handed out might be.
    AboveBound,
    /// A thread got no ID although there were some, or did not come to an end.
    Stuck,
}

/// Plays so many schedules, the first with `seed`. The first that fails: its seed, and what it violates.
pub fn hunt<C: IdConfig>(policy: Policy, seed: u64, schedules: u64) -> Option<(u64, Violation)> {
    let seeds = (0..schedules).map(|n| seed.wrapping_add(n));
    let mut played = seeds.map(|seed| (seed, play::<C>(policy, seed)));
    played.find_map(|(seed, result)| Some((seed, result.err()?)))
}

type Ids<C> = IdAllocator<Sim, (&'static [Record<Sim>], &'static [Block<Sim>]), C>;

struct Shared<C: IdConfig> {
    ids: Ids<C>,
    cpus: u32,
    watch: RefCell<Watch>,
}

/// What an observer knows who sees everything at once.
struct Watch {
    random: u64,
    holders: Vec<bool>,
    /// Threads on their way with so many IDs, and the most there were.
    now: u32,
    most: u32,
    /// The largest limit since somebody set out who has not arrived.
    limit: u32,
    members: u32,
    /// Of these, who may not be counted yet; and who may be, though not of these any more.
    joining: u32,
    leaving: u32,
    violation: Option<Violation>,
}

const STEPS: usize = 12;

/// Plays one schedule.
///
/// # Errors
///
/// If it fails.
pub fn play<C: IdConfig>(policy: Policy, seed: u64) -> Result<(), Violation> {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    let machine = MACHINE.get_or_init(|| Machine::load("laptop").expect("it is built in"));
    let threads = 2 + (seed % 5) as usize;
    let cpus = 1 + (seed / 5 % 4) as u32;
    let disturbance = Disturbance::preemptions(seed, 3 + seed % 29, 20_000);
    let schedule = Schedule::new(machine.clone(), threads, disturbance);
    let (played, violation) = schedule.play(
        move || Shared::<C>::new(policy, cpus, threads, seed),
        Shared::body,
        |_, _| (),
        |shared, end| end.is_ok().then(|| shared.judge()).flatten(),
    );
    match (violation, played.end) {
        (Some(violation), _) => Err(violation),
        (None, Err(_)) => Err(Violation::Stuck),
        (None, Ok(())) => Ok(()),
    }
}

impl<C: IdConfig> Shared<C> {
    fn new(policy: Policy, cpus: u32, threads: usize, seed: u64) -> Self {
        let records = place_slice(cpus as usize + threads, |_| Record::new());
        let blocks = place_slice(2, |_| Block::new());
        let ids = Ids::new((records, blocks), cpus, policy).expect("it fits");
        let members = threads as u32;
        ids.set_members(members);
        Shared {
            cpus,
            watch: RefCell::new(Watch {
                random: seed | 1,
                holders: vec![false; 2 * BLOCK as usize],
                now: 0,
                most: 0,
                limit: ids.limit(),
                members,
                joining: 0,
                leaving: 0,
                violation: None,
            }),
            ids,
        }
    }

    fn body(&self, me: usize) {
        for _ in 0..STEPS {
            match self.below(8) {
                0 => self.reclaim(),
                1 => self.change_members(),
                2 => {
                    // A signal handler, say.
                    let outer = self.acquire(me);
                    let inner = self.acquire(me);
                    self.release(inner);
                    self.release(outer);
                }
                _ => {
                    let held = self.acquire(me);
                    kinlock_sim::compute(self.below(300) as f64);
                    self.release(held);
                }
            }
        }
    }

    fn acquire(&self, me: usize) -> Option<Held> {
        self.sets_out();
        let cpu = self.below(self.cpus as u64 + 1) as u32;
        let Ok(held) = self.ids.acquire_as(cpu, me as u32) else {
            // There are many more than anybody holds.
            self.blame(Violation::Stuck);
            return None;
        };
        let id = held.id() as usize;
        let watch = &mut *self.watch.borrow_mut();
        let bound = match self.ids.policy() {
            Policy::PerCpu => self.cpus + watch.most,
            _ => watch.most.max(watch.limit),
        };
        if held.id() >= bound {
            watch.violation.get_or_insert(Violation::AboveBound);
        }
        if std::mem::replace(&mut watch.holders[id], true) {
            watch.violation.get_or_insert(Violation::Shared);
        }
        Some(held)
    }

    fn release(&self, held: Option<Held>) {
        if let Some(held) = held {
            self.watch.borrow_mut().holders[held.id() as usize] = false;
            let cpu = self.below(self.cpus as u64 + 1) as u32;
            self.ids.release(cpu, held);
        }
        self.arrives();
    }

    /// Whoever reclaims holds IDs for a moment, one at a time.
    fn reclaim(&self) {
        self.sets_out();
        self.ids.reclaim(Sim::now() + self.below(3) * AGE);
        self.arrives();
    }

    /// One member more or less: the limit changes under everybody's feet, also to less than there are holders. Who publishes it gives up what is above, and holds it for a moment.
    fn change_members(&self) {
        self.sets_out();
        let wants_more = self.below(3) == 0;
        let joins = {
            let watch = &mut *self.watch.borrow_mut();
            // Nobody may leave who has not joined yet.
            let joins = wants_more || watch.members <= watch.joining;
            if joins {
                watch.members += 1;
                watch.joining += 1;
            } else {
                watch.members -= 1;
                watch.leaving += 1;
            }
            let most = watch.members + watch.leaving;
            watch.limit = watch.limit.max(most.min(self.cpus));
            joins
        };
        if joins {
            self.ids.join();
            self.watch.borrow_mut().joining -= 1;
        } else {
            self.ids.leave();
            self.watch.borrow_mut().leaving -= 1;
        }
        self.arrives();
    }

    fn sets_out(&self) {
        let watch = &mut *self.watch.borrow_mut();
        watch.now += 1;
        watch.most = watch.most.max(watch.now);
    }

    /// When nobody is on the way, the limit is what it should be.
    fn arrives(&self) {
        let watch = &mut *self.watch.borrow_mut();
        watch.now -= 1;
        if watch.now == 0 {
            watch.limit = watch.members.min(self.cpus);
        }
    }

    fn judge(&self) -> Option<Violation> {
        let Watch {
            violation,
            most,
            limit,
            ..
        } = *self.watch.borrow();
        violation.or_else(|| {
            // Nothing that has been handed out is above the bound for good.
            let bound = match self.ids.policy() {
                Policy::PerCpu => self.cpus + most,
                _ => most.max(limit),
            };
            if self.ids.grown() > bound {
                return Some(Violation::AboveBound);
            }
            self.ids.set_members(0);
            // Marked, and then old.
            self.ids.reclaim(1 << 40);
            self.ids.reclaim(2 << 40);
            // What belongs to somebody does not age.
            let owned = match self.ids.policy() {
                Policy::PerCpu => self.cpus,
                _ => 0,
            };
            (self.ids.in_use() > owned).then_some(Violation::Lost)
        })
    }

    fn blame(&self, violation: Violation) {
        self.watch.borrow_mut().violation.get_or_insert(violation);
    }

    fn below(&self, n: u64) -> u64 {
        let random = &mut self.watch.borrow_mut().random;
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        (*random >> 16) % n
    }
}
