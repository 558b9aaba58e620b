//! Stacks and pools through the public API, with both backends.
#![cfg(not(loom))]

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Barrier, Mutex};

use kinlock_ids::{Pool, Stack};

mod common;

use common::{THREADS, crew, domains};

#[test]
fn what_is_pushed_is_popped_once() {
    for domain in domains() {
        let stack = Stack::new(&domain).unwrap();
        let popped = Mutex::new(Vec::new());
        crew(|me| {
            let mut mine = Vec::new();
            for i in 0..5_000 {
                stack.push(Box::new(me * 1_000_000 + i));
                if i % 3 != 0 {
                    mine.extend(stack.pop());
                }
            }
            popped.lock().unwrap().append(&mut mine);
        });
        let mut all = popped.into_inner().unwrap();
        all.extend(std::iter::from_fn(|| stack.pop()));
        let distinct: HashSet<_> = all.iter().map(|value| **value).collect();
        assert_eq!(
            (all.len(), distinct.len()),
            (THREADS * 5_000, THREADS * 5_000),
            "{domain:?}"
        );
    }
}

#[test]
fn a_stack_drops_what_is_left() {
    struct Counted<'a>(&'a AtomicU64);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
        }
    }
    for domain in domains() {
        let dropped = AtomicU64::new(0);
        let stack = Stack::new(&domain).unwrap();
        (0..100).for_each(|_| stack.push(Counted(&dropped)));
        drop(stack.pop());
        drop(stack);
        assert_eq!(dropped.into_inner(), 100);
    }
}

#[test]
fn a_thread_pops_what_another_has_pushed() {
    for domain in domains() {
        let stack = Stack::new(&domain).unwrap();
        // The consumer usually runs with another ID than the producer. Then stealing is the only
        // way.
        let all_there = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..100).for_each(|i| stack.push(i));
                all_there.wait();
            });
            all_there.wait();
            let popped: HashSet<i32> = std::iter::from_fn(|| stack.pop()).collect();
            assert_eq!(popped.len(), 100, "{domain:?}");
        });
    }
}

#[test]
fn a_pool_holds_as_many_as_it_says_and_says_when_it_is_full() {
    for domain in domains() {
        let pool = Pool::new(&domain, 100).unwrap();
        for _ in 0..3 {
            let mut objects: Vec<_> = (0..100).map(|i| pool.insert(i).unwrap()).collect();
            assert_eq!(pool.insert(100).unwrap_err().0, 100);
            objects.iter_mut().for_each(|object| **object += 1);
            assert!(objects.iter().map(|object| **object).eq(1..101));
            let places: HashSet<_> = objects.iter().map(|object| &raw const **object).collect();
            assert_eq!(places.len(), 100);
        }
    }
}

#[test]
fn a_growing_pool_is_never_full() {
    for domain in domains() {
        let pool = Pool::growing(&domain).unwrap();
        assert_eq!(pool.capacity(), 0, "nothing is allocated unasked");
        for _ in 0..3 {
            let objects: Vec<_> = (0..10_000).map(|i| pool.insert(i).unwrap()).collect();
            let places: HashSet<_> = objects.iter().map(|object| &raw const **object).collect();
            assert_eq!(places.len(), 10_000);
            assert!(objects.iter().map(|object| **object).eq(0..10_000));
        }
        // Places that were freed were used again.
        assert!(pool.capacity() < 30_000, "{} {domain:?}", pool.capacity());
    }
}

#[test]
fn objects_may_be_freed_by_other_threads() {
    for domain in domains() {
        let pool = Pool::new(&domain, 4_000).unwrap();
        let exchange = Mutex::new(Vec::new());
        let failed = AtomicU64::new(0);
        crew(|me| {
            for i in 0..10_000usize {
                match pool.insert([me, i]) {
                    Ok(object) => exchange.lock().unwrap().push(object),
                    Err(_) => drop(failed.fetch_add(1, Relaxed)),
                }
                if i % 100 > 50 {
                    let other = exchange.lock().unwrap().pop();
                    assert!(other.is_none_or(|other| other[0] < THREADS && other[1] < 10_000));
                } else if i % 1000 == 0 {
                    exchange.lock().unwrap().clear();
                }
            }
        });
        drop(exchange);
        let objects: Vec<_> = (0..4_000).map_while(|i| pool.insert([i, i]).ok()).collect();
        assert_eq!(objects.len(), 4_000, "places were lost: {domain:?}");
    }
}
