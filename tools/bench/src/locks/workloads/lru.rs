//! A cache that drops the least recently used entry. Even a hit writes to it, so a reader-writer
//! lock would not help.

use std::hint::black_box;
use std::num::NonZeroUsize;

use ::lru::LruCache;
use kinlock_measure::random::Random;

use super::Request;
use super::zipf::Zipf;
use crate::locks::round::Workload;

/// The number of different keys that requests ask for.
const KEYS: u64 = 1_000_000;
/// The number of entries that the cache holds. With this many, about two requests of three hit.
const CAPACITY: NonZeroUsize = NonZeroUsize::new(50_000).unwrap();

pub struct Lru {
    keys: Zipf,
}

impl Lru {
    pub fn new() -> Self {
        Self {
            keys: Zipf::new(KEYS),
        }
    }
}

impl Workload for Lru {
    type Shared = LruCache<u64, u64>;
    type Local = Request;

    /// A full cache, in the state in which a long run of requests leaves it.
    fn shared(&self) -> LruCache<u64, u64> {
        let mut cache = LruCache::new(CAPACITY);
        let mut request = self.local(Random::stream(0, 0));
        for _ in 0..10 * CAPACITY.get() {
            self.think(&mut request);
            self.section(&mut cache, &mut request);
        }
        cache
    }

    fn local(&self, rng: Random) -> Request {
        Request::new(rng)
    }

    #[inline(always)]
    fn think(&self, request: &mut Request) {
        request.key = self.keys.draw(&mut request.rng);
    }

    /// Not inlined: one copy for all locks takes the same time under each, and is compiled once.
    #[inline(never)]
    fn section(&self, cache: &mut LruCache<u64, u64>, request: &mut Request) {
        let key = request.key;
        black_box(*cache.get_or_insert_mut(key, || key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_two_requests_of_three_hit() {
        let work = Lru::new();
        let cache = work.shared();
        assert_eq!(cache.len(), CAPACITY.get());
        let mut request = work.local(Random::stream(5, 5));
        let hits = (0..20_000)
            .filter(|_| {
                work.think(&mut request);
                cache.contains(&request.key)
            })
            .count();
        assert!((12_000..16_000).contains(&hits), "{hits}");
    }
}
