//! A short torture of every lock, and of the ones broken on purpose.
//!
//! Threads that hang cannot be ended, so each lock is tortured in a child process.

mod support;

use kinlock_verify::locks::Specimen;
use kinlock_verify::scenarios;
use std::process::Output;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use support::{again, settings, text};

macro_rules! passes {
    ($($test:ident: $lock:literal;)*) => {$(
        #[test]
        fn $test() {
            let output = torture_in_child(stringify!($test), $lock);
            let text = text(&output);
            assert!(output.status.success(), "{text}");
        }
    )*};
}

passes! {
    the_configured_lock_passes: "kinlock-spin";
    the_fifo_lock_passes: "kinlock-spin-fifo";
    the_numa_aware_lock_passes: "kinlock-spin-cna";
    the_lock_without_stealing_passes: "kinlock-spin-strict";
    the_mutex_passes: "kinlock-mutex";
    the_mutex_in_one_atomic_passes: "kinlock-mutex-joined";
    the_rwlock_passes: "kinlock-rwlock";
    running_once_passes: "kinlock-once";
}

macro_rules! caught {
    ($($test:ident: $lock:literal by $property:literal;)*) => {$(
        #[test]
        fn $test() {
            let output = torture_in_child(stringify!($test), $lock);
            let text = text(&output);
            assert_eq!(output.status.code(), Some(1), "{text}");
            let caught = text.lines().find(|line| line.contains("/catch: caught by"));
            let by = concat!("/", $property);
            assert!(caught.is_some_and(|line| line.ends_with(by)), "{text}");
        }
    )*};
}

caught! {
    a_lock_that_excludes_nobody_is_caught: "busted-exclusion" by "exclusion";
    a_lock_that_loses_waiters_in_a_splice_is_caught: "busted-splice" by "completion";
    a_lock_that_loses_wakeups_is_caught: "busted-wakeup" by "completion";
    a_lock_whose_sleepers_say_nothing_is_caught: "busted-sleeper" by "completion";
    a_lock_that_starves_a_domain_is_caught: "busted-starvation" by "progress";
    a_mutex_that_wakes_nobody_is_caught: "busted-mutex-wake" by "completion";
    a_mutex_whose_sleepers_look_once_is_caught: "busted-mutex-sleep" by "completion";
    a_mutex_that_hands_off_and_releases_is_caught: "busted-mutex-pickup" by "exclusion";
    a_mutex_whose_pickups_are_missed_is_caught: "busted-mutex-cancel" by "completion";
    an_rwlock_that_loses_readers_is_caught: "busted-rwlock-reader" by "exclusion";
    an_rwlock_whose_writers_do_not_look_is_caught: "busted-rwlock-unseen" by "exclusion";
    an_rwlock_with_hasty_readers_is_caught: "busted-rwlock-hasty" by "exclusion";
    an_rwlock_biased_during_a_write_is_caught: "busted-rwlock-bias" by "exclusion";
    an_rwlock_whose_last_reader_wakes_nobody_is_caught: "busted-rwlock-wake" by "completion";
    an_rwlock_with_requests_left_behind_is_caught: "busted-rwlock-request" by "completion";
    an_rwlock_whose_registered_readers_see_any_writer_is_caught:
        "busted-rwlock-stale" by "completion";
    an_rwlock_whose_releases_look_once_is_caught: "busted-rwlock-release" by "completion";
    a_condvar_whose_waiters_sleep_blindly_is_caught: "busted-condvar-sleep" by "completion";
    a_condvar_that_forgets_newcomers_is_caught: "busted-condvar-clear" by "completion";
    a_condvar_whose_sleepers_wake_nobody_is_caught: "busted-condvar-chain" by "completion";
    a_condvar_that_swallows_wakeups_is_caught: "busted-condvar-swallow" by "completion";
    a_function_that_is_not_awaited_is_caught: "busted-once-early" by "exclusion";
    a_function_whose_end_wakes_nobody_is_caught: "busted-once-wake" by "completion";
    a_condvar_whose_spinners_linger_is_caught: "busted-condvar-spinner" by "completion";
}

fn torture_in_child(test: &str, lock: &str) -> Output {
    // One at a time: a lock is not to be blamed for another's load.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    again(test, "").unwrap_or_else(|| {
        let mut settings = settings(1_500, &[6, 24], scenarios::by_default());
        // A sound lock gets the benefit of the doubt on a busy machine.
        let hang = if lock.starts_with("busted-") { 2 } else { 10 };
        settings.hang = Duration::from_secs(hang);
        let report = support::torture::<Specimen>(lock, &settings);
        std::process::exit(i32::from(!report.passed))
    })
}
