//! A short torture of every lock, and, for `ci/deep.sh`, of the ones broken on purpose.
//!
//! When a defect shows depends on how threads meet, and so on luck and on what else the machine
//! does. Broken locks are tortured until one of the checks that can show their defect has failed.
//!
//! Threads that hang cannot be ended, so each lock is tortured in a child process.

mod support;

use kinlock_verify::locks::Specimen;
use kinlock_verify::scenarios;
use std::process::Output;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use support::{again, settings, test_name, text};

macro_rules! passes {
    ($($test:ident: $lock:literal;)*) => {$(
        #[test]
        fn $test() {
            let output = torture_in_child(&test_name(module_path!(), stringify!($test)), $lock);
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
    ($($test:ident: $lock:literal;)*) => {$(
        #[test]
        #[ignore = "deep: runs until the defect shows"]
        fn $test() {
            let output = torture_in_child(&test_name(module_path!(), stringify!($test)), $lock);
            let text = text(&output);
            assert!(output.status.success(), "{text}");
            assert!(text.contains("/catch: caught by"), "{text}");
        }
    )*};
}

mod deep {
    use super::*;

    caught! {
        a_lock_that_excludes_nobody_is_caught: "busted-exclusion";
        a_lock_that_loses_waiters_in_a_splice_is_caught: "busted-splice";
        a_lock_that_loses_wakeups_is_caught: "busted-wakeup";
        a_lock_whose_sleepers_say_nothing_is_caught: "busted-sleeper";
        a_lock_that_starves_a_domain_is_caught: "busted-starvation";
        a_mutex_that_wakes_nobody_is_caught: "busted-mutex-wake";
        a_mutex_whose_sleepers_look_once_is_caught: "busted-mutex-sleep";
        a_mutex_that_hands_off_and_releases_is_caught: "busted-mutex-pickup";
        a_mutex_whose_pickups_are_missed_is_caught: "busted-mutex-cancel";
        an_rwlock_that_loses_readers_is_caught: "busted-rwlock-reader";
        an_rwlock_whose_writers_do_not_look_is_caught: "busted-rwlock-unseen";
        an_rwlock_with_hasty_readers_is_caught: "busted-rwlock-hasty";
        an_rwlock_biased_during_a_write_is_caught: "busted-rwlock-bias";
        an_rwlock_whose_last_reader_wakes_nobody_is_caught: "busted-rwlock-wake";
        an_rwlock_with_requests_left_behind_is_caught: "busted-rwlock-request";
        an_rwlock_whose_registered_readers_see_any_writer_is_caught: "busted-rwlock-stale";
        an_rwlock_whose_releases_look_once_is_caught: "busted-rwlock-release";
        a_condvar_whose_waiters_sleep_blindly_is_caught: "busted-condvar-sleep";
        a_condvar_that_forgets_newcomers_is_caught: "busted-condvar-clear";
        a_condvar_whose_sleepers_wake_nobody_is_caught: "busted-condvar-chain";
        a_condvar_that_swallows_wakeups_is_caught: "busted-condvar-swallow";
        a_function_that_is_not_awaited_is_caught: "busted-once-early";
        a_function_whose_end_wakes_nobody_is_caught: "busted-once-wake";
        a_condvar_whose_spinners_linger_is_caught: "busted-condvar-spinner";
    }
}

fn torture_in_child(test: &str, lock: &str) -> Output {
    // One at a time: a lock is not to be blamed for another's load.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    again(test, "").unwrap_or_else(|| {
        let is_broken = lock.starts_with("busted-");
        let mut scenarios = scenarios::by_default();
        if !is_broken {
            // Its limit on waits holds on a machine that does nothing else; ci/torture.sh runs it.
            scenarios.retain(|scenario| *scenario != "fairness");
        }
        let millis = if is_broken { 1_000 } else { 200 };
        let mut settings = settings(millis, &[6, 24], scenarios);
        // A sound lock gets the benefit of the doubt on a busy machine.
        settings.hang = Duration::from_secs(if is_broken { 2 } else { 60 });
        let report = support::torture::<Specimen>(lock, &settings);
        std::process::exit(i32::from(!support::is_right::<Specimen>(lock, &report)))
    })
}
