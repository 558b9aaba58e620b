//! What every lock of this crate does, with data (`lock_api::Mutex`) and without.
#![cfg(not(loom))]

use kinlock::lock_api::{Mutex, RawMutexTimed};
use kinlock::{RawCnaSpinLock, RawFairMutex, RawFifoSpinLock, RawMutex, RawSpinLock};
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

/// Miri runs one thread at a time, and slowly.
const ROUNDS: u64 = if cfg!(miri) { 20 } else { 20_000 };

trait Lock: RawMutexTimed<Duration = Duration, Instant = Instant> + Send + Sync {}

impl<R: RawMutexTimed<Duration = Duration, Instant = Instant> + Send + Sync> Lock for R {}

/// One test per function: it runs for every lock.
macro_rules! for_every_lock {
    ($($(#[$attribute:meta])* $test:ident: $check:ident,)*) => {$(
        $(#[$attribute])*
        #[test]
        fn $test() {
            $check::<RawMutex>();
            $check::<RawFairMutex>();
            $check::<RawSpinLock>();
            $check::<RawFifoSpinLock>();
            $check::<RawCnaSpinLock>();
        }
    )*};
}

for_every_lock! {
    excludes_with_more_and_fewer_threads_than_cpus: excludes,
    zeroed_memory_is_an_unlocked_lock_of_four_bytes: zeroed_memory,
    try_lock_fails_while_held_and_succeeds_after: try_lock,
    a_timed_lock_gives_up_in_time_and_not_before: gives_up,
}

fn excludes<R: Lock>() {
    let threads: &[u64] = if cfg!(miri) {
        &[2, 4]
    } else {
        &[1, 2, 4, 16, 64]
    };
    for &threads in threads {
        // More than four threads share the rounds of four.
        let rounds = 4 * ROUNDS / threads.max(4);
        // Two words that must agree, so that a torn critical section shows.
        let shared: Mutex<R, (u64, u64)> = Mutex::new((0, 0));
        std::thread::scope(|s| {
            for _ in 0..threads {
                s.spawn(|| {
                    for _ in 0..rounds {
                        let mut pair = shared.lock();
                        assert_eq!(pair.0, pair.1);
                        pair.0 += 1;
                        std::hint::black_box(&mut *pair);
                        pair.1 += 1;
                    }
                });
            }
        });
        assert_eq!(shared.into_inner(), (threads * rounds, threads * rounds));
    }
}

fn zeroed_memory<R: Lock>() {
    #[repr(C)]
    union Memory<R> {
        bytes: [u8; 4],
        lock: ManuallyDrop<R>,
    }
    assert_eq!(size_of::<R>(), 4);
    assert_eq!(size_of::<Mutex<R, ()>>(), 4);
    let memory = Memory { bytes: [0; 4] };
    // SAFETY: the documentation promises that all-zero bytes are a lock.
    let lock: &R = unsafe { &memory.lock };
    assert!(!lock.is_locked() && lock.try_lock() && lock.is_locked() && !lock.try_lock());
    // SAFETY: taken above.
    unsafe { lock.unlock() };
    assert!(!lock.is_locked() && lock.try_lock());
}

fn try_lock<R: Lock>() {
    let lock: Mutex<R, u32> = Mutex::new(5);
    let guard = lock.lock();
    assert!(lock.try_lock().is_none());
    drop(guard);
    assert_eq!(lock.try_lock().map(|guard| *guard), Some(5));
}

fn gives_up<R: Lock>() {
    let lock: Mutex<R, ()> = Mutex::new(());
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
    let soon = Instant::now() + Duration::from_millis(1);
    assert!(lock.try_lock_until(soon).is_some());
}
