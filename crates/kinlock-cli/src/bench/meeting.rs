//! Timing threads that meet through one lock and its condition variables: each operation takes all of them.
//!
//! A round has two slices, as for other workloads. In the instrumented one the leader reads a clock at each meeting: what is
//! called a wait is then the time from one meeting to the next.

use std::sync::atomic::{
    AtomicU8, AtomicU64,
    Ordering::{Relaxed, Release},
};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::interrupt::{self, State, pause};
use super::runner::{Measure, Sample, Timing, pause_and_count, process_cpu_time};
use super::team::{Job, Team};
use super::trace::Handoffs;
use crate::locks::{CondvarFamily, LockName, Monitor, VisitCondvar};

/// What the threads of a meeting do. Thread 0 leads.
pub trait Meeting: Copy + Send + Sync + 'static {
    /// What the lock guards.
    type State: Send + 'static;

    /// Before the first meeting.
    fn state(self, threads: usize) -> Self::State;
    /// The leader's part of one meeting; with `stop` the last one, which sends the others home.
    fn lead<M: Monitor<Self::State>>(self, monitor: &M, stop: bool);
    /// Another thread's part of meeting number `n`, from 1. `false`: it was the last.
    fn follow<M: Monitor<Self::State>>(self, monitor: &M, n: u64) -> bool;
}

/// A meeting that can be measured under any lock that has a condition variable.
pub struct Meet<W>(pub W);

impl<W: Meeting> Measure for Meet<W> {
    fn round(&mut self, lock: LockName, team: &Team, timing: &Timing, _: u64) -> Sample {
        let round = Round {
            ours: lock.is_ours(),
            work: self.0,
            team,
            timing,
        };
        lock.dispatch_condvar(round)
            .expect("the plan leaves out locks without a condition variable")
    }
}

struct Round<'a, W> {
    ours: bool,
    work: W,
    team: &'a Team,
    timing: &'a Timing,
}

impl<W: Meeting> VisitCondvar for Round<'_, W> {
    type Output = Sample;

    fn visit<F: CondvarFamily>(self) -> Sample {
        let arena = || Arc::new(Arena::<W, F>::new(self.work, self.team.size()));
        let timed = arena();
        let Timing {
            warm_up,
            timed: span,
            instrumented: watched,
        } = *self.timing;
        let slice = timed.run(Watch::Nothing, self.team, warm_up, span);
        let instrumented = arena();
        let events = match interrupt::state() {
            // The round does not count any more.
            State::Over => Vec::new(),
            _ => {
                let watch = Watch::Meetings { ours: self.ours };
                instrumented.run(watch, self.team, warm_up, watched).events
            }
        };
        let times = instrumented.times.lock();
        Sample {
            elapsed: slice.elapsed,
            // Everybody has a part in each: they are counted once.
            ops: vec![slice.meetings],
            cpu: slice.cpu,
            acquire: times.unwrap_or_else(PoisonError::into_inner).clone(),
            handoffs: Handoffs::default(),
            longest_remote_wait: 0,
            events,
        }
    }
}

/// What is watched in a slice.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watch {
    /// That of a timed slice.
    Nothing,
    /// The time from one meeting to the next, and in the warm-up what the lock counts if it is one of ours.
    Meetings { ours: bool },
}

/// What a slice gave.
struct Slice {
    elapsed: Duration,
    /// CPU time of the process.
    cpu: Duration,
    meetings: u64,
    events: Vec<(&'static str, u64)>,
}

const WARM_UP: u8 = 0;
const RECORD: u8 = 1;
const STOP: u8 = 2;

struct Arena<W: Meeting, F: CondvarFamily> {
    monitor: F::Of<W::State>,
    work: W,
    phase: AtomicU8,
    start: Barrier,
    meetings: AtomicU64,
    times: Mutex<Histogram<u64>>,
}

impl<W: Meeting, F: CondvarFamily> Arena<W, F> {
    fn new(work: W, threads: usize) -> Self {
        Arena {
            monitor: Monitor::new(work.state(threads)),
            work,
            phase: AtomicU8::new(WARM_UP),
            start: Barrier::new(threads + 1),
            meetings: AtomicU64::new(0),
            times: Mutex::new(Histogram::new(2).expect("2 digits are supported")),
        }
    }

    /// Runs one slice.
    fn run(
        self: &Arc<Self>,
        watch: Watch,
        team: &Team,
        warm_up: Duration,
        slice: Duration,
    ) -> Slice {
        let members = Arc::clone(self);
        let job: Job = Arc::new(move |index| {
            members.start.wait();
            match index {
                0 => members.lead(watch != Watch::Nothing),
                _ => members.follow(),
            }
        });
        team.begin(&job);
        drop(job);
        self.start.wait();
        let ours = watch == Watch::Meetings { ours: true };
        let events = pause_and_count(warm_up, ours);
        self.phase.store(RECORD, Relaxed);
        let (begin, cpu, before) = (
            Instant::now(),
            process_cpu_time(),
            self.meetings.load(Relaxed),
        );
        pause(slice);
        let (elapsed, cpu) = (begin.elapsed(), process_cpu_time() - cpu);
        let after = self.meetings.load(Relaxed);
        self.phase.store(STOP, Relaxed);
        team.wait();
        Slice {
            elapsed,
            cpu,
            meetings: after - before,
            events,
        }
    }

    fn lead(&self, watch: bool) {
        let mut times = Histogram::<u64>::new(2).expect("2 digits are supported");
        let (mut done, mut last) = (0, Instant::now());
        loop {
            let phase = self.phase.load(Relaxed);
            self.work.lead(&self.monitor, phase == STOP);
            if phase == STOP {
                break;
            }
            done += 1;
            self.meetings.store(done, Release);
            if watch {
                let now = Instant::now();
                if phase == RECORD {
                    let nanos = (now - last).as_nanos() as u64;
                    times.record(nanos).expect("the histogram grows by itself");
                }
                last = now;
            }
        }
        *self.times.lock().unwrap_or_else(PoisonError::into_inner) = times;
    }

    fn follow(&self) {
        let mut n = 1;
        while self.work.follow(&self.monitor, n) {
            n += 1;
        }
    }
}
