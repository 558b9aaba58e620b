//! The spinlock as its users see it.
#![cfg(not(loom))]

use kinlock::lock_api::{Mutex, RawMutex, RawMutexTimed};
use kinlock::{RawCnaSpinLock, RawFifoSpinLock, RawSpinLock, SpinLock, SpinLockGuard};
use kinlock_core::Native;
use kinlock_core::config::Tuning;
use kinlock_core::platform::Platform;
use kinlock_core::raw::{Config, QueuedSpinLock};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Miri runs one thread at a time, and slowly.
const ROUNDS: u64 = if cfg!(miri) { 20 } else { 20_000 };

fn counts_correctly<R: RawMutex + Send + Sync>(threads: u64) {
    // Two words that must agree, so that a torn critical section shows.
    let shared: Mutex<R, (u64, u64)> = Mutex::new((0, 0));
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

#[test]
fn excludes_with_more_and_fewer_threads_than_cpus() {
    for threads in if cfg!(miri) {
        vec![2, 4]
    } else {
        vec![1, 2, 4, 16]
    } {
        counts_correctly::<RawSpinLock>(threads);
        counts_correctly::<RawFifoSpinLock>(threads);
        counts_correctly::<RawCnaSpinLock>(threads);
    }
}

/// Nobody may overtake, so every hand-off goes to a waiter that has to be woken, on few CPUs mostly.
#[test]
fn without_stealing_sleeping_waiters_are_all_woken() {
    #[derive(Clone, Copy, Debug)]
    struct Strict;
    impl Config for Strict {
        fn tuning() -> Tuning {
            let mut tuning = Tuning::DEFAULT;
            tuning.stealing = false;
            tuning
        }
    }
    static LOCK: QueuedSpinLock<Native, Strict> = QueuedSpinLock::UNLOCKED;
    static ENTERED: AtomicU64 = AtomicU64::new(0);
    let (threads, rounds) = (8, ROUNDS.div_ceil(10));
    std::thread::scope(|s| {
        for i in 0..threads {
            s.spawn(move || {
                for _ in 0..rounds {
                    // Some with a time limit: these are woken in another way.
                    if i % 4 != 0 || !LOCK.lock_until(Native::now() + 50_000) {
                        LOCK.lock();
                    }
                    ENTERED.store(ENTERED.load(Relaxed) + 1, Relaxed);
                    // SAFETY: taken above.
                    unsafe { LOCK.unlock() };
                }
            });
        }
    });
    assert_eq!(ENTERED.load(Relaxed), threads * rounds);
    assert!(!LOCK.is_locked() && !LOCK.is_contended());
}

#[test]
fn a_static_lock_needs_no_initialisation() {
    static LOCK: SpinLock<Vec<u32>> = SpinLock::new(Vec::new());
    LOCK.lock().push(1);
    assert_eq!(*LOCK.lock(), [1]);
}

#[test]
fn zeroed_memory_is_an_unlocked_lock() {
    #[repr(C)]
    union Memory {
        bytes: [u8; 4],
        lock: std::mem::ManuallyDrop<RawSpinLock>,
    }
    let memory = Memory { bytes: [0; 4] };
    // SAFETY: the documentation promises that all-zero bytes are a lock.
    let lock = unsafe { &memory.lock };
    assert!(!lock.is_locked());
    assert!(lock.try_lock());
    assert!(lock.is_locked());
    // SAFETY: taken above.
    unsafe { lock.unlock() };
    assert!(lock.try_lock());
}

#[test]
fn a_lock_is_four_bytes() {
    assert_eq!(size_of::<RawSpinLock>(), 4);
    assert_eq!(size_of::<SpinLock<()>>(), 4);
}

#[test]
fn try_lock_fails_while_held_and_succeeds_after() {
    let lock = SpinLock::new(5);
    let guard = lock.lock();
    assert!(lock.try_lock().is_none());
    drop(guard);
    assert_eq!(lock.try_lock().map(|g| *g), Some(5));
}

#[test]
fn a_timed_lock_gives_up_in_time_and_not_before() {
    let lock = SpinLock::new(());
    let held = lock.lock();
    for millis in [0, 1, 20] {
        let timeout = Duration::from_millis(millis);
        let start = Instant::now();
        assert!(lock.try_lock_for(timeout).is_none());
        assert!(start.elapsed() >= timeout);
    }
    assert!(lock.try_lock_until(Instant::now()).is_none());
    drop(held);
    assert!(lock.try_lock_for(Duration::ZERO).is_some());
    assert!(lock.try_lock_for(Duration::MAX).is_some());
}

/// Waiters that give up stand everywhere in the queue; those that stay all get the lock.
#[test]
fn abandoned_places_do_not_block_the_queue() {
    let lock: Mutex<RawCnaSpinLock, u64> = Mutex::new(0);
    let rounds = if cfg!(miri) { 3 } else { 200 };
    let mut taken = 0;
    std::thread::scope(|s| {
        let handles: Vec<_> = (0..6u64)
            .map(|i| {
                let lock = &lock;
                s.spawn(move || {
                    let mut taken = 0;
                    for round in 0..rounds {
                        if i % 2 == 0 {
                            *lock.lock() += 1;
                            taken += 1;
                        } else if let Some(mut value) =
                            lock.try_lock_for(Duration::from_micros(round % 50))
                        {
                            *value += 1;
                            taken += 1;
                        }
                    }
                    taken
                })
            })
            .collect();
        taken = handles.into_iter().map(|h| h.join().unwrap()).sum();
    });
    assert_eq!(lock.into_inner(), taken);
}

#[test]
fn a_leaked_guard_harms_no_other_lock() {
    let leaked = SpinLock::new(());
    let other = SpinLock::new(0);
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
fn a_panic_in_a_critical_section_releases_the_lock() {
    let lock = SpinLock::new(1);
    let panicked = std::thread::scope(|s| {
        s.spawn(|| {
            let _guard = lock.lock();
            panic!("on purpose");
        })
        .join()
        .is_err()
    });
    assert!(panicked);
    assert_eq!(*lock.lock(), 1);
}

#[test]
fn guards_can_be_mapped() {
    let lock = SpinLock::new((1, 2));
    {
        let mut second = SpinLockGuard::map(lock.lock(), |pair| &mut pair.1);
        *second += 40;
    }
    assert_eq!(*lock.lock(), (1, 42));
}

/// Far more threads over time than there are waiter slots; all contend, so all need one.
#[test]
#[cfg_attr(miri, ignore = "thousands of threads")]
fn slots_are_recycled_when_threads_end() {
    let lock = SpinLock::new(0u32);
    let barrier = Barrier::new(8);
    let generations = 20_000 / 8;
    std::thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                for _ in 0..generations {
                    std::thread::scope(|inner| {
                        inner.spawn(|| {
                            barrier.wait();
                            *lock.lock() += 1;
                        });
                    });
                }
            });
        }
    });
    assert_eq!(*lock.lock(), 8 * generations);
    let in_use = <kinlock_core::Native as kinlock_core::platform::Platform>::waiters().in_use();
    assert!(in_use < 200, "{in_use} slots are still claimed");
}

