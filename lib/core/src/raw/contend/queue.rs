//! Queueing, for locks whose waiter at the front follows the policy: in a queue of the kind that
//! the lock is configured for.

use super::{Wait, cna_queue};
use crate::platform::Platform;
use crate::raw::cna::Head;
use crate::raw::osq::Osq;
use crate::raw::patience::Patience;
use crate::raw::waiter::Waiter;

/// How waiters queue. A lock has the same two bytes for each kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueKind {
    /// Not at all: every waiter is at the front, and looks at the word.
    Unqueued,
    /// First in, first out, and waiters that give up leave; see [`osq`](crate::raw::osq).
    Osq,
    /// Local waiters first as [tuned](crate::tuning::Tuning::reorder), in the queue of the
    /// [spinlock](crate::raw::qspinlock).
    Cna,
}

/// The place at the front of a lock's queue, as a guard. Dropping it puts the next waiter there.
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

impl<'a, P: Platform> Headship<'a, P> {
    /// For a waiter beside the queue: it has found no node or lost its patience, or is a reader.
    pub(in crate::raw) fn beside() -> Self {
        Headship(Standing::Unqueued { _node: None })
    }

    /// Queues, and waits for the place at the front, asleep or spinning. `None`: the deadline has
    /// come first, or the waiter has lost its [patience](Patience::is_lost).
    pub(super) fn wait(
        kind: QueueKind,
        queue: &'a Osq<P>,
        node: Waiter<P>,
        wait: &Wait,
        sleeps: bool,
        patience: &mut Patience,
        stuck: impl Fn(bool) -> bool,
    ) -> Option<Self> {
        let standing = match kind {
            QueueKind::Unqueued => Standing::Unqueued { _node: Some(node) },
            QueueKind::Osq => {
                let first = queue.join_with(&node, sleeps, wait.deadline, patience, stuck);
                first.then_some(Standing::Osq { queue, node })?
            }
            QueueKind::Cna => {
                // Of the OSQ only the tail, which the two kinds have in common.
                let tail = queue.tail();
                let (head, node) = cna_queue::join(
                    tail,
                    node,
                    wait.tuning,
                    sleeps,
                    wait.deadline,
                    patience,
                    stuck,
                )?;
                Standing::Cna { head, tail, node }
            }
        };
        Some(Headship(standing))
    }
}

impl<P: Platform> Headship<'_, P> {
    /// Whether its owner stands beside the queue, where others may stand, too.
    pub(in crate::raw) fn is_beside(&self) -> bool {
        matches!(self.0, Standing::Unqueued { .. })
    }

    /// Whether its owner stands in the queue, and no other waiter now does.
    pub(super) fn is_alone(&self) -> bool {
        let may_have_others = match &self.0 {
            Standing::Unqueued { .. } => true,
            Standing::Osq { .. } => false,
            Standing::Cna { head, .. } => head.has_set_aside(),
        };
        !may_have_others && self.followers() == 0
    }

    /// About how many waiters stand behind: those that have queued since this one. In a CNA queue
    /// these may have had their turns, or stand behind others that were set aside before.
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
