//! Readers that wait, and readers that leave.

use super::*;
use crate::raw::contend::spin;
use crate::raw::patience::Patience;
use crate::raw::waiter::left;

impl<P: Platform, C: LockConfig> QueuedRwLock<P, C> {
    /// Takes the lock for reading, after the fast path has failed. Returns `false` if the deadline
    /// has passed, or the lock is full.
    #[cold]
    #[inline(never)]
    pub(super) fn read_slow(&self, deadline: u64, passing: bool) -> bool {
        P::count(Event::SlowPath);
        // This succeeds if the fast path failed only because other readers changed the word.
        let mut counted = self.announce_or_enter(passing);
        let late = counted.is_none() && expired(deadline, P::now);
        if counted.is_none() && !late {
            counted = self.leave_alone(deadline, passing);
        }
        // A reader that holds the lock now reads neither the clock nor another shared line.
        let reads = counted == Some(Counted::Reads);
        let entered = reads || !late && self.read_in_turn(counted, deadline, passing);
        if !entered {
            P::count(Event::Timeout);
        }
        entered
    }

    /// Enters if a look at the word says that this is possible. Does not fail because other readers
    /// change the word at the same time.
    pub(super) fn enter(&self, passing: bool) -> Option<Counted> {
        let seen = self.state.load(Relaxed);
        with_reader::<P>(seen, passing)?;
        if may_add::<P>(seen) {
            return Some(self.add());
        }
        self.try_enter(passing).then_some(Counted::Reads)
    }

    /// Enters if that is possible now.
    fn try_enter(&self, passing: bool) -> bool {
        // Acquire pairs with the release of writers.
        let entered = |seen| with_reader::<P>(seen, passing);
        let before = self.state.fetch_update(Acquire, entered);
        before.is_ok_and(|before| {
            self.has_come_to_zero(before);
            true
        })
    }

    /// Called by a reader that has counted itself and found the word `before`. If the count was -1,
    /// this reader has taken the place of a reader that is leaving, see `left_last`, and now no
    /// reader is counted. A waiter that was woken for the last reader may have seen -1, taken it
    /// for a number of readers, and fallen asleep again. So this wakes the waiter as if the last
    /// reader left now: `after | READER` is the word that such a reader would have found, with a
    /// count of 1.
    fn has_come_to_zero(&self, before: u32) {
        let after = before.wrapping_add(READER);
        if is_below_zero(before) && count(after) == 0 {
            Self::wake_after_reader(self.key(), after | READER);
        }
    }

    /// Counts this reader by a fetch-and-add: among many readers a compare-and-swap hardly ever
    /// succeeds.
    pub(super) fn add(&self) -> Counted {
        // Acquire pairs with the release of writers.
        let before = self.state.add();
        self.has_come_to_zero(before);
        Counted::at(before)
    }

    /// Waits until this reader holds the lock (`true`), until the time is up, or until the lock is
    /// full. The reader enters, or registers with the writer that holds the lock, unless it has
    /// `counted` itself already.
    pub(super) fn read_in_turn(
        &self,
        mut counted: Option<Counted>,
        deadline: u64,
        passing: bool,
    ) -> bool {
        let mut patience = Patience::begin::<P>();
        loop {
            counted = counted
                .or_else(|| self.enter(passing))
                .or_else(|| self.register());
            // A registered reader holds the lock once this is false. Acquire pairs with the release
            // of the writer. A writer that is still revoking has come after that writer: no reader
            // registers with such a writer, and it waits until this reader has left.
            let written = is_written(self.state.load(Acquire));
            let registered = match counted {
                Some(Counted::Registered) if written => true,
                Some(_) => return true,
                None => false,
            };
            if !registered && is_full(self.state.load(Relaxed)) {
                return false;
            }
            if expired(deadline, P::now) {
                if !registered || self.withdraw() {
                    return false;
                }
                // Too late to withdraw: this reader holds the lock now.
                continue;
            }
            // A reader that has not registered is blocked until the waiter that goes next has the
            // lock or has given up, until the writer has ended the bias or given up, or until the
            // upgrade is over.
            let blocked = |seen| match registered {
                true => is_written(seen),
                false => is_refused::<P>(seen, passing),
            };
            let spin_ns = spin::limit::<P>().min(left(deadline, P::now));
            if self.state.wait_for(spin_ns, |seen| !blocked(seen)) {
                continue;
            }
            // A front waiter that takes the free lock wakes the readers that wait until it has had
            // its turn.
            let idle = !registered && is_free(self.state.load(Relaxed));
            let until = match registered {
                true => deadline,
                false => patience.or(deadline),
            };
            let mark = |seen| seen | READERS_SLEEP;
            self.sleep(READERS, READERS_SLEEP, until, mark, blocked);
            if !registered && patience.look_is_due::<P>().is_some() && idle {
                self.pass_idle_front();
            }
        }
    }

