//! Concurrency IDs through the public API, with both backends. Tests that need a process of their
//! own (sandboxes, other C libraries) are in `kinlock-verify/tests/ids.rs`.
//!
//! # Invariants
//!
//! 1. The child of a fork only checks, and ends by `_exit`.
//! 2. System calls get a live local.
#![cfg(not(loom))]

use std::cell::Cell;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use kinlock_ids::{
    Backend, BuildError, Counter, CounterArray, Domain, EnterError, Histogram, PerId,
};

mod common;

use common::{THREADS, crew, domains, leases};

/// Whether `condition` becomes true within some seconds.
fn soon(mut condition: impl FnMut() -> bool) -> bool {
    (0..5_000).any(|_| {
        condition() || {
            std::thread::sleep(std::time::Duration::from_millis(1));
            false
        }
    })
}

#[test]
fn counters_in_an_array_do_not_mix() {
    for domain in domains() {
        let counters = CounterArray::new(&domain, 33).unwrap();
        crew(|me| {
            for i in 0..20_000 {
                counters.add((i + me) % 33, i as u64);
            }
        });
        let mut expected = [0; 33];
        for i in 0..THREADS * 20_000 {
            expected[(i % 20_000 + i / 20_000) % 33] += (i % 20_000) as u64;
        }
        assert_eq!(counters.sums(), expected, "{domain:?}");
        drop(counters);
        // The memory comes back zeroed.
        let again = CounterArray::new(&domain, 33).unwrap();
        assert_eq!(again.sums(), [0; 33]);
    }
}

#[test]
#[should_panic(expected = "no such counter")]
fn there_is_no_counter_behind_the_last() {
    let counters = CounterArray::new(&leases(32), 3).unwrap();
    counters.add(3, 1);
}

#[test]
fn a_histogram_counts_each_value_once() {
    for domain in domains() {
        let histogram = Histogram::new(&domain, &[100, 10, 10]).unwrap();
        crew(|_| (0..1_000).for_each(|value| histogram.record(value)));
        assert_eq!(histogram.bounds(), [10, 100]);
        assert_eq!(histogram.counts(), [88, 720, 7192], "{domain:?}");
        assert_eq!(histogram.sum(), 8 * 499_500);
    }
}

#[test]
fn a_lease_of_another_domain_adds_all_the_same() {
    let (domain, other) = (leases(32), leases(32));
    let counter = Counter::new(&domain).unwrap();
    let (own, foreign) = (domain.enter().unwrap(), other.enter().unwrap());
    counter.add_with(&own, 1);
    counter.add_with(&foreign, 10);
    assert_eq!(counter.sum(), 11);
    assert!(own.is_of(&domain) && !own.is_of(&other));
}

#[test]
fn an_id_has_one_holder_at_a_time() {
    for domain in domains()
        .into_iter()
        .filter(|domain| domain.backend() == Backend::Lease)
    {
        let taken: Vec<_> = (0..domain.max_ids())
            .map(|_| AtomicBool::new(false))
            .collect();
        crew(|me| {
            for i in 0..5_000 {
                let lease = domain.enter().unwrap();
                let mine = &taken[lease.id() as usize];
                assert!(!mine.swap(true, Relaxed), "{} has two holders", lease.id());
                if (i + me) % 64 == 0 {
                    std::thread::yield_now();
                }
                mine.store(false, Relaxed);
            }
        });
        // A scope does not wait for the destructors of keys.
        assert!(
            soon(|| domain.members() == Some(0)),
            "threads leave when they end"
        );
    }
}

#[test]
fn when_all_ids_are_held_that_is_an_error() {
    let domain = leases(32);
    let mut held: Vec<_> = (0..domain.max_ids())
        .map(|_| domain.enter().unwrap())
        .collect();
    assert_eq!(domain.enter().unwrap_err(), EnterError::Exhausted);
    let counter = Counter::new(&domain).unwrap();
    counter.add(3);
    assert_eq!(counter.sum(), 3, "it adds without an ID");
    let free = held.pop().map(|lease| lease.id());
    assert_eq!(domain.enter().ok().map(|lease| lease.id()), free);
}

#[test]
fn a_restartable_domain_has_nothing_to_hold_nor_to_choose() {
    if Backend::Restartable.available().is_err() {
        return;
    }
    let builder = || Domain::builder().backend(Backend::Restartable);
    let domain = builder().build().unwrap();
    assert_eq!(domain.enter().unwrap_err(), EnterError::NothingToHold);
    assert!(domain.momentary_id().unwrap() < domain.max_ids());
    assert_eq!(domain.limit(), None);
    let refused = builder().max_ids(32).build();
    assert_eq!(refused.unwrap_err(), BuildError::KernelDecides);
    assert_eq!(Domain::auto().backend(), Backend::Restartable);
}

#[test]
fn impossible_numbers_of_ids_are_refused() {
    for max_ids in [0, u32::MAX] {
        let refused = Domain::builder().max_ids(max_ids).build();
        assert_eq!(refused.unwrap_err(), BuildError::MaxIds(max_ids));
    }
}

#[test]
fn every_id_has_its_own_value_that_outlives_its_holders() {
    let domain = leases(64);
    let made = AtomicU64::new(0);
    let made: &'static AtomicU64 = Box::leak(Box::new(made));
    let values = PerId::new(&domain, || {
        made.fetch_add(1, Relaxed);
        Cell::new(0u64)
    });
    let mut values = values.unwrap();
    crew(|_| {
        for _ in 0..1_000 {
            let lease = domain.enter().unwrap();
            let value = values.get(&lease);
            value.set(value.get() + 1);
        }
    });
    let sum: u64 = values.values_mut().map(|value| value.get()).sum();
    assert_eq!(sum, THREADS as u64 * 1_000);
    assert_eq!(values.values_mut().count() as u64, made.load(Relaxed));
    assert_eq!(values.into_values().count() as u64, made.load(Relaxed));
}

