//! A reader that waits for itself makes debug builds panic, and correct uses never do.
#![cfg(all(
    debug_assertions,
    not(loom),
    not(feature = "send_guard"),
    not(feature = "deadlock_detection")
))]

use kinlock::lock_api::RawRwLock as _;
use kinlock::{RawRwLock, RwLock, RwLockUpgradableReadGuard, RwLockWriteGuard};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::*};

/// Runs `reads` in a thread that reads, when a writer waits for it. Returns how `reads` ended.
fn behind_a_writer<T>(lock: &RwLock<u32>, reads: impl FnOnce() -> T) -> std::thread::Result<T> {
    std::thread::scope(|s| {
        s.spawn(|| *lock.write() += 1);
        // The writer asks to go next when it has waited for long enough.
        while lock.try_read().is_some() {
            std::thread::yield_now();
        }
        catch_unwind(AssertUnwindSafe(reads))
    })
}

fn assert_reported<T>(result: std::thread::Result<T>) {
    let panic = result.err().expect("it would wait for ever");
    let text = panic.downcast_ref::<&str>().copied().unwrap_or_default();
    assert!(text.contains("reads already"), "{text}");
}

#[test]
fn a_second_read_behind_a_writer_panics() {
    let lock = RwLock::new(0);
    let outer = lock.read();
    // A read that has been released does not hide the outer one.
    drop(lock.read());
    let result = behind_a_writer(&lock, || {
        let result = catch_unwind(AssertUnwindSafe(|| drop(lock.read())));
        drop(outer);
        result
    });
    assert_reported(result.expect("the inner panic is caught"));
    // The writer has come in, and the lock works.
    assert_eq!(*lock.read(), 1);
}

#[test]
fn so_does_one_after_a_downgrade_and_one_of_an_upgradable_reader() {
    let lock = RwLock::new(0);
    let outer = RwLockWriteGuard::downgrade(lock.write());
    assert_reported(behind_a_writer(&lock, || {
        let result = catch_unwind(AssertUnwindSafe(|| drop(lock.read())));
        drop(outer);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }));
    let outer = lock.upgradable_read();
    assert_reported(behind_a_writer(&lock, || {
        let result = catch_unwind(AssertUnwindSafe(|| drop(lock.read())));
        drop(outer);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }));
    assert_eq!(*lock.read(), 2);
}

#[test]
fn a_recursive_read_and_one_whose_writer_gives_up_do_not_panic() {
    let lock = RwLock::new(0);
    let outer = lock.read();
    let do_not_panic = |_| {
        let given_up = AtomicBool::new(false);
        let reads = || {
            drop((lock.read_recursive(), lock.read()));
            while lock.try_read().is_some() && !given_up.load(Relaxed) {
                std::thread::yield_now();
            }
            drop((lock.read_recursive(), lock.read()));
        };
        let result = std::thread::scope(|s| {
            s.spawn(|| {
                let wait = std::time::Duration::from_millis(50);
                given_up.store(lock.try_write_for(wait).is_none(), Relaxed);
            });
            catch_unwind(AssertUnwindSafe(reads))
        });
        assert!(given_up.into_inner());
        result.is_ok()
    };
    // On a busy machine the writer may give up later than the reader panics.
    assert!((0..20).any(do_not_panic));
    drop(outer);
}

/// Each case ends a read in another way, and then the thread does not read any more: what it
/// remembers must not turn a later wait of more than a second into a panic.
#[test]
fn a_reader_that_waits_behind_another_one_for_long_does_not_panic() {
    let lock = RwLock::new(0);
    let released_elsewhere = || {
        let raw = RawRwLock::INIT;
        raw.lock_shared();
        // SAFETY: it was taken for reading just now, and is released once.
        std::thread::scope(|s| _ = s.spawn(|| unsafe { raw.unlock_shared() }));
        assert!(raw.try_lock_exclusive());
        raw
    };
    let raw = released_elsewhere();
    drop(lock.read());
    drop(RwLockUpgradableReadGuard::upgrade(lock.upgradable_read()));
    let write = lock.write();
    std::thread::scope(|s| {
        s.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(1_300));
            // SAFETY: it was taken for writing above, and is released once.
            unsafe { raw.unlock_exclusive() };
        });
        raw.lock_shared();
    });
    drop(write);
    assert_eq!(*lock.read(), 0);
}
