//! Random schedules of concurrency IDs.
//!
//! Threads take IDs on CPUs that they choose at random, nest, move while they hold one, age and
//! reclaim, join and leave, and are preempted before any access.
//!
//! | property | what is demanded |
//! | --- | --- |
//! | exclusion | no two threads hold one ID |
//! | contract | no ID is lost, and no ID is above the bound (see below) |
//! | completion | every thread comes to an end, and gets an ID while there are some |
//! | reach | there were more holders than the limit, and the limit came down |
//!
//! In the end all IDs are free except those that belong to CPUs. An ID is above the bound if it is
//! at or above the limit, and at or above the sum of two numbers: of active threads, and of IDs
//! that others took or moved during one acquisition, the most so far.

use super::violation::{Failure, Violation};
use super::{Outcome, Replay, Subject, Tally};
use crate::report::Property;
use crate::specimen::named;
use kinlock_core::platform::Platform;
use kinlock_ids::raw::{AGE, BLOCK, Block, Held, IdAllocator, Policy, Record};
use kinlock_measure::random::Random;
use kinlock_sim::schedule::say;
use kinlock_sim::{Disturbance, Machine, Schedule, Sim, Stuck, machine, place_slice};
use std::cell::RefCell;
use std::sync::OnceLock;

/// An allocator that is explored.
#[derive(Clone, Copy, Debug)]
pub struct Specimen {
    /// Its name in reports.
    pub name: &'static str,
    /// What its defect violates, if it is broken on purpose.
    pub defect: Option<Property>,
    play: fn(&Replay<Specimen>, trace: bool) -> Outcome,
}

/// The allocators that are explored: one for each policy.
pub static ALL: &[Specimen] = &[
    sound::<{ Policy::RecentFirst as u8 }>("recent-first"),
    sound::<{ Policy::PerCpu as u8 }>("per-cpu"),
    sound::<{ Policy::LowestFree as u8 }>("lowest-free"),
    sound::<{ Policy::TaskOwned as u8 }>("task-owned"),
];

named!(Specimen, "policy", ALL);

const fn sound<const POLICY: u8>(name: &'static str) -> Specimen {
    Specimen {
        name,
        defect: None,
        play: play::<POLICY, Sim>,
    }
}

impl Subject for Specimen {
    fn play(replay: &Replay<Self>, trace: bool) -> Outcome {
        (replay.subject.play)(replay, trace)
    }

    fn reached(&self, tally: &Tally) -> (bool, String) {
        let [taken, beyond, left] = tally.numbers();
        let detail = format!("{taken} IDs taken, {beyond} beyond the limit, {left} members left");
        (beyond > 0 && left > 0, detail)
    }
}

type Ids<P> = IdAllocator<P, (&'static [Record<P>], &'static [Block<P>])>;

struct Shared<P: Platform> {
    ids: Ids<P>,
    cpus: u32,
    /// Whether a thread that has given back its ID marks a CPU as idle.
    marks: bool,
    random: RefCell<Random>,
    watch: RefCell<Watch>,
    violation: Violation,
}

/// What an observer knows that sees all threads at once.
#[derive(Default)]
struct Watch {
    holders: Vec<bool>,
    /// The number of IDs that active threads hold, take or give back: now, and the most so far.
    now: u32,
    most: u32,
    /// The largest limit since the last moment without an active thread.
    limit: u32,
    members: u32,
    /// Members that the allocator may not count yet.
    joining: u32,
    /// Former members that the allocator may still count.
    leaving: u32,
    /// How many IDs were taken or may have been moved.
    moved: u64,
    /// For each acquisition under way: the value of `moved` when it began.
    began: Vec<u64>,
    /// The most IDs that were taken or moved during one acquisition.
    meanwhile: u32,
    /// The number of IDs taken, of IDs taken while more threads were active than the limit, and of
    /// members that left.
    taken: u64,
    beyond: u64,
    left: u64,
}

