//! Readers and writers at one reader-writer lock.
//!
//! A round has two slices, as for other workloads. In the instrumented one the threads read a clock
//! around the acquisitions of writers, whose longest wait is what such locks differ in.

use std::time::Instant;

use crossbeam_utils::CachePadded;
use kinlock_measure::random::Random;

use super::Locks;
use super::contenders::{ReadWrite, ReadWriteFamily, VisitReadWrite};
use super::round::{Measure, Watched, both_slices};
use super::work_loop::{self, ThinkTime};
use crate::harness::slice::{Part, Sample, Slice};
use crate::harness::suite::Due;

/// One mix: `percent` of a hundred operations read.
#[derive(Clone, Copy)]
pub struct Readers {
    pub percent: u64,
}

/// What an operation does under the lock, and what outside, in nanoseconds.
const SECTION: f64 = 50.0;
const PRIVATE: f64 = 100.0;

impl Measure for Readers {
    fn round(&mut self, due: &Due<Locks>) -> anyhow::Result<Sample<Watched>> {
        let percent = self.percent;
        let sample = due.subject.dispatch_read_write(Round { due, percent });
        sample.expect("the suite leaves out locks without readers")
    }
}

struct Round<'a> {
    due: &'a Due<'a, Locks>,
    percent: u64,
}

impl VisitReadWrite for Round<'_> {
    type Output = anyhow::Result<Sample<Watched>>;

    fn visit<F: ReadWriteFamily>(self) -> Self::Output {
        let arena = Arena::<F> {
            lock: CachePadded::new(F::Of::new([0; 4])),
            percent: self.percent,
            section: work_loop::iterations(SECTION),
            think: ThinkTime::of_ns(PRIVATE),
            seed: self.due.seed,
        };
        let count = |slice: &Slice, index| _ = arena.run::<false>(slice, index);
        both_slices(self.due, &count, &|slice, index| {
            arena.run::<true>(slice, index)
        })
    }
}

struct Arena<F: ReadWriteFamily> {
    lock: CachePadded<F::Of<[u64; 4]>>,
    percent: u64,
    section: u64,
    think: ThinkTime,
    seed: u64,
}

impl<F: ReadWriteFamily> Arena<F> {
    /// What a thread does in a slice. With `WATCH` it returns how long it waited as a writer.
    fn run<const WATCH: bool>(&self, slice: &Slice, index: usize) -> Watched {
        let mut watched = Watched::default();
        let mut rng = Random::stream(self.seed, index as u64);
        let mut done = 0;
        slice.start(index);
        while !slice.is_in(Part::Over) {
            self.think.pass(&mut rng);
            if rng.below(100) < self.percent {
                self.lock.read(|words| {
                    std::hint::black_box(words.iter().sum::<u64>());
                    work_loop::spin(self.section, &mut rng);
                });
            } else {
                let asked = WATCH.then(Instant::now);
                let waited = self.lock.write(|words| {
                    let waited = asked.map(|asked| asked.elapsed().as_nanos() as u64);
                    words.iter_mut().for_each(|word| *word += 1);
                    work_loop::spin(self.section, &mut rng);
                    waited
                });
                watched.note_in(slice, index, waited);
            }
            done += 1;
            slice.count(index, done);
        }
        watched
    }
}
