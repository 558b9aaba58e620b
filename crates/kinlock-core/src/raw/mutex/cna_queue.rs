//! Waiters of the mutex in the spinlock's NUMA-aware queue: local waiters first, see
//! [`cna`](crate::raw::cna).
//!
//! A waiter that gives up leaves its node behind, and a head skips it: in a queue that heads
//! reorder, no waiter can unlink itself from the middle.

use crate::events::Event;
use crate::platform::{Atomic, NEVER, Ordering::*, Platform};
use crate::raw::cna::Head;
use crate::raw::qspinlock::Config;
use crate::raw::waiter::{ABANDONED, GO, Id, Link, Node, PARKED, PRIORITY, WAITING, Waiter};
use crate::tuning::Tuning;

/// The configuration without a defect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sound;

impl Config for Sound {
    fn tuning() -> Tuning {
        Tuning::DEFAULT
    }
}

/// The head's place in the queue.
pub(super) struct Headship<P: Platform> {
    head: Head<P, Sound>,
    place: Waiter<P>,
}

/// Queues, and waits until the thread is the head, or until `deadline` (`None`). Spins for at most
/// `patience` nanoseconds, then sleeps in its place.
pub(super) fn join<P: Platform>(
    tail: &P::AtomicU16,
    place: Waiter<P>,
    tuning: Tuning,
    patience: u64,
    deadline: u64,
) -> Option<Headship<P>> {
    let (node, id) = (place.node(), place.id());
    let domain = if tuning.reorder { P::domain() } else { 0 };
    let priority = tuning.reorder && P::is_priority();
    let named = if priority { PRIORITY } else { domain };
    node.prepare(named, true);
    // Release publishes the prepared node, Acquire sees the predecessor's.
    let (place, state) = match Id::decode(tail.swap(id.encode(), AcqRel)) {
        None => (place, GO),
        Some(before) => {
            // Guarded: this waiter may leave or sleep, so headship is handed over by
            // compare-and-swap.
            let link = Link::new(id, true, named);
            P::waiters().node(before).next.store(link.encode(), Release);
            wait(place, patience, deadline)?
        }
    };
    let mut head = Head::new(P::waiters(), place.id(), state, tuning, domain);
    head.pre_scan();
    Some(Headship { head, place })
}

/// `None`: the time is up, and the node belongs to the head that skips it.
fn wait<P: Platform>(
    mut place: Waiter<P>,
    patience: u64,
    deadline: u64,
) -> Option<(Waiter<P>, u32)> {
    let node = place.node();
    loop {
        let left = match deadline {
            NEVER => NEVER,
            _ => deadline.saturating_sub(P::now()),
        };
        if let Ok(state) = P::wait_for(&node.state, Acquire, patience.min(left), |s| s != WAITING) {
            return Some((place, state));
        }
        let passed = || deadline != NEVER && P::now() >= deadline;
        if passed() {
            place = place.abandon(WAITING).err()?;
            continue;
        }
        // Relaxed: nothing is handed over.
        if node
            .state
            .compare_exchange(WAITING, PARKED, Relaxed, Relaxed)
            .is_ok()
        {
            P::count(Event::Park);
            let key = (&raw const node.state).cast();
            while node.state.load(Relaxed) == PARKED {
                P::park(key, PARKED, deadline, || node.state.load(Relaxed));
                if passed() {
                    place = place.abandon(PARKED).err()?;
                }
            }
        }
    }
}

impl<P: Platform> Headship<P> {
    /// Passes headship on. Returns the place, which is in no queue then.
    pub(super) fn pass(mut self, tail: &P::AtomicU16) -> Waiter<P> {
        self.head.pass(tail, |heir, go, _| hand_over(heir, go));
        self.place
    }
}

/// Makes `heir` the head, and wakes it if it sleeps. `false`: it has given up.
fn hand_over<P: Platform>(heir: &Node<P>, go: u32) -> bool {
    // Acquire on failure pairs with `abandon`: the references counted before it must be visible
    // when the node is reaped.
    match heir.state.compare_exchange(WAITING, go, AcqRel, Acquire) {
        Ok(_) => true,
        Err(ABANDONED) => false,
        Err(_) => match heir.state.swap(go, AcqRel) {
            PARKED => {
                P::unpark((&raw const heir.state).cast(), 1);
                true
            }
            _ => false,
        },
    }
}
