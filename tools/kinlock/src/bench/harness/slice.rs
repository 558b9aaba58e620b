//! A slice: a span of time in which a team works and its operations are counted.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. The C library writes only through the pointer it is given, which points to a live local.

use std::sync::atomic::{
    AtomicU8, AtomicU64,
    Ordering::{Relaxed, Release},
};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use super::team::{Job, Team};

/// The parts of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Part {
    /// The warm-up: operations do not count.
    WarmUp,
    /// Counts.
    Recorded,
    /// The members finish their operation and return.
    Over,
}

/// What the members of a team see of a slice.
pub struct Slice {
    part: CachePadded<AtomicU8>,
    start: Barrier,
    ops: Box<[CachePadded<AtomicU64>]>,
}

impl Slice {
    /// Waits for the others. Every member calls it once, when it has prepared itself.
    pub fn start(&self) {
        self.start.wait();
    }

    /// Whether the slice is in this part.
    #[inline(always)]
    pub fn is_in(&self, part: Part) -> bool {
        self.part.load(Relaxed) == part as u8
    }

    /// Publishes how many operations a member has done since the start.
    #[inline(always)]
    pub fn count(&self, member: usize, done: u64) {
        // Only this member writes the counter; release keeps it behind the operations that it
        // counts.
        self.ops[member].store(done, Release);
    }

    fn ops(&self) -> Vec<u64> {
        self.ops.iter().map(|ops| ops.load(Relaxed)).collect()
    }
}

/// What a subject did in a slice, and what else the suite found out.
#[derive(Clone, Debug)]
pub struct Sample<X> {
    /// Operations of each thread; one number where each operation takes all threads.
    pub ops: Vec<u64>,
    /// Length of the recorded part.
    pub elapsed: Duration,
    /// CPU time of the process in it.
    pub cpu: Duration,
    /// What else there is.
    pub extra: X,
}

impl<X> Sample<X> {
    /// Operations of all threads, at least one, so that it can be divided by.
    pub fn total_ops(&self) -> f64 {
        self.ops.iter().sum::<u64>().max(1) as f64
    }

    /// Operations of all threads per second.
    pub fn ops_per_s(&self) -> f64 {
        self.total_ops() / self.elapsed.as_secs_f64()
    }

    /// With more found out.
    pub fn with<Y>(self, extra: Y) -> Sample<Y> {
        let Self {
            ops, elapsed, cpu, ..
        } = self;
        Sample {
            ops,
            elapsed,
            cpu,
            extra,
        }
    }
}

/// How many seconds before a slice of `seconds` seconds do not count.
pub fn warm_up(seconds: f64) -> f64 {
    (seconds / 10.0).min(0.1)
}

/// Runs a slice: every member of the team does `work`, while `pause` lets the warm-up and the
/// recorded part pass, which last `warm_up` and `recorded` seconds.
pub fn run(
    team: &Team,
    [warm_up, recorded]: [f64; 2],
    mut pause: impl FnMut(Part, Duration),
    work: impl Fn(&Slice, usize) + Send + Sync + 'static,
) -> Sample<()> {
    let slice = Arc::new(Slice {
        part: CachePadded::new(AtomicU8::new(Part::WarmUp as u8)),
        start: Barrier::new(team.size() + 1),
        ops: (0..team.size()).map(|_| CachePadded::default()).collect(),
    });
    let members = Arc::clone(&slice);
    let job: Job = Arc::new(move |index| work(&members, index));
    team.begin(&job);
    drop(job);
    slice.start();
    pause(Part::WarmUp, Duration::from_secs_f64(warm_up));
    slice.part.store(Part::Recorded as u8, Relaxed);
    let (begin, cpu, before) = (Instant::now(), process_cpu_time(), slice.ops());
    pause(Part::Recorded, Duration::from_secs_f64(recorded));
    let (elapsed, cpu, after) = (begin.elapsed(), process_cpu_time() - cpu, slice.ops());
    slice.part.store(Part::Over as u8, Relaxed);
    team.wait();
    let ops = after.iter().zip(before);
    Sample {
        ops: ops.map(|(after, before)| after - before).collect(),
        elapsed,
        cpu,
        extra: (),
    }
}

/// CPU time used by all threads of this process.
pub fn process_cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: invariant 1.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
