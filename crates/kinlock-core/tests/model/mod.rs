//! What all models share: a bounded exploration that reports its extent, and the check that broken
//! variants are caught.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Seconds after which an exploration stops; its report says so.
const TIME_LIMIT: u64 = 20;

/// The time limit, or `KINLOCK_MODEL_SECONDS` if that is set.
fn time_limit() -> Duration {
    let wanted = std::env::var("KINLOCK_MODEL_SECONDS").ok();
    let seconds = wanted.map(|text| {
        text.parse()
            .expect("KINLOCK_MODEL_SECONDS is a number of seconds")
    });
    Duration::from_secs(seconds.unwrap_or(TIME_LIMIT))
}

/// Runs `body` in `threads` threads (one of them the model's first) on the result of `make`, in all
/// interleavings with at most `preemptions` preemptions. Then runs `check` with the results of the
/// threads.
pub fn explore<S: 'static, R: 'static>(
    name: &str,
    preemptions: usize,
    threads: usize,
    make: impl Fn() -> S + Send + Sync + 'static,
    body: fn(&S, usize) -> R,
    check: impl Fn(&S, Vec<R>) + Send + Sync + 'static,
) {
    run(name, preemptions, move || {
        let shared = loom::sync::Arc::new(make());
        let handles: Vec<_> = (1..threads)
            .map(|i| {
                let shared = shared.clone();
                loom::thread::spawn(move || body(&shared, i))
            })
            .collect();
        let mut returned = vec![body(&shared, 0)];
        returned.extend(handles.into_iter().map(|handle| handle.join().unwrap()));
        check(&shared, returned);
    });
}

fn run(name: &str, preemptions: usize, execution: impl Fn() + Send + Sync + 'static) {
    let executions = Arc::new(AtomicUsize::new(0));
    let counter = executions.clone();
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 20_000;
    model.max_duration = Some(time_limit());
    // The time limit is checked this often.
    model.checkpoint_interval = 100;
    let start = Instant::now();
    model.check(move || {
        counter.fetch_add(1, Relaxed);
        execution();
    });
    let extent = if start.elapsed() < time_limit() {
        "all"
    } else {
        "stopped by the time limit"
    };
    let executions = executions.load(Relaxed);
    println!("loom: {name}: {executions} executions, at most {preemptions} preemptions, {extent}");
}

/// Runs each of these otherwise ignored tests in a process of its own, since loom may abort when it
/// finds a deadlock. Each test must fail and name its symptom.
#[allow(dead_code)]
pub fn catches(cases: &[(&str, &str)]) {
    for (name, symptom) in cases {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", name])
            .env("RUST_BACKTRACE", "0")
            // Independent of the time for models of correct locks.
            .env("KINLOCK_MODEL_SECONDS", "60")
            .output()
            .unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && text.contains(symptom),
            "{name} was not caught:\n{text}"
        );
        println!("loom: {name}: caught ({symptom})");
    }
}
