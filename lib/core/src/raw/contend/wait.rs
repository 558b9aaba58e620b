//! The three parts of a wait, for any [`Target`].

use super::Wait;
use super::constants::{
    ALONE_NS, BARGE_NS, FIRST_PAUSE_NS, ROUND_QUANTA, SPIN_NS, TURN_IN_LIMIT_DIVISOR,
};
use super::policy::{Front, Seen, Step};
use super::queue::{Headship, QueueKind};
use super::spin;
use crate::events::Event;
use crate::platform::{NEVER, Platform};
use crate::raw::osq::Osq;
use crate::raw::patience::{COUNTED, Patience};
use crate::raw::waiter::{expired, left, sleep_until};

/// What one waiter can see and do at its lock, for example take it for reading or for writing.
///
/// A trait because three kinds of waiter follow one policy on words that have nothing in common.
/// One type with a `match` in each function would make this module depend on both locks and their
/// layouts.
pub(in crate::raw) trait Target<P: Platform> {
    /// What a look at the word returns.
    type Look: Copy;
    /// What taking the lock returns.
    type Taken;
    /// Whether waiters sleep.
    const PARKS: bool;
    /// Whether the lock can be shared by readers; see [`Front::among_readers`].
    const HAS_READERS: bool = false;
    /// Whether a sleep at the front may outlast the quantum, see [`ALONE_NS`]. False if readers may
    /// hold the lock without a break until it is requested, and in a layout whose sleeps are
    /// limited to a millisecond until a fence has covered their flag.
    const SLEEPS_ALONE: bool = false;

    /// Loads the word once: the policy uses how long that takes.
    fn look(&self) -> Self::Look;

    /// What that look means to the waiter. May also read other fields in the same cache line, which
    /// this CPU has by now.
    fn sight(&self, look: Self::Look) -> Sight;

    /// Takes the lock if that is possible now.
    fn take(&mut self) -> Option<Self::Taken>;

    /// Waits until the lock is seen free, for at most this many nanoseconds.
    fn wait_until_free(&self, nanos: u64) -> bool;

    /// Begins a watch: [`Sight::no_unlock`] holds from now on, until the next unlock. All waiters
    /// that watch share one flag, so if there are several, one may miss an unlock.
    fn watch(&self);

    /// Marks the lock as kept.
    fn keep(&self);

    /// Clears the mark of [`keep`](Self::keep). At the mutex this also ends a watch.
    fn share(&self);

    /// This waiter has lost its patience with the front waiter, and acts in its place. The front
    /// waiter may have had a wake-up that others need, so a lock whose waiters owe wake-ups records
    /// one here. At the reader-writer lock a waiter that leaves the front looks for other sleepers
    /// in any case.
    fn lose_patience(&mut self) {}

    /// The waiter is about to leave the lock alone for `nanos` nanoseconds. If it owes another
    /// sleeper a wake-up, that sleeper must not wait for longer than `UNNOTICED_SLEEP_NS`.
    fn before_timed_sleep(&mut self, nanos: u64) {
        let _ = nanos;
    }

    /// Sleeps until an unlock wakes the waiter, but not beyond `until`.
    fn sleep(&mut self, wait: &Wait, until: u64) -> Next<Self::Taken>;

    /// Requests a hand-off, and waits for it. `left`: the time to the deadline, in nanoseconds.
    fn request(&mut self, wait: &Wait, left: u64) -> Next<Self::Taken>;

    /// Leaves the lock alone for `nanos` nanoseconds, in a sleep that no unlock ends, or in a pause
    /// if waiters do not sleep.
    fn timed_sleep(&mut self, nanos: u64) {
        if !Self::PARKS {
            return P::back_off(nanos);
        }
        self.before_timed_sleep(nanos);
        P::count(Event::Park);
        sleep_until::<P>(P::now().saturating_add(nanos));
    }
}

/// What a waiter sees when it looks at a lock.
#[derive(Clone, Copy, Debug)]
pub(in crate::raw) struct Sight {
    pub(in crate::raw) free: bool,
    /// No unlock since the waiter began to watch.
    pub(in crate::raw) no_unlock: bool,
    /// The lock is kept by its holders.
    pub(in crate::raw) kept: bool,
    /// The lock is kept, or another waiter has requested it: newcomers do not barge.
    pub(in crate::raw) reserved: bool,
    /// The lock is free, or was handed to a waiter that has not picked it up yet, or is full, so
    /// that this waiter would give up at the front.
    pub(in crate::raw) unclaimed: bool,
    /// A waiter of this process has requested to go next.
    pub(in crate::raw) requested: bool,
}

