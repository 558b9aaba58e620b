//! A bounded queue: producers wait while it is full, consumers while it is empty.
//!
//! `cargo run --example bounded_queue`

use kinlock::{Condvar, Mutex};
use std::collections::VecDeque;

/// One mutex, and a condition variable for each of the two conditions, so that a notification never
/// reaches a waiter of the other kind.
struct BoundedQueue<T> {
    items: Mutex<VecDeque<T>>,
    capacity: usize,
    not_empty: Condvar,
    not_full: Condvar,
}

impl<T> BoundedQueue<T> {
    fn new(capacity: usize) -> Self {
        BoundedQueue {
            items: Mutex::new(VecDeque::with_capacity(capacity)),
            capacity,
            not_empty: Condvar::new(),
            not_full: Condvar::new(),
        }
    }

    fn push(&self, item: T) {
        let mut items = self.items.lock();
        self.not_full
            .wait_while(&mut items, |items| items.len() == self.capacity);
        items.push_back(item);
        // The woken thread then finds the mutex free.
        drop(items);
        self.not_empty.notify_one();
    }

    fn pop(&self) -> T {
        let mut items = self.items.lock();
        self.not_empty
            .wait_while(&mut items, |items| items.is_empty());
        let item = items.pop_front().expect("it is not empty");
        drop(items);
        self.not_full.notify_one();
        item
    }
}

fn main() {
    const PRODUCERS: u64 = 3;
    const CONSUMERS: u64 = 4;
    const EACH: u64 = 10_000;

    let queue = BoundedQueue::new(16);
    let sum = Mutex::new(0);
    std::thread::scope(|s| {
        for _ in 0..CONSUMERS {
            s.spawn(|| {
                // `None` marks the end.
                let own: u64 = std::iter::from_fn(|| queue.pop()).sum();
                *sum.lock() += own;
            });
        }
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|p| {
                let queue = &queue;
                s.spawn(move || (0..EACH).for_each(|i| queue.push(Some(p * EACH + i))))
            })
            .collect();
        for producer in producers {
            producer.join().expect("producers do not panic");
        }
        (0..CONSUMERS).for_each(|_| queue.push(None));
    });

    let all = PRODUCERS * EACH;
    assert_eq!(sum.into_inner(), all * (all - 1) / 2);
    println!("{PRODUCERS} producers gave {all} numbers to {CONSUMERS} consumers, none was lost");
}
