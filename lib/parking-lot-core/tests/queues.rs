//! Every function, on queues of threads that sleep.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. Keys are addresses in memory of the test. Closures neither panic nor call parking functions.

use parking_lot_core::*;
use std::sync::Mutex;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// Memory whose addresses are keys.
#[derive(Default)]
struct Keys([u8; 2]);

impl Keys {
    fn key(&self, at: usize) -> usize {
        (&raw const self.0[at]).addr()
    }
}

fn now() -> Option<Instant> {
    Some(Instant::now())
}

/// Starts a thread that parks with a token. Returns when it is in the queue.
fn sleeper<'s>(s: &'s Scope<'s, '_>, key: usize, token: usize) -> ScopedJoinHandle<'s, ParkResult> {
    let (tell, told) = std::sync::mpsc::channel();
    let handle = s.spawn(move || {
        let before_sleep = || tell.send(()).unwrap_or_default();
        // SAFETY: invariant 1.
        unsafe {
            park(
                key,
                || true,
                before_sleep,
                |_, _| (),
                ParkToken(token),
                None,
            )
        }
    });
    assert!(told.recv().is_ok());
    handle
}

/// The tokens of the threads in the queue, in order.
fn tokens(key: usize) -> Vec<usize> {
    let mut tokens = Vec::new();
    let filter = |token: ParkToken| {
        tokens.push(token.0);
        FilterOp::Skip
    };
    // SAFETY: invariant 1.
    let result = unsafe { unpark_filter(key, filter, |_| DEFAULT_UNPARK_TOKEN) };
    assert_eq!((result.unparked_threads, result.be_fair), (0, false));
    assert_eq!(result.have_more_threads, !tokens.is_empty());
    tokens
}

fn token_of(handle: ScopedJoinHandle<'_, ParkResult>) -> usize {
    match handle.join() {
        Ok(ParkResult::Unparked(token)) => token.0,
        other => panic!("not unparked: {other:?}"),
    }
}

#[test]
fn a_refused_thread_does_not_wait() {
    let keys = Keys::default();
    let asleep = || panic!("it must not sleep");
    let timed_out = |_, _| panic!("it has not waited");
    // SAFETY: invariant 1.
    let result = unsafe {
        park(
            keys.key(0),
            || false,
            asleep,
            timed_out,
            ParkToken(1),
            now(),
        )
    };
    assert_eq!((result, result.is_unparked()), (ParkResult::Invalid, false));
    assert!(tokens(keys.key(0)).is_empty());
}

#[test]
fn a_timeout_tells_the_key_and_whether_it_was_the_last() {
    let keys = Keys::default();
    let key = keys.key(0);
    let timed = |expected| {
        let told = Mutex::new(None);
        let timed_out = |key, last| *told.lock().unwrap() = Some((key, last));
        // SAFETY: invariant 1.
        let result = unsafe { park(key, || true, || (), timed_out, ParkToken(9), now()) };
        assert_eq!(result, ParkResult::TimedOut);
        assert_eq!(told.into_inner().unwrap(), Some(expected));
    };
    timed((key, true));
    std::thread::scope(|s| {
        let other = sleeper(s, key, 1);
        timed((key, false));
        assert_eq!(tokens(key), [1], "the one whose time was up has left");
        // SAFETY: invariant 1.
        assert_eq!(unsafe { unpark_all(key, UnparkToken(3)) }, 1);
        assert_eq!(token_of(other), 3);
    });
}

/// The thread moves itself, in `before_sleep`, and times out under the other key.
#[test]
fn a_requeued_thread_times_out_under_its_new_key() {
    let keys = Keys::default();
    let (from, to) = (keys.key(0), keys.key(1));
    let told = Mutex::new(None);
    let timed_out = |key, last| *told.lock().unwrap() = Some((key, last));
    let before_sleep = || {
        // SAFETY: invariant 1.
        let result = unsafe {
            unpark_requeue(
                from,
                to,
                || RequeueOp::RequeueAll,
                |_, _| DEFAULT_UNPARK_TOKEN,
            )
        };
        assert_eq!((result.unparked_threads, result.requeued_threads), (0, 1));
        assert!(!result.have_more_threads && !result.be_fair);
    };
    // SAFETY: invariant 1.
    let result = unsafe { park(from, || true, before_sleep, timed_out, ParkToken(1), now()) };
    assert_eq!(result, ParkResult::TimedOut);
    assert_eq!(told.into_inner().unwrap(), Some((to, true)));
}

/// An unpark that comes before the sleep, when the time is already up, counts.
#[test]
fn an_unpark_before_the_sleep_is_not_lost() {
    let keys = Keys::default();
    let key = keys.key(0);
    for timeout in [None, now()] {
        // SAFETY: invariant 1.
        let unpark = || assert_eq!(unsafe { unpark_all(key, UnparkToken(5)) }, 1);
        let timed_out = |_, _| panic!("it was unparked");
        // SAFETY: invariant 1.
        let result = unsafe { park(key, || true, unpark, timed_out, ParkToken(0), timeout) };
        assert_eq!(result, ParkResult::Unparked(UnparkToken(5)));
    }
}

