//! Waiting for the mutex: implements the steps of a [contended](crate::raw::contend) wait.

use super::word::*;
use super::*;
use crate::raw::contend::constants::FIRST_PAUSE_NS;
use crate::raw::contend::{self, Headship, Next, Sight, Target, Wait, spin};
use crate::raw::patience::Patience;
use crate::raw::waiter::{UNNOTICED_SLEEP_NS, expired, left as time_left, sleep_limit};

/// The role in which a thread sleeps on the word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sleeper {
    /// At the front of the queue, or beside it.
    Front,
    /// A thread that a condition variable has woken, in `lock_notified`. A thread that a broadcast
    /// has moved here sleeps in the same park set, but by `Partner::park`.
    Notified,
    /// A thread that has requested a hand-off.
    Requester,
}

impl<P: Platform, C: LockConfig, L: Layout<P>> QueuedMutex<P, C, L> {
    const PARKS: bool = P::CAN_PARK && C::PARK;

    /// Takes the lock, which has just been found taken. Returns `false` if the deadline has passed.
    #[cold]
    #[inline(never)]
    pub(super) fn lock_slow(&self, deadline: u64) -> bool {
        P::count(Event::SlowPath);
        // A waiter needs no time slice extension. The unlock that should have ended the last one
        // may have found no flag.
        P::end_slice();
        let taken = !expired(deadline, P::now) && self.wait(deadline);
        if taken {
            Self::ask_for_time();
        } else {
            P::count(Event::Timeout);
        }
        taken
    }

