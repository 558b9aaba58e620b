//! The read-biased state: readers announce themselves in a table, and write no shared line.
//!
//! Source: BRAVO (Dice and Kogan, USENIX ATC 2019), which wraps a lock of any kind. Here bias and
//! lock share the word. So a look at one word tells a reader whether to announce or to count
//! itself, and a writer takes a lock that is not biased with one compare-and-swap. BRAVO inhibits
//! the bias for a time after each revocation. To see whether that time is over, each read that
//! could set the bias would have to read a clock, which takes as long as a short section. So here
//! chance decides which read sets it.
//!
//! # Transitions
//!
//! The notation is that of the [table of the lock](super#transitions). All other transitions leave
//! `BIASED` and `REVOKING` as they are. A reader of a biased lock that finds its entry in use, or
//! has no row in the visible readers table, counts itself as in that table.
//!
//! | who | from | to | how |
//! | --- | --- | --- | --- |
//! | reader that holds the lock sets the bias (a) | (F, n) | (F + BIASED, n) | fetch-and-or |
//! | reader is announced | (F + BIASED, n) (b) | the same | its entry, then a look |
//! | ... or is too late | any other | the same | ends a reader (c), then its slow path |
//! | announced reader leaves | any | the same | ends a reader (c) |
//! | writer or front enters | (F + BIASED, 0) | (F + W + REVOKING, 0) | compare-and-swap (d) |
//! | upgradable reader becomes a writer | (F + U + BIASED, 0) | (F + W + REVOKING, 0) | the same |
//! | ... and no reader is announced | (F + W + REVOKING, 0) | (F + W, 0) | compare-and-swap |
//! | ... or the writer gives up | (F + W + REVOKING, n) | (F + BIASED, n) | compare-and-swap |
//! | ... or an upgraded writer does | (F + W + REVOKING, n) | (F + U + BIASED, n) | the same |
//! | reader passes a revoking writer | (F + W + REVOKING, n) | the same, n + 1 | as in (d) |
//! | reader takes its subtraction back (e) | (F, -k) | (F, 1 - k) | its entry goes afterwards |
//!
//! Notes:
//!
//! * (a) A reader may do this if it has counted itself at the start of its slow path, without
//!   waiting, and chance has chosen this read: the longer the last revocation took, the fewer reads
//!   are chosen. A look must find that no waiter sleeps at the front or is to go next, and that the
//!   lock is not full. The word may change between the look and the fetch-and-or. No writer gets
//!   past its revocation before this reader has left. But if another thread has left by subtracting
//!   this reader's count, see (c), a writer with `REVOKING` may have come, which waits for an entry
//!   that stands for this reader. Then `BIASED` stays set together with `W`, until that writer
//!   leaves a biased lock behind. In rows in which `F` contains `BIASED`, it changes nothing.
//! * (b) `F` must not contain `W`, `REQUEST` or `UPGRADING`.
//! * (c) The reader empties its own thread's entry. If another reader has emptied that entry, this
//!   reader subtracts one from the count, or empties any entry of the lock.
//! * (d) The writer then looks at the lock's entries in the table, and waits until all are empty.
//!   During this wait a thread that already reads may pass the writer, and is counted. A reader may
//!   have registered with the previous writer. If another thread then released an announced reader
//!   by subtracting from the count, an entry stands for the registered reader, which has held the
//!   lock since the previous writer left. This writer finds the count 0 and has `REVOKING` until
//!   that reader has left, and no reader registers with a writer that has `REVOKING`. So a
//!   registered reader that sees the flag holds the lock, and must not wait.
//! * (e) A reader looks at the flags before it subtracts itself from the count. If the bias was set
//!   in between and others have left in its place, the count goes below zero, and an entry stands
//!   for this reader. While the count is below zero, no writer enters, so the reader can take its
//!   subtraction back, and empty the entry instead. Before that, another reader may enter and so
//!   correct the count; then nothing is left to do. The thread that brings the count back to 0
//!   wakes waiters that the wrong count has misled.
//!
//! # Why no reader is unseen
//!
//! A reader writes its entry and then looks at the word. A writer takes the lock, which ends the
//! bias, and then looks at the entries. All four accesses are sequentially consistent: either the
//! reader sees that the bias has ended and takes its entry back, or the writer sees the entry and
//! waits.
//!
//! Only a writer that takes the lock ends the bias. A writer that gives up while readers are
//! announced sets the bias again in the step in which it leaves. So while a reader is announced,
//! `BIASED` or `WRITER` is set.
//!
//! Readers of one lock are interchangeable. A reader that leaves empties its thread's entry if that
//! names the lock, else subtracts one from the count, else empties any entry that names the lock.
//! The sum of entries and counts remains the number of readers that hold the lock, are registered,
//! or have announced themselves too late and will step back. So a leaving reader finds an entry or
//! a count as soon as the other readers change nothing during one look at the count and at the
//! entries. After a thousand looks it gives up: there was one release too many. Such a release has
//! either done nothing, or ended another reader.
//!
//! Code without a table cannot see the announced readers of a lock that other code has made biased.
//! Its readers count themselves. Its writers wait until the bias is over if they have a time limit,
//! and otherwise end the process: [`Platform::on_foreign_readers`].

