//! A cache that several threads share. It keeps recent answers and evicts the least recently used.
//!
//! `cargo run --example lru_cache`

use kinlock::Mutex;
use lru::LruCache;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A look-up moves its entry to the front, so even readers write: a mutex, not a read-write lock.
struct Cache {
    entries: Mutex<LruCache<u64, u64>>,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Cache {
    fn new(capacity: NonZeroUsize) -> Self {
        Cache {
            entries: Mutex::new(LruCache::new(capacity)),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    fn get(&self, key: u64) -> u64 {
        if let Some(&value) = self.entries.lock().get(&key) {
            self.hits.fetch_add(1, Relaxed);
            return value;
        }
        self.misses.fetch_add(1, Relaxed);
        // Computed without the lock, so that other threads need not wait. Two threads may compute
        // the same value, which does no harm.
        let value = collatz_steps(key);
        self.entries.lock().put(key, value);
        value
    }
}

/// How many steps it takes from `n` to 1.
fn collatz_steps(n: u64) -> u64 {
    let next = |&n: &u64| match n {
        0 | 1 => None,
        n if n % 2 == 0 => Some(n / 2),
        n => Some(3 * n + 1),
    };
    std::iter::successors(Some(n), next).count() as u64 - 1
}

fn main() {
    const THREADS: u64 = 4;
    const LOOKUPS: u64 = 50_000;
    let capacity = NonZeroUsize::new(256).expect("not 0");

    let cache = Cache::new(capacity);
    std::thread::scope(|s| {
        for thread in 0..THREADS {
            let cache = &cache;
            s.spawn(move || {
                let mut random = thread + 1;
                for _ in 0..LOOKUPS {
                    // Small keys are more frequent than large ones.
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
                    let key = 1 + (random >> 33) % (1 + (random >> 43) % 600);
                    assert_eq!(cache.get(key), collatz_steps(key));
                }
            });
        }
    });

    let (hits, misses) = (cache.hits.into_inner(), cache.misses.into_inner());
    assert_eq!(hits + misses, THREADS * LOOKUPS);
    assert_eq!(cache.entries.lock().len(), capacity.get());
    assert!(hits > misses, "most look-ups must hit");
    println!("{hits} hits, {misses} misses");
}