const STEPS: usize = 12;
/// With this number of accesses a schedule counts as endless: some twenty times the average, or
/// five times the average with 64 threads.
const ACCESSES_PER_THREAD: u64 = 10_000;

fn play<const POLICY: u8, P: Platform>(replay: &Replay<Specimen>, trace: bool) -> Outcome {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    let machine = MACHINE.get_or_init(|| machine::load("laptop").expect("it is built in"));
    let mut policies = Policy::ALL.into_iter();
    let policy = policies.find(|&policy| policy as u8 == POLICY);
    let policy = policy.expect("it is a policy");
    let seed = replay.seed;
    let threads = replay.threads.unwrap_or(2 + (seed % 5) as usize);
    let cpus = 1 + (seed / 5 % 4) as u32;
    let disturbance = Disturbance::preemptions(seed, 3 + seed % 29, 20_000);
    let mut schedule = Schedule::new(machine.clone(), threads, disturbance);
    schedule.max_accesses = ACCESSES_PER_THREAD * threads as u64;
    replay.play(
        schedule,
        trace,
        || Shared::<P>::new(policy, cpus, threads, seed),
        [Shared::body, |_, _| ()],
        Shared::judge,
    )
}

impl<P: Platform> Shared<P> {
    fn new(policy: Policy, cpus: u32, threads: usize, seed: u64) -> Self {
        let records = place_slice(cpus as usize + threads, |_| Record::new());
        // Each thread may hold two IDs.
        let count = (2 * threads + cpus as usize)
            .div_ceil(BLOCK as usize)
            .max(2);
        let blocks = place_slice(count, |_| Block::new());
        let ids = Ids::new((records, blocks), cpus, policy);
        let members = threads as u32;
        ids.set_members(members);
        Shared {
            cpus,
            // Seldom, because an ID that is marked at once is handed on at once, which makes other
            // paths rare.
            marks: seed / 20 % 16 == 0,
            random: RefCell::new(Random::stream(seed, 4)),
            watch: RefCell::new(Watch {
                holders: vec![false; count * BLOCK as usize],
                limit: ids.limit(),
                members,
                ..Watch::default()
            }),
            violation: Violation::default(),
            ids,
        }
    }

