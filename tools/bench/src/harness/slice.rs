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
    /// Operations count.
    Recorded,
    /// The members finish their operation and return.
    Over,
}

/// A slice, as the members of a team see it.
pub struct Slice<'a> {
    team: &'a Team,
    part: CachePadded<AtomicU8>,
    /// The number of members that have prepared themselves.
    ready: AtomicUsize,
    /// Held for writing until all members are ready.
    gate: RwLock<()>,
    ops: Box<[CachePadded<AtomicU64>]>,
    /// The CPU time clock of a member in the background; 0: there is no such member.
    background_clock: AtomicI32,
}

impl<'a> Slice<'a> {
    /// A slice that has not begun.
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

    /// The loop of a member that has prepared itself: waits for the others, and then calls `turn`
    /// until the slice is over. Each turn returns how many operations it has done.
    #[inline(always)]
    pub fn repeat(&self, member: usize, mut turn: impl FnMut() -> u64) {
        let mut done = 0;
        self.start(member);
        while !self.is_in(Part::Over) {
            done += turn();
            self.count(member, done);
        }
    }

    /// Whether the operations of this member count.
    #[inline(always)]
    pub fn is_measured(&self, member: usize) -> bool {
        member < self.team.measured
    }

    /// Whether the slice is in this part.
    #[inline(always)]
    pub fn is_in(&self, part: Part) -> bool {
        self.part.load(Relaxed) == part as u8
    }

    /// Publishes the number of operations that a member has done since the start.
    #[inline(always)]
    pub fn count(&self, member: usize, done: u64) {
        // Only this member writes the counter; release keeps it behind the operations that it
        // counts.
        self.ops[member].store(done, Release);
    }

    /// The operations of the members that are measured.
    fn ops(&self) -> Vec<u64> {
        let measured = &self.ops[..self.team.measured];
        measured.iter().map(|ops| ops.load(Relaxed)).collect()
    }

    /// The CPU time of all threads of this process, except for one in the background.
    fn cpu_time(&self) -> Duration {
        let of_background = match self.background_clock.load(Relaxed) {
            0 => Duration::ZERO,
            clock => background::read_clock(clock),
        };
        let of_process = background::read_clock(libc::CLOCK_PROCESS_CPUTIME_ID);
        of_process.saturating_sub(of_background)
    }

    /// The increase of that CPU time since it was `before`. It is the difference of two clocks that
    /// are read one after the other, so it may decrease if hardly any other thread than the one in
    /// the background has run.
    fn cpu_time_since(&self, before: Duration) -> Duration {
        self.cpu_time().saturating_sub(before)
    }
}

/// What a subject did in a slice, with the suite's own results.
#[derive(Clone, Debug)]
pub struct Sample<X> {
    /// Operations of each thread; a single number if each operation takes all threads.
    pub ops: Vec<u64>,
    /// Length of the recorded part.
    pub elapsed: Duration,
    /// CPU time of the process in the recorded part, without a thread in the background.
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

/// The length of the warm-up before a slice of `seconds` seconds.
pub fn warm_up(seconds: f64) -> f64 {
    (seconds / 10.0).min(0.1)
}

/// Runs a slice. Every member of the team does `work`, which is called with the member's index.
/// `pause` waits for the end of the warm-up and of the recorded part, which last `warm_up` and
/// `recorded` seconds. It is also called for the last part, without a time, to wake members that
/// sleep.
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
        // Operations are read last at the start, and first here. If this thread loses its CPU
        // between two readings, it misses some operations, but never counts more than were done in
        // the time.
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

/// Ends a slice, also when its measurement panics or a member cannot be started: the other members,
/// which are waited for, would go on forever.
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

    /// The test hangs if the members do not return.
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

    /// This holds whatever the two clocks show.
    #[test]
    fn cpu_time_is_never_negative() {
        let team = Team::new(1, Vec::new(), None).unwrap();
        assert_eq!(
            Slice::of(&team).cpu_time_since(Duration::MAX),
            Duration::ZERO
        );
    }
}
