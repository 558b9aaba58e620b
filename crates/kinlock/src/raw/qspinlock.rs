//! The queued spinlock: four bytes, and a queue of waiters outside of them.
//!
//! Source: the shape of the word (locked, pending, tail) and its slow path are those of the Linux kernel's queued
//! spinlock (Zijlstra, Long and others, 2014-2015); parking and stealing follow the idea of its paravirtual variant. This is
//! an independent design for threads, which can be preempted anywhere, exit, fork, and give up waiting.
//!
//! # The word
//!
//! ```text
//!   byte  0          1           2 3
//!       locked    pending       tail
//!       0 or 1    PENDING  1    Id of the last waiter, 0 = the queue is empty
//!                 PARKED   2
//!                 STEAL    4
//! ```
//!
//! Three separate atomics side by side: each is only ever accessed at its own size, so no access mixes sizes.
//! (The kernel compares all four bytes when a waiter falls asleep on them; see [`Platform::park`].)
//!
//! * `locked` alone decides who holds the lock: it is taken by a compare-and-swap from 0. Everything else is about who tries next.
//! * `PENDING`: one waiter waits without a node. It comes before the queue.
//! * `PARKED`: somebody sleeps on the word: the pending waiter, the head waiter, or both. Whoever unlocks wakes them.
//! * `STEAL`: the front waiter (the pending waiter; without one, the head waiter) is not running, so a running thread may take a free lock before it.
//!
//! # Transitions
//!
//! (tail, pending, locked); `n` = any tail, `p` = any pending byte, `*` = anything. "0/1" means that both occur.
//!
//! | who | from | to | how |
//! | --- | --- | --- | --- |
//! | newcomer, fast path | (0, 0, 0) | (0, 0, 1) | compare-and-swap `locked`, after reading the other two |
//! | newcomer, steals | (n, STEAL, 0) | (n, STEAL, 1) | compare-and-swap `locked`, after reading `pending` |
//! | newcomer, first waiter | (0, 0, 1) | (0, PENDING, 1) | compare-and-swap `pending`; undone if a tail has appeared |
//! | pending waiter takes the lock | (n, PENDING, 0) | (n, 0, 1) | compare-and-swap `locked`, then clear the bit |
//! | newcomer queues | (n, p, *) | (me, p, *) | swap `tail`; if n != 0, link to n |
//! | head takes the lock | (n, 0, 0) | (n, 0, 1) | compare-and-swap `locked` |
//! | head, alone | (me, p, 1) | (0, p, 1) | compare-and-swap `tail` |
//! | head, not alone | (n, p, 1) | (n, p, 1) | grant to the next; if that one may be asleep, move its sleep to the word and set `PARKED`, `STEAL` |
//! | front waiter falls asleep | (n, p, 1) | (n, p + PARKED + STEAL, 1) | fetch-or `pending`, heavy fence, look again, park |
//! | front waiter runs again | (n, p + STEAL, *) | (n, p, *) | fetch-and `pending` |
//! | holder unlocks | (n, p, 1) | (n, p, 0) | store `locked`, light fence, read `pending` |
//! | ... and `PARKED` was set | (n, p + PARKED, *) | (n, p, *) | fetch-and `pending`, unpark |
//!
//! With the knob [`stealing`](Tuning::stealing) off nobody sets `STEAL` and nobody steals; the other transitions stay.
//!
//! # Why nobody is forgotten
//!
//! 1. *Falling asleep against unlocking* is a store-load race on both sides: the sleeper writes `PARKED` then reads
//!    `locked`; the holder writes `locked` then reads `PARKED`. The asymmetric fences let the frequent side, the unlock, go without a
//!    barrier. Whoever sets `PARKED` therefore executes a heavy fence and looks again, or holds the lock. A waiter may have
//!    fallen asleep on a `PARKED` that somebody else is about to cover by such a fence; so a head that finds the lock free
//!    then, when it is the pending waiter's turn, wakes that one. Where the heavy fence is unavailable the sleeper wakes up by itself now and then.
//! 2. *A head that passes headship to a parked waiter* sets `PARKED` itself, while it holds the lock, so its own unlock
//!    comes later in program order and sees it. The heir's sleep is moved from its node to the word, so that the unlock need not know its name.
//! 3. *Pending against queueing*: the first waiter sets `PENDING` then reads `tail`; a newcomer sets `tail` then reads
//!    `PENDING`; all four are sequentially consistent, so at least one of the two sees the other, and the pending waiter is the one to step back.
//! 4. *A head asleep behind a pending waiter* waits for an unlock and for that waiter to go. The waiter goes with the lock, and then its own
//!    unlock comes later and finds the head's `PARKED`; or without it, and then it wakes whom `PARKED` stands for (`leave_pending`).
//!
//! 5. *Falling asleep in the queue against a grant* is another store-load race. Whoever is likely to sleep, or may leave, is
//!    guarded: it says so in the link by which it queues, which a granter has read (Acquire), and is granted by compare-and-swap. Anybody else writes
//!    `drowsy` in its node, executes a heavy fence, and then falls asleep by compare-and-swap from `WAITING`; its granter writes `state`, executes
//!    a light fence, and then reads `drowsy`. So the grant comes before the compare-and-swap, which fails; or the granter, which may have overwritten
//!    `PARKED`, knows and moves the sleep to the word as in 2, if there is one. It holds the lock all the while. So the heir, which cannot leave without having had
//!    it, still waits for this lock: nobody else's sleep can be moved. Nothing but a grant ends the wait of such an heir, and only heads write its state besides
//!    itself, so the plain store overwrites nothing else. An heir that wakes up lowers `drowsy` and announces each later sleep anew. Seen too long, it costs a system call.
//!    Where the heavy fence is unavailable the sleeper wakes up by itself now and then, and finds the grant.
//! 6. *Woken ahead of one's turn*: only the head does that, so the grant comes later, from the same thread or a later head. It turns `PARKED` into `WAITING` and then wakes; who
//!    falls asleep again does so by another compare-and-swap, and is found as in 5.
//!
//! No wake-up rests on `STEAL`: it only lets others try. A waiter that `STEAL` would let try, and that must not for want of
//! it, waits for one of the events above. So `STEAL` need never be set.
//!
//! # Bounds on overtaking
//!
//! * A thread that saw the word free of waiters may take the lock after somebody queued: once, since it then sees them.
//! * Stealing lasts from when a front waiter sleeps until it runs again. It is woken by the next unlock, and once it
//!   runs it forbids stealing. If it has to sleep again, it permits stealing only during the first [`STEAL_LIMIT`] nanoseconds of its time at the front.
//! * With the knob `stealing` off there is only the first of these, and threads that wait without a node.

