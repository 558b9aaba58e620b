//! Loom models of the reader-writer lock: small scenarios in every interleaving with a bounded
//! number of preemptions.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p kinlock-core --test loom_rwlock -- --nocapture`
//!
//! Waiters give up spinning at once, and every quantum ends at once, so that requests, registered
//! readers and sleep are explored wherever they can happen.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. The lock guards the cell. If it is broken, loom reports the access before it happens.
#![cfg(loom)]

mod model;

use kinlock_core::config::{Quantum, Tuning};
use kinlock_core::loom::{LATE, Loom, set_row, set_step};
use kinlock_core::platform::Platform;
use kinlock_core::raw::LockConfig;
use kinlock_core::raw::rwlock::{QueueKind, QueuedRwLock};
use loom::cell::UnsafeCell;
use model::explore;
use std::sync::atomic::{AtomicUsize, Ordering::*};

/// A configuration, and the platform of its locks.
trait Model: LockConfig {
    type On: Platform;
}

/// One wait in `trials` is a trial, which marks the lock as kept until it has a verdict.
macro_rules! config {
    ($($name:ident: trials $trials:literal, $queue:ident;)*) => {$(
        #[derive(Clone, Copy, Debug)]
        struct $name;
        impl LockConfig for $name {
            const TRIALS: u32 = $trials;
            fn tuning() -> Tuning {
                let mut tuning = Tuning::DEFAULT;
                tuning.quantum = Quantum::from_micros(50).unwrap();
                tuning
            }

            fn queue() -> QueueKind {
                QueueKind::$queue
            }
        }

        impl Model for $name {
            type On = Loom;
        }
    )*};
}

config! {
    Sound: trials 0, Osq;
    Kept: trials 1, Osq;
    Beside: trials 0, Unqueued;
}

/// Shorter than a waiter spins before it sleeps, longer than its pause between two looks in a
/// watch.
const STEP: u64 = 10_000;

/// A lock and what it guards; loom reports unsynchronised access to the cell.
struct Shared<C: Model> {
    lock: QueuedRwLock<C::On, C>,
    /// Critical sections that write, counted under the lock and, in `expected`, by an atomic.
    value: UnsafeCell<usize>,
    expected: AtomicUsize,
    /// How many guards have been sent to another thread.
    sent: loom::sync::atomic::AtomicUsize,
}

impl<C: Model> Shared<C> {
    fn new() -> Self {
        Shared {
            lock: QueuedRwLock::default(),
            value: UnsafeCell::new(0),
            expected: AtomicUsize::new(0),
            sent: loom::sync::atomic::AtomicUsize::new(0),
        }
    }

    fn biased() -> Self {
        let shared = Self::new();
        shared.lock.set_biased();
        shared
    }

    fn look(&self) {
        // A yield lets the others run until they block or have yielded as often, and then they are
        // asleep.
        loom::thread::yield_now();
        // SAFETY: invariant 1.
        self.value.with(|v| unsafe { std::ptr::read(v) });
    }

    fn change(&self) {
        loom::thread::yield_now();
        self.expected.fetch_add(1, Relaxed);
        // SAFETY: invariant 1.
        self.value.with_mut(|v| unsafe { *v += 1 });
    }

    fn end_read(&self) {
        // SAFETY: taken by the caller.
        unsafe { self.lock.unlock_read() };
    }

    fn end_write(&self) {
        // SAFETY: taken by the caller.
        unsafe { self.lock.unlock_write() };
    }

    fn read(&self) {
        assert!(self.lock.read());
        self.look();
        self.end_read();
    }

    fn write(&self) {
        self.lock.write();
        self.change();
        self.end_write();
    }

    fn check(&self) {
        // SAFETY: all other threads have ended.
        let value = self.value.with(|v| unsafe { *v });
        assert_eq!(value, self.expected.load(Relaxed), "an update was lost");
        assert!(!self.lock.is_locked(), "the lock is still held");
        assert!(self.lock.try_write(), "it cannot be taken");
    }
}

/// Thread `i` of a model writes or reads.
fn role<C: Model>(shared: &Shared<C>, i: usize, writes: bool) {
    set_row(i);
    if writes {
        shared.write();
    } else {
        shared.read();
    }
}