    fn body(&self, me: usize) {
        for _ in 0..STEPS {
            match self.below(8) {
                0 => self.reclaim(),
                1 => self.change_members(),
                2 => {
                    // Two IDs at a time, as a thread has when its signal handler takes one.
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
        let began = {
            let watch = &mut *self.watch.borrow_mut();
            watch.began.push(watch.moved);
            watch.moved
        };
        say("takes an ID");
        let Ok(held) = self.ids.acquire_as(cpu, me as u32) else {
            // There are many more IDs than are held.
            self.demand(Property::Completion, false, || "no ID is left".to_owned());
            return None;
        };
        say("has one");
        let id = held.id() as usize;
        let (bound, taken) = {
            let watch = &mut *self.watch.borrow_mut();
            watch.taken += 1;
            let earliest = watch.began.iter().min().expect("this one began");
            watch.meanwhile = watch.meanwhile.max((watch.moved - earliest) as u32);
            watch.moved += 1;
            let own = watch.began.iter().position(|&one| one == began);
            watch.began.remove(own.expect("this one began"));
            watch.beyond += u64::from(watch.now > watch.limit);
            let bound = self.bound(watch.most + watch.meanwhile, watch.limit);
            (bound, std::mem::replace(&mut watch.holders[id], true))
        };
        self.demand(Property::Contract, held.id() < bound, || {
            format!("ID {id} was handed out, but only those below {bound} may be")
        });
        self.demand(Property::Exclusion, !taken, || {
            format!("two threads hold ID {id} at the same time")
        });
        Some(held)
    }

    fn release(&self, held: Option<Held>) {
        if let Some(held) = held {
            self.watch.borrow_mut().holders[held.id() as usize] = false;
            let cpu = self.below(self.cpus as u64 + 1) as u32;
            say("gives it back");
            self.ids.release(cpu, held);
            if self.marks {
                // A scheduler, too, may mark a CPU on which another thread runs by now.
                self.ids.mark_idle(cpu, Sim::now());
            }
        }
        self.arrives();
    }

    /// Reclaiming holds IDs for a moment, one at a time.
    fn reclaim(&self) {
        self.sets_out();
        self.moves_all();
        say("reclaims");
        self.ids.reclaim(Sim::now() + self.below(3) * AGE);
        self.arrives();
    }

    /// Adds or removes a member. So the limit changes while IDs are held, and may become less than
    /// the number of holders. The thread that publishes a lower limit gives up the IDs above it,
    /// and holds each for a moment.
    fn change_members(&self) {
        self.sets_out();
        self.moves_all();
        let wants_more = self.below(3) == 0;
        let joins = {
            let watch = &mut *self.watch.borrow_mut();
            // A member that has not joined yet may not leave.
            let joins = wants_more || watch.members <= watch.joining;
            if joins {
                watch.members += 1;
                watch.joining += 1;
            } else {
                watch.members -= 1;
                watch.leaving += 1;
                watch.left += 1;
            }
            let most = watch.members + watch.leaving;
            watch.limit = watch.limit.max(most.min(self.cpus));
            joins
        };
        if joins {
            say("joins");
            self.ids.join();
            self.watch.borrow_mut().joining -= 1;
        } else {
            say("leaves");
            self.ids.leave();
            self.watch.borrow_mut().leaving -= 1;
        }
        self.arrives();
    }

    /// Counts the IDs that the thread is about to move: at most all that are in use.
    fn moves_all(&self) {
        let in_use = self.ids.in_use();
        self.watch.borrow_mut().moved += u64::from(in_use);
    }

    fn sets_out(&self) {
        let watch = &mut *self.watch.borrow_mut();
        watch.now += 1;
        watch.most = watch.most.max(watch.now);
    }

    /// When no thread is active, the limit is exact.
    fn arrives(&self) {
        let watch = &mut *self.watch.borrow_mut();
        watch.now -= 1;
        if watch.now == 0 {
            watch.limit = watch.members.min(self.cpus);
        }
    }

    fn judge(&self, end: &Result<(), Stuck>) -> (Tally, Option<Failure>) {
        match end {
            Err(stuck) => {
                (self.violation).demand_at_end(Property::Completion, false, || stuck.to_string())
            }
            Ok(()) => self.look_over(),
        }
        let watch = self.watch.borrow();
        let tally = Tally(vec![watch.taken, watch.beyond, watch.left]);
        (tally, self.violation.get())
    }

    /// Judges the allocator after all threads have ended.
    fn look_over(&self) {
        let contract = |holds, what: String| {
            (self.violation).demand_at_end(Property::Contract, holds, || what);
        };
        self.ids.set_members(0);
        // The first call marks unused IDs. By the second one they are old, so it reclaims them.
        self.ids.reclaim(1 << 40);
        self.ids.reclaim(2 << 40);
        // An ID that belongs to a CPU does not age.
        let owned = match self.ids.policy() {
            Policy::PerCpu => self.cpus,
            // Nor does a member's ID: the limit is at least 1, and IDs below it stay.
            Policy::TaskOwned => 1,
            _ => 0,
        };
        let in_use = self.ids.in_use();
        contract(
            in_use <= owned,
            format!("no thread holds an ID, but {in_use} are in use, and only {owned} may be"),
        );
    }

    fn bound(&self, most: u32, limit: u32) -> u32 {
        match self.ids.policy() {
            Policy::PerCpu => self.cpus + most,
            _ => most.max(limit),
        }
    }

    fn demand(&self, property: Property, holds: bool, what: impl FnOnce() -> String) {
        self.violation.demand(property, holds, what);
    }

    fn below(&self, n: u64) -> u64 {
        self.random.borrow_mut().below(n)
    }
}
