//! Uses that are legal and rare: release by another thread, forced releases, locks that move or are
//! freed while nobody uses them, leaked guards, panics. `docs/guide/verification.md` has a list of
//! all.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. The lock is held in this way by a guard that was forgotten.
//! 2. The page is mapped until it is unmapped here, and holds zeros, which are an unlocked lock. It
//!    is unmapped by a thread that holds the lock for writing.
//! 3. This release is one too many. The lock promises that it changes nothing if nobody reads.
#![cfg(not(loom))]

use kinlock::{Condvar, FairMutex, Mutex, Once, ReentrantMutex, RwLock, RwLockUpgradableReadGuard};
use kinlock::{RwLockReadGuard, RwLockWriteGuard, SpinLock};
use kinlock_core::raw::mutex::{Joined, QueuedMutex, Split};
use kinlock_core::raw::{QueuedRwLock, QueuedSpinLock};
use kinlock_linux::Native;
use kinlock_linux::config::AsConfigured;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

/// Miri runs one thread at a time, and slowly.
const ROUNDS: u32 = if cfg!(miri) { 10 } else { 2_000 };

/// One thread takes a lock and another one releases it, while a third takes and releases it by
/// itself.
macro_rules! released_by_another_thread {
    ($($test:ident: $lock:ty, $take:ident, $release:ident, $try:ident, $end:ident;)*) => {$(
        #[test]
        fn $test() {
            let lock = <$lock>::default();
            let (send, receive) = mpsc::channel();
            std::thread::scope(|s| {
                let lock = &lock;
                s.spawn(move || {
                    for _ in 0..ROUNDS {
                        let _ = lock.$take();
                        send.send(()).unwrap();
                    }
                });
                s.spawn(move || {
                    for () in receive {
                        // SAFETY: the sender has taken it, and leaves the release to this thread.
                        unsafe { lock.$release() };
                    }
                });
                s.spawn(move || {
                    for _ in 0..ROUNDS {
                        if lock.$try() {
                            // SAFETY: taken above.
                            unsafe { lock.$end() };
                        }
                        std::thread::yield_now();
                    }
                });
            });
            assert!(lock.$try(), "nobody holds it any more");
        }
    )*};
}

released_by_another_thread! {
    a_mutex_is_released_by_another_thread:
        QueuedMutex<Native, AsConfigured, Split<Native>>, lock, unlock, try_lock, unlock;
    a_joined_mutex_is_released_by_another_thread:
        QueuedMutex<Native, AsConfigured, Joined<Native>>, lock, unlock, try_lock, unlock;
    a_mutex_is_handed_over_by_another_thread:
        QueuedMutex<Native, AsConfigured, Split<Native>>, lock, unlock_fair, try_lock, unlock;
    a_spinlock_is_released_by_another_thread:
        QueuedSpinLock<Native, AsConfigured>, lock, unlock, try_lock, unlock;
    a_read_lock_is_released_by_another_thread_beside_a_writer:
        QueuedRwLock<Native, AsConfigured>, read, unlock_read, try_write, unlock_write;
    a_write_lock_is_released_by_another_thread:
        QueuedRwLock<Native, AsConfigured>, write, unlock_write, try_write, unlock_write;
    an_upgradable_lock_is_released_by_another_thread:
        QueuedRwLock<Native, AsConfigured>, upgradable, unlock_upgradable, try_write, unlock_write;
    a_read_lock_is_fairly_released_by_another_thread:
        QueuedRwLock<Native, AsConfigured>, read, unlock_read_fair, try_write, unlock_write_fair;
}

/// A mistake that programs make. The release returns, and the lock can still be used.
#[test]
fn a_read_lock_released_once_too_often_can_be_used_on() {
    let lock = RwLock::new(1);
    drop(lock.read());
    // SAFETY: invariant 3.
    unsafe { lock.force_unlock_read() };
    *lock.write() += 1;
    assert_eq!(*lock.read(), 2);
}

