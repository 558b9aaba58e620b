//! Tests of IDs that need a process of their own: another C library's behaviour, sandboxes, and a
//! short torture. Each test runs itself again in a child process.

mod support;

use kinlock_ids::{Backend, BuildError, Counter, Domain, Stack, Unavailable};
use kinlock_verify::{by_name, ids, sandbox};
use support::{in_child, judge, settings};

const NO_RSEQ: &str = "glibc.pthread.rseq=0";

/// Whether the kernel has what restartable sequences need, as the library sees it outside of a
/// sandbox.
fn has_sequences() -> bool {
    Backend::Restartable.available().is_ok()
}

fn count(domain: &Domain) {
    let counter = Counter::new(domain).unwrap();
    let stack = Stack::new(domain).unwrap();
    for _ in 0..3 {
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    (0..500).for_each(|_| counter.add(1));
                    stack.push(1);
                });
            }
        });
    }
    assert_eq!(counter.sum(), 30_000);
    assert_eq!(std::iter::from_fn(|| stack.pop()).count(), 60);
}

#[test]
fn threads_register_themselves_where_the_c_library_does_not() {
    let expected = has_sequences();
    in_child(
        "threads_register_themselves_where_the_c_library_does_not",
        NO_RSEQ,
        || {
            assert!(
                !kinlock_linux::topology::Features::detect().rseq,
                "the tunable works"
            );
            assert_eq!(has_sequences(), expected);
            let domain = Domain::auto();
            assert_eq!(domain.backend() == Backend::Restartable, expected);
            count(&domain);
        },
    );
}

#[test]
fn where_registration_is_refused_that_is_an_error_and_auto_takes_leases() {
    let name = "where_registration_is_refused_that_is_an_error_and_auto_takes_leases";
    in_child(name, NO_RSEQ, || {
        sandbox::refuse_rseq().unwrap();
        // A thread that starts after the filter: the thread that installs it may be registered
        // already.
        std::thread::spawn(|| {
            assert_eq!(
                Backend::Restartable.available(),
                Err(Unavailable::Registration)
            );
            let refused = Domain::builder().backend(Backend::Restartable).build();
            assert_eq!(
                refused.unwrap_err(),
                BuildError::Unavailable(Unavailable::Registration)
            );
            let domain = Domain::auto();
            assert_eq!(domain.backend(), Backend::Lease);
            count(&domain);
        })
        .join()
        .unwrap();
    });
}

#[test]
fn threads_that_are_refused_later_use_the_shared_part() {
    if !has_sequences() {
        return;
    }
    in_child(
        "threads_that_are_refused_later_use_the_shared_part",
        NO_RSEQ,
        || {
            let domain = Domain::builder()
                .backend(Backend::Restartable)
                .build()
                .unwrap();
            sandbox::refuse_rseq().unwrap();
            std::thread::spawn({
                let domain = domain.clone();
                move || assert_eq!(domain.momentary_id(), None)
            })
            .join()
            .unwrap();
            count(&domain);
        },
    );
}

#[test]
fn without_membarrier_nothing_could_be_stolen_so_auto_takes_leases() {
    let name = "without_membarrier_nothing_could_be_stolen_so_auto_takes_leases";
    if !has_sequences() {
        return;
    }
    in_child(name, "", || {
        sandbox::refuse_membarrier().unwrap();
        assert_eq!(
            Backend::Restartable.available(),
            Err(Unavailable::Membarrier)
        );
        let domain = Domain::auto();
        assert_eq!(domain.backend(), Backend::Lease);
        count(&domain);
    });
}

fn torture(test: &str, name: &str, millis: u64) {
    let specimen = by_name::<ids::Specimen>(name)[0];
    if specimen.backend.available().is_ok() {
        let scenarios = ids::SCENARIOS.iter().map(|scenario| scenario.name);
        let settings = settings(millis, &[6], scenarios.collect());
        in_child(test, "", || judge::<ids::Specimen>(name, &settings));
    }
}

#[test]
fn sequences_survive() {
    torture("sequences_survive", "rseq", 1_000);
}

#[test]
fn leases_survive() {
    torture("leases_survive", "lease", 700);
}

mod deep {
    use super::*;

    #[test]
    #[ignore = "deep: runs until the defect shows"]
    fn a_sequence_that_does_not_restart_is_caught() {
        let test = "deep::a_sequence_that_does_not_restart_is_caught";
        torture(test, "busted-restart", 4_000);
    }
}
