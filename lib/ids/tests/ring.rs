//! Rings through the public API, with both backends.
#![cfg(not(loom))]

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};

use kinlock_ids::{BuildError, CounterArray, Domain, Ring};

mod common;

use common::{THREADS, crew, domains, leases};

#[test]
fn a_ring_gives_each_value_once_and_in_order() {
    for domain in domains() {
        let ring = Ring::new(&domain, 100).unwrap();
        assert_eq!(ring.capacity(), 128);
        let popped = Mutex::new(Vec::new());
        let full = AtomicU64::new(0);
        crew(|me| {
            let mut mine = Vec::new();
            for i in 0..5_000 {
                if ring.push(Box::new((me, i))).is_err() {
                    full.fetch_add(1, Relaxed);
                }
                match i % 100 {
                    0 => mine.extend(ring.steal()),
                    50 => mine.extend(ring.drain()),
                    _ if i % 3 == 0 => {}
                    _ => mine.extend(ring.pop()),
                }
            }
            popped.lock().unwrap().append(&mut mine);
        });
        let mut all = popped.into_inner().unwrap();
        all.extend(ring.drain());
        assert!(ring.pop().is_none() && ring.steal().is_empty());
        let distinct: HashSet<_> = all.iter().map(|value| **value).collect();
        let pushed = THREADS * 5_000 - full.into_inner() as usize;
        assert_eq!((all.len(), distinct.len()), (pushed, pushed), "{domain:?}");
    }
}

#[test]
fn a_ring_is_bounded_and_what_is_left_is_dropped() {
    for domain in domains() {
        for values in [3, 8] {
            let ring = Ring::new(&domain, 8).unwrap();
            let value = Arc::new(());
            // The thread may get another ID meanwhile: then there is room in that one's ring.
            let most = 8 * domain.max_ids() as usize;
            let refused = (0..=most).find(|_| ring.push(Arc::clone(&value)).is_err());
            assert!(refused.is_some_and(|pushed| pushed >= 8), "{domain:?}");
            let drained = ring.drain();
            assert_eq!(drained.len(), refused.unwrap());
            (0..values).for_each(|_| assert!(ring.push(Arc::clone(&value)).is_ok()));
            drop((ring, drained));
            assert_eq!(Arc::strong_count(&value), 1);
        }
        // The memory comes back zeroed.
        let counters = CounterArray::new(&domain, 33).unwrap();
        assert_eq!(counters.sums(), [0; 33]);
    }
}

#[test]
fn other_threads_drain_a_ring_in_order() {
    for domain in domains() {
        let ring = Ring::new(&domain, 1 << 12).unwrap();
        let done = AtomicBool::new(false);
        let seen = std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..4_000u64).for_each(|i| assert!(ring.push([i; 9]).is_ok()));
                done.store(true, Release);
            });
            let mut seen = Vec::new();
            while !done.load(Acquire) {
                let part = ring.drain();
                // One producer: an ID's values ascend, and each is whole.
                let breaks = part.windows(2).filter(|pair| pair[0] > pair[1]).count();
                assert!(breaks <= domain.max_ids() as usize);
                assert!(
                    part.iter()
                        .all(|value| value.iter().all(|&word| word == value[0]))
                );
                seen.extend(part);
            }
            seen.extend(ring.drain());
            seen
        });
        let distinct: HashSet<_> = seen.iter().map(|value| value[0]).collect();
        assert_eq!((seen.len(), distinct.len()), (4_000, 4_000), "{domain:?}");
    }
}

#[test]
fn rings_of_odd_values_and_sizes() {
    let domain = leases(32);
    let ring = Ring::new(&domain, 0).unwrap();
    assert!(ring.capacity() == 1 && ring.push(()).is_ok() && ring.push(()).is_err());
    #[repr(align(256))]
    #[derive(Debug)]
    struct Wide;
    assert_eq!(
        Ring::<Wide>::new(&domain, 1).unwrap_err(),
        BuildError::Memory
    );
    assert_eq!(
        Ring::<u64>::new(&domain, usize::MAX).unwrap_err(),
        BuildError::Memory
    );
    assert_eq!(
        Ring::<u64>::new(&domain, 1 << 62).unwrap_err(),
        BuildError::Memory
    );
    // Threads without an ID share a queue.
    let held: Vec<_> = std::iter::from_fn(|| domain.enter().ok()).collect();
    let ring = Ring::new(&domain, 2).unwrap();
    assert!(ring.push(1).is_ok() && ring.push(2).is_ok() && ring.push(3).is_err());
    assert_eq!(
        (ring.pop(), ring.steal(), ring.pop()),
        (Some(1), vec![2], None)
    );
    drop(held);
}

#[test]
fn a_ring_may_be_larger_than_128_kibibytes_of_an_id() {
    const VALUES: u64 = 40_000;
    let ring = Ring::new(&Domain::auto(), VALUES as usize).unwrap();
    assert_eq!(ring.capacity(), 65_536);
    std::thread::scope(|s| {
        for _ in 0..2 {
            // The ring may have the values of both: then some do not fit.
            s.spawn(|| {
                (0..VALUES)
                    .filter(|&value| ring.push(value).is_ok())
                    .count()
            });
        }
    });
    let first = ring.pop();
    assert!(first.is_none_or(|value| value < VALUES));
    let left = ring.drain();
    assert!(left.len() >= VALUES as usize - 1 && left.iter().all(|&value| value < VALUES));
}