use core::marker::PhantomData;

use super::cna::{Head, WAKE_AHEAD, WAKE_ALL};
use super::waiter::{
    ABANDONED, GO, Id, Link, Node, PARKED as NODE_PARKED, PRIORITY, WAITING, Waiter,
};
use crate::config::Tuning;
use crate::events::Event;
use crate::platform::{Atomic, ConstAtomic, ConstPlatform, NEVER, Ordering::*, Platform};

const PENDING: u8 = 1;
const PARKED: u8 = 2;
const STEAL: u8 = 4;

/// How many can sleep on the word: the pending waiter and the head waiter.
const AT_FRONT: u32 = 2;

/// How long after coming to the front a waiter that falls asleep still lets others steal, in nanoseconds.
pub const STEAL_LIMIT: u64 = 10_000_000;

/// How long a waiter spins before it parks while every waiting thread can have a CPU, in nanoseconds: longer than it takes to wake all
/// waiters of a locality domain one after the other, or they all fall asleep again before their turn comes.
const PATIENT: u64 = 1_000_000;
/// The same while there are more of them than CPUs: a few hand-offs, or what falling asleep and waking costs.
const HURRIED: u64 = 5_000;

/// How long a newcomer waits for a chance to steal before it queues, in nanoseconds, and how often it tries.
const STEAL_PATIENCE: u64 = 2_000;
const STEAL_ATTEMPTS: u32 = 16;

