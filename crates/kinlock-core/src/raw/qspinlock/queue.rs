//! In the queue: waiting for headship, and passing it on.

use super::approach::Approach;
use super::front::{Free, Front};
use super::{Config, Fault, PARKED, PENDING, QueuedSpinLock, STEAL, Terms};
use super::{key, left, passed, sleep_limit, spin_limit};
use crate::events::Event;
use crate::platform::{Atomic, NEVER, Ordering::*, Platform};
use crate::raw::cna::{Head, ROUSE_AHEAD};
use crate::raw::waiter::{
    ABANDONED, AWAKE, DROWSY, GO, Id, Link, Node, PARKED as NODE_PARKED, PRIORITY, ROUSED, WAITING,
    Waiter,
};

/// How far a waiter that was roused looks for kin: farther than a queue usually is long.
const ROUSE_STEPS: u32 = 1024;

/// How headship came.
#[derive(Clone, Copy)]
struct Headship {
    /// What the node's state says then.
    state: u32,
    /// Whether the waiter has slept meanwhile.
    slept: bool,
}

impl<P: Platform, C: Config> QueuedSpinLock<P, C> {
    pub(super) fn queue(&self, waiter: Waiter<P>, terms: Terms) -> bool {
        P::count(Event::Queued);
        let tuning = terms.tuning;
        let (node, id) = (waiter.node(), waiter.id());
        let domain = if tuning.reorder { P::domain() } else { 0 };
        let priority = tuning.reorder && P::is_priority();
        let named = if priority { PRIORITY } else { domain };
        node.prepare(named, terms.deadline != NEVER);

        // Release publishes the node's preparation, Acquire sees our predecessor's; SeqCst: see become_pending.
        let headship = match Id::decode(self.tail.swap(id.encode(), SeqCst)) {
            None => Headship {
                state: GO,
                slept: false,
            },
            Some(predecessor) => {
                let predecessor = P::waiters().node(predecessor);
                // In a crowd we shall probably sleep: a look at our state is cheaper than a heavy fence.
                let guarded = terms.deadline != NEVER || terms.crowded;
                let link = Link::new(id, guarded, named);
                predecessor.next.store(link.encode(), Release);
                if matches!(C::FAULT, Fault::Meddler) {
                    Self::rouse(predecessor);
                }
                // Behind a sleeper nothing is going to happen soon. Where everybody can have a CPU it pays to wait all the same:
                // otherwise one sleeper makes sleepers of all who come later, and every hand-off has to wake somebody.
                let hopeless = terms.crowded && predecessor.state.load(Relaxed) == NODE_PARKED;
                match Self::wait_for_headship(waiter, guarded, hopeless, terms) {
                    Ok((waiter, headship)) => {
                        return self.lead(waiter, headship, domain, terms);
                    }
                    Err(()) => {
                        P::count(Event::Timeout);
                        return false;
                    }
                }
            }
        };
        self.lead(waiter, headship, domain, terms)
    }

    /// Waits on the thread's own cache line. `Err`: the time is up and the node is no longer ours.
    fn wait_for_headship(
        mut waiter: Waiter<P>,
        guarded: bool,
        hopeless: bool,
        terms: Terms,
    ) -> Result<(Waiter<P>, Headship), ()> {
        let node = waiter.node();
        let deadline = terms.deadline;
        let mut slept = false;
        loop {
            let limit = if hopeless {
                0
            } else {
                spin_limit::<P, C>(terms.crowded)
            };
            if let Ok(state) = P::wait_for(
                &node.state,
                Acquire,
                limit.min(left(deadline, P::now)),
                |s| s != WAITING,
            ) {
                return Ok((waiter, Headship { state, slept }));
            }
            if passed(deadline, P::now) {
                match waiter.abandon(WAITING) {
                    Ok(()) => return Err(()),
                    Err(back) => waiter = back,
                }
                continue;
            }
            let noticed = Self::announce_sleep(node, guarded);
            // Relaxed: nothing is handed over. What was announced comes before because of the fence.
            if node
                .state
                .compare_exchange(WAITING, NODE_PARKED, Relaxed, Relaxed)
                .is_ok()
            {
                P::count(Event::Park);
                slept = true;
                let key = key::<P>(&node.state);
                while node.state.load(Relaxed) == NODE_PARKED && !Self::rouse_oneself(node) {
                    let until = sleep_limit(noticed, deadline, P::now);
                    P::park(key, NODE_PARKED, until, || node.state.load(Relaxed));
                    if passed(deadline, P::now) {
                        // The next wait with this node begins awake.
                        node.drowsy.store(AWAKE, Relaxed);
                        match waiter.abandon(NODE_PARKED) {
                            Ok(()) => return Err(()),
                            Err(_) if matches!(C::FAULT, Fault::RousedLeaves) => return Err(()),
                            Err(back) => waiter = back,
                        }
                    }
                }
            }
            // Awake: who reads something else all the same wakes us in vain.
            if node.drowsy.swap(AWAKE, Relaxed) == ROUSED {
                Self::rouse_kin(waiter.id());
            }
        }
    }

