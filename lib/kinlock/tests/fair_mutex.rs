//! The fair mutex goes to its waiters in order, whether they run or not.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. The handler uses atomics only. The signal is sent to a thread that lives.
#![cfg(all(not(miri), not(loom)))]

use kinlock::FairMutex;
use std::sync::Mutex as StdMutex;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::*};
use std::thread::yield_now;
use std::time::Duration;

static HELD_UP: AtomicBool = AtomicBool::new(false);
static LET_GO: AtomicBool = AtomicBool::new(false);

extern "C" fn hold_up(_: i32) {
    HELD_UP.store(true, Release);
    while !LET_GO.load(Acquire) {
        core::hint::spin_loop();
    }
}

/// Ends the signal handler when dropped, even after a failure: the test waits for its threads.
struct LetGo;

impl Drop for LetGo {
    fn drop(&mut self) {
        LET_GO.store(true, Release);
    }
}

/// The state of a thread of this process, as the kernel tells it: R, S, ...
fn state(thread: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Returns when the thread has told its number, and sleeps.
fn wait_until_asleep(number: &AtomicI32) -> i32 {
    loop {
        let thread = number.load(Acquire);
        if thread != 0 && state(thread) == Some('S') {
            return thread;
        }
        yield_now();
    }
}

fn tell_number(number: &AtomicI32) {
    // SAFETY: it has no conditions.
    number.store(unsafe { libc::gettid() }, Release);
}

/// With one waiter (the pending one), or four (a queue), of which the first cannot run.
#[test]
fn no_thread_overtakes_a_waiter_that_does_not_run() {
    // SAFETY: invariant 1.
    unsafe { libc::signal(libc::SIGUSR1, hold_up as *const () as usize) };
    for waiters in [1, 4] {
        HELD_UP.store(false, Relaxed);
        LET_GO.store(false, Relaxed);
        let (mutex, order) = (FairMutex::new(()), StdMutex::new(Vec::new()));
        std::thread::scope(|s| {
            let guard = mutex.lock();
            let mut first = 0;
            for waiter in 0..waiters {
                let number = std::sync::Arc::new(AtomicI32::new(0));
                let (own, mutex, order) = (number.clone(), &mutex, &order);
                s.spawn(move || {
                    tell_number(&own);
                    let _guard = mutex.lock();
                    order.lock().unwrap().push(waiter);
                });
                let thread = wait_until_asleep(&number);
                first = if waiter == 0 { thread } else { first };
            }
            // SAFETY: invariant 1.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), first, libc::SIGUSR1) };
            while !HELD_UP.load(Acquire) {
                yield_now();
            }
            let let_go = LetGo;
            drop(guard);
            // It is the first waiter's turn, for as long as that takes to run again.
            assert!(mutex.try_lock().is_none(), "overtaken");
            assert!(
                mutex.try_lock_for(Duration::from_millis(5)).is_none(),
                "overtaken"
            );
            assert!(order.lock().unwrap().is_empty(), "overtaken by a waiter");
            drop(let_go);
            let _guard = mutex.lock();
            order.lock().unwrap().push(waiters);
        });
        assert_eq!(order.into_inner().unwrap(), Vec::from_iter(0..=waiters));
    }
}
