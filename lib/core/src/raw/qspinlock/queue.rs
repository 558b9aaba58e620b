//! Waiting in the queue for headship, and passing it on.

use super::front::{Front, Taken};
use super::key;
use super::policy::Approach;
use super::timing::{SPINS_BEHIND, spin_limit};
use super::{PARKED, QueuedSpinLock, STEAL, Terms};
use crate::events::Event;
use crate::platform::{Atomic, NEVER, Ordering::*, Platform, Ticket};
use crate::raw::LockConfig;
use crate::raw::cna::{self, Head, ROUSE_AHEAD};
use crate::raw::waiter::{
    ABANDONED, AWAKE, DROWSY, GO, Id, Link, Node, PARKED as NODE_PARKED, ROUSED, WAITING, Waiter,
    expired, left, sleep_limit,
};

/// How many waiters a roused waiter looks at: more than are usually in a queue.
const ROUSE_STEPS: u32 = 1024;

/// How headship came.
#[derive(Clone, Copy)]
struct Headship {
    /// The word that brought it.
    state: u32,
    /// Whether the waiter has slept in the queue, or was about to.
    slept: bool,
}

impl<P: Platform, C: LockConfig> QueuedSpinLock<P, C> {
    pub(super) fn queue(&self, waiter: Waiter<P>, terms: Terms) -> bool {
        P::count(Event::Queued);
        let tuning = terms.tuning;
        let (node, id) = (waiter.node(), waiter.id());
        let domain = if tuning.reorder { P::domain() } else { 0 };
        let named = match tuning.reorder {
            true => waiter.named(domain),
            false => domain,
        };
        node.prepare(named, terms.deadline != NEVER);

        // On an oversubscribed machine this waiter probably sleeps, and then a checked grant is
        // cheaper than a heavy fence.
        let guarded = terms.deadline != NEVER || terms.oversubscribed;
        let headship = match cna::queue::<P>(&self.tail, Link::new(id, guarded, named), |_| {}) {
            None => Headship {
                state: GO,
                slept: false,
            },
            Some(predecessor) => {
                // Headship does not soon come from a sleeper, so spinning behind one gains nothing.
                // If each thread can have a CPU, it still pays: otherwise one sleeper makes all
                // later waiters sleep, and every hand-off has to wake a thread.
                let hopeless =
                    terms.oversubscribed && predecessor.state.load(Relaxed) == NODE_PARKED;
                match self.wait_for_headship(waiter, guarded, hopeless, terms) {
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

    /// Waits on the node. `Err`: the time is up, and the node belongs to the head that passes it
    /// over.
    fn wait_for_headship(
        &self,
        mut waiter: Waiter<P>,
        guarded: bool,
        hopeless: bool,
        terms: Terms,
    ) -> Result<(Waiter<P>, Headship), ()> {
        let node = waiter.node();
        let deadline = terms.deadline;
        let mut slept = false;
        let spins = match (hopeless, terms.oversubscribed) {
            (true, _) => 0,
            (_, true) => 1,
            (_, false) => SPINS_BEHIND,
        };
        loop {
            if let Some(state) = self.spin_for_headship(node, spins, terms) {
                return Ok((waiter, Headship { state, slept }));
            }
            if expired(deadline, P::now) {
                match waiter.abandon(WAITING) {
                    Ok(()) => return Err(()),
                    Err(back) => waiter = back,
                }
                continue;
            }
            Self::announce_sleep(node);
            let mut ticket = Ticket::default();
            slept = true;
            // Relaxed: nothing is handed over.
            if node
                .state
                .compare_exchange(WAITING, NODE_PARKED, Relaxed, Relaxed)
                .is_ok()
            {
                P::count(Event::Park);
                let key = key::<P>(&node.state);
                while node.state.load(Relaxed) == NODE_PARKED && !Self::rouse_oneself(node) {
                    // The granter of a guarded waiter checks `state`, and `drowsy` only permits
                    // rousing it. For other waiters the fence pairs with the light fence in
                    // `grant`: either the kernel finds the grant when it compares `state`, or the
                    // granter sees `drowsy`.
                    let noticed = guarded || P::heavy_fence(&mut ticket);
                    let until = sleep_limit::<P>(noticed, deadline);
                    P::park(key, NODE_PARKED, until, || node.state.load(Relaxed));
                    if expired(deadline, P::now) {
                        // The next wait with this node has to find it `AWAKE`.
                        node.drowsy.store(AWAKE, Relaxed);
                        match waiter.abandon(NODE_PARKED) {
                            Ok(()) => return Err(()),
                            Err(back) => waiter = back,
                        }
                    }
                }
            }
            // This thread is awake. Another thread that still reads the old value wakes it
            // needlessly. A guarded waiter does not pass the rouse on. If it has a deadline, the
            // walk could overrun that. If it sleeps again at once, such waiters would rouse each
            // other forever, and so would waiters that find a sleeper at the front.
            let pass_on = node.drowsy.swap(AWAKE, Relaxed) == ROUSED && !guarded;
            if pass_on && self.pending.load(Relaxed) & PARKED == 0 {
                Self::rouse_local(waiter.id());
            }
        }
    }

    /// Spins until headship comes, for at most `spins` times the limit. Stops earlier if the whole
    /// queue stands still: two looks, one limit apart, have found a sleeper at the front and the
    /// same last waiter. Then critical sections are long, or the holder has no CPU. A sleeper at
    /// the front alone means little, since it may have been asleep when it became the head: waiters
    /// that slept because of it would be asleep at their own turn, and so put others to sleep.
    ///
    /// Returns the word that brought headship.
    fn spin_for_headship(&self, node: &Node<P>, mut spins: u32, terms: Terms) -> Option<u32> {
        let limit = match spins {
            0 => 0,
            _ => spin_limit::<P, C>(terms.oversubscribed),
        };
        let mut last = None;
        loop {
            let nanos = limit.min(left(terms.deadline, P::now));
            let headship = P::wait_for(&node.state, Acquire, nanos, |s| s != WAITING).ok();
            spins = spins.saturating_sub(1);
            if headship.is_some() || spins == 0 || P::oversubscribed() {
                return headship;
            }
            let seen = self.look();
            let last_before = last.take();
            if seen.pending & PARKED != 0 {
                last = Some(seen.tail);
                if last == last_before {
                    return None;
                }
            }
        }
    }

    /// Makes a roused sleeper, the caller, spin again. `false`: it was not roused, or headship has
    /// come.
    fn rouse_oneself(node: &Node<P>) -> bool {
        // Relaxed: nothing is handed over. If the exchange fails, headship has come.
        node.drowsy.load(Relaxed) == ROUSED
            && node
                .state
                .compare_exchange(NODE_PARKED, WAITING, Relaxed, Relaxed)
                .is_ok()
    }

    /// Wakes a waiter that sleeps in the queue, so that it spins when its turn comes. This is a
    /// hint: it changes nothing that a grant depends on, so any thread may rouse any waiter.
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

    /// Rouses the waiters of the same domain behind `me`, until headship comes. Heads relink the
    /// queue during the walk, so the walk may stray into another queue. There it wakes waiters too
    /// early, which does no harm.
    #[cold]
    #[inline(never)]
    fn rouse_local(me: Id) {
        let node = |id| P::waiters().node(id);
        let domain = node(me).domain.load(Relaxed);
        let mut last = me;
        for _ in 0..ROUSE_STEPS {
            if node(me).state.load(Relaxed) != WAITING {
                return;
            }
            // Acquire pairs with the release with which a waiter linked itself: its node is
            // initialised.
            let next = Link::decode(node(last).next.load(Acquire));
            let Some(next) = next.filter(|next| next.id() != me) else {
                return;
            };
            if next.domain() == domain {
                Self::rouse(node(next.id()));
            }
            last = next.id();
        }
    }

    /// Announces that the waiter is about to sleep.
    #[cold]
    fn announce_sleep(node: &Node<P>) {
        node.drowsy.store(DROWSY, Relaxed);
    }

    /// As the head: gets the lock, and passes headship on before the critical section.
    fn lead(&self, waiter: Waiter<P>, headship: Headship, domain: u16, terms: Terms) -> bool {
        let (tuning, state) = (terms.tuning, headship.state);
        debug_assert!(state != NODE_PARKED && state != ABANDONED);
        if headship.slept {
            // The waiter runs again. Forbid stealing before the scan, which may take long.
            self.forbid_stealing(Front::Head);
        }
        let mut head = Head::<P>::new(P::waiters(), waiter.id(), state, tuning, domain);
        head.pre_scan();
        if P::CAN_PARK && C::PARK && !terms.oversubscribed {
            // Sleepers stand in a row if they were set aside long ago. A head that has not slept is
            // not among such waiters.
            let most = if headship.slept { ROUSE_AHEAD } else { 0 };
            head.rouse_ahead(most, |sleeper| Self::rouse(sleeper));
        }
        // A head that has slept may find that another thread stole the lock before the head forbade
        // that. This says nothing about the length of critical sections.
        let told = if headship.slept {
            Approach::Look
        } else {
            Approach::told_in(state)
        };
        // From here until headship is passed on, the word is read only where necessary: newcomers
        // may have taken its line by then.
        let (taken, advice) = self.get(told, terms);
        if taken {
            if headship.slept {
                // The granter may have set the bit after this waiter began to run.
                self.forbid_stealing(Front::Head);
            }
            head.wait_for_local();
        }
        let steal = if tuning.stealing { STEAL } else { 0 };
        head.leave(&self.tail, &waiter, |heir, go, check| {
            let go = go | advice.encode();
            if taken && !check {
                self.grant(heir, go, steal);
                return true;
            }
            self.grant_guarded(heir, go, taken, steal)
        });
        taken
    }

    /// Gets the lock as the head. Returns whether that succeeded before the time was up, and how
    /// the next head should try.
    pub(super) fn get(&self, approach: Approach, terms: Terms) -> (bool, Approach) {
        if let Approach::Take { pauses } = approach {
            for _ in 0..pauses {
                P::relax();
            }
            P::count(Event::BlindTry);
            if self.take() {
                return (true, approach.after_success());
            }
            P::count(Event::BlindTryFailed);
        }
        let taken = self.wait_at_front(Front::Head, terms);
        (taken.is_some(), Self::advise(approach, taken))
    }

    /// What a head that looked tells the next head. `told`: what it was told itself.
    ///
    /// A head that takes the lock without a look goes ahead of any pending waiter. So the advice is
    /// to look if there is a pending waiter, or if the adviser does not hold the lock and so cannot
    /// rule one out. None can come later: a newcomer that becomes pending and finds a queue steps
    /// back.
    fn advise(told: Approach, taken: Option<Taken>) -> Approach {
        match taken {
            None => Approach::Look,
            Some(taken) if taken.overtook => Approach::Look,
            Some(taken) if taken.at_once && told == Approach::Look => told.after_success(),
            Some(_) => told.after_failure(),
        }
    }

    /// Makes `heir`, which is not guarded, the head. The caller holds the lock. `steal`: [`STEAL`]
    /// if a sleeping heir permits stealing, or 0.
    #[inline]
    fn grant(&self, heir: &Node<P>, go: u32, steal: u8) {
        // This thread does not wait for the store: the line comes during its critical section.
        heir.state.overwrite(go, Release);
        if P::CAN_PARK && C::PARK {
            // Pairs with the heavy fence in `wait_for_headship`.
            P::light_fence();
            if heir.drowsy.glance(Relaxed) != AWAKE {
                self.move_sleep(heir, go, steal);
            }
        }
    }

    /// Makes `heir` the head, and checks its state. `false`: it has left, and no thread is the head
    /// yet. `holding`: whether the caller holds the lock.
    fn grant_guarded(&self, heir: &Node<P>, go: u32, holding: bool, steal: u8) -> bool {
        // No load first: the exchange fetches the line once, for writing. Acquire on failure pairs
        // with `abandon`: the reference that was counted before must be visible when the node is
        // reaped.
        match heir.state.compare_exchange(WAITING, go, AcqRel, Acquire) {
            Ok(_) => return true,
            Err(ABANDONED) => return false,
            Err(_) => {}
        }
        // The heir sleeps on, and running threads may steal until the caller's unlock wakes it. Two
        // cases need a wake-up now: an heir with a deadline might leave and sleep elsewhere before
        // its sleep is moved, and a caller without the lock has no unlock to come.
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
            // The heir was roused after the first look, and spins again.
            _ => true,
        }
    }

    /// Moves the sleep of `heir`, to which `go` was granted, to the word, where the caller's unlock
    /// finds it. If the heir is awake, this moves nothing, and the unlock wakes no thread.
    #[cold]
    fn move_sleep(&self, heir: &Node<P>, go: u32, steal: u8) {
        P::requeue(key::<P>(&heir.state), go, self.word_key(), || {
            heir.state.load(Relaxed)
        });
        // After the requeue: an earlier holder may be about to clear PARKED and to wake the
        // sleepers on the word. Either it clears PARKED before this sets it, or it finds the heir
        // on the word.
        self.pending.fetch_or(PARKED | steal, Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
