//! A sleeper whose wake-up somebody else takes.

use super::*;
use std::sync::mpsc;
use std::time::Duration;

/// A head sleeps on the word. The wake-up meant for it goes to a waiter that a broadcast has moved there, and before that one comes, somebody takes the lock. Returns
/// whether both get it in the end.
fn a_requeued_waiter_takes_the_wake_up_of_the_head<C: MutexConfig>() -> bool {
    let mutex = Mutex::<C>::new();
    let (done, finished) = mpsc::channel();
    mutex.lock();
    std::thread::scope(|s| {
        let enter = |lock: fn(&Mutex<C>)| {
            let (done, mutex) = (done.clone(), &mutex);
            s.spawn(move || {
                lock(mutex);
                unlock(mutex);
                done.send(()).expect("somebody listens");
            });
        };
        let pause = || std::thread::sleep(Duration::from_millis(30));
        enter(Mutex::lock);
        while mutex.flags.load(Relaxed) & SLEEPERS == 0 {
            std::thread::yield_now();
        }
        pause();
        // The unlock has cleared the flag, and woken the other one.
        mutex.flags.fetch_and(!SLEEPERS, Relaxed);
        let head = mutex.spinners.last();
        enter(Mutex::lock_after_sleep);
        while mutex.spinners.last() == head {
            std::thread::yield_now();
        }
        pause();
        unlock(&mutex);
        let wait = |millis| finished.recv_timeout(Duration::from_millis(millis)).is_ok();
        let both = wait(2_000) && wait(2_000);
        if !both {
            // So that the test can end.
            mutex.flags.fetch_or(SLEEPERS, SeqCst);
            mutex.wake();
        }
        both
    })
}

#[test]
fn a_requeued_waiter_forgets_nobody_who_sleeps_in_front_of_it() {
    assert!(a_requeued_waiter_takes_the_wake_up_of_the_head::<Sound>());
    // A head that happens to be awake, because its sleep has an end in a crowd or a signal has come, gets the lock all the same.
    assert!(
        (0..5).any(|_| !a_requeued_waiter_takes_the_wake_up_of_the_head::<SilentRequeue>()),
        "the broken one was never caught"
    );
}
