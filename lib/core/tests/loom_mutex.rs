//! Loom models of the mutex and its spinner queue: small scenarios in every interleaving with a
//! bounded number of preemptions.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p kinlock-core --test loom_mutex -- --nocapture`
//!
//! Each model prints how many executions it explored.
//!
//! Waiters give up spinning at once, and every quantum ends at once, so that hand-off requests,
//! hand-offs and sleep are explored wherever they can happen. In some models time advances in steps
//! shorter than the quantum, so that waiters also watch the lock, sleep until an unlock, and sleep
//! with a time limit.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. The lock, or headship of the queue, guards the cell. If it is broken, loom reports the access
//!    before it happens.
#![cfg(loom)]

mod model;

use kinlock_core::config::{LocalLimit, Quantum, Tuning};
use kinlock_core::loom::{LATE, Loom, set_domain, set_patience, set_step};
use kinlock_core::platform::{NEVER, Platform};
use kinlock_core::raw::LockConfig;
use kinlock_core::raw::mutex::{Joined, Layout, QueueKind, QueuedMutex, Split};
use kinlock_core::raw::osq::Osq;
use loom::cell::UnsafeCell;
use model::explore;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A configuration, and the platform of its locks.
trait Model: LockConfig {
    type On: Platform;
}

/// One wait in `trials` is a trial, which marks the lock as kept until it has a verdict.
macro_rules! config {
    ($($name:ident: queue $queue:expr, trials $trials:literal;)*) => {$(
        #[derive(Clone, Copy, Debug)]
        struct $name;
        impl LockConfig for $name {
            const TRIALS: u32 = $trials;
            fn tuning() -> Tuning {
                let mut tuning = Tuning::DEFAULT;
                tuning.reorder = true;
                tuning.limit = LocalLimit::count(0).unwrap();
                tuning.quantum = Quantum::from_micros(50).unwrap();
                tuning
            }
            fn queue() -> QueueKind {
                $queue
            }
        }

        impl Model for $name {
            type On = Loom;
        }
    )*};
}

const OSQ: QueueKind = QueueKind::Osq;

config! {
    Queued: queue OSQ, trials 0;
    Kept: queue OSQ, trials 1;
    LocalFirst: queue QueueKind::Cna, trials 0;
    LocalKept: queue QueueKind::Cna, trials 1;
    Unqueued: queue QueueKind::Unqueued, trials 0;
}

type Two<C> = Split<<C as Model>::On>;
type One<C> = Joined<<C as Model>::On>;

/// Shorter than a waiter polls before it sleeps, longer than its pause between two looks in a
/// watch.
const STEP: u64 = 10_000;

/// The length of a critical section in yields: the number of pauses that a waiter makes before it
/// sleeps. With fewer, the model would have to preempt the holder to let a waiter fall asleep.
const SECTION: usize = 1;

/// A mutex and what it guards; loom reports unsynchronised access to the cell.
struct Shared<C: Model, L: Layout<C::On>> {
    lock: QueuedMutex<C::On, C, L>,
    /// Critical sections, counted under the lock and, in `expected`, by an atomic.
    value: UnsafeCell<usize>,
    expected: AtomicUsize,
}

impl<C: Model, L: Layout<C::On>> Shared<C, L> {
    fn new() -> Self {
        Shared {
            lock: QueuedMutex::default(),
            value: UnsafeCell::new(0),
            expected: AtomicUsize::new(0),
        }
    }

    fn section(&self) {
        // A yield lets the others run until they block or have yielded as often, and then they are
        // asleep.
        for _ in 0..SECTION {
            loom::thread::yield_now();
        }
        self.expected.fetch_add(1, Relaxed);
        // SAFETY: invariant 1.
        self.value.with_mut(|v| unsafe { *v += 1 });
        // SAFETY: taken by the caller.
        unsafe { self.lock.unlock() };
    }

    fn check(&self) {
        // SAFETY: all other threads have ended.
        let value = self.value.with(|v| unsafe { *v });
        assert_eq!(value, self.expected.load(Relaxed), "an update was lost");
        assert!(!self.lock.is_locked(), "the lock is still held");
        assert!(self.lock.try_lock(), "it cannot be taken");
    }
}

