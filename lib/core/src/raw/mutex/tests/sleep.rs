//! Sleepers, and sleepers whose wake-up another waiter takes.

use super::*;
use crate::platform::PATIENCE_NS;
use crate::raw::contend::Target;
use crate::raw::contend::tests::timed::{NOW, SLOTS, Timed, WAKE_UPS};
use crate::raw::waiter::UNNOTICED_SLEEP_NS;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const MINUTE: u64 = 60_000_000_000;
/// A thread that is woken may have to wait for a CPU.
const PATIENCE: Duration = Duration::from_secs(300);

/// The role of a sleeper that sets this flag.
fn as_sleeper(flag: u8) -> Sleeper {
    match flag {
        SLEEPERS => Sleeper::Notified,
        _ => Sleeper::Requester,
    }
}

fn soon() -> u64 {
    Native::now() + MINUTE
}

both_layouts! {
    fn nobody_sleeps_who_can_act<L>() {
        for (held, flags, flag, after) in [
            (FREE, 0, SLEEPERS, SLEEPERS),
            (FREE, HANDOFF, REQUESTER_SLEEPS, HANDOFF | REQUESTER_SLEEPS),
            // No unlock hands over to a requester whose request has ended.
            (HELD, PICKUP, REQUESTER_SLEEPS, PICKUP),
            (HELD, 0, REQUESTER_SLEEPS, 0),
        ] {
            let mutex = with::<Sound, L>(held, flags);
            let (mut owes, until) = (false, soon());
            mutex.sleep(&mut owes, as_sleeper(flag), until);
            // A requester takes no wake-up from other sleepers, and so owes none.
            assert_eq!(owes, flag == SLEEPERS);
            assert!(Native::now() < until, "{flags}");
            assert_eq!(state(&mutex), (held, after));
        }
    }

    fn a_sleep_ends_in_time<L>() {
        let mutex = with::<Sound, L>(HELD, 0);
        mutex.sleep(&mut false, Sleeper::Notified, Native::now() + 1_000_000);
        assert_eq!(state(&mutex), (HELD, SLEEPERS));
    }

    /// The wake-up comes while the lock is held and another sleeper has set the flag again. If the
    /// woken thread slept on, it would be the last of the sleepers.
    fn a_woken_sleeper_looks_at_once<L>() {
        let mutex = with::<Sound, L>(HELD, 0);
        let until = soon();
        thread::scope(|s| {
            let sleeper = s.spawn(|| mutex.sleep(&mut false, Sleeper::Notified, until));
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
                s.spawn(move || mutex.sleep(&mut false, as_sleeper(flag), until))
            };
            let (requester, other) = (sleeper(REQUESTER_SLEEPS), sleeper(SLEEPERS));
            while mutex.word.flags() != HANDOFF | REQUESTER_SLEEPS | SLEEPERS {
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

    /// A waiter beside the queue finds that another waiter has requested a hand-off. It must not
    /// spin until that request ends. The pickup wakes it.
    fn a_refused_requester_sleeps_until_the_pickup<L>() {
        let mutex = with::<Sound, L>(HELD, HANDOFF);
        thread::scope(|s| {
            let waiter = s.spawn(|| wait_as(&mutex, false, waiting(fair(), false)));
            while mutex.word.flags() & SLEEPERS == 0 {
                thread::yield_now();
            }
            unlock(&mutex);
            assert!(mutex.pick_up());
            unlock(&mutex);
            assert!(waiter.join().expect("it ends"));
        });
        assert_eq!(state(&mutex), (HELD, SLEEPERS), "it has slept");
    }

    /// The front waiter is stopped: this test is the front waiter, and does nothing.
    fn a_waiter_goes_on_beside_a_front_that_does_not_run<L>() {
        let mutex = with::<Sound, L>(HELD, 0);
        let front = Native::waiters().take_node().expect("a slot is free");
        assert!(mutex.queue.join(&front, true, NEVER), "nobody else queues");
        let head = mutex.queue.last();
        thread::scope(|s| {
            let waiters = [(); 2].map(|()| s.spawn(|| {
                mutex.lock();
                unlock(&mutex);
            }));
            await_waiter_behind(&mutex, head);
            unlock(&mutex);
            for waiter in waiters {
                waiter.join().expect("it got the lock");
            }
        });
        assert!(mutex.try_lock());
        mutex.queue.leave(&front);
        assert_eq!(mutex.queue.last(), 0);
    }

    /// As in the test above, and the stopped waiter has taken the only wake-up that an unlock sent:
    /// another waiter sleeps on the word, and no flag says so.
    fn going_on_in_its_place_includes_the_wake_up_that_it_owes<L>() {
        let mutex = with::<Sound, L>(HELD, 0);
        let front = Native::waiters().take_node().expect("a slot is free");
        assert!(mutex.queue.join(&front, true, NEVER), "nobody else queues");
        let (done, finished) = mpsc::channel();
        thread::scope(|s| {
            s.spawn(|| {
                mutex.sleep(&mut false, Sleeper::Notified, NEVER);
                done.send(()).expect("the test listens");
            });
            while mutex.word.flags() & SLEEPERS == 0 {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(30));
            mutex.word.clear(SLEEPERS);
            let head = mutex.queue.last();
            let waiter = s.spawn(|| {
                mutex.lock();
                unlock(&mutex);
            });
            await_waiter_behind(&mutex, head);
            unlock(&mutex);
            waiter.join().expect("it got the lock");
            let woken = finished.recv_timeout(Duration::from_secs(300));
            // So that the test can end.
            if woken.is_err() {
                Native::unpark_in(mutex.key(), 1, OTHERS);
            }
            assert!(woken.is_ok());
        });
        mutex.queue.leave(&front);
    }

    /// The lock was handed over to a requester that is stopped. Two waiters come, one behind the
    /// other.
    fn a_lock_is_picked_up_in_place_of_a_requester_that_does_not_run<L>() {
        let mutex = with::<Sound, L>(HELD, PICKUP);
        thread::scope(|s| {
            let waiters = [(); 2].map(|()| s.spawn(|| {
                mutex.lock();
                unlock(&mutex);
            }));
            for waiter in waiters {
                waiter.join().expect("it got the lock");
            }
        });
        assert!(!mutex.is_locked());
        // Now the requester runs, and comes too late.
        assert!(!mutex.pick_up());
    }

    /// The waiter was refused before the hand-over, and has slept once. Then other threads wake it,
    /// for example waiters that give up.
    fn a_refused_waiter_picks_up_a_patience_after_it_has_seen_the_hand_over<L>() {
        let _alone = SLOTS.lock();
        let mutex = QueuedMutex::<Timed, Sound, L::On<Timed>>::new();
        assert!(mutex.try_lock());
        assert!(mutex.request_handoff());
        let mut waiter = Waiting::new(&mutex);
        // A time limit of 0, since on this platform a poll would not end.
        assert!(matches!(waiter.request(&at_front(), 0), Next::Look));
        unlock(&mutex);
        let handed_over = NOW.get();
        WAKE_UPS.set(3);
        for _ in 0..3 {
            assert!(matches!(waiter.request(&at_front(), 0), Next::Look));
        }
        assert!(matches!(waiter.request(&at_front(), 0), Next::End(Some(()))));
        assert_eq!(NOW.get() - handed_over, PATIENCE_NS);
    }

    /// The lock became free before the requester made its request, and the requester is stopped.
    fn a_free_lock_is_taken_in_place_of_a_requester_that_does_not_run<L>() {
        let mutex = with::<Sound, L>(FREE, HANDOFF | generation::<Native>());
        let next = Waiting::new(&mutex).request(&at_front(), NEVER);
        assert!(matches!(next, Next::End(Some(()))));
        unlock(&mutex);
        assert_eq!(state(&mutex), (HELD, PICKUP), "the requester is the next all the same");
    }

    fn a_requester_learns_that_another_has_ended_its_request<L>() {
        assert!(a_request_ends_by_another::<Sound, L>(PATIENCE));
    }

    /// The lock may have been free again while the waiter slept. If the holder may miss the flag,
    /// the waiter still owes the wake-up after a short sleep, and sends it before a long sleep.
    fn a_timed_sleep_passes_the_wake_up_on<L>() {
        let (short, long) = (1, UNNOTICED_SLEEP_NS + 1);
        let passed = if is_one::<L>() { SLEEPERS } else { 0 };
        for (held, nanos, after, owes) in [
            (HELD, short, SLEEPERS, !is_one::<L>()),
            (HELD, long, passed, false),
            (FREE, short, 0, false),
            (FREE, long, 0, false),
        ] {
            let mutex = with::<Sound, L>(held, 0);
            let mut waiter = Waiting::new(&mutex);
            waiter.owes = true;
            waiter.timed_sleep(nanos);
            assert_eq!((state(&mutex), waiter.owes), ((held, after), owes));
        }
    }

    fn a_requeued_waiter_forgets_nobody_who_sleeps_in_front_of_it<L>() {
        assert!(a_requeued_waiter_takes_the_wake_up_of_the_head::<Sound, L>(PATIENCE));
    }
}

/// With this layout the holder may miss the flag. Other threads that a broadcast has moved to the
/// word are not woken: each would find the lock held, and wake the next.
#[test]
fn a_requeued_waiter_wakes_the_front_alone() {
    let mutex = with::<Sound, AnySplit>(HELD, SLEEPERS);
    let bytes = mutex.four_bytes();
    thread::scope(|s| {
        let sleeper = |set| {
            let mutex = &mutex;
            s.spawn(move || Native::park_in(mutex.key(), bytes, soon(), set, || bytes))
        };
        let (front, beside) = (sleeper(FRONT), sleeper(NOTIFIED));
        // This moves the sleepers to the same key, and so counts them.
        while Native::requeue_but(0, mutex.key(), bytes, mutex.key(), || bytes) < 2 {
            thread::yield_now();
        }
        let waiter = s.spawn(|| {
            mutex.lock_after_sleep();
            unlock(&mutex);
        });
        let woken = front.join().expect("it ends");
        let sleeps_on = !beside.is_finished();
        unlock(&mutex);
        waiter.join().expect("it got the lock");
        assert_eq!((woken, sleeps_on), (Parked::Woken, true));
        assert_eq!(beside.join().expect("it ends"), Parked::Woken);
    });
}

/// Two waiters take one request for their own. One takes the lock while the other sleeps. Returns
/// whether the sleeper wakes up.
pub(super) fn a_request_ends_by_another<C: Model, L: AnyLayout>(patience: Duration) -> bool {
    let mutex = with::<C, L>(HELD, HANDOFF | generation::<On<C>>());
    let (done, finished) = mpsc::channel();
    thread::scope(|s| {
        s.spawn(|| {
            let next = Waiting::new(&mutex).await_handoff(&at_front());
            done.send(matches!(next, Next::Look))
                .expect("the test listens");
        });
        while mutex.word.flags() & REQUESTER_SLEEPS == 0 {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(30));
        mutex.end_request();
        let woken = finished.recv_timeout(patience);
        // So that the test can end.
        while woken.is_err() && On::<C>::unpark_in(mutex.key(), 1, REQUESTER) == 0 {
            thread::yield_now();
        }
        woken.unwrap_or(false)
    })
}

/// Waits until another waiter stands behind `head`, or has lost its patience there and waits beside
/// the queue.
fn await_waiter_behind<P: Platform, C: LockConfig, L: Layout<P>>(
    mutex: &QueuedMutex<P, C, L>,
    head: u16,
) {
    while mutex.queue.last() == head && mutex.word.flags() == 0 {
        thread::yield_now();
    }
}

/// Takes the lock: waits in the queue, and at its front asleep on the word without a time limit.
fn lock_as_sleeping_head<C: Model, L: AnyLayout>(mutex: &Mutex<C, L>) {
    let place = On::<C>::waiters().take_node().expect("a slot is free");
    assert!(mutex.queue.join(&place, true, NEVER));
    let mut owes = false;
    while !mutex.try_lock() {
        mutex.sleep(&mut owes, Sleeper::Front, NEVER);
    }
    if owes {
        mutex.word.set(SLEEPERS, Relaxed);
    }
    mutex.queue.leave(&place);
}

/// A head sleeps on the word. The wake-up meant for the head goes to a waiter that a broadcast has
/// requeued there, and another thread takes the lock before that waiter does. Returns whether both
/// waiters get the lock in the end.
pub(super) fn a_requeued_waiter_takes_the_wake_up_of_the_head<C: Model, L: AnyLayout>(
    patience: Duration,
) -> bool {
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
        while mutex.word.flags() & SLEEPERS == 0 {
            thread::yield_now();
        }
        pause();
        // This is as if an unlock had cleared the flag and woken the other waiter.
        mutex.word.clear(SLEEPERS);
        let head = mutex.queue.last();
        enter(Mutex::<C, L>::lock_after_sleep);
        await_waiter_behind(&mutex, head);
        pause();
        unlock(&mutex);
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
