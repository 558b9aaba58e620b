//! One simulation: what to run, and its outcome.

use crate::coherence::Traffic;
use crate::locks::{self, Genre};
use crate::machine::Machine;
use crate::platform;
use crate::trace::{Part, Trace};
use crate::workloads::{
    self, Acquire, Body, Bursts, Handoffs, Longest, Meter, Metered, Prepare, SharedMeter, Waited,
    grid,
};
use crate::world::{Placement, Setup, Stuck, World, with};
use kinlock_core::config::Tuning;
use kinlock_core::events::Event;
use kinlock_core::platform::PATIENCE_NS;
use kinlock_linux::topology::DomainKind;
use kinlock_measure::stats::Fairness;
use serde::{Serialize, Serializer};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Run {
    /// The machine.
    pub machine: Machine,
    /// The workload.
    pub workload: workloads::Kind,
    /// The lock under test.
    pub lock: locks::Kind,
    /// Threads, 1 or more; beyond the machine's CPUs they share them.
    pub threads: usize,
    /// How many of the machine's CPUs may be used, the first ones in the order in which they are
    /// given to threads; `None`: all.
    pub cpus: Option<usize>,
    /// Where threads run; `None`: as the workload was measured.
    pub placement: Option<Placement>,
    /// The configuration of the library's NUMA-aware lock.
    pub tuning: Tuning,
    /// What a locality domain is.
    pub domain: DomainKind,
    /// Simulated seconds, after the warm-up; more, if the workload takes longer.
    pub seconds: f64,
    /// Start of all random numbers.
    pub seed: u64,
    /// Factors for numbers of the machine and constants of the workload, by name: for bands over
    /// assumed values.
    pub factors: Vec<(&'static str, f64)>,
    /// Whether to trace the hand-offs of the lock. It changes no result.
    pub trace: bool,
}

/// The outcome of a run. Reports contain it unchanged: add fields, never rename them. All fields
/// except those of the host are the same on every machine.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Operations of all threads after the warm-up.
    pub ops: u64,
    /// The operations of each thread.
    #[serde(skip)]
    pub per_thread: Vec<u64>,
    /// Simulated seconds that they took, including time that the workload adds without simulating
    /// it.
    pub seconds: f64,
    /// Operations per microsecond of simulated time.
    pub ops_per_us: f64,
    /// CPU time of all threads per operation, in nanoseconds; the CPU time of the whole run if
    /// there was no operation. It is the time in which CPUs compute, wait for memory, spin, or
    /// switch to a thread.
    pub cpu_ns_per_op: f64,
    /// How evenly the threads were served.
    pub fairness: Fairness,
    /// The times from asking for the lock to having it.
    pub acquire_ns: Acquire,
    /// The longest of these times for readers and for writers, if some threads read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_ns: Option<Longest>,
    /// The longest waits, if they ended after the end of the run, when no thread asks for the lock
    /// again; otherwise 0.
    pub unended_ns: Longest,
    /// Acquisitions by who the previous holder was.
    pub handoffs: Handoffs,
    /// Memory accesses by where they were served from.
    pub traffic: Traffic,
    /// The event counts of the library's locks.
    pub counters: BTreeMap<&'static str, u64>,
    /// The locks' own counts, including the warm-up, by [name](crate::locks::observed). Only some
    /// of the laboratory's locks have any.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub observed: BTreeMap<&'static str, f64>,
    /// The bursts under concurrency IDs, as one entry of a list; none for locks.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_list")]
    pub ids: Option<Bursts>,
    /// How threads waited for each lock of a recorded program; empty for other workloads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waited: Vec<Waited>,
    /// The hand-offs of the lock, if they were traced.
    #[serde(skip)]
    pub trace: Option<Trace>,
    /// Memory events simulated, warm-up included.
    pub events: u64,
    /// How long the simulation took, in seconds of the host.
    pub host_seconds: f64,
}

fn as_list<S: Serializer>(ids: &Option<Bursts>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(ids)
}

/// The warm-up, as a part of the simulated time.
const WARM_UP: f64 = 0.1;

impl Run {
    /// A run of `threads` threads for 50 ms with default knobs, reordering on.
    pub fn new(
        machine: Machine,
        workload: workloads::Kind,
        lock: locks::Kind,
        threads: usize,
    ) -> Run {
        let mut tuning = Tuning::DEFAULT;
        tuning.reorder = true;
        Run {
            machine,
            workload,
            lock,
            threads,
            cpus: None,
            placement: None,
            tuning,
            domain: DomainKind::Node,
            seconds: 0.05,
            seed: 1,
            factors: Vec::new(),
            trace: false,
        }
    }