fn one_writes<C: Model>(shared: &Shared<C>, i: usize) {
    role(shared, i, i == 0);
}

fn one_reads<C: Model>(shared: &Shared<C>, i: usize) {
    role(shared, i, i != 0);
}

fn all_write<C: Model>(shared: &Shared<C>, i: usize) {
    role(shared, i, true);
}

/// Thread 0 reads, the others write, the last of them with a time limit.
fn last_gives_up<C: Model>(shared: &Shared<C>, i: usize) {
    if i == 2 && !shared.lock.write_until(3 * LATE) {
        return;
    }
    match i {
        2 => {
            shared.change();
            shared.end_write();
        }
        _ => role(shared, i, i != 0),
    }
}

/// The last thread is a writer, so that the readers may be first.
fn last_writes<C: Model>(shared: &Shared<C>, i: usize) {
    role(shared, i, i == 2);
}

/// Time advances in steps shorter than the quantum.
fn in_steps<C: Model>(shared: &Shared<C>, i: usize) {
    set_step(STEP);
    role(shared, i, i == 0);
}

/// A reader that waits for the first write holds the lock when the second write comes.
fn writes_twice<C: Model>(shared: &Shared<C>, i: usize) {
    role(shared, i, i == 0);
    if i == 0 {
        shared.write();
    }
}

fn both_in_turn<C: Model>(shared: &Shared<C>, i: usize) {
    role(shared, i, i == 0);
    role(shared, i, i != 0);
}

/// All readers share a row.
fn in_one_row<C: Model>(shared: &Shared<C>, i: usize) {
    set_row(0);
    match i {
        0 => shared.write(),
        _ => shared.read(),
    }
}

/// Thread 1 may give up reading, and thread 2 writing.
fn others_give_up<C: Model>(shared: &Shared<C>, i: usize) {
    set_row(i);
    match i {
        0 => shared.write(),
        1 if shared.lock.read_until(3 * LATE, false) => {
            shared.look();
            shared.end_read();
        }
        2 if shared.lock.write_until(3 * LATE) => {
            shared.change();
            shared.end_write();
        }
        _ => {}
    }
}

/// A writer gives up, one reader stays for longer, and another reader comes later.
fn writer_gives_up<C: Model>(shared: &Shared<C>, i: usize) {
    set_row(i);
    match i {
        0 => {
            shared.read();
            shared.read();
        }
        1 if shared.lock.write_until(3 * LATE) => {
            shared.change();
            shared.end_write();
        }
        1 => {}
        _ => shared.read(),
    }
}

/// Thread 0 reads while it already reads; see `read_passing`.
fn recursive<C: Model>(shared: &Shared<C>, i: usize) {
    set_row(i);
    if i == 1 {
        return shared.write();
    }
    assert!(shared.lock.read());
    shared.look();
    assert!(shared.lock.read_passing());
    shared.look();
    shared.end_read();
    shared.look();
    shared.end_read();
}

/// A read begins in one row and ends in another, as if the guard was sent to another thread.
fn sent<C: Model>(shared: &Shared<C>, i: usize) {
    set_row(i);
    match i {
        0 => {
            assert!(shared.lock.read());
            set_row(1);
            shared.look();
            shared.end_read();
        }
        1 => shared.read(),
        _ => shared.write(),
    }
}

/// Reads, announced if possible, and releases in another row.
fn read_and_send<C: Model>(shared: &Shared<C>) {
    shared.lock.set_biased();
    set_row(1);
    assert!(shared.lock.read_passing());
    set_row(0);
    shared.end_read();
}

/// Thread 1 waits for the first writer. Before it runs again, another reader is released in another
/// row and a second writer comes. Thread 2, if there is one, also reads and releases in another
/// row.
fn sent_past_registered<C: Model>(shared: &Shared<C>, i: usize) {
    match i {
        0 => {
            shared.write();
            read_and_send(shared);
            shared.write();
        }
        1 => shared.read(),
        _ => read_and_send(shared),
    }
}

