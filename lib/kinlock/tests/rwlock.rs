//! What the reader-writer lock does, with data and without.
#![cfg(not(loom))]

use kinlock::lock_api::{RawRwLock as _, RawRwLockFair, RawRwLockUpgrade, RawRwLockUpgradeFair};
use kinlock::{RawRwLock, RwLock, RwLockUpgradableReadGuard, RwLockWriteGuard};
use std::mem::ManuallyDrop;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

/// Miri runs one thread at a time, and slowly.
const ROUNDS: u64 = if cfg!(miri) { 20 } else { 20_000 };
const MOMENT: Duration = Duration::from_millis(2);

#[test]
fn zeroed_memory_is_an_unlocked_lock_of_eight_bytes() {
    #[repr(C, align(4))]
    union Memory {
        bytes: [u8; 8],
        lock: ManuallyDrop<RawRwLock>,
    }
    assert_eq!(size_of::<RwLock<()>>(), 8);
    let memory = Memory { bytes: [0; 8] };
    // SAFETY: the documentation promises that all-zero bytes are a lock.
    let lock: &RawRwLock = unsafe { &memory.lock };
    assert!(!lock.is_locked() && lock.try_lock_exclusive() && lock.is_locked_exclusive());
    assert!(!lock.try_lock_exclusive() && !lock.try_lock_shared());
    // SAFETY: taken above.
    unsafe { lock.unlock_exclusive() };
    assert!(!lock.is_locked() && lock.try_lock_shared() && lock.try_lock_shared());
    assert!(lock.is_locked() && !lock.is_locked_exclusive() && !lock.try_lock_exclusive());
    // SAFETY: taken twice above.
    unsafe {
        lock.unlock_shared();
        lock.unlock_shared();
    }
    assert!(!lock.is_locked());
    // SAFETY: nobody holds or waits for it.
    assert_eq!(unsafe { memory.bytes }, [0; 8]);
}

/// One in `writes` sections writes, the others read.
fn mixed(threads: u64, writes: u64) {
    // Two words that must agree, so that a torn critical section shows.
    let shared = RwLock::new((0, 0));
    let written = AtomicU64::new(0);
    std::thread::scope(|s| {
        for thread in 0..threads {
            let (shared, written) = (&shared, &written);
            s.spawn(move || {
                for round in 0..ROUNDS {
                    if (round + thread) % writes == 0 {
                        let mut pair = shared.write();
                        assert_eq!(pair.0, pair.1);
                        pair.0 += 1;
                        std::hint::black_box(&mut *pair);
                        pair.1 += 1;
                        written.fetch_add(1, Relaxed);
                    } else {
                        let pair = shared.read();
                        assert_eq!(pair.0, pair.1);
                    }
                }
            });
        }
    });
    let written = written.into_inner();
    assert!(!shared.is_locked());
    assert_eq!(shared.into_inner(), (written, written));
}

#[test]
fn excludes_with_more_and_fewer_threads_than_cpus() {
    let threads: &[u64] = if cfg!(miri) { &[3] } else { &[1, 2, 4, 16, 64] };
    for &threads in threads {
        for writes in [1, 2, 10, 100] {
            mixed(threads, writes);
        }
    }
}

#[test]
fn timed_locks_give_up_in_time_and_not_before() {
    let lock: RwLock<()> = RwLock::new(());
    let reads = lock.read();
    for timeout in [Duration::ZERO, MOMENT, 10 * MOMENT] {
        let start = Instant::now();
        assert!(lock.try_write_for(timeout).is_none());
        assert!(start.elapsed() >= timeout);
        assert!(
            lock.try_read_for(timeout).is_some(),
            "a writer that gave up blocks nobody"
        );
    }
    drop(reads);
    let writes = lock.write();
    for timeout in [Duration::ZERO, MOMENT, 10 * MOMENT] {
        let start = Instant::now();
        assert!(lock.try_write_for(timeout).is_none());
        assert!(lock.try_read_for(timeout).is_none());
        assert!(lock.try_upgradable_read_for(timeout).is_none());
        assert!(start.elapsed() >= 3 * timeout);
    }
    drop(writes);
    assert!(lock.try_write_until(Instant::now()).is_some());
    assert!(lock.try_read_until(Instant::now()).is_some());
}

