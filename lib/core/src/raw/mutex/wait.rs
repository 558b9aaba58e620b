//! Waiting for the mutex: what the steps of a [contended](crate::raw::contend) wait are here.

use super::word::*;
use super::*;
use crate::raw::contend::constants::FIRST_PAUSE_NS;
use crate::raw::contend::{self, Headship, Next, Sight, Target, Wait, spin};
use crate::raw::patience::Patience;
use crate::raw::waiter::{UNNOTICED_SLEEP_NS, expired, left as time_left, sleep_limit};

/// As what a thread sleeps on the word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sleeper {
    /// At the front of the queue, or beside it.
    Front,
    /// A thread that a condition variable has woken, in `lock_notified`. One that a broadcast has
    /// moved here sleeps in the same park set, but by `Partner::park`.
    Notified,
    /// It has requested a hand-off.
    Requester,
}

impl<P: Platform, C: LockConfig, L: Layout<P>> QueuedMutex<P, C, L> {
    const PARKS: bool = P::CAN_PARK && C::PARK;

    /// Takes the lock, which has just been found taken. Returns `false` if the deadline has passed.
    #[cold]
    #[inline(never)]
    pub(super) fn lock_slow(&self, deadline: u64) -> bool {
        P::count(Event::SlowPath);
        // A waiter needs no extension. The unlock for which the last one was meant may have found
        // no flag.
        P::end_slice();
        let taken = !expired(deadline, P::now) && self.wait(deadline);
        if taken {
            Self::ask_for_time();
        } else {
            P::count(Event::Timeout);
        }
        taken
    }

    /// The thread has waited for the lock, and has it.
    fn ask_for_time() {
        if C::tuning().slice_extension {
            P::extend_slice();
        }
    }

    fn wait(&self, deadline: u64) -> bool {
        let trials = if Self::PARKS { C::TRIALS } else { 0 };
        let wait = Wait::begin::<P>(C::tuning(), deadline, trials);
        let mut waiter = Waiting::new(self);
        if contend::barge(&mut waiter, &self.queue, &wait).is_some() {
            return true;
        }
        // Dropped at the end, when the lock is taken: the next waiter is the front from then on.
        let Some(front) = contend::queue_up(&mut waiter, &self.queue, C::queue(), &wait) else {
            return false;
        };
        waiter.wait_at_front(&wait, &front)
    }

    /// Asks the next unlock to hand the lock to this thread. `false`: another request stands, or a
    /// pickup is due.
    pub(super) fn request_handoff(&self) -> bool {
        // The request of another process is overwritten.
        let request = |flags| {
            let refused = flags & PICKUP != 0 || is_requested::<P>(flags);
            (!refused).then(|| flags & !REQUEST | HANDOFF | generation::<P>())
        };
        let before = self.word.fetch_update(Relaxed, request);
        before.inspect(|_| P::count(Event::HandoffRequest)).is_ok()
    }

    /// Picks up the lock that was handed over, unless another thread has done so.
    ///
    /// Meant for the requester. But a requester that does not run would keep the lock from
    /// everybody, so any waiter may come in its place.
    pub(super) fn pick_up(&self) -> bool {
        let picked = |flags| (flags & PICKUP != 0).then_some(flags & !PICKUP);
        // Acquire pairs with the hand-over in `unlock`.
        let Ok(before) = self.word.fetch_update(Acquire, picked) else {
            return false;
        };
        // A hand-off wakes none of the other sleepers on the word. Threads that hand the lock to
        // each other would leave them asleep for ever.
        if before & SLEEPERS != 0 {
            self.wake_sleeper();
        }
        true
    }

    /// A request has ended, which found the flags `before`.
    ///
    /// A waiter that was too late for its pickup may stand beside one that has made another request
    /// since, and take that for its own. So the thread that ends it wakes both.
    fn request_ended(&self, before: u8) {
        if before & REQUESTER_SLEEPS != 0 {
            wake::<P>(self.key(), REQUESTER);
        }
    }

    /// The requester has taken the lock.
    pub(super) fn end_request(&self) {
        let before = self.word.clear(REQUEST);
        self.request_ended(before);
    }