/// Like `sent_past_registered`, but the reader may give up.
fn sent_past_timed<C: Model>(shared: &Shared<C>, i: usize) {
    match i {
        1 if shared.lock.read_until(3 * LATE, false) => {
            shared.look();
            shared.end_read();
        }
        1 => {}
        _ => sent_past_registered(shared, i),
    }
}

/// Like `sent_past_registered`, but the second writer is the first writer again, after it has read.
fn sent_past_upgrade<C: Model>(shared: &Shared<C>, i: usize) {
    if i > 0 {
        return sent_past_registered(shared, i);
    }
    shared.lock.write();
    shared.change();
    // SAFETY: taken above.
    unsafe {
        shared.lock.downgrade_to_upgradable();
        read_and_send(shared);
        shared.lock.upgrade();
    }
    shared.change();
    shared.end_write();
}

/// Like `sent_past_registered`, but thread 2 was a writer before it reads and releases in another
/// row.
fn sent_after_downgrade<C: Model>(shared: &Shared<C>, i: usize) {
    if i < 2 {
        return sent_past_registered(shared, i);
    }
    set_row(1);
    shared.lock.write();
    shared.change();
    // SAFETY: taken above.
    unsafe { shared.lock.downgrade() };
    shared.lock.set_biased();
    assert!(shared.lock.read_passing());
    set_row(0);
    shared.end_read();
    shared.end_read();
}

/// Thread 1 releases the read lock of thread 0 while thread 0 reads again. A third thread writes.
fn handed_over<C: Model>(shared: &Shared<C>, i: usize) {
    set_row(i);
    match i {
        0 => {
            assert!(shared.lock.read());
            shared.sent.store(1, Release);
            assert!(shared.lock.read_passing());
            shared.look();
            shared.end_read();
        }
        1 => {
            while shared.sent.load(Acquire) == 0 {
                loom::thread::yield_now();
            }
            shared.look();
            shared.end_read();
        }
        _ => shared.write(),
    }
}

/// Thread 0 upgrades, 1 reads, 2 writes.
fn upgrade<C: Model>(shared: &Shared<C>, i: usize) {
    set_row(i);
    if i > 0 {
        return role(shared, i, i == 2);
    }
    assert!(shared.lock.upgradable());
    shared.look();
    // SAFETY: taken above.
    unsafe { shared.lock.upgrade() };
    shared.change();
    shared.end_write();
}

/// Thread 0 downgrades from writing by way of upgradable reading; 1 reads, 2 upgrades with a time
/// limit.
fn downgrade<C: Model>(shared: &Shared<C>, i: usize) {
    set_row(i);
    match i {
        0 => {
            shared.lock.write();
            shared.change();
            // SAFETY: taken above.
            unsafe {
                shared.lock.downgrade_to_upgradable();
                shared.look();
                shared.lock.downgrade_upgradable();
            }
            shared.look();
            shared.end_read();
        }
        1 => shared.read(),
        _ => {
            assert!(shared.lock.upgradable());
            // SAFETY: taken above.
            if unsafe { shared.lock.upgrade_until(2 * LATE) } {
                shared.change();
                shared.end_write();
            } else {
                // SAFETY: still held.
                unsafe { shared.lock.unlock_upgradable() };
            }
        }
    }
}

/// Threads only try; they may miss a lock that is free for a moment.
fn tries<C: Model>(shared: &Shared<C>, i: usize) {
    set_row(i);
    if i == 0 {
        if shared.lock.try_write() {
            shared.change();
            shared.end_write();
        }
    } else if shared.lock.try_read(false) {
        shared.look();
        shared.end_read();
    }
}

fn fair<C: Model>(shared: &Shared<C>, i: usize) {
    set_row(i);
    if i == 0 {
        shared.lock.write();
        shared.change();
        // SAFETY: taken above.
        unsafe { shared.lock.unlock_write_fair() };
        assert!(shared.lock.read());
        shared.look();
        // SAFETY: taken above.
        unsafe { shared.lock.unlock_read_fair() };
    } else {
        role(shared, i, i == 1);
    }
}

fn model<C: Model>(name: &str, preemptions: usize, threads: usize, body: fn(&Shared<C>, usize)) {
    let check = |shared: &Shared<C>, _| shared.check();
    explore(name, preemptions, threads, Shared::new, body, check);
}