/// How long a waiter sleeps at most where no heavy fence guarantees that it is noticed, in nanoseconds.
const UNNOTICED_SLEEP: u64 = 1_000_000;

/// What is fixed about a lock at compile time, and where it finds its knobs.
pub trait Config: Copy + core::fmt::Debug + Send + Sync + 'static {
    /// Whether the first waiter waits without a node. Model checks switch it off to reach the queue with two threads.
    const PENDING_BIT: bool = true;
    /// Whether waiters may sleep, where the platform can.
    const PARK: bool = true;
    /// A deliberate defect, for showing that a check can fail.
    #[doc(hidden)]
    const FAULT: Fault = Fault::None;

    /// The run-time knobs. Called once per slow path.
    fn tuning() -> Tuning;
}

/// Deliberate defects, each to be caught by the check meant for it.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A correct lock.
    None,
    /// The head waiter takes the lock whether it is free or not.
    NoExclusion,
    /// Setting waiters aside forgets those who were there before.
    LostSplice,
    /// The limit on local hand-offs is ignored.
    Starvation,
    /// Unlocking does not wake.
    LostWakeup,
    /// Unlocking does not publish the critical section.
    RelaxedUnlock,
    /// Who falls asleep in the queue does not say so.
    SilentSleeper,
}

/// The queued spinlock, generic over where it runs and how it is configured.
///
/// All-zero memory is an unlocked lock. The lock owns nothing outside its four bytes.
///
/// It must stay where it is and stay valid until [`unlock`](Self::unlock) has returned, also if another thread has
/// taken the lock in between.
#[repr(C, align(4))]
#[derive(Debug)]
pub struct QueuedSpinLock<P: Platform, C: Config> {
    locked: P::AtomicU8,
    pending: P::AtomicU8,
    tail: P::AtomicU16,
    config: PhantomData<C>,
}

impl<P: ConstPlatform, C: Config> QueuedSpinLock<P, C> {
    /// An unlocked lock, in a constant.
    pub const UNLOCKED: Self = QueuedSpinLock {
        locked: P::AtomicU8::ZERO,
        pending: P::AtomicU8::ZERO,
        tail: P::AtomicU16::ZERO,
        config: PhantomData,
    };
}

impl<P: Platform, C: Config> Default for QueuedSpinLock<P, C> {
    fn default() -> Self {
        Self::new()
    }
}

/// What holds for one wait from its beginning to its end.
#[derive(Clone, Copy)]
struct Terms {
    tuning: Tuning,
    deadline: u64,
    /// More threads wait than there are CPUs, so that some should sleep.
    crowded: bool,
}

/// How headship came.
#[derive(Clone, Copy)]
struct Headship {
    /// What the node's state says then.
    state: u32,
    /// Whether the waiter has slept meanwhile.
    slept: bool,
}

/// Who comes first when the lock is released.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Front {
    Pending,
    Head,
}

impl<P: Platform, C: Config> QueuedSpinLock<P, C> {
    /// An unlocked lock. Where the platform allows, [`UNLOCKED`](Self::UNLOCKED) is the same as a constant.
    pub fn new() -> Self {
        QueuedSpinLock {
            locked: Atomic::new(0),
            pending: Atomic::new(0),
            tail: Atomic::new(0),
            config: PhantomData,
        }
    }

    /// Takes the lock, waiting for as long as it takes. Acquires what the previous holder released.
    ///
    /// Taking a lock that the thread already holds waits for ever.
    #[inline]
    pub fn lock(&self) {
        if !self.try_lock() {
            self.lock_slow(NEVER);
        }
    }