    /// Takes the registration of this reader back. `false`: too late, the writer has left.
    fn withdraw(&self) -> bool {
        let withdrawn = |seen| is_written(seen).then(|| without_registered(seen));
        self.state.fetch_update(Relaxed, withdrawn).is_ok()
    }

    /// Ends the request of a waiter at the front that has not come for the free lock, so that any
    /// thread may take it. When that waiter runs, it makes its request again.
    fn pass_idle_front(&self) {
        let passed = |seen| (is_requested::<P>(seen) && is_free(seen)).then(|| without_front(seen));
        if let Ok(before) = self.state.fetch_update(Relaxed, passed) {
            Self::wake(self.key(), before & (READERS_SLEEP | FRONT_SLEEPS));
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn try_read_slow(&self, passing: bool) -> bool {
        self.try_enter(passing)
    }

    /// Registers this reader with the writer that holds the lock, so that it holds the lock as soon
    /// as the writer leaves. `None`: no writer holds the lock, the writer still waits for announced
    /// readers, or the lock is full.
    pub(super) fn register(&self) -> Option<Counted> {
        let seen = self.state.load(Relaxed);
        with_registered::<P>(seen)?;
        if may_add::<P>(seen) {
            return Some(self.add());
        }
        let registered = |seen| with_registered::<P>(seen);
        let registered = self.state.fetch_update(Relaxed, registered);
        registered.is_ok().then_some(Counted::Registered)
    }

    /// Ends the read of a counted reader.
    #[inline]
    pub(super) fn leave_counted(&self) {
        let key = self.key();
        let before = self.state.leave();
        // From here on `self` may be gone, unless the count was wrong.
        if before & (FRONT_SLEEPS | UPGRADING) != 0 || !counts(before) {
            self.left_last(key, before);
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn left_last(&self, key: *const u32, before: u32) {
        if counts(before) {
            return Self::wake_after_reader(key, before);
        }
        // There was no count to subtract from. Readers have left in each other's place, so an entry
        // in the table now stands for this reader, see `leave_elsewhere`. While the count is below
        // zero, no writer enters. So this thread takes its subtraction back, which makes it a
        // reader again, and then empties the entry instead.
        let borrowed = |seen| is_below_zero(seen).then(|| seen.wrapping_add(READER));
        if let Ok(before) = self.state.fetch_update(Relaxed, borrowed) {
            self.has_come_to_zero(before);
            self.leave_marked();
        }
        // Otherwise another reader has counted itself since, which has corrected the count, and the
        // entry now stands for that reader.
    }

    /// Called for a reader that has left and found the word `before`. If it was the last counted
    /// reader, wakes the thread that waits for this.
    pub(super) fn wake_after_reader(key: *const u32, before: u32) {
        if count(before) != READER {
            return;
        }
        if before & UPGRADING != 0 {
            P::count(Event::Wake);
            P::unpark_in(key, 1, UPGRADER);
        } else if before & FRONT_SLEEPS != 0 && before & UPGRADABLE == 0 {
            // The flag stays set. A thread that enters the free lock clears it.
            P::count(Event::Wake);
            P::unpark_in(key, 1, FRONT);
        }
    }
}
