//! Draws the parameters of one schedule at random: machine, disruptions, the knobs of the lock.
//!
//! Different defects need different schedules, so the ranges are extreme: from no disruption to one
//! at every other access, and from preemptions of some cycles to preemptions that outlast all time
//! limits of the lock.

use super::locks::{self, Knobs, Specimen};
use super::oracle::Order;
use super::scenarios::{Plan, Scenario};
use kinlock_core::config::LocalLimit;
use kinlock_measure::random::Random;
use kinlock_sim::machine::{Costs, Machine, Shape};
use kinlock_sim::{Disturbance, FencesDisturbed, Placement, Schedule};

/// The number of threads in a schedule, unless the user gives one.
pub(super) const THREADS: std::ops::RangeInclusive<u64> = 2..=8;

pub(super) fn plan(
    lock: &Specimen,
    scenario: &Scenario,
    threads: Option<usize>,
    seed: u64,
) -> Plan {
    let mut random = Random::stream(seed, 1);
    let drawn = THREADS.start() + random.below(THREADS.end() - THREADS.start() + 1);
    // No thread waits in line for long unless others queue, too.
    let fewest = if scenario.ordered { 3 } else { 2 };
    let threads = threads.unwrap_or(drawn.max(fewest) as usize);
    let machine = machine(&mut random, threads, scenario.oversubscribed);
    let mut disturbance = disturbance(&mut random, &machine.costs, scenario);
    let mut knobs = Knobs {
        tuning: (lock.tuning)(&mut random),
        change: scenario.changes_knobs,
        // Streams of their own, so that the schedules of other locks do not depend on these draws.
        queue: locks::queue(&mut Random::stream(seed, 2)),
        joined: locks::is_joined(&mut Random::stream(seed, 3)),
    };
    let mut schedule_slots = threads + 4;
    let mut order = None;
    let mut rounds = 3 + random.below(4) as u32;
    let park = scenario.oversubscribed || random.below(4) != 0;
    if scenario.ordered {
        knobs.tuning.stealing = false;
        // This scenario is not about sleepers that go unnoticed for a while.
        disturbance.fences = FencesDisturbed::Granted;
        disturbance.stale_one_in = 0;
        let wanted = wanted_order(&knobs, threads);
        // Enough rounds for a starved thread to be overtaken too often.
        let overtakers = match wanted.overtakers {
            u32::MAX => 20,
            n => n.clamp(20, 200),
        };
        rounds = 4 + 2 * overtakers / threads as u32;
        order = lock.in_order.then_some(wanted);
    } else if random.one_in(8) {
        schedule_slots = 1 + random.below(threads as u64) as usize;
    }
    if scenario.interrupts {
        // While a handler waits for the quanta of another lock, all threads wait that need the
        // interrupted thread.
        knobs.tuning.quantum = locks::at_most(knobs.tuning.quantum, 20);
    }
    let mut schedule = Schedule::new(machine, threads, disturbance);
    schedule.slots = schedule_slots;
    schedule.max_accesses = lock.max_accesses;
    // A stream of its own, so that other draws do not depend on it.
    let mut patience = Random::stream(seed, 4);
    if patience.one_in(3) {
        schedule.patience = 1_000 << patience.below(8);
    }
    if !scenario.ordered && random.one_in(2) {
        schedule.placement = Placement::Scheduled;
    }
    Plan {
        schedule,
        knobs,
        park,
        rounds,
        work: 1 << random.below(11),
        order,
    }
}

fn wanted_order(knobs: &Knobs, threads: usize) -> Order {
    let tuning = knobs.tuning;
    Order {
        fifo: !tuning.reorder,
        overtakers: match tuning.limit {
            _ if !tuning.reorder => 0,
            // Each older waiter may be followed by a run of hand-offs within its domain.
            LocalLimit::Count { log2, .. } => threads as u32 * ((1 << log2.min(16)) + 2),
            // Other limits bound the time, not the number.
            _ => u32::MAX,
        },
    }
}

/// A small machine with random latencies, which make the order of events random.
pub(super) fn machine(random: &mut Random, threads: usize, oversubscribed: bool) -> Machine {
    let cpus = if oversubscribed {
        1 + random.below((threads as u64 - 1).max(1)) as usize
    } else {
        threads + random.below(3) as usize
    };
    let sockets = (1 + random.below(4) as usize).min(cpus);
    let mut lot = |top: u32| {
        let power = 1u64 << random.below(top as u64);
        power + random.below(power)
    };
    let costs = Costs {
        clock_mhz: [5, 100, 1000][lot(6) as usize % 3],
        own_cache: lot(3),
        last_level: lot(6),
        modified: std::array::from_fn(|_| lot(8)),
        modified_homed_at_reader: lot(5),
        third_party_home: 0,
        shared: std::array::from_fn(|_| lot(8)),
        invalidate: std::array::from_fn(|_| lot(8)),
        memory: [lot(8), lot(8)],
        read_occupancy: lot(4),
        next_line: 0,
        rmw: lot(5),
        clock: 0,
        pause: lot(6),
        spin_exit: lot(6),
        sibling_computes_pct: 100,
        sibling_spins_pct: 100,
        time_slice: 200 + lot(14),
        context_switch: lot(8),
        park: lot(8),
        unpark: lot(8),
        wake_latency: lot(10),
        membarrier: lot(8),
        tick: 0,
        tick_period: 0,
    };
    Machine {
        name: String::new(),
        about: String::new(),
        shape: Shape {
            sockets,
            caches_per_socket: 1,
            cores_per_cache: cpus.div_ceil(sockets),
            threads_per_core: 1,
            hops: (0..sockets * sockets)
                .map(|i| (i / sockets != i % sockets) as u8)
                .collect(),
        },
        costs,
        parameters: Vec::new(),
    }
}

fn disturbance(random: &mut Random, costs: &Costs, scenario: &Scenario) -> Disturbance {
    let mut d = plain_disturbance(random, costs);
    if scenario.interrupts {
        d.one_in = d.one_in.max(4);
        d.interrupt_one_in = 2;
    }
    d
}

/// A disturbance without interrupts.
pub(super) fn plain_disturbance(random: &mut Random, costs: &Costs) -> Disturbance {
    // In nanoseconds: a few accesses; longer than a waiter spins on an oversubscribed machine;
    // longer than a waiter spins elsewhere; longer than the time in which stealing is permitted.
    let longest = [200.0, 20_000.0, 4_000_000.0, 40_000_000.0][random.below(4) as usize];
    let one_in = [0, 4, 16, 64, 256][random.below(5) as usize];
    let mut d = Disturbance::preemptions(random.next(), one_in, costs.cycles(longest).max(64));
    d.spurious_one_in = [0, 4, 32][random.below(3) as usize];
    d.oversubscribed_one_in = [0, 1, 2, 8][random.below(4) as usize];
    d.fences = match random.below(8) {
        0 => FencesDisturbed::Refused,
        1 | 2 => FencesDisturbed::Limited,
        _ => FencesDisturbed::Granted,
    };
    // A stream of its own, so that other draws do not depend on it.
    d.stale_one_in = [0, 1, 2, 8][Random::stream(d.seed, 5).below(4) as usize];
    // One bit for each thread.
    let mask = |random: &mut Random| random.next() << 32 ^ random.next();
    if random.one_in(4) {
        d.priority = mask(random) & mask(random);
    }
    if random.one_in(4) {
        d.forgetful = mask(random);
    }
    d
}
