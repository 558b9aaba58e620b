//! What a child of fork does with the locks of its parent. The only test of this process: a child
//! starts threads, which takes locks of the standard library, and another test that starts a thread
//! at the moment of the fork would leave those locks held.
#![cfg(not(any(loom, miri)))]

mod support;

use kinlock::{Condvar, Mutex, Once, RwLock, RwLockUpgradableReadGuard};
use kinlock_core::raw::QueuedRwLock;
use kinlock_linux::Native;
use kinlock_linux::config::AsConfigured;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

type Lock = QueuedRwLock<Native, AsConfigured>;

/// What the forking thread holds is its own in the child, and can be used there: released by
/// another thread, or upgraded. The thread can wait with a condition variable that it used with
/// another mutex. A lock that another thread reads is free in the child if that reader has
/// announced itself, and otherwise stays locked.
#[test]
fn a_child_goes_on_with_what_the_forking_thread_held() {
    let (first, second, condvar) = (Mutex::new(0), Mutex::new(0), Condvar::new());
    let [lock, announced, counted] = [(); 3].map(|()| Lock::default());
    announced.set_biased();
    let upgradable = RwLock::new(0);
    let once = Once::new();
    let started = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            let long = Duration::from_secs(60);
            assert!(announced.read() && counted.read());
            started.store(true, Release);
            condvar.wait_while_for(&mut first.lock(), |n| *n == 0, long);
            // SAFETY: taken above.
            unsafe {
                announced.unlock_read();
                counted.unlock_read();
            }
        });
        // A thread that is just starting may hold a lock that starting one in the child takes.
        while !started.load(Acquire) {
            std::thread::yield_now();
        }
        lock.set_biased();
        assert!(lock.read());
        assert!(lock.read());
        let guard = upgradable.upgradable_read();
        let status = support::in_a_child(|| {
            let keeps_its_reads = !lock.try_write();
            std::thread::scope(|s| {
                // One read is announced, one is counted; the threads have rows of their own.
                for _ in 0..2 {
                    // SAFETY: taken before the fork, and released twice in this process.
                    s.spawn(|| unsafe { lock.unlock_read() });
                }
                s.spawn(|| {
                    *second.lock() = 1;
                    condvar.notify_all();
                });
                condvar.wait_while(&mut second.lock(), |n| *n == 0);
            });
            lock.write();
            *RwLockUpgradableReadGuard::upgrade(guard) += 1;
            once.call_once(|| ());
            // The reader of these locks does not exist here. The lock in which it was counted stays
            // locked.
            let theirs = announced.try_write() && counted.try_read(false) && !counted.try_write();
            let is_right = keeps_its_reads && theirs;
            i32::from(!is_right || upgradable.try_read().is_none_or(|n| *n != 1))
        });
        assert!(!announced.try_write() && !counted.try_write());
        assert_eq!(status, Some(0));
        *first.lock() = 1;
        condvar.notify_all();
        // SAFETY: taken twice above; the child has released its copies.
        unsafe {
            lock.unlock_read();
            lock.unlock_read();
        }
    });
    assert!(!lock.is_locked());
}
