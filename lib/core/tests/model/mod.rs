//! What all loom models share: a bounded exploration that reports how many executions it covered,
//! and the check that broken variants are caught.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Seconds after which the exploration of a model stops. The report then says so.
const TIME_LIMIT: u64 = 20;

/// The time limit: `KINLOCK_MODEL_SECONDS`, or the default above.
fn time_limit() -> Duration {
    let wanted = std::env::var("KINLOCK_MODEL_SECONDS").ok();
    let seconds = wanted.map(|text| {
        text.parse()
            .expect("KINLOCK_MODEL_SECONDS is a number of seconds")
    });
    Duration::from_secs(seconds.unwrap_or(TIME_LIMIT))
}

/// Explores all interleavings of `threads` threads with at most `preemptions` preemptions.
///
/// Each execution calls `make`, runs `body` on the result in every thread (the first is the main
/// thread of the model), and calls `check` with the results of `body`.
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
    // The number of executions between two checks of the time limit.
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

/// Checks that each of these ignored tests fails with its symptom in the output. Each test runs in
/// its own process, because loom may abort when it finds a deadlock.
#[allow(dead_code)]
pub fn catches(cases: &[(&str, &str)]) {
    let waiting = Mutex::new(cases.iter());
    let next = || waiting.lock().unwrap().next();
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((name, symptom)) = next() {
                    is_caught(name, symptom);
                }
            });
        }
    });
}

fn is_caught(name: &str, symptom: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", name])
        .env("RUST_BACKTRACE", "0")
        // Independent of the time limit of the correct variants, and long enough for a busy
        // machine: the slowest case takes 80 seconds on an idle machine.
        .env("KINLOCK_MODEL_SECONDS", "3600")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && text.contains(symptom),
        "{name} was not caught:\n{text}"
    );
    println!("loom: {name}: caught ({symptom})");
}