#[test]
fn readers_that_wait_for_a_writer_come_in_together() {
    let lock = RwLock::new(0);
    let inside = Barrier::new(5);
    let mut writes = lock.write();
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                let value = lock.read();
                // All four hold the lock at the same time.
                inside.wait();
                assert_eq!(*value, 7);
            });
        }
        std::thread::sleep(MOMENT);
        *writes = 7;
        drop(writes);
        inside.wait();
    });
    assert!(lock.try_write().is_some());
}

#[test]
fn a_reader_waits_behind_a_writer_but_a_recursive_one_passes() {
    let lock = RwLock::new(());
    let reads = lock.read();
    let written = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            let _writes = lock.write();
            written.store(true, Relaxed);
        });
        // The writer asks to go next when it has waited for long enough.
        while lock.try_read().is_some() {
            std::thread::yield_now();
        }
        assert!(lock.try_read_for(MOMENT).is_none());
        assert!(lock.try_read_recursive().is_some());
        drop(lock.read_recursive());
        assert!(!written.load(Relaxed));
        drop(reads);
    });
    assert!(written.into_inner());
}

#[test]
fn an_upgradable_reader_excludes_its_like_and_writers_only() {
    let lock = RwLock::new(1);
    let upgradable = lock.upgradable_read();
    assert!(lock.try_upgradable_read().is_none() && lock.try_write().is_none());
    let reads = lock.try_read().expect("readers may enter");
    let upgradable = RwLockUpgradableReadGuard::try_upgrade(upgradable).expect_err("one reads");
    let start = Instant::now();
    let upgradable =
        RwLockUpgradableReadGuard::try_upgrade_for(upgradable, MOMENT).expect_err("one reads");
    assert!(start.elapsed() >= MOMENT && lock.try_read().is_some());
    drop(reads);
    let mut writes = RwLockUpgradableReadGuard::upgrade(upgradable);
    *writes += 1;
    assert!(lock.try_read().is_none());
    let upgradable = RwLockWriteGuard::downgrade_to_upgradable(writes);
    assert!(lock.try_read().is_some() && lock.try_write().is_none());
    let reads = RwLockUpgradableReadGuard::downgrade(upgradable);
    assert!(lock.try_upgradable_read().is_some() && lock.try_write().is_none());
    assert_eq!(*reads, 2);
    drop(reads);
    let reads = RwLockWriteGuard::downgrade(lock.write());
    assert!(lock.try_read().is_some() && lock.try_write().is_none());
    drop(reads);
    assert!(lock.try_write().is_some());
}

#[test]
fn an_upgrade_waits_for_readers_and_lets_no_new_ones_in() {
    let lock = RwLock::new(0);
    let reads = lock.read();
    std::thread::scope(|s| {
        s.spawn(|| {
            let upgradable = lock.upgradable_read();
            let mut writes = RwLockUpgradableReadGuard::upgrade(upgradable);
            *writes += 1;
        });
        while lock.try_read().is_some() {
            std::thread::yield_now();
        }
        assert!(lock.try_read_recursive().is_some());
        std::thread::sleep(MOMENT);
        assert_eq!(*reads, 0);
        drop(reads);
        assert_eq!(*lock.read(), 1);
    });
}

#[test]
fn fair_unlocks_serve_those_who_sleep() {
    let lock = RawRwLock::INIT;
    lock.lock_exclusive();
    let turns = AtomicU64::new(0);
    std::thread::scope(|s| {
        s.spawn(|| {
            lock.lock_exclusive();
            turns.store(1, Relaxed);
            // SAFETY: taken above.
            unsafe { lock.unlock_exclusive_fair() };
        });
        while turns.load(Relaxed) == 0 {
            std::thread::sleep(MOMENT);
            // SAFETY: this thread holds it.
            unsafe { lock.bump_exclusive() };
        }
        // SAFETY: this thread holds it.
        unsafe { lock.unlock_exclusive_fair() };
        s.spawn(|| {
            lock.lock_exclusive();
            turns.store(2, Relaxed);
            // SAFETY: taken above.
            unsafe { lock.unlock_exclusive() };
        });
        lock.lock_shared();
        while turns.load(Relaxed) == 1 {
            std::thread::sleep(MOMENT);
            // SAFETY: this thread holds it.
            unsafe { lock.bump_shared() };
        }
        // SAFETY: this thread holds it.
        unsafe { lock.unlock_shared_fair() };
    });
    lock.lock_upgradable();
    // SAFETY: taken above.
    unsafe { lock.unlock_upgradable_fair() };
    assert!(!lock.is_locked());
}