/// What a waiter does after a sleep or a request.
#[derive(Debug)]
pub(in crate::raw) enum Next<T> {
    /// The waiter looks at the lock again.
    Look,
    /// The wait is over. `None`: the deadline has come, or there is nothing to wait for.
    End(Option<T>),
}

impl Wait {
    /// How long the waiter stays at the front before it requests a hand-off.
    pub(super) fn quantum<P: Platform>(&self, headship: &Headship<'_, P>) -> u64 {
        let quantum = self.tuning.quantum.nanos();
        let share = ROUND_QUANTA.saturating_mul(quantum) / (u64::from(headship.followers()) + 1);
        // Without a deadline this limits nothing.
        let turn = left(self.deadline, P::now) / TURN_IN_LIMIT_DIVISOR;
        quantum.min(share.max(SPIN_NS)).min(turn)
    }
}

/// Takes the lock without queueing if it soon becomes free and is not reserved. The newcomer waits
/// for the end of the critical section that it finds, for [`SPIN_NS`] at most: sleeping in the
/// queue and being woken takes as long. Once it has seen the lock free and lost it to another
/// thread, it gives up when [`BARGE_NS`] have passed since its arrival. A waiter with a time limit
/// waits for a section no longer than it would stay at the front before it requests the lock.
///
/// The newcomer also passes queued waiters: they sleep, and all would have to wait until one wakes
/// up. It does not pass them if waiters spin, or if the quantum is 0 and each waiter is to have its
/// turn at once.
pub(in crate::raw) fn barge<P: Platform, T: Target<P>>(
    target: &mut T,
    queue: &Osq<P>,
    wait: &Wait,
) -> Option<T::Taken> {
    let in_order = !T::PARKS || wait.tuning.quantum.nanos() == 0;
    let begun = P::now();
    let section = match in_order {
        true => BARGE_NS,
        false => (wait.deadline.saturating_sub(begun) / TURN_IN_LIMIT_DIVISOR).max(BARGE_NS),
    };
    let mut until = begun
        .saturating_add(section.min(wait.spin))
        .min(wait.deadline);
    // A spin that is cut short does not show whether it would have paid.
    let mut is_whole = T::PARKS && until == begun.saturating_add(wait.spin);
    loop {
        let reserved = target.sight(target.look()).reserved;
        let left = until.saturating_sub(P::now());
        let queued = in_order && queue.last() != 0;
        if wait.trial || reserved || queued {
            return None;
        }
        if left == 0 {
            if is_whole {
                spin::record::<P>(false);
            }
            return None;
        }
        // In pieces, since a waiter may request the lock in between.
        if target.wait_until_free(left.min(BARGE_NS)) {
            if let Some(taken) = target.take() {
                P::count(Event::Barge);
                spin::record::<P>(true);
                return Some(taken);
            }
            is_whole = false;
            until = until.min(begun.saturating_add(BARGE_NS));
        }
    }
}

/// Queues, and waits to be at the front, asleep if waiters of this lock sleep. `None`: the deadline
/// has come first.
///
/// A thread without a free node cannot queue. It goes to the front at once, beside the queue, where
/// other waiters may be. So does a thread that loses its [patience](Patience) in the queue: the
/// front waiter may not run, and no other thread would wake the waiters behind it.
pub(in crate::raw) fn queue_up<'a, P: Platform, T: Target<P>>(
    target: &mut T,
    queue: &'a Osq<P>,
    kind: QueueKind,
    wait: &Wait,
) -> Option<Headship<'a, P>> {
    let Some(node) = P::waiters().take_node() else {
        P::count(Event::SlotFallback);
        return Some(Headship::beside());
    };
    let place = match Headship::join(kind, queue, node, wait.tuning) {
        Ok(front) => return Some(front),
        Err(place) => place,
    };
    let mut patience = match T::PARKS {
        true => Patience::begin::<P>(),
        false => Patience::ENDLESS,
    };
    if patience.or(NEVER) != NEVER {
        patience.count_ahead(place.count_ahead(COUNTED));
    }
    loop {
        if let Some(told) = place.wait(T::PARKS, patience.or(wait.deadline)) {
            return Some(place.come(told));
        }
        let late = expired(wait.deadline, P::now);
        let is_stuck = |looked| is_stuck(target, looked);
        if late || patience.look_is_due::<P>().is_some_and(is_stuck) {
            return match place.quit() {
                Some(front) => Some(front),
                None if late || expired(wait.deadline, P::now) => None,
                None => {
                    target.lose_patience();
                    Some(Headship::beside())
                }
            };
        }
    }
}