    /// `false`: too late, the lock has been handed over.
    pub(super) fn withdraw_request(&self) -> bool {
        let withdraw = |flags| (flags & PICKUP == 0).then_some(flags & !REQUEST);
        let withdrawn = self.word.fetch_update(Relaxed, withdraw);
        withdrawn
            .inspect(|&before| self.request_ended(before))
            .is_ok()
    }

    /// Sleeps until an unlock wakes the thread, the lock is seen free or handed over, or `until`
    /// has come. Where waiters do not sleep, it spins until the lock is free.
    ///
    /// For all but the requester `owes` becomes `true`, even if the thread does not fall asleep: to
    /// pass on a wake-up that it has not had costs little.
    ///
    /// A sleep without a fence has a limit. After it the thread falls asleep again, as the last of
    /// the sleepers: where several sleep on the word, they wake up in another order than they came
    /// in. A fence ends that, mostly after a millisecond or two.
    pub(super) fn sleep(&self, owes: &mut bool, sleeper: Sleeper, until: u64) {
        if !Self::PARKS {
            self.word.wait_until_free(until.saturating_sub(P::now()));
            return;
        }
        let (flag, set) = match sleeper {
            Sleeper::Front => (SLEEPERS, FRONT),
            Sleeper::Notified => (SLEEPERS, NOTIFIED),
            Sleeper::Requester => (REQUESTER_SLEEPS, REQUESTER),
        };
        if flag == SLEEPERS {
            self.word.set(flag, SeqCst);
            *owes = true;
        } else {
            // A request that has ended ends no sleep. So the flag comes and goes with the request.
            let marked = |flags| is_requested::<P>(flags).then_some(flags | flag);
            if self.word.fetch_update(SeqCst, marked).is_err() {
                return;
            }
        }
        P::count(Event::Park);
        let mut ticket = Ticket::default();
        loop {
            let seen = self.four_bytes();
            let [locked, flags, ..] = seen.to_ne_bytes();
            let ours = flag == REQUESTER_SLEEPS && flags & PICKUP != 0;
            let can_act = locked == FREE || ours;
            // Without its flag nothing would end the sleep: an unlock that cleared it has woken one
            // thread, perhaps not this one.
            if can_act || flags & flag == 0 || expired(until, P::now) {
                return;
            }
            // After the look: a waiter that can act needs no fence. The kernel looks once more.
            let limit = sleep_limit::<P>(L::fence_after_flag(&mut ticket), until);
            let parked = P::park_in(self.key(), seen, limit, set, || self.four_bytes());
            if parked == Parked::Woken && flag == SLEEPERS {
                // Even if the lock is taken again, and another sleeper has set the flag: the kernel
                // wakes the longest sleeper first, so this thread would now be the last.
                return;
            }
        }
    }

    /// The mutex as the kernel reads it.
    pub(super) fn four_bytes(&self) -> u32 {
        let [locked, flags] = self.word.bytes();
        let [low, high] = self.queue.last().to_ne_bytes();
        u32::from_ne_bytes([locked, flags, low, high])
    }

    /// For a thread that was woken and does not take the lock soon: the wake-up may have been the
    /// only one, and others sleep on the word. Either this thread sees the lock free, and wakes one
    /// of them, or the holder sees the flag, and does it.
    ///
    /// `false`: perhaps neither does. Mostly the holder does all the same, so a fence would cost
    /// more than what the caller does: look again soon, or wake a sleeper in any case.
    #[must_use]
    pub(super) fn pass_wake_up_on(&self) -> bool {
        self.word.set(SLEEPERS, SeqCst);
        let free = !self.is_locked();
        if free {
            self.wake_sleeper();
        }
        free || L::IS_ONE
    }

    /// Wakes one of the sleepers on the word, other than the requester.
    pub(super) fn wake_sleeper(&self) {
        if self.word.clear(SLEEPERS) & SLEEPERS != 0 {
            wake::<P>(self.key(), OTHERS);
        }
    }