    /// Takes the lock if nobody holds it or waits for it.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.pending.load(Relaxed) == 0 && self.tail.load(Relaxed) == 0 && self.try_take()
    }

    /// Takes the lock, or gives up and returns `false` once [`Platform::now`] has reached `deadline`.
    #[inline]
    pub fn lock_until(&self, deadline: u64) -> bool {
        self.try_lock() || self.lock_slow(deadline)
    }

    /// Releases the lock.
    ///
    /// # Safety
    ///
    /// The lock must be held, and the right to release it must be the caller's.
    #[inline]
    pub unsafe fn unlock(&self) {
        self.locked.store(
            0,
            if matches!(C::FAULT, Fault::RelaxedUnlock) {
                Relaxed
            } else {
                Release
            },
        );
        if P::CAN_PARK && C::PARK && !matches!(C::FAULT, Fault::LostWakeup) {
            // Pairs with the heavy fence in `sleep_on_word`.
            P::light_fence();
            if self.pending.glance(Relaxed) & PARKED != 0 {
                self.wake_sleepers();
            }
        }
    }

    /// Whether somebody holds the lock at this moment.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.locked.load(Relaxed) != 0
    }

    /// Whether somebody waits for the lock at this moment.
    #[inline]
    pub fn is_contended(&self) -> bool {
        self.tail.load(Relaxed) != 0 || self.pending.load(Relaxed) & PENDING != 0
    }

    /// The only way to get the lock: look first, since even a failing exchange takes the line away from everybody.
    #[inline]
    fn try_take(&self) -> bool {
        self.locked.load(Relaxed) == 0 && self.take()
    }

    /// Takes the lock if it is free, as it has just been seen.
    #[inline]
    fn take(&self) -> bool {
        self.locked.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self, deadline: u64) -> bool {
        P::count(Event::SlowPath);
        let tuning = C::tuning();
        if passed(deadline, P::now) {
            return tuning.stealing && self.steal_permitted() && self.try_take();
        }
        // Asked once, here, since nobody waits for the answer yet.
        let crowded = P::CAN_PARK && C::PARK && P::crowded();
        if tuning.stealing && self.steal(crowded) {
            P::count(Event::Steal);
            return true;
        }
        let terms = Terms {
            tuning,
            deadline,
            crowded,
        };
        if C::PENDING_BIT && self.become_pending() {
            return self.wait_pending(terms);
        }
        match P::waiters().enter() {
            Some(waiter) => self.queue(waiter, terms),
            None => self.lock_without_node(deadline),
        }
    }

    /// Takes the lock before a front waiter that does not run. Tries for a moment: to queue behind sleepers means to
    /// sleep, and costs more than a few short critical sections.
    fn steal(&self, crowded: bool) -> bool {
        for _ in 0..STEAL_ATTEMPTS {
            // The last look costs a cache line of somebody else's.
            let hopeful = self.steal_permitted() || crowded && self.last_waiter_sleeps();
            if !hopeful {
                return false;
            }
            // A front waiter that runs is about to take the lock and to make a sleeper head.
            let permitted = P::wait_for(&self.pending, Relaxed, STEAL_PATIENCE, |p| p & STEAL != 0);
            let free = P::wait_for(&self.locked, Relaxed, STEAL_PATIENCE, |l| l == 0);
            if permitted.is_err() || free.is_err() {
                return false;
            }
            if self.steal_permitted() && self.try_take() {
                return true;
            }
        }
        false
    }

    fn steal_permitted(&self) -> bool {
        self.pending.load(Relaxed) & STEAL != 0
    }

    fn last_waiter_sleeps(&self) -> bool {
        let last = Id::decode(self.tail.load(Relaxed));
        last.is_some_and(|id| P::waiters().node(id).state.load(Relaxed) == NODE_PARKED)
    }

    // ---- the pending waiter --------------------------------------------------------------------------------

    fn become_pending(&self) -> bool {
        if self.tail.load(Relaxed) != 0 || self.pending.load(Relaxed) != 0 {
            return false;
        }
        if self
            .pending
            .compare_exchange(0, PENDING, SeqCst, Relaxed)
            .is_err()
        {
            return false;
        }
        if self.tail.load(SeqCst) == 0 {
            return true;
        }
        // Somebody has queued: step back behind them.
        self.leave_pending();
        false
    }

    fn wait_pending(&self, terms: Terms) -> bool {
        P::count(Event::Pending);
        let taken = self.wait_at_front(Front::Pending, terms);
        if taken {
            // Release: a head that sees the bit gone also sees who has the lock, and does not fight for it in vain.
            self.pending.fetch_and(!(PENDING | STEAL), Release);
        } else {
            self.leave_pending();
        }
        taken
    }

    /// Goes without having had the lock.
    fn leave_pending(&self) {
        if self.pending.fetch_and(!(PENDING | STEAL), Release) & PARKED != 0 {
            // The head may sleep because of us while the lock is free, and then no unlock is going to wake it.
            self.wake_sleepers();
        }
    }

    // ---- the queue -----------------------------------------------------------------------------------------

    fn queue(&self, waiter: Waiter<P>, terms: Terms) -> bool {
        P::count(Event::Queued);
        let tuning = terms.tuning;
        let (node, id) = (waiter.node(), waiter.id());
        let domain = if tuning.reorder { P::domain() } else { 0 };
        let priority = tuning.reorder && P::is_priority();
        node.prepare(
            if priority { PRIORITY } else { domain },
            terms.deadline != NEVER,
        );

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
                let link = Link::new(id, guarded);
                predecessor.next.store(link.encode(), Release);
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
            let noticed = guarded || Self::announce_sleep(node);
            // Relaxed: nothing is handed over. What was announced comes before because of the fence.
            if node
                .state
                .compare_exchange(WAITING, NODE_PARKED, Relaxed, Relaxed)
                .is_ok()
            {
                P::count(Event::Park);
                slept = true;
                let key = key::<P>(&node.state);
                while node.state.load(Relaxed) == NODE_PARKED {
                    let until = sleep_limit(noticed, deadline, P::now);
                    P::park(key, NODE_PARKED, until, || node.state.load(Relaxed));
                    if passed(deadline, P::now) {
                        match waiter.abandon(NODE_PARKED) {
                            Ok(()) => return Err(()),
                            Err(back) => waiter = back,
                        }
                    }
                }
            }
            if !guarded {
                // Awake: who reads a 1 all the same wakes us in vain.
                node.drowsy.store(0, Relaxed);
            }
        }
    }

    /// Before a waiter that is not guarded falls asleep. Whether its granter is sure to notice.
    #[cold]
    fn announce_sleep(node: &Node<P>) -> bool {
        if !matches!(C::FAULT, Fault::SilentSleeper) {
            node.drowsy.store(1, Relaxed);
        }
        // Pairs with the light fence in `grant`: either the grant comes before we fall asleep, or the granter sees that we are about to.
        P::heavy_fence()
    }

    /// At the head of the queue: gets the lock, and passes headship on before its critical section.
    fn lead(&self, waiter: Waiter<P>, headship: Headship, domain: u16, terms: Terms) -> bool {
        let (tuning, state) = (terms.tuning, headship.state);
        debug_assert!(state != NODE_PARKED && state != ABANDONED);
        let mut head = Head::<P, C>::new(P::waiters(), waiter.id(), state, tuning, domain);
        head.look_for_kin();
        // Sleepers come in runs: those who were set aside for long. Who has not slept need not look.
        if headship.slept && !terms.crowded {
            let most = if self.steal_permitted() {
                WAKE_ALL
            } else {
                WAKE_AHEAD
            };
            head.wake_ahead(most, Self::wake_early);
        }
        let taken = self.wait_at_front(Front::Head, terms);
        let steal = if tuning.stealing { STEAL } else { 0 };
        head.pass(&self.tail, |heir, go, look| {
            if taken && !look {
                self.grant(heir, go, steal);
                return true;
            }
            self.grant_guarded(heir, go, taken, steal)
        });
        taken
    }

    /// Has a sleeper spin again, who is not the head yet.
    #[cold]
    fn wake_early(node: &Node<P>) {
        // Relaxed: nothing is handed over. If it fails the waiter runs already, or has given up.
        if node
            .state
            .compare_exchange(NODE_PARKED, WAITING, Relaxed, Relaxed)
            .is_ok()
        {
            P::count(Event::WakeEarly);
            P::unpark(key::<P>(&node.state), 1);
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
            if heir.drowsy.glance(Relaxed) != 0 {
                self.move_sleep(heir, go, steal);
            }
        }
    }

    /// Makes `heir` the head, with a look at its state. `false`: it has given up, and nobody is head yet. `holding`: whether we hold the lock.
    fn grant_guarded(&self, heir: &Node<P>, go: u32, holding: bool, steal: u8) -> bool {
        // First of all, so that the line is fetched once and for writing (a scan has seen it earlier, while there was time).
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
            _ => false,
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

    // ---- at the front: waiting for the lock itself ---------------------------------------------------------

    /// Waits until the lock is taken (`true`), or the time is up.
    fn wait_at_front(&self, front: Front, terms: Terms) -> bool {
        if front == Front::Head && matches!(C::FAULT, Fault::NoExclusion) {
            self.locked.store(1, Relaxed);
            return true;
        }
        let (tuning, deadline) = (terms.tuning, terms.deadline);
        let mut since = None;
        loop {
            // We run: from here on nobody overtakes us, unless they looked before.
            let pending = self.forbid_stealing(front);
            let limit = spin_limit::<P, C>(terms.crowded).min(left(deadline, P::now));
            let my_turn = may_try(front, pending)
                || P::wait_for(&self.pending, SeqCst, limit, |p| may_try(front, p)).is_ok();
            let free = my_turn && P::wait_for(&self.locked, Relaxed, limit, |l| l == 0).is_ok();
            if free && self.take() {
                // Whoever made us head may have set the bit after we began to run.
                self.forbid_stealing(front);
                return true;
            }
            if passed(deadline, P::now) {
                P::count(Event::Timeout);
                return false;
            }
            if !free && P::CAN_PARK && C::PARK {
                let mut patient = || {
                    let now = P::now();
                    now.saturating_sub(*since.get_or_insert(now)) <= STEAL_LIMIT
                };
                let steal = tuning.stealing && patient() && self.is_front(front);
                self.sleep_on_word(front, if steal { STEAL } else { 0 }, deadline);
            }
        }
    }

    /// Sleeps until an unlock, or until it is our turn to try. `steal`: what we permit meanwhile.
    fn sleep_on_word(&self, front: Front, steal: u8, deadline: u64) {
        P::count(Event::Park);
        self.pending.fetch_or(PARKED | steal, SeqCst);
        // Pairs with the light fence in `unlock`: either we see the lock free, or the holder sees PARKED.
        let until = sleep_limit(P::heavy_fence(), deadline, P::now);
        // Whose turn it is may have fallen asleep on our PARKED, before our fence covered it: then no unlock is going to
        // wake it, or us. PARKED stays, since only this one is covered: whoever takes the lock after this look sees it.
        if self.locked.load(Relaxed) == 0 && !may_try(front, self.pending.load(Relaxed)) {
            P::unpark(self.word_key(), AT_FRONT);
        }
        loop {
            let (locked, pending, tail) = self.word();
            let can_act = locked == 0 && may_try(front, pending);
            if can_act || pending & PARKED == 0 || passed(until, P::now) {
                return;
            }
            P::park(
                self.word_key(),
                compose((locked, pending, tail)),
                until,
                || compose(self.word()),
            );
        }
    }

    /// Returns what it saw of `pending`. SeqCst: see become_pending.
    fn forbid_stealing(&self, front: Front) -> u8 {
        let pending = self.pending.load(SeqCst);
        if pending & STEAL == 0 || front == Front::Head && pending & PENDING != 0 {
            return pending;
        }
        self.pending.fetch_and(!STEAL, Relaxed) & !STEAL
    }

    fn is_front(&self, front: Front) -> bool {
        front == Front::Pending || self.pending.load(Relaxed) & PENDING == 0
    }

    #[cold]
    #[inline(never)]
    fn wake_sleepers(&self) {
        if self.pending.fetch_and(!PARKED, Relaxed) & PARKED != 0 {
            P::count(Event::Wake);
            P::unpark(self.word_key(), AT_FRONT);
        }
    }

    // ---- without a node ------------------------------------------------------------------------------------

    /// More nesting or more threads than there are nodes: tries again and again, with growing pauses, and takes the
    /// lock whenever it is free. Slower, and unfair to both sides, but never wrong.
    #[cold]
    fn lock_without_node(&self, deadline: u64) -> bool {
        P::count(Event::SlotFallback);
        let mut pause = 1u32;
        let asleep = P::AtomicU32::new(0);
        loop {
            if self.try_take() {
                return true;
            }
            if passed(deadline, P::now) {
                P::count(Event::Timeout);
                return false;
            }
            if pause < 1 << 8 || !P::CAN_PARK {
                for _ in 0..pause {
                    P::relax();
                }
            } else {
                // Nobody knows of us: sleep for a while on a word of our own.
                let until = P::now() + (pause as u64) * 100;
                P::park(key::<P>(&asleep), 0, until.min(deadline), || {
                    asleep.load(Relaxed)
                });
            }
            pause = (pause * 2).min(1 << 10);
        }
    }

    // ---- the word as a whole -------------------------------------------------------------------------------

    fn word(&self) -> (u8, u8, u16) {
        (
            self.locked.load(Relaxed),
            self.pending.load(Relaxed),
            self.tail.load(Relaxed),
        )
    }

    fn word_key(&self) -> *const u32 {
        (self as *const Self).cast()
    }
}