/// Whether a waiter in the queue stops waiting for the front waiter, since no thread seems to come
/// for the lock.
///
/// A lock is also free for a moment between two sections. So at its first look the waiter leaves
/// the queue only if the lock stays free for [`BARGE_NS`]. If it has `looked` before, one look is
/// enough, and it leaves in three cases. The lock is free. It was handed over and not picked up: at
/// the first look the requester was perhaps about to. Or no waiter has requested to go next:
/// newcomers may hold the lock each time that this waiter looks, while the front waiter does not
/// run. It stays if the lock is held and requested: the next release serves the requester, which
/// mostly is the front waiter.
pub(super) fn is_stuck<P: Platform, T: Target<P>>(target: &T, looked: bool) -> bool {
    let until = P::now().saturating_add(BARGE_NS);
    loop {
        let sight = target.sight(target.look());
        if looked && (sight.unclaimed || !sight.requested) {
            return true;
        }
        if !sight.free {
            return false;
        }
        if P::now() >= until {
            return true;
        }
        P::back_off(FIRST_PAUSE_NS);
    }
}

/// Does what the policy says until this waiter has the lock, or the deadline has come (`None`).
/// `headship` is its place at the front.
pub(in crate::raw) fn wait_at_front<P: Platform, T: Target<P>>(
    target: &mut T,
    wait: &Wait,
    headship: &Headship<'_, P>,
) -> Option<T::Taken> {
    let mut front = Front::new(wait.quantum(headship), wait.trial).spinning_for(wait.spin);
    let (mut spun, mut seen_free) = (false, false);
    if T::HAS_READERS {
        front = front.among_readers();
    }
    if wait.trial {
        target.keep();
    }
    loop {
        let before = front.measures().then(P::now);
        let look = target.look();
        let now = P::now();
        let sight = target.sight(look);
        let seen = Seen {
            now,
            look: before.map(|before| now.saturating_sub(before)),
            free: sight.free,
            no_unlock: sight.no_unlock,
            kept: sight.kept,
        };
        if expired(wait.deadline, || now) {
            end_trial(target, &front);
            return None;
        }
        let left = wait.deadline.saturating_sub(now);
        let mut next = Next::Look;
        match front.next(seen) {
            Step::Take { idle } => {
                seen_free = true;
                if let Some(taken) = target.take() {
                    if spun {
                        spin::record::<P>(true);
                    }
                    if idle {
                        target.share();
                    }
                    return Some(taken);
                }
            }
            Step::Share => target.share(),
            Step::Watch(pause) => {
                target.watch();
                P::back_off(pause.min(left));
            }
            Step::Pause(pause) => P::back_off(pause.min(left)),
            Step::Poll(nanos) => {
                spun = true;
                seen_free |= target.wait_until_free(nanos.min(left));
            }
            Step::TimedSleep(nanos) => target.timed_sleep(nanos.min(left)),
            Step::Sleep(nanos) => {
                if spun && !seen_free {
                    spin::record::<P>(false);
                }
                (spun, seen_free) = (false, false);
                let lasts = T::SLEEPS_ALONE && wait.deadline == NEVER && headship.is_alone();
                let nanos = if lasts { nanos.max(ALONE_NS) } else { nanos };
                let until = now.saturating_add(nanos).min(wait.deadline);
                next = target.sleep(wait, until);
            }
            Step::Request => {
                end_trial(target, &front);
                next = target.request(wait, left);
            }
        }
        if let Next::End(taken) = next {
            return taken;
        }
    }
}

/// Marks the lock as shared if this wait is a trial without a verdict.
fn end_trial<P: Platform, T: Target<P>>(target: &T, front: &Front) {
    if front.is_trial() {
        target.share();
    }
}
