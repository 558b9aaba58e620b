//! The order in which headship is passed on: first in first out (MCS), or to kin first (compact NUMA-aware, CNA).
//!
//! Sources: MCS is Mellor-Crummey and Scott, "Algorithms for scalable synchronization on shared-memory
//! multiprocessors", TOCS 1991. CNA is Dice and Kogan, "Compact NUMA-aware locks", EuroSys 2019, and the discussion
//! of its patches for the Linux kernel (2019-2021), from which the time limit, priority waiters and the incremental scan come.
//!
//! # Two queues
//!
//! ```text
//!   lock word: tail ------------------------------------------+
//!                                                             v
//!   primary:    head --next--> a0 --next--> b1 --next--> ... last --> 0
//!
//!   secondary:  +---> s0 --next--> s1 --next--> s2 ---+          circular; named by its tail, s2
//!               +-------------------------------------+
//! ```
//!
//! The **primary queue** is the MCS queue. The **secondary queue** holds waiters that were *set aside*, because they
//! run in another locality domain than the one the head prefers. Nothing of it lives in the lock: the head knows its
//! tail, and passes it on in the word through which it passes headship.
//!
//! Only the head touches a node whose `next` is set, and every waiter but the last of the primary queue has `next`
//! set. So the head may relink all of them without atomic read-modify-writes; newcomers only ever write the `next` of the last one.
//!
//! # What happens to headship
//!
//! | primary behind the head | secondary | limit reached | action |
//! | --- | --- | --- | --- |
//! | empty | empty | - | tail := nobody; the queue is gone |
//! | empty | s | - | open the circle; tail := s by compare-and-swap; pass to the head of s. On failure close the circle again: a newcomer has queued |
//! | kin at position k | any | no | set the k waiters before it aside; pass to it, with the secondary's tail |
//! | no kin | empty | - | pass to the next (plain MCS) |
//! | no kin | s | - | splice s in front of the primary; pass to the head of s, which has waited longest |
//! | any | s | yes | the same |
//!
//! # Invariants
//!
//! 1. Every waiter is the head, or in exactly one queue.
//! 2. The last waiter of the primary queue is never set aside: its `next` belongs to a newcomer.
//! 3. All waiters of the secondary queue queued before all waiters of the primary queue that stand behind a priority
//!    waiter: a scan stops at a priority waiter and nobody sets it aside. So splicing never lets a later waiter overtake it.
//! 4. `since` and `run` are meaningful exactly while the secondary queue is not empty.

use super::waiter::{GO, Id, Link, NO_PREFERENCE, Node, PARKED, PRIORITY, Waiters, secondary_in};
use super::{Config, Fault};
use crate::events::Event;
use crate::platform::{Atomic, Ordering::*, Platform};
use crate::tuning::{LocalLimit, Scan, Tuning};

/// How many sleepers a head rouses before it is their turn. Waking one takes about as long as a few
/// hand-offs, and the lock may have to wait for it. Those who are roused rouse the others.
pub(crate) const ROUSE_AHEAD: usize = 8;

/// How long before the limit on local hand-offs the first of the secondary queue is roused, in units of [`clock`]: longer than a CPU takes to come
/// out of a deep sleep, and to wake those of a whole domain one after the other. What is left of their patience has to last until they had their turn.
const LEAD: u32 = MS / 4;
/// The same as a share of a limit in hand-offs, 2^-5: between a third of a millisecond and a whole one for 2^16 of them.
const LEAD_SHARE: u8 = 5;

/// How long a holder that knows no kin waits for some before headship goes to another domain, in nanoseconds: one or two transfers of a line between sockets. A change of domains
/// costs several of these, so that waiting in vain does not make it twice as dear.
const LINGER: u64 = 200;
/// The same in pauses, for where the clock stands still.
const LINGER_PAUSES: u32 = 64;
/// After how many hand-offs since somebody was set aside that is tried: where kin are rare turns are short, and nobody shall wait for them each time.
const LINGER_RUN: u32 = 4;
/// And for how much of the limit, as a divisor: a domain that has to be waited for again and again does not keep the lock for as long as others may.
const LINGER_SHARE: u32 = 200;

/// In a node's `run`: the first of the secondary queue has been roused.
const ROUSED_BEFORE: u32 = 1 << 31;

