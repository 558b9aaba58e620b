//! Many objects, each with a lock of its own. Few of the locks are ever waited for; what counts is
//! how much of the caches the locks take up, and what a lock costs that nobody has touched lately.

use std::sync::Arc;
use std::time::Instant;

use kinlock_measure::random::Random;

use super::super::contenders::{Family, Lock, LockName, Visit};
use super::super::round::{Loop, Measure, Watched, both_slices};
use super::zipf::Zipf;
use crate::harness::slice::{Part, Sample, Slice};
use crate::harness::team::Team;

/// How many objects there are. With a lock of four bytes they take 1.6 MB, with one of 40 bytes
/// 4.8 MB.
const OBJECTS: u64 = 100_000;

pub struct Objects {
    keys: Arc<Zipf>,
}

impl Objects {
    pub fn new() -> Self {
        Self {
            keys: Arc::new(Zipf::new(OBJECTS)),
        }
    }
}

impl Measure for Objects {
    fn round(&mut self, lock: LockName, team: &Team, seconds: f64, seed: u64) -> Sample<Watched> {
        lock.dispatch(Round {
            ours: lock.is_ours(),
            keys: Arc::clone(&self.keys),
            team,
            seconds,
            seed,
        })
    }
}

struct Round<'a> {
    ours: bool,
    keys: Arc<Zipf>,
    team: &'a Team,
    seconds: f64,
    seed: u64,
}

impl Visit for Round<'_> {
    type Output = Sample<Watched>;

    fn visit<F: Family>(self) -> Sample<Watched> {
        let arena = Arena::<F>::new(self.keys, self.seed);
        both_slices(self.team, self.seconds, self.ours, arena)
    }
}

struct Arena<F: Family> {
    objects: Box<[F::Of<u64>]>,
    keys: Arc<Zipf>,
    seed: u64,
}

impl<F: Family> Arena<F> {
    fn new(keys: Arc<Zipf>, seed: u64) -> Self {
        Self {
            objects: (0..OBJECTS).map(|_| Lock::new(0)).collect(),
            keys,
            seed,
        }
    }

    /// One operation; with `WATCH` it returns how long the lock took to come, in nanoseconds.
    #[inline(always)]
    fn change_one<const WATCH: bool>(&self, rng: &mut Random) -> Option<u64> {
        let object = &self.objects[self.keys.draw(rng) as usize];
        let asked = WATCH.then(Instant::now);
        object.with(|value| {
            let waited = asked.map(|asked| asked.elapsed().as_nanos() as u64);
            *value += 1;
            waited
        })
    }
}

impl<F: Family> Loop for Arena<F> {
    fn run<const WATCH: bool>(&self, slice: &Slice, index: usize) -> Watched {
        let mut watched = Watched::default();
        let mut rng = Random::stream(self.seed, index as u64);
        let mut done = 0;
        slice.start(index);
        while !slice.is_in(Part::Over) {
            let waited = self.change_one::<WATCH>(&mut rng);
            watched.note_in(slice, index, waited);
            done += 1;
            slice.count(index, done);
        }
        watched
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_changes_one_object_and_all_objects_are_asked_for() {
        struct Ask;
        impl Visit for Ask {
            type Output = (u64, usize);

            fn visit<F: Family>(self) -> (u64, usize) {
                let arena = Arena::<F>::new(Objects::new().keys, 1);
                let mut rng = Random::stream(1, 1);
                assert!((0..500_000).all(|_| arena.change_one::<false>(&mut rng).is_none()));
                assert!(arena.change_one::<true>(&mut rng).is_some());
                let values = arena.objects.into_iter().map(Lock::into_inner);
                let values: Vec<u64> = values.collect();
                let seldom = values.iter().filter(|&&value| value == 0).count();
                (values.iter().sum(), seldom)
            }
        }
        let (changes, untouched) = LockName::StdMutex.dispatch(Ask);
        assert_eq!(changes, 500_001);
        // The least popular object is asked for 0.4 times on average.
        assert!(untouched < OBJECTS as usize / 2, "{untouched}");
    }
}
