//! A short torture of every lock, and of the ones broken on purpose.
//!
//! Threads that hang cannot be ended, so each lock is tortured in a child process: this program again, told by the
//! environment which test to be.

use kinlock_verify::plan::{Settings, default_scenarios, run};
use kinlock_verify::report::Report;
use kinlock_verify::{Preemption, locks};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const CHILD: &str = "KINLOCK_VERIFY_CHILD";

#[test]
fn the_configured_lock_passes() {
    expect_success("the_configured_lock_passes", "kinlock-spin");
}

#[test]
fn the_fifo_lock_passes() {
    expect_success("the_fifo_lock_passes", "kinlock-spin-fifo");
}

#[test]
fn the_numa_aware_lock_passes() {
    expect_success("the_numa_aware_lock_passes", "kinlock-spin-cna");
}

#[test]
fn the_lock_without_stealing_passes() {
    expect_success("the_lock_without_stealing_passes", "kinlock-spin-strict");
}

#[test]
fn the_mutex_passes() {
    expect_success("the_mutex_passes", "kinlock-mutex");
}

#[test]
fn a_lock_that_excludes_nobody_is_caught() {
    expect_catch(
        "a_lock_that_excludes_nobody_is_caught",
        "busted-exclusion",
        "/exclusion",
    );
}

#[test]
fn a_lock_that_loses_waiters_in_a_splice_is_caught() {
    expect_catch(
        "a_lock_that_loses_waiters_in_a_splice_is_caught",
        "busted-splice",
        "/completion",
    );
}

#[test]
fn a_lock_that_loses_wakeups_is_caught() {
    expect_catch(
        "a_lock_that_loses_wakeups_is_caught",
        "busted-wakeup",
        "/completion",
    );
}

#[test]
fn a_lock_whose_sleepers_say_nothing_is_caught() {
    expect_catch(
        "a_lock_whose_sleepers_say_nothing_is_caught",
        "busted-sleeper",
        "/completion",
    );
}

#[test]
fn a_lock_that_starves_a_domain_is_caught() {
    expect_catch(
        "a_lock_that_starves_a_domain_is_caught",
        "busted-starvation",
        "/progress",
    );
}

#[test]
fn a_mutex_that_wakes_nobody_is_caught() {
    expect_catch(
        "a_mutex_that_wakes_nobody_is_caught",
        "busted-mutex-wake",
        "/completion",
    );
}

#[test]
fn a_mutex_whose_sleepers_look_once_is_caught() {
    expect_catch(
        "a_mutex_whose_sleepers_look_once_is_caught",
        "busted-mutex-sleep",
        "/completion",
    );
}

#[test]
fn a_mutex_that_grants_and_releases_is_caught() {
    expect_catch(
        "a_mutex_that_grants_and_releases_is_caught",
        "busted-mutex-pickup",
        "/exclusion",
    );
}

#[test]
fn a_mutex_whose_claimants_leave_with_the_lock_is_caught() {
    expect_catch(
        "a_mutex_whose_claimants_leave_with_the_lock_is_caught",
        "busted-mutex-cancel",
        "/completion",
    );
}

#[test]
fn a_mutex_whose_claimants_queue_is_caught() {
    expect_catch(
        "a_mutex_whose_claimants_queue_is_caught",
        "busted-mutex-handoff",
        "/completion",
    );
}

#[test]
fn a_condvar_whose_waiters_sleep_blindly_is_caught() {
    expect_catch(
        "a_condvar_whose_waiters_sleep_blindly_is_caught",
        "busted-condvar-sleep",
        "/completion",
    );
}

#[test]
fn a_condvar_that_forgets_newcomers_is_caught() {
    expect_catch(
        "a_condvar_that_forgets_newcomers_is_caught",
        "busted-condvar-clear",
        "/completion",
    );
}

#[test]
fn a_condvar_whose_sleepers_wake_nobody_is_caught() {
    expect_catch(
        "a_condvar_whose_sleepers_wake_nobody_is_caught",
        "busted-condvar-chain",
        "/completion",
    );
}

#[test]
fn a_condvar_that_swallows_wakeups_is_caught() {
    expect_catch(
        "a_condvar_that_swallows_wakeups_is_caught",
        "busted-condvar-swallow",
        "/completion",
    );
}

#[test]
fn a_condvar_whose_spinners_linger_is_caught() {
    expect_catch(
        "a_condvar_whose_spinners_linger_is_caught",
        "busted-condvar-spinner",
        "/completion",
    );
}

fn expect_success(test: &str, lock: &str) {
    let output = torture_in_child(test, lock);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn expect_catch(test: &str, lock: &str, by: &str) {
    let output = torture_in_child(test, lock);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let caught = text.lines().find(|line| line.contains("/catch: caught by"));
    assert!(caught.is_some_and(|line| line.ends_with(by)), "{text}");
}

fn torture_in_child(test: &str, lock: &str) -> Output {
    if std::env::var_os(CHILD).is_some() {
        std::process::exit(torture(lock));
    }
    // One at a time: locks are not to be blamed for each other's load.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let this = std::env::current_exe().expect("the path of this program");
    let mut child = Command::new(this);
    child
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1");
    child.output().expect("this program can be started again")
}

fn torture(lock: &str) -> i32 {
    let [specimen] = locks::by_name(lock)[..] else {
        panic!("no lock is called {lock}")
    };
    // A sound lock gets the benefit of the doubt on a busy machine.
    let hang = if specimen.defect.is_some() { 2 } else { 10 };
    let settings = Settings {
        time: Duration::from_millis(1500),
        threads: vec![6, 24],
        domains: vec![2, 4],
        preemption: Preemption::Light,
        hang: Duration::from_secs(hang),
        seed: 1,
        scenarios: default_scenarios(),
    };
    let report = run(specimen, &settings, |_| ());
    print(&report);
    i32::from(!report.passed)
}

fn print(report: &Report) {
    for check in &report.checks {
        eprintln!(
            "{} {}: {}",
            if check.passed { "ok" } else { "FAILED" },
            check.name,
            check.detail
        );
    }
}