/// How far the search for a waiter of the preferred domain has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Search {
    /// Not looking: first in first out, and the secondary queue, if any, comes first.
    Off,
    /// Nobody found up to and including this node; more may have queued behind it since.
    UpTo(Id),
    /// The next waiter is the one.
    Found,
}

/// How far hand-offs have come on their way to the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Limit {
    /// They have hardly begun.
    Distant,
    Far,
    Near,
    Reached,
}

/// What the head of the queue knows. Lives on its stack; what outlives it travels in the successor's node.
#[derive(Debug)]
pub(crate) struct Head<P: Platform, C: Config> {
    table: &'static Waiters<P>,
    /// Whose place in the queue we act from: our own node, or an abandoned one that we passed over.
    place: Id,
    tuning: Tuning,
    preference: u16,
    /// The tail of the secondary queue.
    secondary: Option<Id>,
    since: u32,
    run: u32,
    limit: Limit,
    search: Search,
    /// A waiter that was seen drowsy: it may be about to wake up.
    drowsy: Option<Id>,
    config: core::marker::PhantomData<C>,
}

impl<P: Platform, C: Config> Head<P, C> {
    /// Takes headship over. `state` is the word by which it came, [`GO`] if the queue was empty; `domain` is where
    /// the thread runs.
    pub(crate) fn new(
        table: &'static Waiters<P>,
        me: Id,
        state: u32,
        tuning: Tuning,
        domain: u16,
    ) -> Self {
        let secondary = secondary_in(state);
        let node = table.node(me);
        let inherited = node.preference.load(Relaxed);
        let mut head = Head {
            table,
            place: me,
            tuning,
            preference: if inherited == NO_PREFERENCE {
                domain
            } else {
                inherited
            },
            secondary,
            since: 0,
            run: 0,
            limit: Limit::Far,
            search: Search::Off,
            drowsy: None,
            config: core::marker::PhantomData,
        };
        if secondary.is_some() {
            head.since = node.since.load(Relaxed);
            head.run = node.run.load(Relaxed);
        }
        head
    }

    /// The pre-scan: to be called before waiting for the lock itself, while there is nothing better to do.
    ///
    /// It also looks at the clock, for the same reason.
    pub(crate) fn look_for_kin(&mut self) {
        self.limit = self.limit_now();
        if self.limit == Limit::Reached {
            P::count(Event::FlushByLimit);
        } else if self.tuning.reorder {
            P::count(Event::Scan);
            self.search = Search::UpTo(self.place);
            self.scan();
        }
    }

    /// Waits a moment for kin to queue, if none is known, there have been some, and others would get headship instead. To be called once, with the lock.
    pub(crate) fn wait_for_kin(&mut self) {
        if !C::AS_PUBLISHED && self.wants_kin() {
            // The post-scan: some may have come since we looked.
            self.scan();
            if self.wants_kin() {
                self.linger();
            }
        }
    }

    fn wants_kin(&self) -> bool {
        matches!(self.search, Search::UpTo(_))
            && self.tuning.scan == Scan::Full
            && self.secondary.is_some()
            && self.limit == Limit::Distant
            && self.run & !ROUSED_BEFORE >= LINGER_RUN
    }

    #[cold]
    fn linger(&mut self) {
        P::count(Event::WaitForLocal);
        let until = P::now() + LINGER;
        let mut left = LINGER_PAUSES;
        self.scan_while(|| {
            P::relax();
            left -= 1;
            left != 0 && P::now() < until
        });
    }

    fn scan_while(&mut self, mut go_on: impl FnMut() -> bool) {
        while self.search != Search::Found && go_on() {
            self.scan();
        }
    }

    /// Calls `rouse` for waiters that sleep and whose turn is near: the next `most` local waiters, and
    /// the first of the secondary queue. They wake up side by side then, instead of one after the
    /// other, each when it is its turn. Call it after [`look_for_kin`](Self::look_for_kin).
    pub(crate) fn rouse_ahead(&mut self, most: usize, rouse: impl Fn(&Node<P>)) {
        self.rouse_set_aside(&rouse);
        self.rouse_next(most, &rouse);
    }

    /// Rouses the first of the secondary queue, once, when the limit is near: a waiter that was set
    /// aside for long is asleep by then, with all its local waiters.
    fn rouse_set_aside(&mut self, rouse: &impl Fn(&Node<P>)) {
        if self.limit != Limit::Near || self.run & ROUSED_BEFORE != 0 {
            return;
        }
        if let Some(first) = self.secondary.and_then(|last| self.next(last)) {
            self.run |= ROUSED_BEFORE;
            rouse(self.node(first.id()));
        }
    }

