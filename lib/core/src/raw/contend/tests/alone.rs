//! For how long a waiter at the front sleeps.

use crate::Native;
use crate::platform::{NEVER, Ordering::Relaxed, Platform};
use crate::raw::contend::constants::ALONE_NS;
use crate::raw::contend::{Headship, Next, QueueKind, Sight, Target, Wait, wait_at_front};
use crate::raw::osq::Osq;
use crate::raw::patience::Patience;
use crate::tuning::Tuning;

const WAIT: Wait = Wait {
    deadline: NEVER,
    tuning: Tuning::DEFAULT,
    trial: false,
    spin: 0,
};

/// A lock that is always held. It notes until when its waiter sleeps, and at what time that began.
struct Held<const ALONE: bool> {
    sleep: Option<(u64, u64)>,
}

impl<const ALONE: bool> Target<Native> for Held<ALONE> {
    type Look = ();
    type Taken = ();
    const PARKS: bool = true;
    const SLEEPS_ALONE: bool = ALONE;

    fn look(&self) {}

    fn sight(&self, (): ()) -> Sight {
        Sight {
            free: false,
            no_unlock: false,
            kept: false,
            reserved: false,
            unclaimed: false,
            requested: false,
        }
    }

    fn take(&mut self) -> Option<()> {
        unreachable!("it is held")
    }

    fn wait_until_free(&self, _: u64) -> bool {
        false
    }

    fn watch(&self) {}
    fn keep(&self) {}
    fn share(&self) {}

    fn sleep(&mut self, _: &Wait, until: u64) -> Next<()> {
        self.sleep = Some((until, Native::now()));
        Next::End(None)
    }

    fn request(&mut self, _: &Wait, _: u64) -> Next<()> {
        unreachable!("it sleeps first")
    }
}

/// How long the first sleep is, in nanoseconds, at least and at most.
fn first_sleep<const ALONE: bool>(place: &Headship<'_, Native>, deadline: u64) -> (u64, u64) {
    let wait = Wait { deadline, ..WAIT };
    let begun = Native::now();
    let mut held = Held::<ALONE> { sleep: None };
    wait_at_front(&mut held, &wait, place);
    let (until, began) = held.sleep.expect("the lock is held");
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
    let mut patience = Patience::ENDLESS;
    let place = Headship::wait(
        QueueKind::Osq,
        &queue,
        first,
        &WAIT,
        true,
        &mut patience,
        |_| false,
    );
    let place = place.expect("the queue is empty");
    assert!(first_sleep::<true>(&place, NEVER).1 >= ALONE_NS);
    // A request after the first eighth leaves the holder time to grant it.
    let hour = Native::now() + 3_600_000_000_000;
    assert!(first_sleep::<true>(&place, hour).0 <= quantum);
    assert!(first_sleep::<false>(&place, NEVER).0 <= quantum);
    queue.tail().store(behind.encode(), Relaxed);
    assert!(first_sleep::<true>(&place, NEVER).0 <= quantum);
    queue.tail().store(id.encode(), Relaxed);
    // Beside the queue others may stand, too.
    let beside = Headship::beside();
    assert!(first_sleep::<true>(&beside, NEVER).0 <= quantum);
}