#[test]
fn leaked_readers_keep_writers_out_and_nobody_else() {
    let (leaked, other) = (RwLock::new(1), RwLock::new(1));
    for _ in 0..4 {
        std::mem::forget(leaked.read());
    }
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                assert!(leaked.try_write_for(Duration::from_millis(2)).is_none());
                assert_eq!(*leaked.read(), 1);
                *other.write() += 1;
            });
        }
    });
    assert_eq!(*other.read(), 4);
}

/// A wait would never end, in each way to read. Attempts fail, even those with a long time limit.
#[test]
#[cfg_attr(miri, ignore = "a million reads")]
fn a_reader_that_cannot_be_counted_panics() {
    const LIMIT: u32 = (1 << 20) - 1;
    let full = RwLock::new(0);
    (0..LIMIT).for_each(|_| std::mem::forget(full.read()));
    let refuses = |read: &dyn Fn()| {
        let panic = catch_unwind(AssertUnwindSafe(read)).expect_err("it is counted");
        let text = panic.downcast_ref::<&str>().copied().unwrap_or_default();
        assert!(text.contains("has 1048575 readers"), "{text}");
    };
    refuses(&|| drop(full.read()));
    refuses(&|| drop(full.read_recursive()));
    refuses(&|| drop(full.upgradable_read()));
    let long = Duration::from_secs(100_000);
    assert!(full.try_read_for(long).is_none() && full.try_read_recursive_for(long).is_none());
    assert!(full.try_upgradable_read_for(long).is_none() && full.try_read().is_none());
    // The lock has not changed.
    assert!(full.try_write().is_none());
    // SAFETY: invariant 1.
    unsafe { full.force_unlock_read() };
    drop(full.read());
    drop(full.read_recursive());
    drop(full.upgradable_read());
    // SAFETY: invariant 1.
    (1..LIMIT).for_each(|_| unsafe { full.force_unlock_read() });
    *full.write() += 1;
}

/// Used by many threads at once, then moved, then used again.
#[test]
fn locks_move_while_they_are_unlocked() {
    fn together(body: impl Fn() + Sync) {
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| (0..ROUNDS / 10).for_each(|_| body()));
            }
        });
    }
    #[derive(Default)]
    struct Locks {
        mutex: Mutex<u32>,
        fair: FairMutex<u32>,
        spin: SpinLock<u32>,
        reentrant: ReentrantMutex<std::cell::Cell<u32>>,
        rwlock: RwLock<u32>,
        condvar: Condvar,
        once: Once,
    }
    let mut locks = Locks::default();
    for round in 1..4 {
        together(|| {
            *locks.mutex.lock() += 1;
            *locks.fair.lock() += 1;
            *locks.spin.lock() += 1;
            let again = locks.reentrant.lock();
            let reentrant = locks.reentrant.lock();
            reentrant.set(again.get() + 1);
            drop((reentrant, again));
            drop((locks.rwlock.read(), locks.rwlock.read_recursive()));
            *locks.rwlock.write() += 1;
            locks.once.call_once(|| ());
            let short = Duration::from_micros(1);
            locks.condvar.wait_for(&mut locks.mutex.lock(), short);
            locks.condvar.notify_all();
        });
        let sections = round * 3 * (ROUNDS / 10);
        let moved = Box::new(locks);
        assert_eq!(*moved.mutex.lock(), sections);
        assert_eq!(*moved.fair.lock() + *moved.spin.lock(), 2 * sections);
        assert_eq!(moved.reentrant.lock().get(), sections);
        assert_eq!(*moved.rwlock.read(), sections);
        assert!(moved.rwlock.try_write().is_some());
        locks = *moved;
    }
}