    /// Rouses those of the next `most` local waiters that sleep, if the very next one does. Other
    /// waiters stay asleep: they are about to be set aside, or stand behind many hand-offs.
    fn rouse_next(&mut self, most: usize, rouse: &impl Fn(&Node<P>)) {
        let mut last = self.place;
        for _ in 0..most {
            let Some(link) = self.next(last) else {
                return;
            };
            let next = link.id();
            let node = self.node(next);
            let is_next = last == self.place;
            if is_next && node.drowsy.load(Relaxed) != 0 {
                self.drowsy = Some(next);
            }
            let sleeps = node.state.load(Relaxed) == PARKED;
            if is_next && !sleeps || !self.is_kin(link) {
                return;
            }
            if sleeps {
                rouse(node);
            }
            last = next;
        }
    }

    /// Passes headship to a successor, or empties the queue. `grant` hands the given state to the given waiter, with a look
    /// at the state before if so told, and says whether that waiter was still there; an abandoned one is passed over, and we go on from its place.
    pub(crate) fn pass(
        &mut self,
        tail: &P::AtomicU16,
        mut grant: impl FnMut(&Node<P>, u32, bool) -> bool,
    ) {
        let own = self.place;
        loop {
            let heir = self.choose_heir(tail);
            let taken = heir.is_none_or(|heir| self.hand_over(heir, &mut grant));
            let left = self.place;
            if let Some(id) = heir.filter(|_| !taken).map(Link::id) {
                self.place = id;
                self.search = match self.search {
                    // The scan was relative to the place just left; what it set aside stays set aside.
                    Search::Off => Search::Off,
                    _ => Search::UpTo(id),
                };
            }
            if left != own {
                P::count(Event::Reap);
                self.table.reap(left);
            }
            if taken {
                return;
            }
        }
    }

    fn hand_over(&self, link: Link, grant: &mut impl FnMut(&Node<P>, u32, bool) -> bool) -> bool {
        let heir = self.node(link.id());
        // Relaxed: the grant releases them.
        if self.secondary.is_some() {
            heir.since.store(self.since, Relaxed);
            heir.run.store(self.run.wrapping_add(1), Relaxed);
            // Also with the full scan: a priority waiter from elsewhere must not set our kin aside, behind whom its own
            // kin would then overtake those set aside before.
            heir.preference.store(self.preference, Relaxed);
        }
        let local = link.domain() == self.preference;
        // An heir that is just waking up would look asleep to whoever stores first and looks then.
        let look = link.is_guarded() || self.drowsy == Some(link.id());
        let go = self.secondary.map_or(GO, |s| s.encode() as u32);
        let taken = grant(heir, go, look);
        if taken && self.tuning.reorder {
            P::count(if local {
                Event::HandoffLocal
            } else {
                Event::HandoffRemote
            });
        }
        taken
    }

    /// Decides who comes next and removes everybody before them from the primary queue. `None`: the queue is empty.
    fn choose_heir(&mut self, tail: &P::AtomicU16) -> Option<Link> {
        let next = match self.next(self.place) {
            Some(next) => next,
            None => {
                if let Some(emptied) = self.empty_primary(tail) {
                    return emptied;
                }
                // A newcomer swapped the tail and is about to link itself.
                let raw = P::wait(&self.node(self.place).next, Acquire, |n| n != 0);
                Link::decode(raw)?
            }
        };
        // The post-scan: look at those who came since the pre-scan.
        if let Search::UpTo(_) = self.search {
            self.scan();
        }
        match self.search {
            Search::Found => self.next(self.place),
            // Incremental: the preference persists, the secondary queue waits for the limit.
            Search::UpTo(_) if self.tuning.scan == Scan::Incremental => Some(next),
            _ => Some(self.splice_in_front(next)),
        }
    }

    /// Nobody behind us: makes the secondary queue the primary one (`Some(Some(its head))`), or the queue empty
    /// (`Some(None)`). `None`: a newcomer was faster.
    fn empty_primary(&mut self, tail: &P::AtomicU16) -> Option<Option<Link>> {
        let me = self.place.encode();
        let Some(last) = self.secondary else {
            return tail
                .compare_exchange(me, 0, AcqRel, Relaxed)
                .is_ok()
                .then_some(None);
        };
        // Open the circle first: once `last` is the tail, its `next` belongs to newcomers.
        let first = self.next(last)?;
        self.node(last).next.store(0, Relaxed);
        // Release pairs with the newcomer's swap: it must find the circle open.
        if tail
            .compare_exchange(me, last.encode(), AcqRel, Relaxed)
            .is_ok()
        {
            P::count(Event::Splice);
            self.secondary = None;
            self.search = Search::Off;
            return Some(Some(first));
        }
        self.link(last, first);
        None
    }

