//! The mutex as its users see it.
#![cfg(not(loom))]

use kinlock::lock_api::{self, RawMutex as _};
use kinlock::{MappedMutexGuard, Mutex, MutexGuard, RawMutex};
use kinlock_core::Native;
use kinlock_core::config::{LocalLimit, Quantum, Tuning};
use kinlock_core::platform::Platform;
use kinlock_core::raw::mutex::{MutexConfig, Queue, QueuedMutex};
use kinlock_core::raw::osq::PredecessorCpu;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Miri runs one thread at a time, and slowly.
const ROUNDS: u64 = if cfg!(miri) { 20 } else { 20_000 };

fn threads() -> Vec<u64> {
    if cfg!(miri) {
        vec![2, 4]
    } else {
        vec![1, 2, 4, 16, 64]
    }
}

#[test]
fn excludes_with_more_and_fewer_threads_than_cpus() {
    for threads in threads() {
        // Two words that must agree, so that a torn critical section shows.
        let shared = Mutex::new((0, 0));
        std::thread::scope(|s| {
            for _ in 0..threads {
                s.spawn(|| {
                    for _ in 0..ROUNDS {
                        let mut pair = shared.lock();
                        assert_eq!(pair.0, pair.1);
                        pair.0 += 1;
                        std::hint::black_box(&mut *pair);
                        pair.1 += 1;
                    }
                });
            }
        });
        assert_eq!(shared.into_inner(), (threads * ROUNDS, threads * ROUNDS));
    }
}

macro_rules! config {
    ($name:ident, $queue:expr, $quantum:expr) => {
        #[derive(Clone, Copy, Debug)]
        struct $name;
        impl MutexConfig for $name {
            fn tuning() -> Tuning {
                let mut tuning = Tuning::DEFAULT;
                tuning.reorder = true;
                tuning.limit = LocalLimit::count(2).unwrap();
                tuning.quantum = $quantum;
                tuning
            }
            fn queue() -> Queue {
                $queue
            }
        }
    };
}

config!(Fair, Queue::Osq(PredecessorCpu::Cached), Quantum::FAIR);
config!(
    Long,
    Queue::Osq(PredecessorCpu::Cached),
    Quantum::THROUGHPUT
);
config!(OwnLine, Queue::Osq(PredecessorCpu::OwnLine), Quantum::FAIR);
config!(
    SharedLine,
    Queue::Osq(PredecessorCpu::SharedLine),
    Quantum::FAIR
);
config!(KinFirst, Queue::Cna, Quantum::FAIR);
config!(Unqueued, Queue::Unqueued, Quantum::FAIR);

/// Half of the waiters give up after a moment; what they and the others count must agree.
fn counts_correctly_while_some_give_up<C: MutexConfig>() {
    let lock = QueuedMutex::<Native, C>::new();
    let entered = AtomicU64::new(0);
    let taken = AtomicU64::new(0);
    let rounds = ROUNDS.div_ceil(20);
    std::thread::scope(|s| {
        for i in 0..6 {
            let (lock, entered, taken) = (&lock, &entered, &taken);
            s.spawn(move || {
                for round in 0..rounds {
                    let limit = Native::now() + round % 7 * 20_000;
                    if i % 2 == 0 {
                        lock.lock();
                    } else if !lock.lock_until(limit) {
                        continue;
                    }
                    // Not by an addition: two at once would be seen.
                    entered.store(entered.load(Relaxed) + 1, Relaxed);
                    taken.fetch_add(1, Relaxed);
                    // SAFETY: taken above.
                    unsafe { lock.unlock() };
                }
            });
        }
    });
    assert_eq!(entered.load(Relaxed), taken.load(Relaxed));
    assert!(taken.load(Relaxed) >= 3 * rounds);
    assert!(!lock.is_locked() && !lock.is_contended());
}

#[test]
fn every_queue_and_quantum_keeps_count_while_some_give_up() {
    counts_correctly_while_some_give_up::<Fair>();
    counts_correctly_while_some_give_up::<Long>();
    counts_correctly_while_some_give_up::<OwnLine>();
    counts_correctly_while_some_give_up::<SharedLine>();
    counts_correctly_while_some_give_up::<KinFirst>();
    counts_correctly_while_some_give_up::<Unqueued>();
}