use super::*;
use crate::raw::contend::constants::{SPIN_NS, TURN_IN_LIMIT_DIVISOR};
use crate::raw::waiter::{left, sleep_until};

/// The shortest and the longest timed sleep of a writer that waits for announced readers, in
/// nanoseconds. The readers do not know of the writer, and so cannot wake it.
const TIMED_SLEEP_NS: core::ops::Range<u64> = 50_000..1_000_000;

/// How often a leaving reader looks for a count or an entry to end. A look misses all of them only
/// if, during the look, others move them between the count and entries, which they can hardly do
/// twice in a row. If no reader is left at all, a thread has released once too often, or has
/// released what a fork has freed, and the limit keeps it from looking forever.
const RELEASE_LOOKS: u32 = if cfg!(loom) { 4 } else { 1000 };

impl<P: Platform, C: LockConfig> QueuedRwLock<P, C> {
    /// The lock's name in the table.
    #[inline]
    fn name(&self) -> u64 {
        self.key().addr() as u64
    }

    /// The entry for this thread and this lock.
    #[inline]
    fn entry(&self) -> Option<&'static P::AtomicU64> {
        Some(P::row()?.entry(self.name()))
    }

    /// Enters a biased lock for reading without writing to its word.
    #[inline]
    pub(super) fn announce(&self) -> bool {
        let Some(entry) = self.entry() else {
            return false;
        };
        // SeqCst here and below pairs with a writer, which ends the bias and then looks for
        // readers: at least one of the two sees what the other wrote. The fence is for model
        // checkers that treat SeqCst as AcqRel; on hardware it only stops the compiler.
        let free = entry.compare_exchange(0, self.name(), SeqCst, Relaxed);
        if free.is_err() {
            return false;
        }
        P::light_fence();
        let seen = self.state.load(SeqCst);
        let others = WRITER | UPGRADING | REQUEST;
        if seen & (BIASED | others) == BIASED {
            return true;
        }
        self.leave_marked();
        false
    }

    /// Ends the read of a reader that may be announced, or whose leaving is watched.
    #[inline]
    pub(super) fn leave_marked(&self) {
        let name = self.name();
        if let Some(entry) = self.entry() {
            // Release pairs with a writer's look at the entry.
            if entry.compare_exchange(name, 0, Release, Acquire).is_ok() {
                return;
            }
            // Acquire: another reader may have emptied the entry. What that reader did is then
            // ordered before the release below.
        }
        self.leave_elsewhere();
    }

    /// Ends the read of a reader that is counted, or that is announced in another thread's row
    /// because its guard was sent to this thread. Readers may leave in place of each other: what
    /// matters is that as many remain counted or announced as hold the lock.
    ///
    /// The count and the entries cannot be looked at in one step. While this thread looks at one of
    /// them, another reader may come or leave, and so turn the reader that this thread looks for
    /// from a counted reader into an announced one, or the reverse. So this thread looks again,
    /// even in a child of fork.
    #[cold]
    #[inline(never)]
    pub(super) fn leave_elsewhere(&self) {
        let (key, name) = (self.key(), self.name());
        for _ in 0..RELEASE_LOOKS {
            let counted =
                |seen| (!is_written(seen) && counts(seen)).then(|| without_registered(seen));
            let seen = match self.state.fetch_update(Release, counted) {
                Ok(before) => return Self::wake_after_reader(key, before),
                Err(seen) => seen,
            };
            let mut entries = P::visible_readers()
                .into_iter()
                .flat_map(|t| t.entries(name));
            if entries.any(|e| e.compare_exchange(name, 0, Release, Relaxed).is_ok()) {
                return;
            }
            if P::visible_readers().is_none() {
                if seen & (BIASED | REVOKING) != 0 {
                    P::on_foreign_readers(key);
                }
                // No reader is announced anywhere, and none is counted.
                return;
            }
            P::relax();
        }
    }

    /// Whether a reader of this biased lock is announced at this moment. Without a table the answer
    /// is yes, since a reader may be announced in the table of other code.
    pub(super) fn is_announced(&self) -> bool {
        let name = self.name();
        P::visible_readers().is_none_or(|table| {
            let mut entries = table.entries(name);
            entries.any(|entry| entry.load(Acquire) == name)
        })
    }

    /// For a writer or an upgrade with a time limit, before it keeps new readers out: waits for a
    /// quantum, or an eighth of the limit if that is less, as long as a reader is announced or the
    /// word shows `others`. Once the waiter keeps readers out, it does so until it has the lock or
    /// gives up, and its caller may start again at once. No reader wakes it here: it polls.
    pub(super) fn spare_readers(&self, deadline: u64, others: impl Fn(u32) -> bool) {
        let spares = || {
            let word = self.state.load(Relaxed);
            others(word) || word & BIASED != 0 && self.is_announced()
        };
        if deadline == NEVER || !spares() {
            return;
        }
        let start = P::now();
        let limit = deadline.saturating_sub(start) / TURN_IN_LIMIT_DIVISOR;
        let until = start + limit.min(C::tuning().quantum.nanos());
        while spares() && !expired(until, P::now) {
            Self::pause(start, until);
        }
    }

    /// Calls `attempt`, which takes the lock for writing. Without a table, calls it only while the
    /// lock is not biased, and again until it succeeds: see [`revoke`](Self::revoke). `false`: the
    /// time is up.
    pub(super) fn await_bias(&self, deadline: u64, attempt: impl Fn() -> bool) -> bool {
        if deadline == NEVER || P::visible_readers().is_some() {
            return attempt();
        }
        let start = P::now();
        loop {
            let biased = self.state.load(Relaxed) & BIASED != 0;
            if !biased && attempt() {
                return true;
            }
            if expired(deadline, P::now) {
                return false;
            }
            Self::pause(start, deadline);
        }
    }

    /// Enters if that is possible now. On a biased lock the reader announces itself; otherwise it
    /// may set the bias, so that later readers announce themselves.
    pub(super) fn announce_or_enter(&self, passing: bool) -> Option<Counted> {
        if self.state.load(Relaxed) & BIASED != 0 && self.announce() {
            return Some(Counted::Reads);
        }
        let counted = self.enter(passing)?;
        let may_set = C::BIAS && counted == Counted::Reads && self.hints.sets_bias();
        if may_set && self.set_biased() {
            P::count(Event::Bias);
        }
        Some(counted)
    }

    /// Called by a writer or an upgradable reader that has taken the lock and found the word
    /// `before`. A writer that has ended the bias waits for announced readers. `false`: the time is
    /// up, and the writer has left again.
    pub(super) fn end_bias(&self, want: Want, before: u32, deadline: u64) -> bool {
        if want == Want::Upgradable || before & BIASED == 0 || self.revoke(deadline) {
            return true;
        }
        self.leave_writer(Leave::Biased);
        false
    }

    /// Waits until no announced reader is left (`true`), or until the time is up. Without a table a
    /// wait with a time limit fails at once: only the code with the table can see its readers
    /// leave.
    pub(super) fn revoke(&self, deadline: u64) -> bool {
        if P::visible_readers().is_none() {
            if deadline != NEVER {
                return false;
            }
            P::on_foreign_readers(self.key());
        }
        P::count(Event::Revoke);
        let (start, name) = (P::now(), self.name());
        // See `announce`.
        P::light_fence();
        let mut entries = P::visible_readers()
            .into_iter()
            .flat_map(|t| t.entries(name));
        let gone =
            entries.all(|entry| self.await_reader(start, deadline, || entry.load(SeqCst) != name));
        // Readers that pass writers may have been counted since.
        let end = || self.state.fetch_update(Acquire, revoked).ok();
        let ended = |before| {
            Self::wake(self.key(), before & READERS_SLEEP);
            true
        };
        let mut word = None;
        let ended =
            gone && self.await_reader(start, deadline, || {
                word = end();
                word.is_some()
            }) && word.is_some_and(ended);
        self.hints.bias_ended(P::now().saturating_sub(start));
        ended
    }

    /// Waits until `gone` (`true`), or until the time is up.
    fn await_reader(&self, start: u64, deadline: u64, mut gone: impl FnMut() -> bool) -> bool {
        loop {
            if gone() {
                return true;
            }
            if expired(deadline, P::now) {
                return false;
            }
            Self::pause(start, deadline);
        }
    }

    /// One step of a wait that began at `start` and that no thread will end by a wake-up: spins at
    /// first, and then takes timed sleeps, so that a thread of higher priority lets others run.
    fn pause(start: u64, deadline: u64) {
        let now = P::now();
        let waited = now.saturating_sub(start);
        if waited < SPIN_NS || !Self::PARKS {
            P::relax();
        } else {
            let nanos = (waited / 8).clamp(TIMED_SLEEP_NS.start, TIMED_SLEEP_NS.end);
            sleep_until::<P>(now.saturating_add(nanos.min(left(deadline, || now))));
        }
    }

    /// Empties all entries of this lock; see [`reset_in_child`](Self::reset_in_child).
    pub(super) fn forget_announced(&self) {
        let name = self.name();
        for entry in P::visible_readers()
            .into_iter()
            .flat_map(|t| t.entries(name))
        {
            let _ = entry.compare_exchange(name, 0, Relaxed, Relaxed);
        }
    }
}
