//! How long a waiter at the front sleeps.

use super::timed::{HELD, Lock};
use crate::Native;
use crate::platform::{NEVER, Ordering::Relaxed, Platform};
use crate::raw::contend::constants::ALONE_NS;
use crate::raw::contend::{Headship, QueueKind, Wait, wait_at_front};
use crate::raw::osq::Osq;
use crate::tuning::Tuning;
use std::cell::Cell;

const WAIT: Wait = Wait {
    deadline: NEVER,
    tuning: Tuning::DEFAULT,
    trial: false,
    spin: 0,
};

/// A lower and an upper bound of the length of the first sleep, in nanoseconds.
fn first_sleep<const ALONE: bool>(place: &Headship<'_, Native>, deadline: u64) -> (u64, u64) {
    let wait = Wait { deadline, ..WAIT };
    let begun = Native::now();
    let sleep = Cell::new(None);
    let mut held = Lock::<true, ALONE> {
        sight: &|| HELD,
        is_taken: &|| unreachable!("it is held"),
        wait_until_free: &|_| false,
        sleep: &|until| sleep.set(Some((until, Native::now()))),
    };
    wait_at_front(&mut held, &wait, place);
    let (until, began) = sleep.get().expect("the lock is held");
    (until - began.min(until), until - begun)
}

#[test]
fn a_waiter_sleeps_beyond_its_quantum_only_if_no_other_waits_behind_it() {
    let quantum = Tuning::DEFAULT.quantum.nanos();
    let queue = Osq::new();
    let node = || Native::waiters().take_node().expect("a slot is free");
    let (first, second) = (node(), node());
    let (id, behind) = (first.id(), second.id());
    second.node().number.store(1, Relaxed);
    let place = Headship::join(QueueKind::Osq, &queue, first, WAIT.tuning);
    let place = place.expect("the queue is empty");
    assert!(first_sleep::<true>(&place, NEVER).1 >= ALONE_NS);
    // With a time limit the waiter requests early, so that the holder has time to grant it.
    let hour = Native::now() + 3_600_000_000_000;
    assert!(first_sleep::<true>(&place, hour).0 <= quantum);
    assert!(first_sleep::<false>(&place, NEVER).0 <= quantum);
    queue.tail().store(behind.encode(), Relaxed);
    assert!(first_sleep::<true>(&place, NEVER).0 <= quantum);
    queue.tail().store(id.encode(), Relaxed);
    // A waiter beside the queue may not be the only one.
    let beside = Headship::beside();
    assert!(first_sleep::<true>(&beside, NEVER).0 <= quantum);
}