    /// Asks for a longer time slice, for a thread that had to wait for the lock and has it now.
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
        // Dropped at the end, when the lock is taken: the next waiter is then at the front.
        let Some(front) = contend::queue_up(&mut waiter, &self.queue, C::queue(), &wait) else {
            return false;
        };
        waiter.wait_at_front(&wait, &front)
    }

    /// Asks the next unlock to hand the lock to this thread. `false`: another request stands, or
    /// the lock has been handed over and not picked up.
    pub(super) fn request_handoff(&self) -> bool {
        // This overwrites a request of another process.
        let request = |flags| {
            let refused = flags & PICKUP != 0 || is_requested::<P>(flags);
            (!refused).then(|| flags & !REQUEST | HANDOFF | generation::<P>())
        };
        let before = self.word.fetch_update(Relaxed, request);
        before.inspect(|_| P::count(Event::HandoffRequest)).is_ok()
    }

    /// Picks up the lock that was handed over, unless another thread has done so.
    ///
    /// Meant for the requester. But a requester that does not run would keep all others from the
    /// lock, so any waiter may pick up in its place.
    pub(super) fn pick_up(&self) -> bool {
        let picked = |flags| (flags & PICKUP != 0).then_some(flags & !PICKUP);
        // Acquire pairs with the hand-over in `unlock`.
        let Ok(before) = self.word.fetch_update(Acquire, picked) else {
            return false;
        };
        // A hand-off wakes no other sleeper on the word. Threads that hand the lock to each other
        // would leave those asleep forever.
        if before & SLEEPERS != 0 {
            self.wake_sleeper();
        }
        true
    }

    /// Called by the thread that has ended a request. `before`: the flags before that.
    ///
    /// Two waiters may take the request for theirs: the one that made it, and one that was too late
    /// for the pickup of an earlier request. So the thread that ends the request wakes both.
    fn request_ended(&self, before: u8) {
        if before & REQUESTER_SLEEPS != 0 {
            wake::<P>(self.key(), REQUESTER);
        }
    }

    /// Ends the request of this thread, which has taken the lock.
    pub(super) fn end_request(&self) {
        let before = self.word.clear(REQUEST);
        self.request_ended(before);
    }

    /// Takes the request back. `false`: too late, the lock has been handed over.
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
    /// For all but the requester `owes` becomes `true`, even if the thread does not fall asleep:
    /// passing on a wake-up that it has not had costs little.
    ///
    /// A sleep without a fence has a limit. After it the thread falls asleep again, as the last of
    /// the sleepers. So if several threads sleep on the word, they wake up in another order than
    /// they came. Once a fence is granted, mostly after a millisecond or two, the order is kept.
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
            // Once the request has ended, no unlock would end the sleep. So the flag is set only
            // while the request stands, and goes with it.
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
            // Without the flag nothing would end the sleep: the unlock that cleared it has woken
            // one thread, perhaps not this one.
            if can_act || flags & flag == 0 || expired(until, P::now) {
                return;
            }
            // The fence comes after the look, since a waiter that can act needs none. The kernel
            // looks once more.
            let limit = sleep_limit::<P>(L::fence_after_flag(&mut ticket), until);
            let parked = P::park_in(self.key(), seen, limit, set, || self.four_bytes());
            if parked == Parked::Woken && flag == SLEEPERS {
                // Return even if the lock is taken again and another sleeper has set the flag: the
                // kernel wakes the longest sleeper first, so this thread would now be the last.
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

    /// For a thread that was woken and does not take the lock soon: its wake-up may have been the
    /// only one while others sleep on the word. Either this thread sees the lock free and wakes one
    /// of them, or the holder sees the flag and does so.
    ///
    /// `false`: perhaps neither happens. Mostly the holder sees the flag all the same, so a fence
    /// would cost more than what the caller does: look again soon, or wake a sleeper in any case.
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

    /// Like [`lock`](Self::lock), for a thread that a notification has just woken. A notifier that
    /// holds the lock may need the CPU on which this thread would spin. So this thread sleeps on
    /// the word, beside the queue. If a quantum has passed and others are still faster after a
    /// wake-up, it queues.
    pub fn lock_notified(&self) {
        let until = P::now().saturating_add(C::tuning().quantum.nanos());
        let (mut taken, mut owes) = (self.try_lock(), false);
        // Not if the lock is kept: each unlock would wake this thread, and it would find the lock
        // taken.
        while !taken && Self::PARKS && self.word.flags() & KEPT == 0 {
            // No time limit: in a virtual machine each timer costs an exit.
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

    /// Like [`lock`](Self::lock), for a thread that was woken, perhaps by the only wake-up that an
    /// unlock sends while others sleep on the word. Makes sure that the next sleeper wakes up.
    pub(in crate::raw) fn lock_after_sleep(&self) {
        // If the lock is free, the next sleeper can wake up while this thread takes the lock.
        // Waking sleepers only one after the other would leave CPUs idle in between, and an idle
        // CPU takes long to come back. It is then up to the woken thread to wake the next sleeper.
        if !Self::PARKS || !self.is_locked() && P::unpark_in(self.key(), 1, OTHERS) != 0 {
            self.lock();
        } else {
            if !self.try_lock() {
                // This thread may have to queue behind a sleeping head whose wake-up it has taken.
                // So it sets the flag at once, and wakes a waiter at the front if the holder may
                // miss the flag. A waiter at the front is enough, since no other sleeper can stand
                // ahead of this thread: the front waiter takes the lock, and its unlock wakes the
                // next sleeper, or it sets the flag again, with a fence. This thread wakes the
                // other sleepers when it has the lock.
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
    /// This waiter may have had a wake-up that other sleepers on the word need, and has not passed
    /// it on: it has slept on the word, or was about to, or acts in place of a waiter that has.
    pub(super) owes: bool,
    /// The last request of this waiter that was refused ended with a sleep, not with a free lock.
    refused: bool,
    /// How long this waiter still waits for the requester to which the lock has been handed over.
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

    /// Waits until this thread has the lock (`true`), or the time is up.
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

    /// Waits until this requester has picked up or taken the lock, the time is up, or its request
    /// has ended because another waiter has picked the lock up.
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
        // If the holder has missed the flag, this waiter sees the lock free when it looks again.
        // Until then it owes the wake-up.
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
        // Another waiter's request stands, and is served first. If the lock becomes free, the
        // requester may need this CPU to take it, so this waiter sleeps for a moment. If not, the
        // next unlock hands the lock over, and the pickup or a later unlock wakes this waiter.
        let spin = wait.spin.min(left);
        // If the last request was refused, too, one look replaces the poll.
        let polled = if self.refused { 0 } else { spin };
        self.refused = false;
        if mutex.word.wait_until_free(polled) {
            self.timed_sleep(spin.min(time_left(wait.deadline, P::now)));
            // If the requester has not taken the lock, this waiter takes it, and its unlock will
            // hand the lock over.
            return match mutex.try_lock() {
                true => Next::End(Some(())),
                false => Next::Look,
            };
        }
        // This waiter picks the lock up if `PICKUP` was set both at the beginning and at the end of
        // a whole patience: one patience after the hand-over, or two if this waiter fell asleep
        // just before the hand-over. (`PICKUP` may come from two hand-overs: then a requester that
        // runs finds none, and requests again.)
        let handed_over = || mutex.word.flags() & PICKUP != 0;
        let before = handed_over();
        let mut patience = match patience {
            Some(begun) if before => begun,
            _ => Patience::begin::<P>(),
        };
        mutex.sleep(&mut self.owes, Sleeper::Front, patience.or(wait.deadline));
        let is_over = patience.look_is_due::<P>().is_some();
        if is_over && before && handed_over() && mutex.pick_up() {
            // The thread that handed the lock over may not have woken the requester yet.
            wake::<P>(mutex.key(), REQUESTER);
            return Next::End(Some(()));
        }
        self.patience = (before && !is_over).then_some(patience);
        self.refused = true;
        Next::Look
    }
}