    /// Puts the secondary queue, if any, between us and `next`; returns who is first then.
    fn splice_in_front(&mut self, next: Link) -> Link {
        let Some(last) = self.secondary else {
            return next;
        };
        let Some(first) = self.next(last) else {
            return next;
        };
        P::count(Event::Splice);
        self.link(last, next);
        self.link(self.place, first);
        self.secondary = None;
        self.search = Search::Off;
        first
    }

    /// Looks on from where the search stands, and sets aside whoever stands before the first waiter found.
    fn scan(&mut self) {
        let Search::UpTo(mut last) = self.search else {
            return;
        };
        while let Some(candidate) = self.next(last) {
            P::count(Event::ScanStep);
            let foreign = !self.is_kin(candidate);
            // The incremental scan looks at one waiter only: if it is foreign, whoever stands behind it is next.
            let one_set_aside = self.tuning.scan == Scan::Incremental && last != self.place;
            if !foreign || one_set_aside {
                if last != self.place {
                    self.set_aside(last, candidate);
                }
                self.search = Search::Found;
                return;
            }
            last = candidate.id();
        }
        // Incremental starts afresh, since nobody was moved.
        self.search = Search::UpTo(if self.tuning.scan == Scan::Incremental {
            self.place
        } else {
            last
        });
    }

    /// Moves everybody from our successor to `last` to the end of the secondary queue; `next` follows us then.
    fn set_aside(&mut self, last: Id, next: Link) {
        let Some(first) = self.next(self.place) else {
            return;
        };
        match self.secondary {
            Some(tail) if C::FAULT != Fault::LostSplice => {
                let head = self.next(tail).unwrap_or(first);
                self.link(tail, first);
                self.link(last, head);
            }
            _ => {
                self.link(last, first);
                self.since = clock::<P>();
                self.run = 0;
            }
        }
        self.link(self.place, next);
        self.secondary = Some(last);
        P::count(Event::SetAside);
    }

    fn limit_now(&self) -> Limit {
        if self.secondary.is_none() || C::FAULT == Fault::Starvation {
            return Limit::Far;
        }
        let (used, limit, lead) = match self.tuning.limit {
            LocalLimit::Time { ms } => {
                let limit = ms as u32 * MS;
                (clock::<P>().wrapping_sub(self.since), limit, LEAD)
            }
            LocalLimit::Count { log2 } => {
                let limit = (1 << log2).min(ROUSED_BEFORE - 1);
                (
                    self.run & !ROUSED_BEFORE,
                    limit,
                    (limit >> LEAD_SHARE).max(1),
                )
            }
        };
        match used {
            used if used >= limit => Limit::Reached,
            used if used >= limit - lead => Limit::Near,
            used if used >= limit / LINGER_SHARE => Limit::Far,
            _ => Limit::Distant,
        }
    }

    fn is_kin(&self, link: Link) -> bool {
        let domain = if C::AS_PUBLISHED {
            self.node(link.id()).domain.load(Relaxed)
        } else {
            link.domain()
        };
        domain == self.preference || domain == PRIORITY
    }

    fn node(&self, id: Id) -> &'static Node<P> {
        self.table.node(id)
    }

    /// Acquire pairs with the release by which the next waiter linked itself: its node is ready to be read.
    fn next(&self, id: Id) -> Option<Link> {
        Link::decode(self.node(id).next.load(Acquire))
    }

    /// Relaxed: only heads read these links, and a grant releases them to the next head.
    fn link(&self, id: Id, next: Link) {
        self.node(id).next.store(next.encode(), Relaxed);
    }
}

/// Time in units of 1.024 us, so that it fits into a node; wraps after 73 minutes, far beyond any limit.
fn clock<P: Platform>() -> u32 {
    (P::now() >> 10) as u32
}

/// A millisecond in units of [`clock`], rounded down: the limit errs on the fair side.
const MS: u32 = 1_000_000 >> 10;

#[cfg(all(test, not(loom)))]
mod tests;
