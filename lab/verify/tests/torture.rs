//! A short torture of every lock.
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

fn torture_in_child(test: &str, lock: &str) -> Output {
    // One lock at a time, so that the load of one torture does not make another one fail.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    again(test, "").unwrap_or_else(|| {
        let mut scenarios = scenarios::by_default();
        // `fairness` limits waits, which makes sense only on a machine that does nothing else.
        // ci/torture.sh runs it.
        scenarios.retain(|scenario| *scenario != "fairness");
        let mut settings = settings(200, &[6, 24], scenarios);
        // On a busy machine a sound lock may need this long.
        settings.hang = Duration::from_secs(60);
        let report = support::torture::<Specimen>(lock, &settings);
        std::process::exit(i32::from(!support::is_right::<Specimen>(lock, &report)))
    })
}