#[test]
fn a_thread_has_a_value_to_itself_whatever_the_backend() {
    for domain in domains() {
        // Two words that are equal unless two threads have the value at the same time.
        let values = PerId::new(&domain, || (Cell::new(0u64), Cell::new(0u64))).unwrap();
        crew(|me| {
            for i in 0..5_000 {
                values.with(|(first, second)| {
                    first.set(first.get() + 1);
                    // Some threads are preempted here, and others run with the same ID.
                    if (i + me) % 64 == 0 {
                        std::thread::yield_now();
                    }
                    second.set(second.get() + 1);
                    assert_eq!(first, second);
                });
            }
        });
        let sum: u64 = values.into_values().map(|(first, _)| first.get()).sum();
        assert_eq!(sum, THREADS as u64 * 5_000, "{domain:?}");
    }
}

#[test]
fn a_nested_call_has_another_value_and_a_panic_leaves_none_behind() {
    for domain in domains() {
        let values = PerId::new(&domain, || AtomicU64::new(0)).unwrap();
        values.with(|outer| values.with(|inner| assert!(!core::ptr::eq(outer, inner))));
        let panics = std::panic::AssertUnwindSafe(|| values.with(|_| panic!("on purpose")));
        assert!(std::panic::catch_unwind(panics).is_err());
        let mut made = 0;
        values.for_each(|_| made += 1);
        for _ in 0..100 {
            values.with(|value| value.fetch_add(1, Relaxed));
            values.with(|_| values.with(|value| value.fetch_add(1, Relaxed)));
        }
        let (mut sum, mut count) = (0, 0);
        values.for_each(|value| {
            sum += value.load(Relaxed);
            count += 1;
        });
        assert_eq!(sum, 200);
        assert!(made >= 2 && count <= made + 4, "{made} {count} {domain:?}");
    }
}

#[test]
#[should_panic(expected = "a lease of another domain")]
fn a_value_is_not_had_with_another_domains_lease() {
    let (domain, other) = (leases(32), leases(32));
    let values = PerId::new(&domain, || 0).unwrap();
    values.get(&other.enter().unwrap());
}

#[test]
#[cfg(not(miri))]
fn a_child_has_the_leases_of_the_thread_that_forked_and_no_others() {
    let domain = leases(32);
    let counter = Counter::new(&domain).unwrap();
    counter.add(5);
    let mine = domain.enter().unwrap();
    let (taken, done) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let others: Vec<_> = (1..domain.max_ids())
                .map(|_| domain.enter().unwrap())
                .collect();
            taken.wait();
            done.wait();
            drop(others);
        });
        taken.wait();
        assert_eq!(domain.enter().unwrap_err(), EnterError::Exhausted);
        let right = in_a_child(|| {
            let free: Vec<_> = std::iter::from_fn(|| domain.enter().ok()).collect();
            let distinct = free.iter().all(|lease| lease.id() != mine.id());
            counter.add(1);
            free.len() == domain.max_ids() as usize - 1
                && distinct
                && counter.sum() == 6
                && domain.members() == Some(1)
        });
        assert!(right, "the child found something else");
        done.wait();
    });
    assert_eq!(counter.sum(), 5);
}

/// Runs `body` in a forked child, for at most five minutes. Returns whether `body` returned true.
#[cfg(not(miri))]
fn in_a_child(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: invariant 1.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: invariant 1. If it hangs, the default action of the signal ends it.
        unsafe { libc::alarm(300) };
        let code = if body() { 0 } else { 1 };
        // SAFETY: invariant 1.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: invariant 2.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    waited == child && status == 0
}

#[test]
#[cfg(not(miri))]
fn structures_come_and_go_in_a_child_that_was_forked_while_others_made_some() {
    for domain in [leases(32), Domain::auto()] {
        let inherited: Vec<_> = (0..200).map(|_| Counter::new(&domain).unwrap()).collect();
        let done = AtomicBool::new(false);
        let failed = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    drop(Counter::new(&domain).unwrap());
                }
            });
            let failed = inherited.into_iter().position(|counter| {
                !in_a_child(|| {
                    let made = Counter::new(&domain).unwrap();
                    made.add(2);
                    drop(counter);
                    made.sum() == 2
                })
            });
            done.store(true, Relaxed);
            failed
        });
        assert_eq!(failed, None, "{domain:?}");
    }
}

#[test]
#[cfg(not(miri))]
fn a_domain_without_memory_is_an_error() {
    let right = in_a_child(|| {
        // The first number is the size in pages. The limit leaves less than the memory of 2^23
        // IDs needs.
        let sizes = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = sizes.split(' ').next().unwrap().parse().unwrap();
        let most = pages * 4096 + (256 << 20);
        let limit = libc::rlimit {
            rlim_cur: most,
            rlim_max: most,
        };
        // SAFETY: invariant 2, of a limit.
        let limited = unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) } == 0;
        let many = Domain::builder().max_ids(1 << 23);
        limited && matches!(many.build(), Err(BuildError::Memory))
    });
    assert!(right);
}

#[test]
fn names_of_backends_are_read_as_they_are_written() {
    for backend in Backend::ALL {
        assert_eq!(backend.to_string().parse(), Ok(backend));
    }
    assert!("fifo".parse::<Backend>().is_err());
}
