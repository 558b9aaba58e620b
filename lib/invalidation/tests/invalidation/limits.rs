//! Limits that end with an error.

use super::stamped;
use kinlock_invalidation::lab::domain_from;
use kinlock_invalidation::{Backend, BeginError, Domain};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::thread;

#[test]
fn generations_run_out_with_an_error() {
    for backend in Backend::ALL {
        let last = match backend {
            Backend::Slots => (1 << 63) - (1 << 32),
            Backend::Locked => u64::MAX - 1,
        };
        let domain = domain_from(backend, last - 1);
        let section = domain.begin();
        assert_eq!(section.generation(), last);
        let tag = stamped(&section);
        let refused = thread::scope(|s| s.spawn(|| domain.try_begin().map(drop)).join().unwrap());
        assert_eq!(refused, Err(BeginError::NearWrap), "{backend}");
        // A nested begin needs no generation.
        drop(domain.begin());
        drop(section);
        assert_eq!(domain.wait(&tag), Ok(()));
        assert_eq!(domain.try_begin().map(drop), Err(BeginError::NearWrap));
        assert!(domain.dump().is_empty());
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(domain.begin())));
        assert!(panic.is_err());
    }
}

/// In a process of its own: places are shared by the whole process.
#[test]
#[cfg_attr(miri, ignore = "there are no processes")]
fn more_threads_than_places_are_an_error() {
    const CHILD: &str = "KINLOCK_TEST_MANY_THREADS";
    const PLACES: usize = 8191;
    const THREADS: usize = PLACES + 9;
    if std::env::var_os(CHILD).is_none() {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "limits::more_threads_than_places_are_an_error"])
            .args(["--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        if stderr.contains("NOT tested") {
            eprintln!("{stderr}");
        }
        return;
    }
    let domain = Domain::new();
    let refused = AtomicUsize::new(0);
    thread::scope(|s| {
        let mut threads = Vec::new();
        for _ in 0..THREADS {
            let thread = thread::Builder::new().stack_size(32 << 10);
            let spawned = thread.spawn_scoped(s, || {
                let section = domain.try_begin();
                if let Err(error) = &section {
                    assert_eq!(*error, BeginError::TooManyThreads);
                    refused.fetch_add(1, Relaxed);
                }
                // Neither the section nor the thread ends before all threads have tried.
                thread::park();
            });
            match spawned {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    eprintln!("!!!! no {THREADS} threads to be had ({error}): NOT tested");
                    break;
                }
            }
        }
        let whole = threads.len() == THREADS;
        while domain.dump().len() + refused.load(Relaxed) < threads.len() {
            thread::yield_now();
        }
        assert_eq!(
            refused.load(Relaxed),
            if whole { THREADS - PLACES } else { 0 }
        );
        if whole {
            assert_eq!(
                domain.try_begin().map(drop),
                Err(BeginError::TooManyThreads)
            );
        }
        threads.iter().for_each(|thread| thread.thread().unpark());
    });
    assert!(domain.passed(&domain.snapshot()));
    drop(domain.begin());
}
