//! The spinlock's NUMA-aware queue for mutexes and reader-writer locks: local waiters go first, see
//! [`cna`](crate::raw::cna).
//!
//! A waiter that gives up leaves its node behind, and a head skips it: in a queue that heads
//! reorder, no waiter can unlink itself from the middle.

use crate::events::Event;
use crate::platform::{Atomic, Ordering::*, Platform};
use crate::raw::cna::{self, Head};
use crate::raw::waiter::{ABANDONED, Link, Node, PARKED, WAITING, Waiter, expired, left};
use crate::tuning::Tuning;

/// Queues. `true`: the waiter is the head, since the queue was empty. The second result is the
/// waiter's domain, which [`head`] needs.
pub(super) fn append<P: Platform>(
    tail: &P::AtomicU16,
    waiter: &Waiter<P>,
    tuning: Tuning,
) -> (bool, u16) {
    let domain = if tuning.reorder { P::domain() } else { 0 };
    let named = match tuning.reorder {
        true => waiter.named(domain),
        false => domain,
    };
    let node = waiter.node();
    node.prepare(named, true);
    P::waiters().number(node, tail);
    // Guarded: this waiter may leave or sleep, so headship is handed over by compare-and-swap.
    let link = Link::new(waiter.id(), true, named);
    let before = cna::queue::<P>(tail, link, |before| node.number_after(before));
    (before.is_none(), domain)
}

/// The headship of a waiter that queued from this `domain`, and was told `state`.
pub(super) fn head<P: Platform>(
    waiter: &Waiter<P>,
    state: u32,
    tuning: Tuning,
    domain: u16,
) -> Head<P> {
    let mut head = Head::new(P::waiters(), waiter.id(), state, tuning, domain);
    head.pre_scan();
    head
}

/// Passes headship on to the next waiter.
pub(super) fn leave<P: Platform>(tail: &P::AtomicU16, head: &mut Head<P>, waiter: &Waiter<P>) {
    head.leave(tail, waiter, |heir, go, _| hand_over(heir, go));
}

fn is_headship(state: u32) -> bool {
    state != WAITING && state != PARKED
}

/// Waits to be the head, asleep or spinning, and returns the state that the previous head wrote.
/// `None`: `until` has come first. The waiter is still queued, and may wait again.
pub(super) fn wait<P: Platform>(waiter: &Waiter<P>, sleeps: bool, until: u64) -> Option<u32> {
    let state = &waiter.node().state;
    if !sleeps {
        return P::wait_for(state, Acquire, left(until, P::now), is_headship).ok();
    }
    loop {
        let seen = state.load(Acquire);
        if is_headship(seen) {
            return Some(seen);
        }
        if expired(until, P::now) {
            return None;
        }
        // Relaxed: nothing is handed over.
        let park = || state.compare_exchange(WAITING, PARKED, Relaxed, Relaxed);
        if seen == WAITING && park().is_ok() {
            P::count(Event::Park);
        }
        let key = (&raw const *state).cast();
        P::park(key, PARKED, until, || state.load(Relaxed));
    }
}

/// Leaves the queue as a waiter that is not its head: the node then belongs to the head that skips
/// it. `Some`: it cannot, since the waiter has become the head; the second value is the state that
/// the previous head wrote.
pub(super) fn quit<P: Platform>(waiter: Waiter<P>) -> Option<(Waiter<P>, u32)> {
    let seen = waiter.node().state.load(Acquire);
    let waiter = match is_headship(seen) {
        true => waiter,
        false => waiter.abandon(seen).err()?,
    };
    let told = waiter.node().state.load(Acquire);
    Some((waiter, told))
}

/// Makes `heir` the head, and wakes it if it sleeps. `false`: it has given up.
fn hand_over<P: Platform>(heir: &Node<P>, go: u32) -> bool {
    // Acquire on failure pairs with `abandon`: the references counted before it must be visible
    // when the node is reaped.
    match heir.state.compare_exchange(WAITING, go, AcqRel, Acquire) {
        Ok(_) => true,
        Err(ABANDONED) => false,
        Err(_) => {
            let parked = heir.state.swap(go, AcqRel) == PARKED;
            if parked {
                P::unpark((&raw const heir.state).cast(), 1);
            }
            parked
        }
    }
}