    /// Runs it.
    ///
    /// # Errors
    ///
    /// If some thread does not come to an end, because the lock has lost it.
    ///
    /// # Panics
    ///
    /// If there are no threads, or more than [`MAX_THREADS`]; if the workload takes policies for
    /// concurrency IDs and the lock is not one, or the other way round.
    pub fn execute(&self) -> Result<Outcome, Stuck> {
        assert!((1..=MAX_THREADS).contains(&self.threads));
        let clock = Instant::now();
        let setup = self.setup();
        let meter = Rc::new(RefCell::new(Meter::new(self.threads)));
        let handed = Rc::clone(&meter);
        let prepare = || (self.prepare(Rc::clone(&handed)), handed);
        let body = |(body, meter): &(Rc<dyn Body>, SharedMeter), me| {
            while !with(|w| w.now() >= w.setup.end) {
                let ops = body.iterate(me);
                meter.borrow_mut().add(me, ops);
            }
        };
        // The locks are in the simulation's memory, so their counts are read before it ends.
        let observed = |(_, meter): &(Rc<dyn Body>, SharedMeter), _: &Result<(), Stuck>| {
            meter.borrow().observed()
        };
        let (world, result, observed) =
            platform::run(&setup, self.threads + 4, prepare, body, observed);
        result?;
        Ok(Outcome {
            observed,
            host_seconds: clock.elapsed().as_secs_f64(),
            ..self.outcome(&world, &meter.borrow())
        })
    }

    fn setup(&self) -> Setup {
        let seconds = self.measured_seconds();
        let start = self.cycles(seconds * WARM_UP);
        let end = start + self.cycles(seconds);
        let mut machine = self.machine.clone();
        for &(name, factor) in &self.factors {
            machine.scale(name, factor);
        }
        Setup {
            placement: self.placement.unwrap_or(self.workload.placement),
            tuning: self.tuning,
            domain: self.domain,
            seed: self.seed,
            cpus: self.cpus,
            start,
            end,
            // A thread that has not ended by then never will.
            limit: end + self.cycles(seconds + 1.0) * 10,
            patience: PATIENCE_NS,
            factors: self.factors.clone(),
            trace: self.trace,
            ..Setup::new(machine, self.threads)
        }
    }

    /// The simulated seconds after the warm-up.
    fn measured_seconds(&self) -> f64 {
        match self.workload.prepare {
            Prepare::Ids { seconds, .. } => self.seconds.max(seconds(self.threads)),
            _ => self.seconds,
        }
    }

    fn cycles(&self, seconds: f64) -> u64 {
        self.machine.costs.cycles(seconds * 1e9)
    }

    /// Places the lock and the workload's data in the simulation under way.
    fn prepare(&self, meter: SharedMeter) -> Rc<dyn Body> {
        match self.workload.prepare {
            Prepare::Lock(prepare) | Prepare::ReaderWriter(prepare) => {
                prepare(self.threads, self.place_lock(meter))
            }
            Prepare::Cell(cell, locks) => {
                grid::prepare(cell, locks, || self.place_lock(Rc::clone(&meter)))
            }
            Prepare::Recorded(replay) => {
                replay.prepare(self.threads, || (self.lock.place)(self.threads), meter)
            }
            Prepare::Ids { prepare, .. } => {
                let policy = self.lock.policy().expect("the workload takes policies");
                prepare(self.threads, policy, meter)
            }
        }
    }

    fn place_lock(&self, meter: SharedMeter) -> Metered {
        with(|w| w.place_part(Part::Word));
        let lock = (self.lock.place)(self.threads);
        with(|w| w.place_part(Part::Data));
        Metered::new(lock, meter)
    }

    fn outcome(&self, world: &World, meter: &Meter) -> Outcome {
        let (traffic, counted) = meter.warm_up();
        let since_warm_up =
            |e: &Event| (e.name(), world.counted[*e as usize] - counted[*e as usize]);
        let seconds = if self.workload.takes() == Genre::Policy {
            meter.bursts.map_or(0.0, |bursts| bursts.nanos) / 1e9
        } else {
            self.measured_seconds() + (self.workload.unsimulated_seconds)(meter, self.threads)
        };
        let ops = meter.per_thread.iter().sum::<u64>();
        let cpu_seconds = world.costs().nanos(world.busy) / 1e9;
        Outcome {
            ops,
            per_thread: meter.per_thread.clone(),
            seconds,
            ops_per_us: ops as f64 / (seconds * 1e6),
            cpu_ns_per_op: cpu_seconds * 1e9 / ops.max(1) as f64,
            fairness: Fairness::of(&meter.per_thread),
            acquire_ns: meter.acquire_ns(),
            longest_ns: (meter.reads > 0).then_some(meter.longest),
            unended_ns: meter.unended,
            handoffs: meter.handoffs,
            traffic: world.traffic.since(&traffic),
            counters: Event::ALL.iter().map(since_warm_up).collect(),
            observed: BTreeMap::new(),
            ids: meter.bursts,
            waited: meter.waited.clone(),
            trace: (world.recorder.0.as_ref())
                .map(|recorder| recorder.finish(|c| world.costs().nanos(c))),
            events: world.accesses,
            host_seconds: 0.0,
        }
    }
}

/// The most threads a simulation can have.
pub const MAX_THREADS: usize = 4096;