    /// A sleeper that was roused spins again. Whether it does.
    fn rouse_oneself(node: &Node<P>) -> bool {
        // Relaxed: nothing is handed over. If it fails headship has come.
        node.drowsy.load(Relaxed) == ROUSED
            && node
                .state
                .compare_exchange(NODE_PARKED, WAITING, Relaxed, Relaxed)
                .is_ok()
    }

    /// Wakes a waiter that sleeps in the queue, so that it spins when its turn comes. No more than a hint: it changes nothing that a grant depends on, so anybody
    /// may give it, and to anybody.
    fn rouse(node: &Node<P>) {
        let drowsy = &node.drowsy;
        if drowsy.load(Relaxed) == DROWSY
            && drowsy
                .compare_exchange(DROWSY, ROUSED, Relaxed, Relaxed)
                .is_ok()
        {
            P::count(Event::WakeEarly);
            P::unpark(key::<P>(&node.state), 1);
        }
    }

    /// Rouses those behind us who are of our domain, until headship comes. Heads relink the queue meanwhile, so we may get into other queues. There we wake somebody too early.
    #[cold]
    #[inline(never)]
    fn rouse_kin(me: Id) {
        let node = |id| P::waiters().node(id);
        let domain = node(me).domain.load(Relaxed);
        let mut last = me;
        for _ in 0..ROUSE_STEPS {
            // Acquire pairs with the release by which a waiter linked itself: its node is ready to be read.
            let next = Link::decode(node(last).next.load(Acquire));
            let Some(next) = next.filter(|next| next.id() != me) else {
                return;
            };
            if next.domain() == domain {
                Self::rouse(node(next.id()));
            }
            if node(me).state.load(Relaxed) != WAITING {
                return;
            }
            last = next.id();
        }
    }

    /// Before a waiter falls asleep. Whether its granter is sure to notice.
    #[cold]
    fn announce_sleep(node: &Node<P>, guarded: bool) -> bool {
        if !matches!(C::FAULT, Fault::SilentSleeper) {
            node.drowsy.store(DROWSY, Relaxed);
        }
        // The granter of a guarded waiter looks at its state: there `drowsy` only permits a rouse.
        // Otherwise this pairs with the light fence in `grant`: either the grant comes before we fall asleep, or the granter sees that we are about to.
        guarded || P::heavy_fence()
    }

    /// At the head of the queue: gets the lock, and passes headship on before its critical section.
    fn lead(&self, waiter: Waiter<P>, headship: Headship, domain: u16, terms: Terms) -> bool {
        let (tuning, state) = (terms.tuning, headship.state);
        debug_assert!(state != NODE_PARKED && state != ABANDONED);
        let mut head = Head::<P, C>::new(P::waiters(), waiter.id(), state, tuning, domain);
        head.pre_scan();
        if P::CAN_PARK && C::PARK && !terms.crowded {
            // Sleepers come in runs: those who were set aside for long. Who has not slept need not look.
            let most = if headship.slept { ROUSE_AHEAD } else { 0 };
            head.rouse_ahead(most, |sleeper| Self::rouse(sleeper));
        }
        // Who has slept first forbids others to steal, and may find a thief's lock: that says nothing about sections.
        let told = if headship.slept {
            Approach::Look
        } else {
            Approach::told_in(state)
        };
        let (taken, approach) = self.get(told, terms);
        // While the word's line is still here.
        let advice = self.advise(taken, approach).encode();
        if taken {
            head.wait_for_local();
        }
        let steal = if tuning.stealing { STEAL } else { 0 };
        head.pass(&self.tail, |heir, go, look| {
            let go = go | advice;
            if taken && !look {
                self.grant(heir, go, steal);
                return true;
            }
            self.grant_guarded(heir, go, taken, steal)
        });
        taken
    }

