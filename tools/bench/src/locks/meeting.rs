//! Threads that meet through one lock and its condition variables: each operation takes all of
//! them.
//!
//! A round has two slices, as for other workloads. In the instrumented one the leader reads a clock
//! at each meeting: a "wait" is then the time from one meeting to the next.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::contenders::{CondvarFamily, LockName, Monitor, VisitCondvar};
use super::round::{Measure, Watched, instrumented, timed};
use super::trace::Step;
use crate::harness::slice::{Part, Sample, Slice, Work};
use crate::harness::team::Team;

/// What the threads of a meeting do. Thread 0 leads.
pub trait Meeting: Copy + Send + Sync + 'static {
    type State: Send + 'static;

    fn state(self, threads: usize) -> Self::State;
    /// The leader's part of one meeting; with `stop` the last one, which sends the others home.
    fn lead<M: Monitor<Self::State>>(self, monitor: &M, stop: bool);
    /// Another thread's part of meeting number `n`, from 1. `false`: it was the last.
    fn follow<M: Monitor<Self::State>>(self, monitor: &M, n: u64) -> bool;
}

/// A meeting that can be measured under any lock that has a condition variable.
pub struct Meet<W>(pub W);

impl<W: Meeting> Measure for Meet<W> {
    fn round(&mut self, lock: LockName, team: &Team, seconds: f64, _: u64) -> Sample<Watched> {
        let round = Round {
            ours: lock.is_ours(),
            work: self.0,
            team,
            seconds,
        };
        let sample = lock.dispatch_condvar(round);
        sample.expect("the suite leaves out locks without a condition variable")
    }
}

struct Round<'a, W> {
    ours: bool,
    work: W,
    team: &'a Team,
    seconds: f64,
}

impl<W: Meeting> VisitCondvar for Round<'_, W> {
    type Output = Sample<Watched>;

    fn visit<F: CondvarFamily>(self) -> Sample<Watched> {
        let Self { team, seconds, .. } = self;
        let arena = || Arc::new(Arena::<W, F>::new(self.work, team.size()));
        let members = arena();
        let work: Work = Box::new(move |slice, index| match index {
            0 => members.lead(slice, false),
            _ => members.follow(slice, index),
        });
        let mut sample = timed(team, seconds, work);
        // Everybody has a part in each operation; the leader counts them.
        sample.ops.truncate(1);
        let watched = arena();
        let members = Arc::clone(&watched);
        let work: Work = Box::new(move |slice, index| match index {
            0 => members.lead(slice, true),
            _ => members.follow(slice, index),
        });
        let events = instrumented(team, seconds, self.ours, work);
        let times = watched.times.lock();
        let times = times.unwrap_or_else(PoisonError::into_inner).clone();
        sample.with(Watched { events, ..times })
    }
}

struct Arena<W: Meeting, F: CondvarFamily> {
    monitor: F::Of<W::State>,
    work: W,
    times: Mutex<Watched>,
}

impl<W: Meeting, F: CondvarFamily> Arena<W, F> {
    fn new(work: W, threads: usize) -> Self {
        Arena {
            monitor: Monitor::new(work.state(threads)),
            work,
            times: Mutex::new(Watched::default()),
        }
    }

    fn lead(&self, slice: &Slice, watch: bool) {
        let mut times = Watched::default();
        slice.start(0);
        let (mut done, mut last) = (0, Instant::now());
        loop {
            let is_recorded = slice.is_in(Part::Recorded);
            let stop = slice.is_in(Part::Over);
            self.work.lead(&self.monitor, stop);
            if stop {
                break;
            }
            done += 1;
            slice.count(0, done);
            if watch {
                let now = Instant::now();
                if is_recorded {
                    times.note((now - last).as_nanos() as u64, Step::First);
                }
                last = now;
            }
        }
        *self.times.lock().unwrap_or_else(PoisonError::into_inner) = times;
    }

    fn follow(&self, slice: &Slice, index: usize) {
        slice.start(index);
        let mut n = 1;
        while self.work.follow(&self.monitor, n) {
            n += 1;
        }
    }
}
