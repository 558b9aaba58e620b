//! Many objects, each with a lock of its own. There are hardly any waits. The cost depends on how
//! much of the caches the locks occupy, and on taking a lock that nobody has touched lately.

use std::time::Instant;

use kinlock_measure::random::Random;

use super::super::Locks;
use super::super::contenders::{Lock, with_lock};
use super::super::round::{Measure, Watched, both_slices};
use super::zipf::Zipf;
use crate::harness::slice::{Sample, Slice};
use crate::harness::suite::Due;

/// How many objects there are. With a lock of four bytes they take 1.6 MB, with one of 40 bytes
/// 4.8 MB.
const OBJECTS: u64 = 100_000;

pub struct Objects {
    keys: Zipf,
}

impl Objects {
    pub fn new() -> Self {
        Self {
            keys: Zipf::new(OBJECTS),
        }
    }
}

impl Measure for Objects {
    fn round(&mut self, due: &Due<Locks>) -> anyhow::Result<Sample<Watched>> {
        with_lock!(*due.subject, Of => {
            let objects: Vec<Of<u64>> = (0..OBJECTS).map(|_| Lock::new(0)).collect();
            let count = |slice: &Slice, index| {
                _ = self.change::<_, false>(&objects, slice, index, due.seed);
            };
            let watch = |slice: &Slice, index| {
                self.change::<_, true>(&objects, slice, index, due.seed)
            };
            both_slices(due, &count, &watch)
        })
    }
}

impl Objects {
    /// The loop of a thread in a slice. With `WATCH` it notes how long taking the locks took.
    fn change<L: Lock<u64>, const WATCH: bool>(
        &self,
        objects: &[L],
        slice: &Slice,
        index: usize,
        seed: u64,
    ) -> Watched {
        let mut watched = Watched::default();
        let mut rng = Random::stream(seed, index as u64);
        slice.repeat(index, || {
            let object = &objects[self.keys.draw(&mut rng) as usize];
            let asked = WATCH.then(Instant::now);
            let waited = object.with(|value| {
                let waited = asked.map(|asked| asked.elapsed().as_nanos() as u64);
                *value += 1;
                waited
            });
            watched.note_in(slice, index, waited);
            1
        });
        watched
    }
}
