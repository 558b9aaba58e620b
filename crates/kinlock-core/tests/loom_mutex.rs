//! Loom models of the mutex and its spinner queue: small scenarios in every interleaving with a
//! bounded number of preemptions.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p kinlock-core --test loom_mutex -- --nocapture`
//!
//! Each model prints how many executions it explored. Models of broken variants must fail, which
//! shows that the scenario can see the defect.
//!
//! Waiters give up spinning at once and every quantum ends at once, so that hand-off requests,
//! hand-offs and sleep are explored wherever they can happen.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. The lock, or headship of the queue, guards the cell. If it is broken, loom reports the access
//!    before it happens.
#![cfg(loom)]

mod model;

use kinlock_core::config::{LocalLimit, Tuning};
use kinlock_core::loom::{Loom, set_domain, set_oversubscribed};
use kinlock_core::platform::Platform;
use kinlock_core::raw::mutex::{BargeTries, FreeRule, MutexConfig, MutexFault, Queue, QueuedMutex};
use kinlock_core::raw::osq::{Osq, PredecessorCpu, Watch};
use loom::cell::UnsafeCell;
use model::explore;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

macro_rules! optional {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}

macro_rules! config {
    ($name:ident: queue $queue:expr, fault $fault:ident $(, barges $barges:expr)? $(, goes $goes:expr)?) => {
        #[derive(Clone, Copy, Debug)]
        struct $name;
        impl MutexConfig for $name {
            const FAULT: MutexFault = MutexFault::$fault;
            const BARGING: BargeTries = BargeTries {
                tries: 1,
                pauses: 1,
                rounds: 1,
            };
            // A head that checks the lock pauses, and in that pause a model lets the holder go on.
            // With such checks no waiter would ever sleep.
            const FREE_SAMPLES: Option<FreeRule> = optional!($($goes)?);
            $(
                fn initial_budget() -> Option<u16> {
                    $barges
                }
            )?
            fn tuning() -> Tuning {
                let mut tuning = Tuning::DEFAULT;
                tuning.reorder = true;
                tuning.limit = LocalLimit::count(0).unwrap();
                tuning
            }
            fn queue() -> Queue {
                $queue
            }
        }
    };
}

const WATCH: Watch = Watch {
    layout: PredecessorCpu::Cached,
    every: 1,
};
const OSQ: Queue = Queue::Osq(PredecessorCpu::Cached);

config!(Queued: queue OSQ, fault None);
config!(LocalFirst: queue Queue::Cna, fault None);
config!(Unqueued: queue Queue::Unqueued, fault None);
config!(RelaxedUnlock: queue OSQ, fault RelaxedUnlock);
config!(MissingWake: queue OSQ, fault MissingWake);
config!(LostWakeup: queue OSQ, fault LostWakeup);
config!(DoubleHandOff: queue OSQ, fault DoubleHandOff);
config!(LeakyCancel: queue OSQ, fault LeakyCancel);
config!(Barging: queue OSQ, fault None, barges BARGES.with(Cell::get));
config!(LocalBarging: queue Queue::Cna, fault None, barges BARGES.with(Cell::get));
config!(Going: queue OSQ, fault None, goes ONE_LOOK);
config!(LocalGoing: queue Queue::Cna, fault None, goes ONE_LOOK);
config!(QueuedRequest: queue OSQ, fault QueuedRequest, barges BARGES.with(Cell::get));

const ONE_LOOK: FreeRule = FreeRule {
    enough: 1,
    per_taken: 0,
    too_often: 1,
};

loom::thread_local! {
    static BARGES: Cell<Option<u16>> = Cell::new(None);
}

/// The length of a critical section in yields: as often as a waiter pauses before it sleeps.
/// Otherwise the model would have to preempt the holder that often.
const SECTION: usize = 3;

/// A mutex and what it guards; loom reports unsynchronised access to the cell.
struct Shared<C: MutexConfig> {
    lock: QueuedMutex<Loom, C>,
    /// Critical sections, counted under the lock and, in `expected`, by an atomic.
    value: UnsafeCell<usize>,
    expected: AtomicUsize,
}

impl<C: MutexConfig> Shared<C> {
    fn new() -> Self {
        Shared {
            lock: QueuedMutex::new(),
            value: UnsafeCell::new(0),
            expected: AtomicUsize::new(0),
        }
    }