    /// Gets the lock as head of the queue: whether (the time may be up before), and how the next head had better try.
    fn get(&self, approach: Approach, terms: Terms) -> (bool, Approach) {
        if let Approach::Take { pauses } = approach {
            for _ in 0..pauses {
                P::relax();
            }
            P::count(Event::TakeUnseen);
            if self.take() {
                // Whoever made us head may have set the bit.
                self.forbid_stealing(Front::Head);
                return (true, approach.after_success());
            }
            P::count(Event::TakeUnseenFailed);
        }
        let free = self.wait_at_front(Front::Head, terms);
        let next = match (approach, free) {
            (Approach::Look, Some(Free::AtOnce)) => approach.after_success(),
            _ => approach.after_failure(),
        };
        (free.is_some(), next)
    }

    /// What a head that has learned `approach` tells its heir.
    ///
    /// Who takes the lock without a look comes before a pending waiter. So nobody is told to while there is one, or without the lock: a newcomer that finds a
    /// queue does not become pending, except for stepping back, and the next head looks again.
    pub(super) fn advise(&self, taken: bool, approach: Approach) -> Approach {
        let nobody_pending = || self.pending.glance(Relaxed) & PENDING == 0;
        if taken && !C::AS_PUBLISHED && (nobody_pending() || matches!(C::FAULT, Fault::Pushy)) {
            approach
        } else {
            Approach::Look
        }
    }

    /// Makes `heir`, which is not guarded, the head, by the holder of the lock. `steal`: what an heir that sleeps permits.
    #[inline]
    fn grant(&self, heir: &Node<P>, go: u32, steal: u8) {
        // Nobody waits for this store: the line comes while the critical section runs.
        heir.state.overwrite(go, Release);
        if P::CAN_PARK && C::PARK {
            // Pairs with the heavy fence in `announce_sleep`.
            P::light_fence();
            if heir.drowsy.glance(Relaxed) != AWAKE {
                self.move_sleep(heir, go, steal);
            }
        }
    }

    /// Makes `heir` the head, with a look at its state. `false`: it has given up, and nobody is head yet. `holding`: whether we hold the lock.
    fn grant_guarded(&self, heir: &Node<P>, go: u32, holding: bool, steal: u8) -> bool {
        // First of all, so that the line is fetched once and for writing.
        // Acquire on failure pairs with `abandon`: the references counted before it are to be seen when the node is reaped.
        match heir.state.compare_exchange(WAITING, go, AcqRel, Acquire) {
            Ok(_) => return true,
            Err(ABANDONED) => return false,
            Err(_) => {}
        }
        // It may sleep on: let running threads steal until our unlock wakes it. An heir that can time out might be gone
        // and asleep elsewhere before we move it, and without the lock there is no unlock of ours to come.
        let sleeps_on = holding && heir.timed.load(Relaxed) == 0;
        match heir.state.swap(go, AcqRel) {
            NODE_PARKED if sleeps_on => {
                self.move_sleep(heir, go, steal);
                true
            }
            NODE_PARKED => {
                P::unpark(key::<P>(&heir.state), 1);
                true
            }
            ABANDONED => false,
            // Roused, it spins again since our first look.
            _ => true,
        }
    }

    /// Moves the sleep of `heir`, to which `go` was granted, to the word, where our unlock finds it. If it is awake nothing is
    /// moved, and our unlock wakes nobody.
    #[cold]
    fn move_sleep(&self, heir: &Node<P>, go: u32, steal: u8) {
        P::requeue(key::<P>(&heir.state), go, self.word_key(), || {
            heir.state.load(Relaxed)
        });
        // Only now: an earlier holder may be about to clear PARKED and wake who sleeps on the word. It must
        // either come before this, or find the heir there.
        self.pending.fetch_or(PARKED | steal, Relaxed);
    }
}
