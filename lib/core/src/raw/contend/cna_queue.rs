//! Mutexes and reader-writer locks in the spinlock's NUMA-aware queue: local waiters first, see
//! [`cna`](crate::raw::cna).
//!
//! A waiter that gives up leaves its node behind, and a head skips it: in a queue that heads
//! reorder, no waiter can unlink itself from the middle.

use crate::events::Event;
use crate::platform::{Atomic, Ordering::*, Platform};
use crate::raw::cna::{self, Head};
use crate::raw::patience::Patience;
use crate::raw::waiter::{ABANDONED, GO, Link, Node, PARKED, WAITING, Waiter, expired, left};
use crate::tuning::Tuning;

/// Queues, and waits to be the head, asleep or spinning. `None`: the deadline has come first, or
/// the waiter has lost its patience.
pub(super) fn join<P: Platform>(
    tail: &P::AtomicU16,
    waiter: Waiter<P>,
    tuning: Tuning,
    sleeps: bool,
    deadline: u64,
    patience: &mut Patience,
    stuck: impl Fn(bool) -> bool,
) -> Option<(Head<P>, Waiter<P>)> {
    let domain = if tuning.reorder { P::domain() } else { 0 };
    let named = match tuning.reorder {
        true => waiter.named(domain),
        false => domain,
    };
    waiter.node().prepare(named, true);
    P::waiters().number(waiter.node(), tail);
    // Guarded: this waiter may leave or sleep, so headship is handed over by compare-and-swap.
    let link = Link::new(waiter.id(), true, named);
    let node = waiter.node();
    let (waiter, state) = match cna::queue::<P>(tail, link, |before| node.number_after(before)) {
        None => (waiter, GO),
        Some(_) => wait_for_headship(waiter, sleeps, deadline, patience, stuck)?,
    };
    let mut head = Head::new(P::waiters(), waiter.id(), state, tuning, domain);
    head.pre_scan();
    Some((head, waiter))
}

/// Passes headship on.
pub(super) fn leave<P: Platform>(tail: &P::AtomicU16, head: &mut Head<P>, waiter: &Waiter<P>) {
    head.leave(tail, waiter, |heir, go, _| hand_over(heir, go));
}

/// `None`: the waiter has left, and the node belongs to the head that skips it.
fn wait_for_headship<P: Platform>(
    mut waiter: Waiter<P>,
    sleeps: bool,
    deadline: u64,
    patience: &mut Patience,
    stuck: impl Fn(bool) -> bool,
) -> Option<(Waiter<P>, u32)> {
    let state = &waiter.node().state;
    loop {
        let limit = if sleeps { 0 } else { left(deadline, P::now) };
        if let Ok(headship) = P::wait_for(state, Acquire, limit, |s| s != WAITING) {
            return Some((waiter, headship));
        }
        // Relaxed: nothing is handed over.
        let park = || state.compare_exchange(WAITING, PARKED, Relaxed, Relaxed);
        if expired(deadline, P::now) {
            waiter = waiter.abandon(WAITING).err()?;
        } else if park().is_ok() {
            P::count(Event::Park);
            while state.load(Relaxed) == PARKED {
                let key = (&raw const *state).cast();
                P::park(key, PARKED, patience.or(deadline), || state.load(Relaxed));
                if expired(deadline, P::now) || patience.is_lost::<P>(&stuck) {
                    waiter = waiter.abandon(PARKED).err()?;
                }
            }
        }
    }
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