fn biased<C: Model>(name: &str, preemptions: usize, threads: usize, body: fn(&Shared<C>, usize)) {
    let check = |shared: &Shared<C>, _| shared.check();
    explore(name, preemptions, threads, Shared::biased, body, check);
}

#[test]
fn counted() {
    model::<Sound>("rwlock, reader and writer", 5, 2, one_writes);
    model::<Sound>("rwlock, reader between writers", 4, 2, writes_twice);
    model::<Sound>("rwlock, both in turn", 3, 2, both_in_turn);
    model::<Sound>("rwlock, writer and two readers", 2, 3, one_writes);
    model::<Sound>("rwlock, two readers and writer", 2, 3, last_writes);
    model::<Sound>("rwlock, two writers and reader", 2, 3, one_reads);
    model::<Sound>("rwlock, in steps", 2, 3, in_steps);
    model::<Kept>("kept rwlock, in steps", 2, 3, in_steps);
    model::<Kept>("kept rwlock, two writers and reader", 2, 3, one_reads);
}

#[test]
fn time_limits() {
    model::<Sound>("rwlock, two give up", 2, 3, others_give_up);
    model::<Sound>("rwlock, a writer gives up", 2, 3, writer_gives_up);
    model::<Sound>("rwlock, tries", 4, 3, tries);
}

/// All waiters are at the front.
#[test]
fn beside_the_queue() {
    model::<Beside>("rwlock, beside, three writers", 2, 3, all_write);
    model::<Beside>("rwlock, beside, reader and two writers", 2, 3, one_reads);
    model::<Beside>("rwlock, beside, one gives up", 2, 3, last_gives_up);
    model::<Beside>("rwlock, beside, upgrade", 2, 3, upgrade);
    model::<Beside>("rwlock, beside, downgrade", 2, 3, downgrade);
    model::<Beside>("rwlock, beside, fair", 2, 3, fair);
}

#[test]
fn upgrades() {
    model::<Sound>("rwlock, upgrade", 2, 3, upgrade);
    model::<Sound>("rwlock, downgrade", 2, 3, downgrade);
    model::<Sound>("rwlock, fair", 2, 3, fair);
    biased::<Sound>("biased rwlock, upgrade", 2, 3, upgrade);
    biased::<Sound>("biased rwlock, downgrade", 2, 3, downgrade);
}

#[test]
fn announced() {
    biased::<Sound>("biased rwlock, reader and writer", 5, 2, one_writes);
    biased::<Sound>("biased rwlock, both in turn", 3, 2, both_in_turn);
    biased::<Sound>("biased rwlock, writer and two readers", 2, 3, one_writes);
    biased::<Sound>("biased rwlock, two writers and reader", 2, 3, one_reads);
    biased::<Sound>("biased rwlock, in one row", 2, 3, in_one_row);
    biased::<Sound>("biased rwlock, two give up", 2, 3, others_give_up);
    biased::<Sound>("biased rwlock, a writer gives up", 2, 3, writer_gives_up);
    biased::<Sound>("biased rwlock, tries", 4, 3, tries);
    biased::<Sound>("biased rwlock, recursive", 4, 2, recursive);
    biased::<Sound>("biased rwlock, sent", 2, 3, sent);
}

#[test]
fn released_by_others() {
    model::<Sound>("rwlock, sent past one reader", 4, 2, sent_past_registered);
    model::<Sound>("rwlock, sent past one in time", 4, 2, sent_past_timed);
    model::<Sound>("rwlock, sent past an upgrade", 4, 2, sent_past_upgrade);
    model::<Sound>("rwlock, two sent", 2, 3, sent_past_registered);
    model::<Sound>("rwlock, two sent in time", 2, 3, sent_past_timed);
    model::<Sound>("rwlock, two sent, upgrade", 2, 3, sent_past_upgrade);
    model::<Sound>("rwlock, two sent, downgrade", 2, 3, sent_after_downgrade);
    biased::<Sound>("biased rwlock, handed over", 4, 2, handed_over);
    biased::<Sound>("biased rwlock, handed to a third", 2, 3, handed_over);
}
