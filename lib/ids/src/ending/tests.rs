//! Threads that end in an order which this machine's C library may not produce: the tests run the
//! key's destructor themselves, early.

use super::*;
use crate::{Counter, Domain, EnterError, Lease, PerId};
use core::ptr;
use std::sync::mpsc::channel;

/// Runs the destructor as round `round`.
fn destructor(round: usize) {
    // The C library clears the value first, too.
    let _ = thread::KEY.set(0);
    end(ptr::without_provenance_mut(round));
}

fn domain() -> Domain {
    Domain::builder().max_ids(32).build().unwrap()
}

/// Runs `then` while another thread holds all IDs that are free; passes these.
fn while_all_are_held<R>(domain: &Domain, then: impl FnOnce(&[u32]) -> R) -> R {
    let (send, receive) = channel();
    // Dropped when `then` ends or panics.
    let (done, wait) = channel::<()>();
    std::thread::scope(|scope| {
        let done = done;
        let other = scope.spawn(move || {
            let leases: Vec<Lease> = std::iter::from_fn(|| domain.enter().ok()).collect();
            send.send(leases.iter().map(Lease::id).collect::<Vec<_>>())
                .unwrap();
            let _ = wait.recv();
        });
        let ids = receive.recv().unwrap();
        let result = then(&ids);
        drop(done);
        // A scope does not wait for the destructors of keys; `join` does.
        other.join().unwrap();
        result
    })
}

fn on_a_thread(body: impl FnOnce() + Send) {
    std::thread::scope(|scope| scope.spawn(body).join().unwrap());
}

#[test]
fn a_lease_is_good_after_the_destructor_of_the_key() {
    let domain = domain();
    let values = PerId::new(&domain, || std::cell::Cell::new(0)).unwrap();
    on_a_thread(|| {
        let lease = domain.enter().unwrap();
        destructor(1);
        while_all_are_held(&domain, |theirs| {
            assert_eq!(theirs.len(), 31);
            assert!(!theirs.contains(&lease.id()), "the ID is shared");
            values.get(&lease).set(1);
        });
        drop(lease);
        while_all_are_held(&domain, |theirs| assert_eq!(theirs.len(), 32));
        // The thread holds nothing: no third round.
        assert_eq!(domain.members(), Some(1));
        destructor(2);
        assert_eq!(domain.members(), Some(0));
        drop(domain.enter().unwrap());
        assert_eq!(domain.members(), Some(0));
    });
}

#[test]
fn what_is_forgotten_comes_back_in_the_last_round() {
    let domain = domain();
    on_a_thread(|| {
        core::mem::forget(domain.enter().unwrap());
        for round in 1..ROUNDS {
            destructor(round);
            assert_eq!(domain.members(), Some(1));
            while_all_are_held(&domain, |theirs| assert_eq!(theirs.len(), 31));
        }
        destructor(ROUNDS);
        assert_eq!(domain.members(), Some(0));
        while_all_are_held(&domain, |theirs| assert_eq!(theirs.len(), 32));
    });
}

#[test]
fn what_is_forgotten_after_a_round_that_found_nothing_comes_back() {
    let domain = domain();
    on_a_thread(|| {
        drop(domain.enter().unwrap());
        destructor(1);
        assert_eq!(domain.members(), Some(0));
        // As a destructor that runs after ours might do.
        core::mem::forget(domain.enter().unwrap());
    });
    // The thread has ended, with the rest of its rounds.
    while_all_are_held(&domain, |theirs| assert_eq!(theirs.len(), 32));
}

#[test]
fn in_the_last_round_a_thread_keeps_no_waiter_slot() {
    on_a_thread(|| {
        destructor(ROUNDS);
        assert!(!native::keeps_slots());
    });
}

#[test]
fn what_was_taken_away_is_not_released_again() {
    let domain = domain();
    let counter = Counter::new(&domain).unwrap();
    on_a_thread(|| {
        let lease = domain.enter().unwrap();
        destructor(ROUNDS);
        // The thread must not get the same ID again, which `lease` would release.
        assert_eq!(domain.enter().unwrap_err(), EnterError::ThreadEnded);
        counter.add(1);
        while_all_are_held(&domain, |theirs| {
            assert!(theirs.contains(&lease.id()));
            drop(lease);
            while_all_are_held(&domain, |more| assert_eq!(more, []));
        });
    });
    assert_eq!(counter.sum(), 1);
}

#[test]
fn a_thread_waits_for_leases_of_one_domain_and_leaves_another() {
    let (one, other) = (domain(), domain());
    on_a_thread(|| {
        let lease = one.enter().unwrap();
        drop(other.enter().unwrap());
        destructor(1);
        assert_eq!((one.members(), other.members()), (Some(1), Some(0)));
        drop(lease);
        destructor(2);
        assert_eq!(one.members(), Some(0));
    });
}
