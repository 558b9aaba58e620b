//! Threads that meet through one lock and its condition variables: each operation takes all of
//! them.
//!
//! A round has two slices, as for other workloads. In the instrumented slice the leader reads a
//! clock at each meeting, and a "wait" is the time from one meeting to the next.

use std::time::Instant;

use crossbeam_utils::CachePadded;

use super::Locks;
use super::contenders::{Monitor, with_condvar};
use super::round::{Measure, Watched, both_slices};
use super::trace::Step;
use crate::harness::slice::{Part, Sample, Slice};
use crate::harness::suite::Due;

/// The work of the threads of a meeting. Thread 0 leads.
pub trait Meeting: Copy + Send + Sync + 'static {
    type State: Send + 'static;

    fn state(self, threads: usize) -> Self::State;
    /// The leader's part of one meeting. `stop`: it is the last one, and ends the others' work.
    fn lead<M: Monitor<Self::State>>(self, monitor: &M, stop: bool);
    /// Another thread's part of meeting number `n`, from 1. `false`: it was the last.
    fn follow<M: Monitor<Self::State>>(self, monitor: &M, n: u64) -> bool;
}

/// A meeting that can be measured under any lock that has a condition variable.
pub struct Meet<W>(pub W);

impl<W: Meeting> Measure for Meet<W> {
    fn round(&mut self, due: &Due<Locks>) -> anyhow::Result<Sample<Watched>> {
        let sample = with_condvar!(*due.subject, Of => round::<W, Of<W::State>>(self.0, due));
        sample.expect("the suite leaves out locks without a condition variable")
    }
}

fn round<W, M>(work: W, due: &Due<Locks>) -> anyhow::Result<Sample<Watched>>
where
    W: Meeting,
    M: Monitor<W::State>,
{
    // Each slice has its own state, since the last meeting ends the work of all threads.
    let new = || CachePadded::new(M::new(work.state(due.team.size())));
    let (first, second) = (new(), new());
    let count = |slice: &Slice, index| match index {
        0 => _ = lead::<_, _, false>(work, &*first, slice),
        _ => follow(work, &*first, slice, index),
    };
    let watch = |slice: &Slice, index| match index {
        0 => lead::<_, _, true>(work, &*second, slice),
        _ => {
            follow(work, &*second, slice, index);
            Watched::default()
        }
    };
    let mut sample = both_slices(due, &count, &watch)?;
    // All threads take part in each operation, so only the leader's count remains.
    sample.ops.truncate(1);
    Ok(sample)
}

fn lead<W, M, const WATCH: bool>(work: W, monitor: &M, slice: &Slice) -> Watched
where
    W: Meeting,
    M: Monitor<W::State>,
{
    let mut times = Watched::default();
    slice.start(0);
    let (mut done, mut last) = (0, Instant::now());
    loop {
        let is_recorded = slice.is_in(Part::Recorded);
        let stop = slice.is_in(Part::Over);
        work.lead(monitor, stop);
        if stop {
            return times;
        }
        done += 1;
        slice.count(0, done);
        if WATCH {
            let now = Instant::now();
            if is_recorded {
                times.note((now - last).as_nanos() as u64, Step::First);
            }
            last = now;
        }
    }
}

fn follow<W, M>(work: W, monitor: &M, slice: &Slice, index: usize)
where
    W: Meeting,
    M: Monitor<W::State>,
{
    slice.start(index);
    let mut n = 1;
    while work.follow(monitor, n) {
        n += 1;
    }
}