    /// As [`lock`](Self::lock), for a thread that a notification has just woken. A notifier that
    /// holds the lock may need the CPU on which such a thread would spin. So it sleeps on the word,
    /// beside the queue. If it is woken when a quantum is over, and others are faster again, it
    /// queues.
    pub fn lock_notified(&self) {
        let until = P::now().saturating_add(C::tuning().quantum.nanos());
        let (mut taken, mut owes) = (self.try_lock(), false);
        // Each unlock of a kept lock would wake it, and it would find the lock taken.
        while !taken && Self::PARKS && self.word.flags() & KEPT == 0 {
            // Without a time limit of its own: in a virtual machine each timer costs an exit.
            self.sleep(&mut owes, Sleeper::Notified, NEVER);
            taken = self.try_lock();
            if P::now() >= until {
                break;
            }
        }
        match (taken, owes) {
            (true, false) => {}
            (true, true) => {
                self.word.set(SLEEPERS, Relaxed);
                Self::ask_for_time();
            }
            (false, true) => self.lock_after_sleep(),
            (false, false) => self.lock(),
        }
    }

    /// As [`lock`](Self::lock), for a thread that was woken, perhaps by the only wake-up that an
    /// unlock sends while others sleep on the word. Makes sure that the next sleeper wakes up.
    pub(in crate::raw) fn lock_after_sleep(&self) {
        // While the lock is free, the next sleeper can wake up at the same time as this thread
        // takes the lock. To wake one after the other would leave CPUs idle in between, and idle
        // CPUs take long to come back. Then it is up to the woken thread to wake the one after it.
        if !Self::PARKS || !self.is_locked() && P::unpark_in(self.key(), 1, OTHERS) != 0 {
            self.lock();
        } else {
            if !self.try_lock() {
                // This thread may have to queue behind a sleeping head whose wake-up it has taken.
                // So it sets the flag at once, and wakes a waiter at the front if the holder may
                // miss that. A waiter at the front is enough, since only that may stand ahead of
                // this thread: it takes the lock, and its unlock wakes the next, or it sets the
                // flag again, with a fence. This thread wakes the other sleepers when it has the
                // lock.
                if !self.pass_wake_up_on() {
                    P::unpark_in(self.key(), 1, FRONT);
                }
                self.lock();
            }
            // Relaxed: this thread's own unlock comes later.
            self.word.set(SLEEPERS, Relaxed);
        }
        Self::ask_for_time();
    }
}

/// A thread that waits for the mutex.
#[derive(Debug)]
pub(super) struct Waiting<'a, P: Platform, C: LockConfig, L: Layout<P>> {
    mutex: &'a QueuedMutex<P, C, L>,
    /// It may have had a wake-up that other sleepers on the word need, and has not passed it on: it
    /// has slept there, or was about to, or acts in place of a waiter that has.
    pub(super) owes: bool,
    /// It was refused and has slept, and has not seen the lock free since.
    refused: bool,
    /// How long it still waits for the requester to which the lock has been handed over.
    patience: Option<Patience>,
}

impl<'a, P: Platform, C: LockConfig, L: Layout<P>> Waiting<'a, P, C, L> {
    pub(super) fn new(mutex: &'a QueuedMutex<P, C, L>) -> Self {
        Waiting {
            mutex,
            owes: false,
            refused: false,
            patience: None,
        }
    }

    /// Waits until the lock is taken (`true`), or the time is up.
    pub(super) fn wait_at_front(&mut self, wait: &Wait, headship: &Headship<'_, P>) -> bool {
        let taken = contend::wait_at_front(self, wait, headship).is_some();
        if self.owes && taken {
            // This thread's own unlock comes later, and wakes the next sleeper.
            self.mutex.word.set(SLEEPERS, Relaxed);
        } else if self.owes && !self.mutex.pass_wake_up_on() {
            // A needless wake-up costs less than a lost one.
            self.mutex.wake_sleeper();
        }
        taken
    }

    /// Waits until the lock is handed over or taken, the time is up, or the request has ended: the
    /// lock was handed over, and another waiter has picked it up.
    pub(super) fn await_handoff(&mut self, wait: &Wait) -> Next<()> {
        let mutex = self.mutex;
        let start = P::now();
        let mut spins = Self::PARKS;
        loop {
            let flags = mutex.word.flags();
            if flags & PICKUP != 0 {
                if mutex.pick_up() {
                    if spins {
                        spin::record::<P>(true);
                    }
                    return Next::End(Some(()));
                }
                continue;
            }
            if mutex.try_lock() {
                mutex.end_request();
                return Next::End(Some(()));
            }
            if !is_requested::<P>(flags) {
                return Next::Look;
            }
            let now = P::now();
            if expired(wait.deadline, || now) {
                if mutex.withdraw_request() {
                    return Next::End(None);
                }
            } else if Self::PARKS && now.saturating_sub(start) >= wait.spin {
                if spins {
                    spin::record::<P>(false);
                    spins = false;
                }
                mutex.sleep(&mut self.owes, Sleeper::Requester, wait.deadline);
            } else {
                P::back_off(FIRST_PAUSE_NS);
            }
        }
    }
}