    fn section(&self) {
        // A yield lets the others run until they block or have yielded as often: then they are
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
fn once<C: MutexConfig>(shared: &Shared<C>, i: usize) {
    set_domain(i as u16 % 2);
    shared.lock.lock();
    shared.section();
}

fn twice<C: MutexConfig>(shared: &Shared<C>, i: usize) {
    once(shared, i);
    once(shared, i);
}

/// This thread predicts that it may barge `left` times. On an oversubscribed machine that makes it
/// a member of the active set.
fn predicts_barging(left: u16, oversubscribed: bool) {
    BARGES.with(|barges| barges.set(Some(left)));
    set_oversubscribed(oversubscribed);
}

/// With enough CPUs: a newcomer barges if no thread queues, and requests a hand-off beside the
/// queue.
fn barges<C: MutexConfig>(shared: &Shared<C>, i: usize) {
    predicts_barging(1, false);
    once(shared, i);
}

/// The same once barging is used up: a newcomer first samples beside the queue how the lock is
/// taken.
fn samples<C: MutexConfig>(shared: &Shared<C>, i: usize) {
    predicts_barging(0, false);
    once(shared, i);
}

fn samples_or_gives_up<C: MutexConfig>(shared: &Shared<C>, i: usize) {
    predicts_barging(0, false);
    all_give_up(shared, i);
}

fn barges_or_gives_up<C: MutexConfig>(shared: &Shared<C>, i: usize) {
    predicts_barging(1, false);
    all_give_up(shared, i);
}

/// Oversubscribed: a member of the active set for one more acquisition, past the queue.
fn is_active<C: MutexConfig>(shared: &Shared<C>, i: usize) {
    predicts_barging(1, true);
    once(shared, i);
}

/// The same once the membership is used up: samples if no thread queues, and queues otherwise.
fn was_active<C: MutexConfig>(shared: &Shared<C>, i: usize) {
    predicts_barging(0, true);
    once(shared, i);
}

/// One is in the active set, one was, and one gives up.
fn one_active_one_passive<C: MutexConfig>(shared: &Shared<C>, i: usize) {
    match i {
        0 => is_active(shared, i),
        1 => was_active(shared, i),
        _ if shared.lock.lock_until(1) => shared.section(),
        _ => {}
    }
}

/// The first thread holds the lock from the start. The second is in the active set, the third
/// queues.
fn second_is_active<C: MutexConfig>(shared: &Shared<C>, i: usize) {
    match i {
        0 => shared.section(),
        1 => is_active(shared, i),
        _ => was_active(shared, i),
    }
}

/// The first thread holds the lock from the start. The second barges, the third queues.
fn second_barges<C: MutexConfig>(shared: &Shared<C>, i: usize) {
    match i {
        0 => shared.section(),
        1 => barges(shared, i),
        _ => once(shared, i),
    }
}

fn beside_the_queue<C: MutexConfig>(name: &str, preemptions: usize, body: fn(&Shared<C>, usize)) {
    let held = || {
        let shared = Shared::<C>::new();
        assert!(shared.lock.try_lock());
        shared
    };
    explore(name, preemptions, 3, held, body, |shared, _| shared.check());
}

/// The last thread times out as soon as it has to wait.
fn last_gives_up<C: MutexConfig>(shared: &Shared<C>, i: usize) {
    set_domain(i as u16 % 2);
    if i < 2 {
        once(shared, i);
    } else if shared.lock.lock_until(1) {
        shared.section();
    }
}

/// All but the first thread give up.
fn all_give_up<C: MutexConfig>(shared: &Shared<C>, i: usize) {
    if i == 0 {
        once(shared, i);
    } else if shared.lock.lock_until(1) {
        shared.section();
    }
}

fn mutex<C: MutexConfig>(
    name: &str,
    preemptions: usize,
    threads: usize,
    body: fn(&Shared<C>, usize),
) {
    explore(
        name,
        preemptions,
        threads,
        Shared::new,
        body,
        |shared, _| shared.check(),
    );
}

#[test]
fn two_threads() {
    mutex::<Queued>("mutex, 2 threads", 6, 2, once);
    mutex::<Queued>("mutex, 2 threads twice", 4, 2, twice);
}

#[test]
fn three_threads() {
    mutex::<Queued>("mutex, 3 threads", 3, 3, once);
}

#[test]
fn local_first() {
    mutex::<LocalFirst>("mutex, local first, 3 threads", 2, 3, once);
    mutex::<LocalFirst>(
        "mutex, local first, 3 threads, one gives up",
        2,
        3,
        last_gives_up,
    );
}

#[test]
fn barging() {
    beside_the_queue::<Barging>("held mutex, one barges, one queues", 1, second_barges);
    beside_the_queue::<LocalBarging>(
        "held mutex, local first, one barges, one queues",
        1,
        second_barges,
    );
    mutex::<Barging>("mutex with barging, 2 threads", 4, 2, barges);
    mutex::<Barging>("mutex with barging, 3 threads", 2, 3, barges);
    mutex::<Barging>(
        "mutex with barging, 2 threads, one gives up",
        4,
        2,
        barges_or_gives_up,
    );
    mutex::<Barging>("mutex sampled beside the queue, 2 threads", 4, 2, samples);
    mutex::<Barging>("mutex sampled beside the queue, 3 threads", 1, 3, samples);
    mutex::<Barging>(
        "mutex sampled beside the queue, 2 threads, one gives up",
        4,
        2,
        samples_or_gives_up,
    );
}

#[test]
fn oversubscribed() {
    beside_the_queue::<Barging>("held mutex, one active, one queues", 1, second_is_active);
    mutex::<Barging>("mutex with an active set, 2 threads", 3, 2, is_active);
    mutex::<Barging>("mutex with an active set, 3 threads", 2, 3, is_active);
    mutex::<Barging>("mutex with a full active set, 2 threads", 3, 2, was_active);
    mutex::<Barging>(
        "mutex with one active, 3 threads, one gives up",
        2,
        3,
        one_active_one_passive,
    );
}

#[test]
fn heads_that_find_it_free_leave_the_queue() {
    mutex::<Going>("mutex, heads go if it is free, 2 threads", 4, 2, once);
    mutex::<Going>("mutex, heads go if it is free, 3 threads", 2, 3, once);
    mutex::<Going>(
        "mutex, heads go if it is free, 3 threads, two give up",
        2,
        3,
        all_give_up,
    );
    mutex::<LocalGoing>(
        "mutex, local first, heads go if it is free, 3 threads",
        2,
        3,
        once,
    );
}

#[test]
fn unqueued() {
    mutex::<Unqueued>("mutex without queue, 2 threads twice", 3, 2, twice);
    mutex::<Unqueued>("mutex without queue, 3 threads", 2, 3, once);
}

#[test]
fn time_limits() {
    mutex::<Queued>("mutex, 2 threads, one gives up", 6, 2, all_give_up);
    mutex::<Queued>("mutex, 3 threads, one gives up", 2, 3, last_gives_up);
    mutex::<Queued>("mutex, 3 threads, two give up", 2, 3, all_give_up);
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

    fn stand(&self, patience: u64, until: u64) {
        let place = Loom::waiters().enter().unwrap();
        if self.queue.join(&place, WATCH, patience, until) {
            // SAFETY: invariant 1.
            self.head.with_mut(|h| unsafe { *h += 1 });
            self.queue.leave(&place);
        }
    }

    fn check(&self) {
        assert_eq!(self.queue.last(), 0, "a thread is left in the queue");
    }
}

const NEVER: u64 = kinlock_core::platform::NEVER;

/// One spins and one sleeps; the others leave as soon as they have to wait.
fn others_leave(line: &Line, i: usize) {
    match i {
        0 => line.stand(NEVER, NEVER),
        1 => line.stand(0, NEVER),
        _ => line.stand(0, 1),
    }
}

fn all_stay(line: &Line, i: usize) {
    line.stand(if i == 0 { 0 } else { NEVER }, NEVER);
}

fn two_leave(line: &Line, i: usize) {
    line.stand(0, if i == 0 { NEVER } else { 1 });
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

/// Models of broken mutexes; see [`model::catches`].
mod broken {
    use super::*;

    #[test]
    #[ignore = "must fail; run by are_caught"]
    fn relaxed_unlock() {
        mutex::<RelaxedUnlock>("", 4, 2, once);
    }

    #[test]
    #[ignore = "must fail; run by are_caught"]
    fn missing_wake() {
        mutex::<MissingWake>("", 5, 2, once);
    }

    #[test]
    #[ignore = "must fail; run by are_caught"]
    fn lost_wakeup() {
        mutex::<LostWakeup>("", 5, 2, once);
    }

    #[test]
    #[ignore = "must fail; run by are_caught"]
    fn double_hand_off() {
        mutex::<DoubleHandOff>("", 2, 3, once);
    }

    #[test]
    #[ignore = "must fail; run by are_caught"]
    fn leaky_cancel() {
        mutex::<LeakyCancel>("", 5, 2, all_give_up);
    }

    #[test]
    #[ignore = "must fail; run by are_caught"]
    fn queued_handoff_request() {
        beside_the_queue::<QueuedRequest>("", 1, second_barges);
    }

    #[test]
    fn are_caught() {
        super::model::catches(&[
            ("broken::relaxed_unlock", "Causality violation"),
            ("broken::missing_wake", "deadlock"),
            ("broken::lost_wakeup", "deadlock"),
            ("broken::double_hand_off", "Causality violation"),
            ("broken::leaky_cancel", "the lock is still held"),
            ("broken::queued_handoff_request", "deadlock"),
        ]);
    }
}