/// One thread hardly ever lets the lock go. Whoever waits gets it all the same, by a grant.
#[test]
fn nobody_waits_for_ever_beside_a_thread_that_keeps_taking_the_lock() {
    let lock = Mutex::new(0u64);
    let done = AtomicU64::new(0);
    let wanted = if cfg!(miri) { 3 } else { 100 };
    std::thread::scope(|s| {
        s.spawn(|| {
            while done.load(Relaxed) < 2 {
                *lock.lock() += 1;
            }
        });
        for _ in 0..2 {
            s.spawn(|| {
                for _ in 0..wanted {
                    drop(lock.lock());
                }
                done.fetch_add(1, Relaxed);
            });
        }
    });
}

#[test]
fn zeroed_memory_is_an_unlocked_mutex_of_four_bytes() {
    #[repr(C)]
    union Memory {
        bytes: [u8; 4],
        lock: std::mem::ManuallyDrop<RawMutex>,
    }
    assert_eq!(size_of::<RawMutex>(), 4);
    let memory = Memory { bytes: [0; 4] };
    // SAFETY: the documentation promises that all-zero bytes are a lock.
    let lock = unsafe { &memory.lock };
    assert!(!lock.is_locked() && lock.try_lock() && lock.is_locked() && !lock.try_lock());
    // SAFETY: taken above.
    unsafe { lock.unlock() };
    assert!(!lock.is_locked());
}

#[test]
fn a_timed_lock_gives_up_in_time_and_not_before() {
    let lock = Mutex::new(());
    let held = lock.lock();
    for millis in [0, 1, 20] {
        let timeout = Duration::from_millis(millis);
        let start = Instant::now();
        assert!(lock.try_lock_for(timeout).is_none());
        assert!(start.elapsed() >= timeout);
    }
    assert!(lock.try_lock_until(Instant::now()).is_none());
    let past = Instant::now().checked_sub(Duration::from_secs(1));
    assert!(past.is_none_or(|past| lock.try_lock_until(past).is_none()));
    drop(held);
    assert!(lock.try_lock_for(Duration::ZERO).is_some());
    assert!(lock.try_lock_for(Duration::MAX).is_some());
}

#[test]
fn a_leaked_guard_harms_no_other_mutex() {
    let (leaked, other) = (Mutex::new(()), Mutex::new(0));
    std::mem::forget(leaked.lock());
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                assert!(leaked.try_lock_for(Duration::from_millis(2)).is_none());
                *other.lock() += 1;
            });
        }
    });
    assert_eq!(*other.lock(), 4);
    assert!(leaked.is_locked());
}

#[test]
fn guards_can_be_mapped_and_data_taken_out() {
    let mut lock = Mutex::new((1, 2));
    {
        let mut second: MappedMutexGuard<'_, i32> =
            MutexGuard::map(lock.lock(), |pair| &mut pair.1);
        *second += 40;
    }
    lock.get_mut().0 = 7;
    assert_eq!(lock.into_inner(), (7, 42));
}

#[test]
fn a_panic_in_a_critical_section_releases_the_mutex() {
    let lock = Mutex::new(1);
    let section = || {
        let _guard = lock.lock();
        panic!("on purpose");
    };
    assert!(std::thread::scope(|s| s.spawn(section).join().is_err()));
    assert_eq!(*lock.lock(), 1);
}

/// Code written for any `lock_api` mutex takes ours.
#[test]
fn generic_code_takes_it() {
    fn sum<R: lock_api::RawMutex + Sync>(threads: u64) -> u64 {
        let total = lock_api::Mutex::<R, u64>::new(0);
        let start = Barrier::new(threads as usize);
        std::thread::scope(|s| {
            for i in 0..threads {
                let (total, start) = (&total, &start);
                s.spawn(move || {
                    start.wait();
                    *total.lock() += i;
                });
            }
        });
        total.into_inner()
    }
    assert_eq!(sum::<RawMutex>(4), 6);
}