/// Thread i runs in domain i % 2.
fn once<C: Model, L: Layout<C::On>>(shared: &Shared<C, L>, i: usize) {
    set_domain(i as u16 % 2);
    shared.lock.lock();
    shared.section();
}

fn twice<C: Model, L: Layout<C::On>>(shared: &Shared<C, L>, i: usize) {
    once(shared, i);
    once(shared, i);
}

/// Like `once`, but time advances in steps shorter than the quantum.
fn in_steps<C: Model, L: Layout<C::On>>(shared: &Shared<C, L>, i: usize) {
    set_step(STEP);
    once(shared, i);
}

/// Like `once`, but a waiter whose sleep ends without a wake-up loses its patience.
fn impatient<C: Model, L: Layout<C::On>>(shared: &Shared<C, L>, i: usize) {
    set_patience(1);
    once(shared, i);
}

/// The last thread times out as soon as it has to wait.
fn last_gives_up<C: Model, L: Layout<C::On>>(shared: &Shared<C, L>, i: usize) {
    set_domain(i as u16 % 2);
    if i < 2 {
        once(shared, i);
    } else if shared.lock.lock_until(1) {
        shared.section();
    }
}

/// All but the first thread give up.
fn all_give_up<C: Model, L: Layout<C::On>>(shared: &Shared<C, L>, i: usize) {
    if i == 0 {
        once(shared, i);
    } else if shared.lock.lock_until(1) {
        shared.section();
    }
}

/// Like `all_give_up`, but after some steps: while waiters sleep until an unlock, or watch the
/// lock.
fn all_give_up_late<C: Model, L: Layout<C::On>>(shared: &Shared<C, L>, i: usize) {
    set_step(STEP);
    if i == 0 {
        once(shared, i);
    } else if shared.lock.lock_until(4 * STEP) {
        shared.section();
    }
}

/// Like `all_give_up`, but after a request: three waits of a waiter end by themselves, one before
/// it queues, one at the front, and one for the hand-off.
fn all_withdraw<C: Model, L: Layout<C::On>>(shared: &Shared<C, L>, i: usize) {
    if i == 0 {
        once(shared, i);
    } else if shared.lock.lock_until(3 * LATE) {
        shared.section();
    }
}

/// Like `all_withdraw`, but waiters are asleep when they give up.
fn all_withdraw_late<C: Model, L: Layout<C::On>>(shared: &Shared<C, L>, i: usize) {
    if i == 0 {
        once(shared, i);
    } else if shared.lock.lock_until(3 * LATE + 1) {
        shared.section();
    }
}

fn mutex<C: Model, L: Layout<C::On>>(
    name: &str,
    preemptions: usize,
    threads: usize,
    body: fn(&Shared<C, L>, usize),
) {
    let check = |shared: &Shared<C, L>, _| shared.check();
    explore(name, preemptions, threads, Shared::new, body, check);
}

/// Runs `mutex` for both layouts.
macro_rules! both {
    ($config:ident, $name:literal, $preemptions:literal, $threads:literal, $body:expr) => {
        mutex::<$config, Two<$config>>($name, $preemptions, $threads, $body);
        mutex::<$config, One<$config>>(concat!("joined ", $name), $preemptions, $threads, $body);
    };
}

#[test]
fn two_threads() {
    both!(Queued, "mutex, 2 threads", 6, 2, once);
    both!(Queued, "mutex, 2 threads twice", 4, 2, twice);
}

#[test]
fn three_threads() {
    both!(Queued, "mutex, 3 threads", 3, 3, once);
}

#[test]
fn local_first() {
    mutex::<LocalFirst, Two<LocalFirst>>("mutex, local first, 3 threads", 2, 3, once);
    mutex::<LocalFirst, Two<LocalFirst>>(
        "mutex, local first, 3 threads, one gives up",
        2,
        3,
        last_gives_up,
    );
    mutex::<LocalKept, Two<LocalKept>>("kept mutex, local first, 3 threads", 2, 3, once);
}

#[test]
fn kept() {
    both!(Kept, "kept mutex, 2 threads twice", 3, 2, twice);
    both!(Kept, "kept mutex, 3 threads", 2, 3, once);
    both!(
        Kept,
        "kept mutex, 3 threads, two give up",
        2,
        3,
        all_give_up
    );
}