/// Whether a waiter may try to take a free lock: the front waiter always, the head behind a pending waiter if that
/// one is not running, like any thread.
fn may_try(front: Front, pending: u8) -> bool {
    front == Front::Pending || pending & PENDING == 0 || pending & STEAL != 0
}

/// The four bytes as the kernel reads them.
fn compose((locked, pending, tail): (u8, u8, u16)) -> u32 {
    let [t0, t1] = tail.to_ne_bytes();
    u32::from_ne_bytes([locked, pending, t0, t1])
}

/// Where a thread sleeps that waits for this word to change.
fn key<P: Platform>(word: &P::AtomicU32) -> *const u32 {
    (word as *const P::AtomicU32).cast()
}

/// How long to spin before parking; [`NEVER`] if nobody parks.
fn spin_limit<P: Platform, C: Config>(crowded: bool) -> u64 {
    match (P::CAN_PARK && C::PARK, crowded) {
        (false, _) => NEVER,
        (_, true) => HURRIED,
        (_, false) => PATIENT,
    }
}

/// When a sleep ends by itself. `noticed`: whether a fence guarantees that it is ended before.
fn sleep_limit(noticed: bool, deadline: u64, now: fn() -> u64) -> u64 {
    if noticed {
        deadline
    } else {
        deadline.min(now() + UNNOTICED_SLEEP)
    }
}

/// Time left before `deadline`, without a look at the clock if there is none.
fn left(deadline: u64, now: fn() -> u64) -> u64 {
    if deadline == NEVER {
        NEVER
    } else {
        deadline.saturating_sub(now())
    }
}

fn passed(deadline: u64, now: fn() -> u64) -> bool {
    deadline != NEVER && now() >= deadline
}
