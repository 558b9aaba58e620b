//! Loom models of the spinlock: small scenarios in every interleaving with a bounded number of
//! preemptions, and with every value that a weakly ordered load may return.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p kinlock-core --test loom_spin -- --nocapture`
//!
//! Each model prints how many executions it explored.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. The lock guards the cell. If it is broken, loom reports the access before it happens.
#![cfg(loom)]

mod model;

use kinlock_core::config::{LocalLimit, Tuning};
use kinlock_core::loom::{Loom, set_domain, set_oversubscribed};
use kinlock_core::platform::Platform;
use kinlock_core::raw::{LockConfig, QueuedSpinLock};
use loom::cell::UnsafeCell;

/// A configuration, and the platform of its locks.
trait Model: LockConfig {
    type On: Platform;
}

macro_rules! config {
    ($name:ident: pending $pending:literal, park $park:literal, reorder $reorder:literal,
     steal $steal:literal) => {
        #[derive(Clone, Copy, Debug)]
        struct $name;
        impl LockConfig for $name {
            const PENDING_BIT: bool = $pending;
            const PARK: bool = $park;
            fn tuning() -> Tuning {
                let mut tuning = Tuning::DEFAULT;
                tuning.reorder = $reorder;
                tuning.stealing = $steal;
                tuning.limit = LocalLimit::count(0).unwrap();
                // This only makes the lock set its mark in the word: the platform grants no
                // extensions.
                tuning.slice_extension = $steal && $park;
                tuning
            }
        }

        impl Model for $name {
            type On = Loom;
        }
    };
}

config!(SpinPending: pending true, park false, reorder false, steal true);
config!(SpinQueue: pending false, park false, reorder false, steal true);
config!(SpinCna: pending false, park false, reorder true, steal true);
config!(ParkPending: pending true, park true, reorder false, steal true);
config!(ParkQueue: pending false, park true, reorder false, steal true);
config!(ParkCna: pending false, park true, reorder true, steal true);
config!(StrictPending: pending true, park true, reorder false, steal false);
config!(StrictCna: pending false, park true, reorder true, steal false);

/// A lock and what it guards; loom reports unsynchronised access to the cell.
struct Shared<C: Model> {
    lock: QueuedSpinLock<C::On, C>,
    value: UnsafeCell<u32>,
}

impl<C: Model> Shared<C> {
    fn add(&self) {
        self.lock.lock();
        self.locked_add();
    }

    fn locked_add(&self) {
        // SAFETY: invariant 1.
        self.value.with_mut(|v| unsafe { *v += 1 });
        // SAFETY: taken by the caller.
        unsafe { self.lock.unlock() };
    }
}

/// Explores `body` in `threads` threads with a lock of configuration `C`. `body` returns how often
/// its thread added 1.
fn explore<C: Model>(
    name: &str,
    preemptions: usize,
    threads: usize,
    body: fn(&Shared<C>, usize) -> u32,
) {
    let make = || Shared::<C> {
        lock: QueuedSpinLock::new(),
        value: UnsafeCell::new(0),
    };
    let check = |shared: &Shared<C>, added: Vec<u32>| {
        // SAFETY: all other threads have ended.
        let value = shared.value.with(|v| unsafe { *v });
        let expected: u32 = added.iter().sum();
        assert_eq!(value, expected, "an update was lost");
        assert!(
            !shared.lock.is_locked() && !shared.lock.is_contended(),
            "the word is not clean"
        );
        assert!(shared.lock.try_lock(), "a flag was left behind");
    };
    model::explore(name, preemptions, threads, make, body, check);
}

/// Thread i runs in domain i % 2.
fn once<C: Model>(shared: &Shared<C>, i: usize) -> u32 {
    set_domain(i as u16 % 2);
    shared.add();
    1
}

fn twice<C: Model>(shared: &Shared<C>, i: usize) -> u32 {
    once(shared, i) + once(shared, i)
}

/// There is a CPU for each thread: headship passes to queued waiters by a store, and they announce
/// their sleep.
fn enough_cpus<C: Model>(shared: &Shared<C>, i: usize) -> u32 {
    set_oversubscribed(false);
    once(shared, i)
}

fn enough_cpus_twice<C: Model>(shared: &Shared<C>, i: usize) -> u32 {
    enough_cpus(shared, i) + enough_cpus(shared, i)
}

