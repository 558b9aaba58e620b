//! Locks where the kernel refuses to let threads sleep: a wait costs CPU time, but it ends.

mod support;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kinlock::{Condvar, Mutex, RwLock};
use kinlock_verify::sandbox;

const LIMIT: Duration = Duration::from_millis(30);

/// Runs `body` in a child process without futexes.
fn without_futexes(body: impl FnOnce()) {
    assert!(support::holds_in_a_fork(|| {
        sandbox::refuse_futex().unwrap();
        body();
        true
    }));
}

#[test]
fn limited_waits_end() {
    without_futexes(|| {
        let begin = Instant::now();
        let (condvar, mutex, rwlock) = (Condvar::new(), Mutex::new(()), RwLock::new(()));
        assert!(condvar.wait_for(&mut mutex.lock(), LIMIT).timed_out());
        let (_held, _written) = (mutex.lock(), rwlock.write());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(mutex.try_lock_for(LIMIT).is_none());
                assert!(rwlock.try_read_for(LIMIT).is_none());
                assert!(rwlock.try_write_for(LIMIT).is_none());
            });
        });
        assert!(begin.elapsed() >= 4 * LIMIT);
    });
}

#[test]
fn unlimited_waits_see_what_they_wait_for() {
    without_futexes(|| {
        let (condvar, mutex, rwlock) = (Condvar::new(), Mutex::new(false), RwLock::new(0));
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let written = rwlock.write();
            scope.spawn(|| {
                let mut ready = mutex.lock();
                while !*ready {
                    condvar.wait(&mut ready);
                }
                assert_eq!(*rwlock.read(), 1);
                ended.store(true, Relaxed);
            });
            let mut written = written;
            std::thread::sleep(LIMIT);
            *mutex.lock() = true;
            condvar.notify_one();
            std::thread::sleep(LIMIT);
            assert!(!ended.load(Relaxed));
            *written = 1;
        });
        assert!(ended.load(Relaxed));
    });
}
