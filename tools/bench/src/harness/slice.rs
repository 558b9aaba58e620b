//! A slice: a span of time in which a team works and its operations are counted.

use std::sync::atomic::{
    AtomicI32, AtomicU8, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{PoisonError, RwLock};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use super::background;
use super::team::Team;

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
pub struct Slice<'a> {
    team: &'a Team,
    part: CachePadded<AtomicU8>,
    /// Members that have prepared themselves.
    ready: AtomicUsize,
    /// Held for writing until all have.
    gate: RwLock<()>,
    ops: Box<[CachePadded<AtomicU64>]>,
    /// The clock of the CPU time of a member in the background; 0: there is none.
    background_clock: AtomicI32,
}

impl<'a> Slice<'a> {
    /// One that has not begun.
    fn of(team: &'a Team) -> Self {
        Self {
            team,
            part: CachePadded::new(AtomicU8::new(Part::WarmUp as u8)),
            ready: AtomicUsize::new(0),
            gate: RwLock::default(),
            ops: (0..team.size()).map(|_| CachePadded::default()).collect(),
            background_clock: AtomicI32::new(0),
        }
    }

    /// Waits for the others. Every member calls it once with its index, when it has prepared
    /// itself. A member in the background lowers itself then.
    pub fn start(&self, member: usize) {
        let background = self.team.background.filter(|_| !self.is_measured(member));
        if background.is_some() {
            let clock = background::own_clock().unwrap_or(0);
            self.background_clock.store(clock, Relaxed);
        }
        self.ready.fetch_add(1, Release);
        drop(self.gate.read());
        if let Some(background) = background {
            assert!(background.lower(), "the kernel did so before");
        }
    }

    /// What a member does: when it has prepared itself and the others are ready, `turn` again and
    /// again until the slice is over. Each turn returns how many operations it has done.
    #[inline(always)]
    pub fn repeat(&self, member: usize, mut turn: impl FnMut() -> u64) {
        let mut done = 0;
        self.start(member);
        while !self.is_in(Part::Over) {
            done += turn();
            self.count(member, done);
        }
    }

    /// Whether what this member does counts.
    #[inline(always)]
    pub fn is_measured(&self, member: usize) -> bool {
        member < self.team.measured
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

    /// Of those that are measured.
    fn ops(&self) -> Vec<u64> {
        let measured = &self.ops[..self.team.measured];
        measured.iter().map(|ops| ops.load(Relaxed)).collect()
    }

    /// CPU time used by all threads of this process but one in the background.
    fn cpu_time(&self) -> Duration {
        let of_background = match self.background_clock.load(Relaxed) {
            0 => Duration::ZERO,
            clock => background::read_clock(clock),
        };
        let of_process = background::read_clock(libc::CLOCK_PROCESS_CPUTIME_ID);
        of_process.saturating_sub(of_background)
    }

    /// The same since it was `before`. Two clocks are read one after the other, so a reading can be
    /// less than an earlier one, if little but the thread in the background has run in between.
    fn cpu_time_since(&self, before: Duration) -> Duration {
        self.cpu_time().saturating_sub(before)
    }
}

/// What a subject did in a slice, and what else the suite found out.
#[derive(Clone, Debug)]
pub struct Sample<X> {
    /// Operations of each thread; one number where each operation takes all threads.
    pub ops: Vec<u64>,
    /// Length of the recorded part.
    pub elapsed: Duration,
    /// CPU time of the process in it, but for a thread in the background.
    pub cpu: Duration,
    pub extra: X,
}

impl<X> Sample<X> {
    /// Operations of all threads, at least one, so that it can be divided by.
    pub fn total_ops(&self) -> f64 {
        self.ops.iter().sum::<u64>().max(1) as f64
    }

    pub fn ops_per_s(&self) -> f64 {
        self.total_ops() / self.elapsed.as_secs_f64()
    }

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

/// Runs a slice: every member of the team does `work`, called with its index, while `pause` lets
/// the warm-up and the recorded part pass, which last `warm_up` and `recorded` seconds. Called with
/// the last part, for no time at all, it wakes members that sleep.
///
/// # Errors
/// If the system refuses to start the members.
pub fn run(
    team: &Team,
    [warm_up, recorded]: [f64; 2],
    pause: &mut dyn FnMut(Part, Duration),
    work: &(dyn Fn(&Slice, usize) + Sync),
) -> anyhow::Result<Sample<()>> {
    let slice = &Slice::of(team);
    scope(|scope| {
        let gate = slice.gate.write().unwrap_or_else(PoisonError::into_inner);
        let over = OverOnDrop(slice);
        for index in 0..team.size() {
            team.start(scope, index, move || work(slice, index))?;
        }
        while slice.ready.load(Acquire) < team.size() {
            sleep(Duration::from_micros(50));
        }
        drop(gate);
        pause(Part::WarmUp, Duration::from_secs_f64(warm_up));
        slice.part.store(Part::Recorded as u8, Relaxed);
        let (begin, cpu, before) = (Instant::now(), slice.cpu_time(), slice.ops());
        pause(Part::Recorded, Duration::from_secs_f64(recorded));
        // The operations come last at the start, and first here: if this thread loses its CPU
        // between two readings, it misses some of them, and never counts more than were done in the
        // time.
        let (after, elapsed, cpu) = (slice.ops(), begin.elapsed(), slice.cpu_time_since(cpu));
        drop(over);
        pause(Part::Over, Duration::ZERO);
        let ops = after.iter().zip(before);
        Ok(Sample {
            ops: ops.map(|(after, before)| after - before).collect(),
            elapsed,
            cpu,
            extra: (),
        })
    })
}

/// Ends a slice, also when its measurement panics or a member cannot be started: the others are
/// waited for, and would go on forever.
struct OverOnDrop<'a>(&'a Slice<'a>);

impl Drop for OverOnDrop<'_> {
    fn drop(&mut self) {
        self.0.part.store(Part::Over as u8, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::background::Background;
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// It would hang if the members did not return.
    #[test]
    fn a_measurement_that_panics_ends_its_slice() {
        let wait_for_the_end = |slice: &Slice, member| {
            slice.start(member);
            while !slice.is_in(Part::Over) {
                std::thread::yield_now();
            }
        };
        for fails_in in [Part::WarmUp, Part::Recorded] {
            let team = Team::new(2, Vec::new(), Some(Background::Nice)).unwrap();
            let mut pause = |part, _| assert_ne!(part, fails_in, "as intended");
            let slice = || run(&team, [0.001; 2], &mut pause, &wait_for_the_end);
            assert!(catch_unwind(AssertUnwindSafe(slice)).is_err());
        }
    }

    /// Whatever the two clocks show.
    #[test]
    fn cpu_time_is_never_negative() {
        let team = Team::new(1, Vec::new(), None).unwrap();
        assert_eq!(
            Slice::of(&team).cpu_time_since(Duration::MAX),
            Duration::ZERO
        );
    }
}
