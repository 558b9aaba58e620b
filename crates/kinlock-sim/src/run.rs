//! One simulation: what to run, and what came out.

use crate::locks::{self, Genre};
use crate::machine::Machine;
use crate::platform;
use crate::workloads::{self, Bursts, Meter, Prepare};
use crate::world::{self, Disturbance, Placement, Setup, Stuck};
use hdrhistogram::Histogram;
use kinlock_core::config::Tuning;
use kinlock_core::events::Event;
use kinlock_core::topology::DomainKind;
use std::cell::RefCell;
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
    /// Where threads run; `None`: as the workload was measured.
    pub placement: Option<Placement>,
    /// What the library's NUMA-aware lock is configured to.
    pub tuning: Tuning,
    /// What a locality domain is.
    pub domain: DomainKind,
    /// Simulated seconds, after the warm-up; more, if the workload takes longer.
    pub seconds: f64,
    /// Start of all random numbers.
    pub seed: u64,
    /// Preemption anywhere.
    pub disturbance: Option<Disturbance>,
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Operations completed after the warm-up.
    pub ops: u64,
    /// The same by thread.
    pub per_thread: Vec<u64>,
    /// Simulated seconds that they took, with what the workload accounts for without simulating it.
    pub seconds: f64,
    /// How long acquisitions of the lock took, in nanoseconds.
    pub waits: Histogram<u64>,
    /// Acquisitions after one by another thread of the same locality domain, and of another one.
    pub handoffs: Handoffs,
    /// Where accesses were served from, after the warm-up.
    pub traffic: Traffic,
    /// What the library's locks counted after the warm-up, by [`Event`].
    pub counted: Vec<(Event, u64)>,
    /// What was done under concurrency IDs, by phase of the workload; empty for locks.
    pub bursts: Vec<Bursts>,
    /// Memory events simulated.
    pub events: u64,
    /// Times a thread was suspended.
    pub switches: u64,
    /// How long the simulation took, in seconds of the host.
    pub host_seconds: f64,
}

/// Who took the lock after whom.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Handoffs {
    /// After another thread of the same locality domain.
    pub local: u64,
    /// After a thread of another one.
    pub remote: u64,
    /// After the same thread.
    pub retaken: u64,
}

/// Accesses by where they were served from.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Traffic {
    /// The core's own caches.
    pub own_cache: u64,
    /// The last-level cache.
    pub last_level: u64,
    /// Another core of the same socket.
    pub local: u64,
    /// Another socket.
    pub remote: u64,
    /// Memory.
    pub memory: u64,
}

impl Traffic {
    fn since(&self, earlier: &Traffic) -> Traffic {
        Traffic {
            own_cache: self.own_cache - earlier.own_cache,
            last_level: self.last_level - earlier.last_level,
            local: self.local - earlier.local,
            remote: self.remote - earlier.remote,
            memory: self.memory - earlier.memory,
        }
    }
}

/// The part of the simulated time that passes before anything counts.
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
            placement: None,
            tuning,
            domain: DomainKind::Node,
            seconds: 0.05,
            seed: 1,
            disturbance: None,
        }
    }

    /// Runs it.
    ///
    /// # Errors
    ///
    /// If the threads do not all come to an end: the lock lost one.
    ///
    /// # Panics
    ///
    /// If there are no threads, or more than [`MAX_THREADS`]; if the workload is for concurrency IDs and the lock is no policy, or the other way round.
    pub fn execute(&self) -> Result<Outcome, Stuck> {
        assert!((1..=MAX_THREADS).contains(&self.threads));
        let costs = &self.machine.costs;
        let cycles = |seconds: f64| costs.cycles(seconds * 1e9);
        let seconds = match self.workload.prepare {
            Prepare::Ids { seconds, .. } => self.seconds.max(seconds(self.threads)),
            Prepare::Lock(_) => self.seconds,
        };
        let start = cycles(seconds * WARM_UP);
        let end = start + cycles(seconds);
        let setup = Setup {
            machine: self.machine.clone(),
            threads: self.threads,
            placement: self.placement.unwrap_or(self.workload.placement),
            tuning: self.tuning,
            domain: self.domain,
            seed: self.seed,
            end,
            // Whoever has not ended long after everybody was told to is not going to.
            limit: end + cycles(seconds + 1.0) * 10,
            max_accesses: u64::MAX,
            disturbance: self.disturbance.clone(),
        };
        let clock = Instant::now();
        let meter = Rc::new(RefCell::new(Meter::new(self.threads, start, end)));
        let handed = Rc::clone(&meter);
        let (threads, lock, workload) = (self.threads, self.lock, self.workload);
        let prepare = move || {
            platform::make_waiters(threads + 4);
            let body = match workload.prepare {
                Prepare::Lock(prepare) => prepare(
                    threads,
                    workloads::Metered::new((lock.place)(threads), Rc::clone(&handed)),
                ),
                Prepare::Ids { prepare, .. } => {
                    let policy = lock.policy().expect("the workload takes policies");
                    prepare(threads, policy, Rc::clone(&handed))
                }
            };
            (body, handed)
        };
        let iterate = |(body, meter): &(Rc<dyn workloads::Body>, Rc<RefCell<Meter>>), me| {
            while !world::with(|w| w.now() >= w.end) {
                let ops = body.iterate(me);
                meter.borrow_mut().add(me, ops);
            }
        };
        let (world, result, ()) = world::run(&setup, prepare, iterate, |_, _| ());
        result?;
        let meter = meter.borrow();
        let (warm_up_traffic, warm_up_counted) = meter.warm_up();
        Ok(Outcome {
            ops: meter.per_thread.iter().sum(),
            per_thread: meter.per_thread.clone(),
            seconds: if self.workload.takes() == Genre::Policy {
                meter.bursts.iter().map(|b| b.nanos).sum::<f64>() / 1e9
            } else {
                seconds + (self.workload.unsimulated_seconds)(&meter, self.threads)
            },
            waits: meter.waits.clone(),
            handoffs: meter.handoffs,
            traffic: world.traffic.since(&warm_up_traffic),
            counted: Event::ALL
                .iter()
                .map(|&e| (e, world.counted[e as usize] - warm_up_counted[e as usize]))
                .collect(),
            bursts: meter.bursts.clone(),
            events: world.accesses,
            switches: world.switches,
            host_seconds: clock.elapsed().as_secs_f64(),
        })
    }
}

/// The most threads a simulation can have.
pub const MAX_THREADS: usize = 4096;

impl Outcome {
    /// Throughput, in operations per microsecond of simulated time.
    pub fn ops_per_us(&self) -> f64 {
        self.ops as f64 / (self.seconds * 1e6)
    }
}