impl<P: Platform, C: LockConfig, L: Layout<P>> Target<P> for Waiting<'_, P, C, L> {
    /// The flags.
    type Look = u8;
    type Taken = ();
    const PARKS: bool = QueuedMutex::<P, C, L>::PARKS;
    const SLEEPS_ALONE: bool = Self::PARKS && L::IS_ONE;

    fn look(&self) -> u8 {
        self.mutex.word.flags()
    }

    fn sight(&self, flags: u8) -> Sight {
        let free = !self.mutex.word.is_held();
        Sight {
            free,
            no_unlock: flags & WATCHED != 0,
            kept: flags & KEPT != 0,
            reserved: flags & (KEPT | HANDOFF | PICKUP) != 0,
            unclaimed: free || flags & PICKUP != 0,
            requested: is_requested::<P>(flags),
        }
    }

    fn take(&mut self) -> Option<()> {
        self.mutex.word.take().then_some(())
    }

    fn wait_until_free(&self, nanos: u64) -> bool {
        self.mutex.word.wait_until_free(nanos)
    }

    fn watch(&self) {
        self.mutex.word.set(WATCHED, Relaxed);
    }

    fn keep(&self) {
        self.mutex.word.set(KEPT, Relaxed);
    }

    fn share(&self) {
        self.mutex.word.clear(KEPT | WATCHED);
    }

    fn lose_patience(&mut self) {
        self.owes = true;
    }

    fn before_timed_sleep(&mut self, nanos: u64) {
        self.owes = self.owes && !self.mutex.pass_wake_up_on();
        // If the holder has missed the flag, this waiter sees the lock free when it looks again. It
        // owes the wake-up until then.
        if self.owes && nanos > UNNOTICED_SLEEP_NS {
            self.mutex.wake_sleeper();
            self.owes = false;
        }
    }

    fn sleep(&mut self, _: &Wait, until: u64) -> Next<()> {
        let mutex = self.mutex;
        mutex.sleep(&mut self.owes, Sleeper::Front, until);
        Next::Look
    }

    fn request(&mut self, wait: &Wait, left: u64) -> Next<()> {
        let mutex = self.mutex;
        let patience = self.patience.take();
        if mutex.request_handoff() {
            return self.await_handoff(wait);
        }
        // Another waiter's request stands, and is served first. If the lock becomes free, that
        // waiter may need this CPU to come and take it, so this one sleeps for a moment. If not,
        // the next unlock hands the lock over, and the pickup or a later unlock wakes this waiter.
        let spin = wait.spin.min(left);
        // The second time a look is enough in place of the poll.
        let polled = if self.refused { 0 } else { spin };
        self.refused = false;
        if mutex.word.wait_until_free(polled) {
            self.timed_sleep(spin.min(time_left(wait.deadline, P::now)));
            // If the requester has not come for it, this waiter's unlock will hand the lock over.
            return match mutex.try_lock() {
                true => Next::End(Some(())),
                false => Next::Look,
            };
        }
        // A hand-over that stands before a whole patience and after it is not picked up: one
        // patience after it, or two if this waiter began to sleep just before it. (There may have
        // been two hand-overs: then a requester that runs requests again.)
        let handed_over = || mutex.word.flags() & PICKUP != 0;
        let before = handed_over();
        let mut patience = match patience {
            Some(begun) if before => begun,
            _ => Patience::begin::<P>(),
        };
        mutex.sleep(&mut self.owes, Sleeper::Front, patience.or(wait.deadline));
        let is_over = patience.look_is_due::<P>().is_some();
        if is_over && before && handed_over() && mutex.pick_up() {
            // The thread that handed it over may not have woken that waiter yet.
            wake::<P>(mutex.key(), REQUESTER);
            return Next::End(Some(()));
        }
        self.patience = (before && !is_over).then_some(patience);
        self.refused = true;
        Next::Look
    }
}
