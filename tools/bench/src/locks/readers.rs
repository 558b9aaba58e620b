//! Readers and writers at one reader-writer lock.
//!
//! A round has two slices, as for other workloads. In the instrumented slice the threads read a
//! clock around the acquisitions of writers: such locks differ in the longest wait of a writer.

use std::time::Instant;

use crossbeam_utils::CachePadded;
use kinlock_measure::random::Random;

use super::Locks;
use super::contenders::{ReadWrite, with_read_write};
use super::round::{Measure, Watched, both_slices};
use super::work_loop::{self, ThinkTime};
use crate::harness::slice::{Sample, Slice};
use crate::harness::suite::Due;

/// The work of an operation under the lock, and outside of it, in nanoseconds.
const SECTION: f64 = 50.0;
const PRIVATE: f64 = 100.0;

/// A mix in which `percent` of a hundred operations read.
pub struct Readers {
    percent: u64,
    section: u64,
    think: ThinkTime,
}

impl Readers {
    pub fn new(percent: u64) -> Self {
        Self {
            percent,
            section: work_loop::iterations(SECTION),
            think: ThinkTime::of_ns(PRIVATE),
        }
    }
}

impl Measure for Readers {
    fn round(&mut self, due: &Due<Locks>) -> anyhow::Result<Sample<Watched>> {
        let sample = with_read_write!(*due.subject, Of => {
            let lock: CachePadded<Of<_>> = CachePadded::new(ReadWrite::new([0; 4]));
            let count = |slice: &Slice, index| {
                _ = self.run::<_, false>(&*lock, slice, index, due.seed);
            };
            let watch = |slice: &Slice, index| self.run::<_, true>(&*lock, slice, index, due.seed);
            both_slices(due, &count, &watch)
        });
        sample.expect("the suite leaves out locks without readers")
    }
}

impl Readers {
    /// The loop of a thread in a slice. With `WATCH` it notes how long it waited as a writer.
    fn run<L: ReadWrite<[u64; 4]>, const WATCH: bool>(
        &self,
        lock: &L,
        slice: &Slice,
        index: usize,
        seed: u64,
    ) -> Watched {
        let section = self.section;
        let mut watched = Watched::default();
        let mut rng = Random::stream(seed, index as u64);
        slice.repeat(index, || {
            self.think.pass(&mut rng);
            if rng.below(100) < self.percent {
                lock.read(|words| {
                    std::hint::black_box(words.iter().sum::<u64>());
                    work_loop::spin(section, &mut rng);
                });
            } else {
                let asked = WATCH.then(Instant::now);
                let waited = lock.write(|words| {
                    let waited = asked.map(|asked| asked.elapsed().as_nanos() as u64);
                    words.iter_mut().for_each(|word| *word += 1);
                    work_loop::spin(section, &mut rng);
                    waited
                });
                watched.note_in(slice, index, waited);
            }
            1
        });
        watched
    }
}
