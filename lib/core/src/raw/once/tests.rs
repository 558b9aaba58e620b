use super::*;
use crate::Native;
use std::panic::{AssertUnwindSafe, catch_unwind};

type Once = RunOnce<Native>;

#[test]
fn the_first_function_runs_and_no_other() {
    let once = Once::new();
    assert_eq!(once.state(), OnceState::New);
    let mut ran = 0;
    for _ in 0..3 {
        let called = once.call(false, |state| {
            assert_eq!(state, OnceState::New);
            assert_eq!(once.state(), OnceState::InProgress);
            ran += 1;
        });
        assert_eq!(called, Ok(()));
    }
    assert_eq!((ran, once.state()), (1, OnceState::Done));
}

#[test]
fn a_panic_poisons_until_a_forced_call_returns() {
    let once = Once::new();
    let panics = AssertUnwindSafe(|| once.call(true, |_| panic!("on purpose")));
    assert!(catch_unwind(panics).is_err());
    assert!(once.state().poisoned());
    let never = once.call(false, |_| unreachable!("it is poisoned"));
    assert_eq!(never, Err(Poisoned));
    let mut forced = None;
    assert_eq!(once.call(true, |state| forced = Some(state)), Ok(()));
    assert_eq!(forced, Some(OnceState::Poisoned));
    assert!(once.state().done());
}

#[test]
fn waiters_sleep_until_the_function_ends() {
    let once = Once::new();
    let done = core::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        let run = || {
            let begun = once.call(false, |_| {
                while once.word.load(Relaxed) != RUNNING | SLEEPERS {
                    std::thread::yield_now();
                }
                done.store(true, Relaxed);
            });
            assert_eq!(begun, Ok(()));
            assert!(done.load(Relaxed));
        };
        for _ in 0..4 {
            s.spawn(run);
        }
    });
    assert_eq!(once.word.load(Relaxed), DONE);
}

/// A wait that reaches its limit may return the word of a function that has just ended.
#[test]
fn a_waiter_that_finds_the_end_does_not_mark_it() {
    for end in [0, DONE, POISONED] {
        let once = Once::new();
        once.word.store(end, Relaxed);
        assert_eq!(once.sleep(end), end);
        assert_eq!(once.word.load(Relaxed), end);
    }
}