#[test]
#[cfg_attr(
    miri,
    ignore = "Miri does not run destructors of pthread keys in this order"
)]
fn locks_work_in_destructors_of_thread_locals() {
    static LOCK: SpinLock<u32> = SpinLock::new(0);
    struct LocksWhenDropped;
    impl Drop for LocksWhenDropped {
        fn drop(&mut self) {
            *LOCK.lock() += 1;
        }
    }
    thread_local!(static LAST: LocksWhenDropped = const { LocksWhenDropped });
    let barrier = Barrier::new(8);
    std::thread::scope(|s| {
        let lock_twice = || {
            LAST.with(|_| {});
            barrier.wait();
            *LOCK.lock() += 1;
        };
        let threads: Vec<_> = (0..8).map(|_| s.spawn(lock_twice)).collect();
        // A scope does not wait for destructors of thread-locals; joining does.
        threads.into_iter().for_each(|t| t.join().unwrap());
    });
    assert_eq!(*LOCK.lock(), 16);
}

#[test]
fn raw_timed_lock_of_every_flavour() {
    fn check<R: RawMutexTimed<Duration = Duration, Instant = Instant>>() {
        let lock = R::INIT;
        assert!(lock.try_lock_for(Duration::from_millis(1)));
        assert!(!lock.try_lock_for(Duration::from_millis(1)));
        // SAFETY: taken above.
        unsafe { lock.unlock() };
        assert!(lock.try_lock_until(Instant::now() + Duration::from_millis(1)));
    }
    check::<RawSpinLock>();
    check::<RawFifoSpinLock>();
    check::<RawCnaSpinLock>();
}