#[test]
fn one_after_the_other_in_order() {
    let keys = Keys::default();
    let key = keys.key(0);
    // SAFETY: invariant 1.
    let none = unsafe { unpark_one(key, |_| DEFAULT_UNPARK_TOKEN) };
    assert_eq!(none, UnparkResult::default());
    std::thread::scope(|s| {
        let handles: Vec<_> = (0..3).map(|n| sleeper(s, key, n)).collect();
        assert_eq!(tokens(key), [0, 1, 2]);
        for (n, handle) in handles.into_iter().enumerate() {
            let mut passed = None;
            let callback = |result| {
                passed = Some(result);
                UnparkToken(10 + n)
            };
            // SAFETY: invariant 1.
            let result = unsafe { unpark_one(key, callback) };
            assert_eq!(passed, Some(result));
            let counts = (result.unparked_threads, result.requeued_threads);
            assert_eq!((counts, result.have_more_threads), ((1, 0), n < 2));
            assert_eq!(token_of(handle), 10 + n, "first in, first out");
        }
    });
}

#[test]
fn a_filter_chooses_by_token_and_stops() {
    let keys = Keys::default();
    let key = keys.key(0);
    std::thread::scope(|s| {
        let mut handles: Vec<_> = (0..5).map(|n| sleeper(s, key, n)).collect();
        let filter = |token: ParkToken| match token.0 {
            1 | 2 => FilterOp::Unpark,
            3 => FilterOp::Stop,
            4 => panic!("it is behind the stop"),
            _ => FilterOp::Skip,
        };
        // SAFETY: invariant 1.
        let result = unsafe { unpark_filter(key, filter, |_| UnparkToken(7)) };
        assert_eq!(
            (result.unparked_threads, result.have_more_threads),
            (2, true)
        );
        assert_eq!(tokens(key), [0, 3, 4]);
        handles
            .drain(1..3)
            .for_each(|handle| assert_eq!(token_of(handle), 7));
        // SAFETY: invariant 1.
        assert_eq!(unsafe { unpark_all(key, UnparkToken(8)) }, 3);
        handles
            .into_iter()
            .for_each(|handle| assert_eq!(token_of(handle), 8));
    });
}

/// What each operation leaves in the two queues, of three threads in the first and one in the
/// second, and what it says.
#[test]
fn requeueing() {
    use RequeueOp::*;
    type Left = (&'static [usize], &'static [usize]);
    let cases: [(RequeueOp, Left, (usize, usize, bool)); 5] = [
        (Abort, (&[0, 1, 2], &[9]), (0, 0, false)),
        (UnparkOneRequeueRest, (&[], &[9, 1, 2]), (1, 2, false)),
        (RequeueAll, (&[], &[9, 0, 1, 2]), (0, 3, false)),
        (UnparkOne, (&[1, 2], &[9]), (1, 0, true)),
        (RequeueOne, (&[1, 2], &[9, 0]), (0, 1, true)),
    ];
    let keys = Keys::default();
    let (from, to) = (keys.key(0), keys.key(1));
    for (op, left, said) in cases {
        std::thread::scope(|s| {
            for n in 0..3 {
                sleeper(s, from, n);
            }
            sleeper(s, to, 9);
            let mut passed = None;
            let callback = |op, result| {
                passed = Some((op, result));
                DEFAULT_UNPARK_TOKEN
            };
            // SAFETY: invariant 1.
            let result = unsafe { unpark_requeue(from, to, || op, callback) };
            assert_eq!(passed, (op != Abort).then_some((op, result)));
            let counts = (result.unparked_threads, result.requeued_threads);
            assert_eq!(
                (counts.0, counts.1, result.have_more_threads),
                said,
                "{op:?}"
            );
            assert_eq!((&tokens(from)[..], &tokens(to)[..]), left, "{op:?}");
            // SAFETY: invariant 1.
            let rest = unsafe { unpark_all(from, UnparkToken(1)) + unpark_all(to, UnparkToken(1)) };
            assert_eq!(rest, 4 - said.0);
        });
    }
}

/// Each unpark that is told to be fair sets the next moment up to 1 ms ahead.
#[test]
fn fairness_is_due_from_time_to_time() {
    let memory = [0_u8; 20];
    let is_due = |byte: &&u8| {
        let key = (&raw const **byte).addr();
        let fair = || {
            std::thread::scope(|s| {
                sleeper(s, key, 0);
                // SAFETY: invariant 1.
                unsafe { unpark_one(key, |_| DEFAULT_UNPARK_TOKEN) }.be_fair
            })
        };
        fair();
        std::thread::sleep(Duration::from_millis(2));
        // Nobody is told by this one.
        std::thread::scope(|s| {
            sleeper(s, key, 0);
            // SAFETY: invariant 1.
            assert_eq!(unsafe { unpark_all(key, DEFAULT_UNPARK_TOKEN) }, 1);
        });
        fair()
    };
    // The keys of another test may share a bucket with some of these, and were told just before.
    let due = memory.iter().filter(is_due).count();
    assert!(due > 10, "it has not been for 2 ms: {due} of 20");
}

/// A counter of tokens that threads pass around loses none.
#[test]
fn many_threads() {
    use std::sync::atomic::{AtomicUsize, Ordering::*};
    let (semaphore, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let key = semaphore.as_ptr().addr();
    let take = |n: usize| n.checked_sub(1);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..2_000 {
                    while semaphore.fetch_update(AcqRel, Relaxed, take).is_err() {
                        let empty = || semaphore.load(Relaxed) == 0;
                        // SAFETY: invariant 1.
                        unsafe { park(key, empty, || (), |_, _| (), ParkToken(0), None) };
                    }
                    taken.fetch_add(1, Relaxed);
                }
            });
        }
        for _ in 0..8_000 {
            semaphore.fetch_add(1, Release);
            // SAFETY: invariant 1.
            unsafe { unpark_one(key, |_| DEFAULT_UNPARK_TOKEN) };
        }
    });
    assert_eq!((taken.into_inner(), semaphore.into_inner()), (8_000, 0));
}
