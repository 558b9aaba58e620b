//! Forked children, and the abort of a process.

use super::{Holder, stamped};
use kinlock_invalidation::Domain;
use std::thread;

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
    const CHILD: &str = "KINLOCK_TEST_ENDS_WITHIN";
    let name = format!(
        "{}::a_thread_must_not_end_within_an_invalidation",
        domain.backend()
    );
    if std::env::var_os(CHILD).is_some() {
        thread::scope(|s| {
            let thread = s.spawn(|| std::mem::forget(domain.begin()));
            // A scope does not wait for destructors of thread-locals; `join` does.
            let _ = thread.join();
        });
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &name, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        stderr.contains("ended within a section") && stderr.contains(domain.backend().name()),
        "{stderr}"
    );
}

/// Without a mark of the highest place in use, a child reads two thousand pages of eight domains.
pub fn a_child_reads_no_places_that_were_never_used(domain: Domain) {
    // In a process of its own: threads of other tests may leave this one a high place only.
    const ALONE: &str = "KINLOCK_TEST_READS_NO_PLACES";
    if std::env::var_os(ALONE).is_none() {
        let test = "a_child_reads_no_places_that_were_never_used";
        let name = format!("{}::{test}", domain.backend());
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let status = alone.args(["--exact", &name]).env(ALONE, "1").status();
        assert!(status.unwrap().success());
        return;
    }
    let more = |_| Domain::with_backend(domain.backend());
    let domains: Vec<_> = (0..8).map(more).collect();
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
    drop(domains);
}
