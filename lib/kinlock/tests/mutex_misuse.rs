//! Which wrong uses of a mutex make debug builds panic, and that correct uses never do.
#![cfg(not(loom))]

use kinlock::{Mutex, MutexGuard};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The message of the panic in `misuse`; `None` if it does not panic.
fn panic_message(misuse: impl FnOnce()) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(misuse)).err()?;
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
}

#[test]
#[cfg(debug_assertions)]
fn relocking_in_one_thread_panics() {
    let mutex = Mutex::new(1);
    let guard = mutex.lock();
    let text = panic_message(|| drop(mutex.lock())).expect("it would wait for ever");
    assert!(text.contains("holds already"), "{text}");
    drop(guard);
    // The mutex still works.
    assert_eq!(*mutex.lock(), 1);

    let tried = mutex.try_lock().expect("it is free");
    assert!(panic_message(|| drop(mutex.lock())).is_some());
    drop(tried);
    let timed = mutex.try_lock_for(Duration::ZERO).expect("it is free");
    assert!(panic_message(|| drop(mutex.lock())).is_some());
    drop(timed);
}

#[test]
#[cfg(debug_assertions)]
fn unlocking_a_free_mutex_panics() {
    let mutex = Mutex::new(());
    // SAFETY: wrong on purpose: debug builds panic before they release anything.
    let text = panic_message(|| unsafe { mutex.force_unlock() }).expect("no thread holds it");
    assert!(text.contains("no thread holds"), "{text}");
    assert!(mutex.try_lock().is_some());
}

/// Many mutexes at a time, released in another order, and a leaked guard in memory that is used
/// again.
#[test]
fn correct_use_never_panics() {
    let mutexes: Vec<Mutex<u32>> = (0..10_000).map(Mutex::new).collect();
    for _ in 0..3 {
        let mut guards: Vec<MutexGuard<'_, u32>> = mutexes.iter().map(Mutex::lock).collect();
        guards.rotate_left(4_321);
        guards.iter_mut().for_each(|guard| **guard += 1);
    }
    for (number, mutex) in mutexes.into_iter().enumerate() {
        assert_eq!(mutex.into_inner(), number as u32 + 3);
    }

    let mut memory = Mutex::new(0);
    std::mem::forget(memory.lock());
    memory = Mutex::new(1);
    let other = std::thread::scope(|s| {
        let holder = s.spawn(|| {
            let mut guard = memory.lock();
            *guard += 1;
            std::thread::sleep(Duration::from_millis(20));
        });
        std::thread::sleep(Duration::from_millis(5));
        *memory.lock() += 1;
        holder.join()
    });
    assert!(other.is_ok());
    assert_eq!(memory.into_inner(), 3);
}