/// The first thread locks again, and may queue behind a head that has slept.
fn first_locks_twice<C: Model>(shared: &Shared<C>, i: usize) -> u32 {
    let again = if i == 0 { enough_cpus(shared, i) } else { 0 };
    again + enough_cpus(shared, i)
}

/// For the first thread the machine counts as oversubscribed: headship passes to it by
/// compare-and-swap, and it sleeps unannounced.
fn mixed<C: Model>(shared: &Shared<C>, i: usize) -> u32 {
    set_oversubscribed(i == 0);
    once(shared, i)
}

/// The last thread times out as soon as it has to wait: it gets the lock at once, or abandons its
/// place.
fn last_gives_up<C: Model>(shared: &Shared<C>, i: usize) -> u32 {
    set_domain(i as u16 % 2);
    if i == 2 {
        let taken = shared.lock.lock_until(1);
        if taken {
            shared.locked_add();
        }
        return taken as u32;
    }
    once(shared, i)
}

#[test]
fn pending_two_threads() {
    explore::<SpinPending>("pending, 2 threads twice", 3, 2, twice);
}

#[test]
fn pending_and_queue_three_threads() {
    explore::<SpinPending>("pending and queue, 3 threads", 3, 3, once);
}

#[test]
fn queue_two_threads() {
    explore::<SpinQueue>("queue, 2 threads twice", 3, 2, twice);
}

#[test]
fn queue_three_threads() {
    explore::<SpinQueue>("queue, 3 threads", 3, 3, once);
}

#[test]
fn cna_three_threads() {
    explore::<SpinCna>("CNA, 3 threads", 3, 3, once);
}

#[test]
fn cna_four_threads() {
    explore::<SpinCna>("CNA, 4 threads", 1, 4, once);
}

#[test]
fn park_pending_two_threads() {
    explore::<ParkPending>("parking pending waiter, 2 threads", 3, 2, once);
}

#[test]
fn park_pending_three_threads() {
    explore::<ParkPending>("parking pending waiter and head, 3 threads", 2, 3, once);
}

#[test]
fn park_queue_three_threads() {
    explore::<ParkQueue>("parking queue, 3 threads", 2, 3, once);
}

#[test]
fn park_cna_three_threads() {
    explore::<ParkCna>("parking CNA, 3 threads", 2, 3, once);
}

#[test]
fn announced_sleep_two_threads() {
    explore::<ParkQueue>("announced sleep, 2 threads twice", 2, 2, enough_cpus_twice);
}

#[test]
fn announced_sleep_three_threads() {
    explore::<ParkQueue>("announced sleep, 3 threads", 2, 3, enough_cpus);
}

#[test]
fn roused_next_three_threads() {
    explore::<ParkQueue>("roused next, 3 threads, one twice", 1, 3, first_locks_twice);
}

#[test]
fn roused_cna_four_threads() {
    explore::<ParkCna>("roused ahead, CNA, 4 threads", 1, 4, enough_cpus);
}

#[test]
fn announced_sleep_cna_three_threads() {
    explore::<ParkCna>("announced sleep, CNA, 3 threads", 2, 3, enough_cpus);
}

#[test]
fn announced_and_guarded_sleep_three_threads() {
    explore::<ParkQueue>("announced and guarded sleep, 3 threads", 2, 3, mixed);
}

#[test]
fn strict_pending_three_threads() {
    explore::<StrictPending>(
        "parking without stealing, pending waiter and head, 3 threads",
        2,
        3,
        once,
    );
}

#[test]
fn strict_cna_three_threads() {
    explore::<StrictCna>("parking without stealing, CNA, 3 threads", 2, 3, once);
}

#[test]
fn strict_abandonment() {
    explore::<StrictPending>(
        "abandonment without stealing, 3 threads",
        2,
        3,
        last_gives_up,
    );
}

#[test]
fn abandonment() {
    explore::<SpinQueue>("abandonment, 3 threads", 2, 3, last_gives_up);
    explore::<ParkQueue>(
        "abandonment while others park, 3 threads",
        1,
        3,
        last_gives_up,
    );
    explore::<SpinPending>("abandonment of pending, 3 threads", 2, 3, last_gives_up);
}