#[test]
fn within_the_quantum() {
    both!(Queued, "mutex, 2 threads in steps", 4, 2, in_steps);
    both!(Queued, "mutex, 3 threads in steps", 1, 3, in_steps);
    both!(Kept, "kept mutex, 2 threads in steps", 4, 2, in_steps);
    both!(Kept, "kept mutex, 3 threads in steps", 1, 3, in_steps);
    both!(
        Queued,
        "mutex, 2 threads in steps, one gives up",
        4,
        2,
        all_give_up_late
    );
    both!(
        Kept,
        "kept mutex, 2 threads in steps, one gives up",
        4,
        2,
        all_give_up_late
    );
}

#[test]
fn unqueued() {
    mutex::<Unqueued, Two<Unqueued>>("mutex without queue, 2 threads twice", 3, 2, twice);
    both!(Unqueued, "mutex without queue, 3 threads", 2, 3, once);
    // A woken thread polls again while another sleeps on the word.
    both!(
        Unqueued,
        "mutex without queue, 3 threads in steps",
        2,
        3,
        in_steps
    );
}

/// Waiters leave the queue, and pick up locks that were handed over to others.
#[test]
fn impatient_waiters() {
    both!(Queued, "impatient mutex, 2 threads", 5, 2, impatient);
    both!(Queued, "impatient mutex, 3 threads", 2, 3, impatient);
    mutex::<LocalFirst, Two<LocalFirst>>("impatient mutex, local first", 2, 3, impatient);
    both!(
        Unqueued,
        "impatient mutex without queue, 3 threads",
        2,
        3,
        impatient
    );
    both!(Kept, "impatient kept mutex, 3 threads", 2, 3, impatient);
}

#[test]
fn time_limits() {
    both!(Queued, "mutex, 2 threads, one gives up", 6, 2, all_give_up);
    both!(
        Queued,
        "mutex, 2 threads, one withdraws",
        5,
        2,
        all_withdraw
    );
    both!(
        Queued,
        "mutex, 2 threads, one withdraws asleep",
        5,
        2,
        all_withdraw_late
    );
    both!(
        Queued,
        "mutex, 3 threads, one gives up",
        2,
        3,
        last_gives_up
    );
    both!(Queued, "mutex, 3 threads, two give up", 2, 3, all_give_up);
}

/// The queue alone: its head uses the cell.
struct Line {
    queue: Osq<Loom>,
    head: UnsafeCell<u32>,
}

impl Line {
    fn new() -> Self {
        Line {
            queue: Osq::new(),
            head: UnsafeCell::new(0),
        }
    }

    fn stand(&self, sleeps: bool, until: u64) {
        let place = Loom::waiters().take_node().unwrap();
        if self.queue.join(&place, sleeps, until) {
            // SAFETY: invariant 1.
            self.head.with_mut(|h| unsafe { *h += 1 });
            self.queue.leave(&place);
        }
    }

    fn check(&self) {
        assert_eq!(self.queue.last(), 0, "a thread is left in the queue");
    }
}

/// One thread spins and one sleeps; the others leave as soon as they have to wait.
fn others_leave(line: &Line, i: usize) {
    match i {
        0 => line.stand(false, NEVER),
        1 => line.stand(true, NEVER),
        _ => line.stand(true, 1),
    }
}

fn all_stay(line: &Line, i: usize) {
    line.stand(i == 0, NEVER);
}

fn two_leave(line: &Line, i: usize) {
    line.stand(true, if i == 0 { NEVER } else { 1 });
}

fn osq(name: &str, preemptions: usize, threads: usize, body: fn(&Line, usize)) {
    explore(name, preemptions, threads, Line::new, body, |line, _| {
        line.check()
    });
}

#[test]
fn spinner_queue() {
    osq("spinner queue, 3 threads", 3, 3, all_stay);
    osq("spinner queue, 3 threads, one leaves", 3, 3, others_leave);
    osq("spinner queue, 3 threads, two leave", 3, 3, two_leave);
    osq("spinner queue, 4 threads, two leave", 2, 4, others_leave);
}