#[test]
fn a_panic_releases_whatever_was_held() {
    let panics = |body: &mut dyn FnMut()| {
        assert!(catch_unwind(AssertUnwindSafe(body)).is_err());
    };
    let lock = RwLock::new((1, 2));
    panics(&mut || {
        let _guard = lock.read();
        panic!("on purpose");
    });
    panics(&mut || {
        let _guard = lock.upgradable_read();
        panic!("on purpose");
    });
    panics(&mut || {
        let _guard = RwLockUpgradableReadGuard::upgrade(lock.upgradable_read());
        panic!("on purpose");
    });
    panics(&mut || {
        let _guard = RwLockWriteGuard::downgrade(lock.write());
        panic!("on purpose");
    });
    panics(&mut || {
        let _guard = RwLockReadGuard::map(lock.read(), |_| -> &i32 { panic!("on purpose") });
    });
    panics(&mut || RwLockReadGuard::unlocked(&mut lock.read(), || panic!("on purpose")));
    assert!(lock.try_write().is_some());

    let reentrant = ReentrantMutex::new(1);
    panics(&mut || {
        let _guards = (reentrant.lock(), reentrant.lock());
        panic!("on purpose");
    });
    assert!(!reentrant.is_locked());

    let (mutex, condvar) = (Mutex::new(1), Condvar::new());
    panics(&mut || condvar.wait_while(&mut mutex.lock(), |_| panic!("on purpose")));
    assert!(mutex.try_lock().is_some());
}

/// The next writer frees the lock as soon as it has it, while the reader may still be in `unlock`.
#[cfg(not(miri))]
#[test]
fn a_reader_writer_lock_may_go_once_a_writer_has_it() {
    type Lock = QueuedRwLock<Native, AsConfigured>;
    const PAGE: usize = 4096;
    for round in 0..ROUNDS {
        // SAFETY: invariant 2.
        let lock: &Lock = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let page = libc::mmap(std::ptr::null_mut(), PAGE, access, kind, -1, 0);
            assert_ne!(page, libc::MAP_FAILED);
            &*page.cast()
        };
        if round % 2 == 0 {
            lock.set_biased();
        }
        let (send, receive) = mpsc::channel();
        std::thread::scope(|s| {
            s.spawn(move || {
                assert!(lock.read());
                send.send(()).unwrap();
                // SAFETY: taken above.
                unsafe { lock.unlock_read() };
            });
            receive.recv().unwrap();
            lock.write();
            // SAFETY: invariant 2.
            let unmapped = unsafe { libc::munmap(std::ptr::from_ref(lock) as *mut _, PAGE) };
            assert_eq!(unmapped, 0);
        });
    }
}

/// Guards of every kind but the spinlock's, sent through a channel and dropped elsewhere.
#[cfg(feature = "send_guard")]
#[test]
fn guards_are_sent() {
    let (mutex, fair) = (Mutex::new(0), FairMutex::new(0));
    let lock = RwLock::new(0);
    let (send, receive) = mpsc::channel::<Box<dyn Send>>();
    std::thread::scope(|s| {
        s.spawn(move || receive.into_iter().for_each(drop));
        for _ in 0..ROUNDS {
            send.send(Box::new(mutex.lock())).unwrap();
            send.send(Box::new(fair.lock())).unwrap();
            send.send(Box::new(lock.read())).unwrap();
            send.send(Box::new(lock.upgradable_read())).unwrap();
            send.send(Box::new(RwLockReadGuard::map(lock.read(), |n| n)))
                .unwrap();
            send.send(Box::new(lock.write())).unwrap();
            send.send(Box::new(RwLockWriteGuard::map(lock.write(), |n| n)))
                .unwrap();
        }
        drop(send);
    });
    assert!(!mutex.is_locked() && !fair.is_locked() && !lock.is_locked());
}

/// Like the test above, with guards that own an `Arc` of their lock, perhaps the last one.
#[cfg(all(feature = "send_guard", feature = "arc_lock"))]
#[test]
fn guards_that_own_their_lock_are_sent() {
    use std::sync::Arc;
    let (send, receive) = mpsc::channel::<Box<dyn Send>>();
    std::thread::scope(|s| {
        s.spawn(move || receive.into_iter().for_each(drop));
        for _ in 0..ROUNDS {
            send.send(Box::new(Arc::new(Mutex::new(0)).lock_arc()))
                .unwrap();
            let lock = Arc::new(RwLock::new(0));
            send.send(Box::new(lock.read_arc())).unwrap();
            send.send(Box::new(lock.upgradable_read_arc())).unwrap();
            send.send(Box::new(lock.write_arc())).unwrap();
        }
        drop(send);
    });
}
