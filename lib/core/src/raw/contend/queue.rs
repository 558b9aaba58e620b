//! Queueing, for locks whose front waiter follows the policy: the lock's configuration says in
//! which kind of queue.

use super::cna_queue;
use crate::platform::Platform;
use crate::raw::cna::Head;
use crate::raw::osq::Osq;
use crate::raw::waiter::{GO, Waiter};
use crate::tuning::Tuning;

/// How waiters queue. Each kind uses the same two bytes of the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueKind {
    /// Not at all: every waiter is at the front, and looks at the word.
    Unqueued,
    /// First in, first out; a waiter that gives up leaves the queue. See [`osq`](crate::raw::osq).
    Osq,
    /// Local waiters first as [tuned](crate::tuning::Tuning::reorder), in the queue of the
    /// [spinlock](crate::raw::qspinlock).
    Cna,
}

/// The place at the front of a lock's queue, as a guard. Dropping it brings the next waiter there.
#[derive(Debug)]
pub(in crate::raw) struct Headship<'a, P: Platform>(Standing<'a, P>);

#[derive(Debug)]
enum Standing<'a, P: Platform> {
    /// Beside the queue. The node, if there is one, is in no queue.
    Unqueued {
        _node: Option<Waiter<P>>,
    },
    Osq {
        queue: &'a Osq<P>,
        node: Waiter<P>,
    },
    Cna {
        head: Head<P>,
        tail: &'a P::AtomicU16,
        node: Waiter<P>,
    },
}

/// A place in the queue behind other waiters. Only [`come`](Self::come) or [`quit`](Self::quit) may
/// end it: its node is in the queue until then.
#[derive(Debug)]
pub(super) enum Behind<'a, P: Platform> {
    Osq {
        queue: &'a Osq<P>,
        node: Waiter<P>,
    },
    Cna {
        tail: &'a P::AtomicU16,
        node: Waiter<P>,
        tuning: Tuning,
        domain: u16,
    },
}

impl<'a, P: Platform> Headship<'a, P> {
    /// For a waiter beside the queue: one that found no node, one that lost its patience, or a
    /// reader.
    pub(in crate::raw) fn beside() -> Self {
        Headship(Standing::Unqueued { _node: None })
    }

    /// Queues.
    pub(super) fn join(
        kind: QueueKind,
        queue: &'a Osq<P>,
        node: Waiter<P>,
        tuning: Tuning,
    ) -> Result<Self, Behind<'a, P>> {
        match kind {
            QueueKind::Unqueued => Ok(Headship(Standing::Unqueued { _node: Some(node) })),
            QueueKind::Osq => match queue.append(&node) {
                true => Ok(Headship(Standing::Osq { queue, node })),
                false => Err(Behind::Osq { queue, node }),
            },
            QueueKind::Cna => {
                // The two kinds have the tail in common; no other part of the OSQ is used here.
                let tail = queue.tail();
                match cna_queue::append(tail, &node, tuning) {
                    (true, domain) => Ok(Self::of_cna(tail, node, GO, tuning, domain)),
                    (false, domain) => Err(Behind::Cna {
                        tail,
                        node,
                        tuning,
                        domain,
                    }),
                }
            }
        }
    }

    fn of_cna(
        tail: &'a P::AtomicU16,
        node: Waiter<P>,
        told: u32,
        tuning: Tuning,
        domain: u16,
    ) -> Self {
        let head = cna_queue::head(&node, told, tuning, domain);
        Headship(Standing::Cna { head, tail, node })
    }
}

impl<'a, P: Platform> Behind<'a, P> {
    /// How many waiters are ahead of this one; `None`: more than `limit`, or the queue cannot tell.
    pub(super) fn count_ahead(&self, limit: u64) -> Option<u64> {
        match self {
            Behind::Osq { queue, node } => queue.count_ahead(node, limit),
            Behind::Cna { .. } => None,
        }
    }

    /// Waits to be at the front, asleep or spinning, and returns what [`come`](Self::come) needs to
    /// know. `None`: `until` has come first. The waiter is still queued, and may wait again.
    pub(super) fn wait(&self, sleeps: bool, until: u64) -> Option<u32> {
        match self {
            Behind::Osq { queue, node } => queue.wait(node, sleeps, until).then_some(GO),
            Behind::Cna { node, .. } => cna_queue::wait(node, sleeps, until),
        }
    }

    /// Turns the place into a headship, for a waiter that has come to the front.
    pub(super) fn come(self, told: u32) -> Headship<'a, P> {
        match self {
            Behind::Osq { queue, node } => Headship(Standing::Osq { queue, node }),
            Behind::Cna {
                tail,
                node,
                tuning,
                domain,
            } => Headship::of_cna(tail, node, told, tuning, domain),
        }
    }

    /// Leaves the queue. `Some`: it cannot, since the waiter has come to the front.
    pub(super) fn quit(self) -> Option<Headship<'a, P>> {
        match self {
            Behind::Osq { queue, node } => match queue.quit(&node) {
                true => None,
                false => Some(Headship(Standing::Osq { queue, node })),
            },
            Behind::Cna {
                tail,
                node,
                tuning,
                domain,
            } => {
                let (node, told) = cna_queue::quit(node)?;
                Some(Headship::of_cna(tail, node, told, tuning, domain))
            }
        }
    }
}

impl<P: Platform> Headship<'_, P> {
    /// Whether its owner stands beside the queue, where other waiters may stand, too.
    pub(in crate::raw) fn is_beside(&self) -> bool {
        matches!(self.0, Standing::Unqueued { .. })
    }

    /// Whether its owner is the only waiter in the queue at this moment.
    pub(super) fn is_alone(&self) -> bool {
        let may_have_others = match &self.0 {
            Standing::Unqueued { .. } => true,
            Standing::Osq { .. } => false,
            Standing::Cna { head, .. } => head.has_set_aside(),
        };
        !may_have_others && self.followers() == 0
    }

    /// About how many waiters stand behind the owner: the number that has queued since. In a CNA
    /// queue some of them may have had their turns, and waiters that were set aside earlier are not
    /// counted.
    pub(super) fn followers(&self) -> u32 {
        match &self.0 {
            Standing::Unqueued { .. } => 0,
            Standing::Osq { queue, node } => queue.followers(node),
            Standing::Cna { tail, node, .. } => P::waiters().followers(node.node(), tail),
        }
    }
}

impl<P: Platform> Drop for Headship<'_, P> {
    fn drop(&mut self) {
        match &mut self.0 {
            Standing::Unqueued { .. } => {}
            Standing::Osq { queue, node } => queue.leave(node),
            Standing::Cna { head, tail, node } => cna_queue::leave::<P>(tail, head, node),
        }
    }
}
