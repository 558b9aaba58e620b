//! Forked children, and the abort of a process.

use super::{Holder, stamped};
use kinlock_invalidation::{BeginError, Domain};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::thread;

/// Runs a test again, in a process of its own. `None`: this is that process.
fn alone(test: &str) -> Option<Output> {
    const ALONE: &str = "KINLOCK_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return None;
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    let again = again.args(["--exact", test, "--nocapture"]).env(ALONE, "1");
    Some(again.output().unwrap())
}

/// Runs `child` in a forked child, and returns its exit status. The child must not panic: other
/// threads of the test harness do not exist there.
fn in_child(child: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child calls nothing that needs other threads, and leaves by `_exit`.
    unsafe {
        match libc::fork() {
            -1 => panic!("cannot fork"),
            0 => libc::_exit(if child() { 0 } else { 1 }),
            pid => {
                let mut status = 0;
                assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
                status
            }
        }
    }
}

pub fn a_child_has_its_own_invalidations_only(domain: Domain) {
    thread::scope(|s| {
        let older = Holder::start(s, &domain);
        let section = domain.begin();
        let own = stamped(&section);
        let younger = Holder::start(s, &domain);
        let (before, after) = (older.tag, younger.tag);
        let status = in_child(|| {
            let mut right = domain.dump().len() == 1;
            right &= domain.passed(before) && !domain.passed(&own) && !domain.passed(after);
            drop(section);
            right &= domain.passed(&own) && domain.passed(after) && domain.dump().is_empty();
            let next = domain.begin();
            right &= next.generation() > after.generation();
            drop(next);
            right && domain.wait_all().is_ok()
        });
        assert_eq!(status, 0);
        // Nothing has changed for the parent.
        assert!(!domain.passed(before));
        older.end();
        assert!(domain.passed(before) && !domain.passed(after));
        younger.end();
        // The section was moved into the child's closure. The parent drops the closure, and with it
        // the section.
        assert!(domain.passed(after));
    });
}

pub fn a_child_without_invalidations_has_none(domain: Domain) {
    thread::scope(|s| {
        let holder = Holder::start(s, &domain);
        let tag = holder.tag;
        let status = in_child(|| {
            let mut right = domain.dump().is_empty() && domain.passed(tag);
            let section = domain.begin();
            let own = stamped(&section);
            right &= !domain.passed(&own) && own.generation() > tag.generation();
            drop(section);
            right && domain.passed(&own)
        });
        assert_eq!(status, 0);
        holder.end();
    });
}

/// In a process of its own, which it aborts.
pub fn a_thread_must_not_end_within_an_invalidation(domain: Domain) {
    let backend = domain.backend();
    let name = format!("{backend}::a_thread_must_not_end_within_an_invalidation");
    let Some(output) = alone(&name) else {
        thread::scope(|s| {
            let thread = s.spawn(|| std::mem::forget(domain.begin()));
            // A scope does not wait for destructors of thread-locals; `join` does.
            let _ = thread.join();
        });
        return;
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        stderr.contains("ended within a section") && stderr.contains(backend.name()),
        "{stderr}"
    );
}

/// Without a mark of the highest place in use, a child would read two thousand pages of eight
/// domains.
///
/// In a process of its own: threads of other tests may leave this one a high place only.
pub fn a_child_reads_no_places_that_were_never_used(domain: Domain) {
    let backend = domain.backend();
    let name = format!("{backend}::a_child_reads_no_places_that_were_never_used");
    if let Some(output) = alone(&name) {
        return assert!(output.status.success(), "{output:?}");
    }
    let domains: Vec<_> = (0..8).map(|_| Domain::with_backend(backend)).collect();
    domains.iter().for_each(|domain| drop(domain.begin()));
    let status = in_child(|| {
        // SAFETY: the C library writes to a live local; all zeros is a value of it.
        let used: libc::rusage = unsafe {
            let mut used = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &mut used);
            used
        };
        used.ru_minflt < 500
    });
    assert_eq!(status, 0);
}

/// In a process of its own: places are shared by the whole process.
#[test]
#[cfg_attr(miri, ignore = "there are no processes")]
fn more_threads_than_places_are_an_error() {
    const PLACES: usize = 8191;
    const THREADS: usize = PLACES + 9;
    if let Some(output) = alone("processes::more_threads_than_places_are_an_error") {
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
