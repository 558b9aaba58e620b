//! Sleepers, and those whose wake-up another waiter takes.

use super::*;
use crate::raw::contend::Target;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const MINUTE: u64 = 60_000_000_000;

fn soon() -> u64 {
    Native::now() + MINUTE
}

both_layouts! {
    fn nobody_sleeps_who_can_act<L>() {
        for (held, flags, flag) in [
            (FREE, 0, SLEEPERS),
            (FREE, HANDOFF, REQUESTER_SLEEPS),
            (HELD, PICKUP, REQUESTER_SLEEPS),
        ] {
            let mutex = with::<Sound, L>(held, flags);
            let (mut slept, until) = (false, soon());
            mutex.sleep(&mut slept, flag, until);
            // The requester sleeps in nobody else's place, and owes no wake-up.
            assert_eq!(slept, flag == SLEEPERS);
            assert!(Native::now() < until, "{flags}");
            assert_eq!(state(&mutex), (held, flags | flag));
        }
    }

    fn a_sleep_ends_in_time<L>() {
        let mutex = with::<Sound, L>(HELD, 0);
        mutex.sleep(&mut false, SLEEPERS, Native::now() + 1_000_000);
        assert_eq!(state(&mutex), (HELD, SLEEPERS));
    }

    /// Its wake-up comes while the lock is held and another sleeper has set the flag again. To
    /// sleep on would be behind all others.
    fn a_woken_sleeper_looks_at_once<L>() {
        let mutex = with::<Sound, L>(HELD, 0);
        let until = soon();
        thread::scope(|s| {
            let sleeper = s.spawn(|| mutex.sleep(&mut false, SLEEPERS, until));
            while Native::unpark_in(mutex.key(), 1, OTHERS) == 0 {
                thread::yield_now();
            }
            sleeper.join().expect("woken");
        });
        assert!(Native::now() < until);
        assert_eq!(state(&mutex), (HELD, SLEEPERS));
    }

    /// The requester and another waiter sleep. A hand-off wakes the requester, an unlock the other
    /// waiter.
    fn each_sleeper_has_its_wake_up<L>() {
        let mutex = with::<Sound, L>(HELD, HANDOFF);
        let until = soon();
        thread::scope(|s| {
            let sleeper = |flag| {
                let mutex = &mutex;
                s.spawn(move || mutex.sleep(&mut false, flag, until))
            };
            let (requester, other) = (sleeper(REQUESTER_SLEEPS), sleeper(SLEEPERS));
            while mutex.word.flags(Relaxed) != HANDOFF | REQUESTER_SLEEPS | SLEEPERS {
                thread::yield_now();
            }
            unlock(&mutex);
            requester.join().expect("woken");
            assert_eq!(state(&mutex), (HELD, PICKUP | SLEEPERS));
            assert!(!other.is_finished());
            mutex.word.clear(PICKUP);
            unlock(&mutex);
            other.join().expect("woken");
        });
        assert!(Native::now() < until);
        assert_eq!(state(&mutex), (FREE, 0));
    }

    /// A waiter without a queue finds that another has requested a hand-off. It must not spin until
    /// that ends, and the pickup wakes it.
    fn a_refused_requester_sleeps_until_the_pickup<L>() {
        let mutex = with::<Sound, L>(HELD, HANDOFF);
        thread::scope(|s| {
            let waiter = s.spawn(|| wait_as(&mutex, false, waiting(fair(), false)));
            while mutex.word.flags(Relaxed) & SLEEPERS == 0 {
                thread::yield_now();
            }
            unlock(&mutex);
            mutex.end_request();
            unlock(&mutex);
            assert!(waiter.join().expect("it ends"));
        });
        assert_eq!(state(&mutex), (HELD, SLEEPERS), "it has slept");
    }

    /// It may have slept through the unlock that woke it.
    fn a_timed_sleep_passes_the_wake_up_on<L>() {
        for (held, after) in [(HELD, SLEEPERS), (FREE, 0)] {
            let mutex = with::<Sound, L>(held, 0);
            let mut waiter = Waiting::new(&mutex);
            waiter.slept = true;
            waiter.timed_sleep(1);
            assert_eq!((state(&mutex), waiter.slept), ((held, after), false));
        }
    }

    fn a_requeued_waiter_forgets_nobody_who_sleeps_in_front_of_it<L>() {
        assert!(a_requeued_waiter_takes_the_wake_up_of_the_head::<Sound, L>());
        // A signal may wake its head.
        let caught = |_| !a_requeued_waiter_takes_the_wake_up_of_the_head::<SilentRequeue, L>();
        assert!((0..20).any(caught), "the broken one was never caught");
    }
}

/// Waits in the queue, and at its front asleep on the word without a time limit.
fn lock_as_sleeping_head<C: Model, L: AnyLayout>(mutex: &Mutex<C, L>) {
    let place = On::<C>::waiters().take_node().expect("a slot is free");
    assert!(mutex.queue.join(&place, true, NEVER));
    let mut slept = false;
    while !mutex.try_lock() {
        mutex.sleep(&mut slept, SLEEPERS, NEVER);
    }
    if slept {
        mutex.word.set(SLEEPERS, Relaxed);
    }
    mutex.queue.leave(&place);
}

/// A head sleeps on the word. The wake-up meant for it goes to a waiter that a broadcast has
/// requeued there, and the lock is taken before that waiter comes. Returns whether both get the
/// lock in the end.
fn a_requeued_waiter_takes_the_wake_up_of_the_head<C: Model, L: AnyLayout>() -> bool {
    let mutex = Mutex::<C, L>::default();
    let (done, finished) = mpsc::channel();
    mutex.lock();
    thread::scope(|s| {
        let enter = |lock: fn(&Mutex<C, L>)| {
            let (done, mutex) = (done.clone(), &mutex);
            s.spawn(move || {
                lock(mutex);
                unlock(mutex);
                done.send(()).expect("the test listens");
            });
        };
        let pause = || thread::sleep(Duration::from_millis(30));
        enter(lock_as_sleeping_head::<C, L>);
        while mutex.word.flags(Relaxed) & SLEEPERS == 0 {
            thread::yield_now();
        }
        pause();
        // As if an unlock had cleared the flag and woken the other waiter.
        mutex.word.clear(SLEEPERS);
        let head = mutex.queue.last();
        enter(Mutex::<C, L>::lock_after_sleep);
        while mutex.queue.last() == head {
            thread::yield_now();
        }
        pause();
        unlock(&mutex);
        // The broken one is to be caught soon. The sound one may have to wait for a CPU.
        let patience = match <On<C> as Platform>::DEFECT {
            Defect::None => Duration::from_secs(300),
            _ => Duration::from_secs(2),
        };
        let wait = || finished.recv_timeout(patience).is_ok();
        let both = wait() && wait();
        if !both {
            // So that the test can end.
            mutex.word.set(SLEEPERS, SeqCst);
            mutex.wake_sleeper();
        }
        both
    })
}
