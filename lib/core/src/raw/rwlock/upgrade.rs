//! Upgradable readers. One at a time may hold the lock, together with other readers. It may become
//! a writer without letting another writer in first.

use super::*;
use crate::raw::contend::spin;
use crate::raw::waiter::left;

impl<P: Platform, C: LockConfig> QueuedRwLock<P, C> {
    /// Takes the lock for upgradable reading, waiting for as long as it takes. Waits for writers
    /// and another upgradable reader, in one queue with them. Returns `false` if the lock
    /// [is full](Self::is_full).
    #[inline]
    #[must_use]
    pub fn upgradable(&self) -> bool {
        self.upgradable_until(NEVER)
    }

    /// Like [`upgradable`](Self::upgradable), but gives up and returns `false` once
    /// [`Platform::now`] has reached `deadline`.
    #[inline]
    #[must_use]
    pub fn upgradable_until(&self, deadline: u64) -> bool {
        self.take(Want::Upgradable, false).is_ok() || self.take_slow(Want::Upgradable, deadline)
    }

    /// Takes the lock for upgradable reading if that is possible at once.
    #[inline]
    pub fn try_upgradable(&self) -> bool {
        self.take(Want::Upgradable, false).is_ok()
    }

    /// Ends upgradable reading.
    ///
    /// # Safety
    ///
    /// The lock must be held for upgradable reading, and the right to release it must be the
    /// caller's.
    #[inline]
    pub unsafe fn unlock_upgradable(&self) {
        self.leave_upgradable(Leave::Free);
    }

    /// Like [`unlock_upgradable`](Self::unlock_upgradable). If a waiter sleeps at the front of the
    /// queue, no other thread enters before it has had the lock.
    ///
    /// # Safety
    ///
    /// As [`unlock_upgradable`](Self::unlock_upgradable).
    #[inline]
    pub unsafe fn unlock_upgradable_fair(&self) {
        self.call_front();
        self.leave_upgradable(Leave::Free);
    }

    /// Goes from upgradable to plain reading.
    ///
    /// # Safety
    ///
    /// As [`unlock_upgradable`](Self::unlock_upgradable).
    #[inline]
    pub unsafe fn downgrade_upgradable(&self) {
        self.leave_upgradable(Leave::Reader);
    }

    /// Goes from writing to upgradable reading. No other writer gets the lock in between.
    ///
    /// # Safety
    ///
    /// The lock must be held for writing, and the right to release it must be the caller's.
    #[inline]
    pub unsafe fn downgrade_to_upgradable(&self) {
        self.leave_writer(Leave::Upgradable);
    }

    /// Goes from upgradable reading to writing: waits until all other readers have left. No new
    /// reader enters during the wait, and no other writer gets the lock in between.
    ///
    /// # Safety
    ///
    /// As [`unlock_upgradable`](Self::unlock_upgradable).
    #[inline]
    pub unsafe fn upgrade(&self) {
        self.upgrade_slow(NEVER);
    }

    /// Like [`upgrade`](Self::upgrade), but gives up and returns `false` once [`Platform::now`] has
    /// reached `deadline`: the caller then still is the upgradable reader.
    ///
    /// # Safety
    ///
    /// As [`unlock_upgradable`](Self::unlock_upgradable).
    #[inline]
    pub unsafe fn upgrade_until(&self, deadline: u64) -> bool {
        self.spare_readers(deadline, |word| count(word) != 0);
        self.await_bias(deadline, || self.upgrade_slow(deadline))
    }

    /// Goes from upgradable reading to writing if there is no other reader.
    ///
    /// # Safety
    ///
    /// As [`unlock_upgradable`](Self::unlock_upgradable).
    #[inline]
    pub unsafe fn try_upgrade(&self) -> bool {
        let announced = self.state.load(Relaxed) & BIASED != 0 && self.is_announced();
        !announced && self.upgrade_now(0).unwrap_or(false)
    }

    fn leave_upgradable(&self, leave: Leave) {
        let key = self.key();
        let left = |seen| Some(after_upgradable(seen, leave));
        let (Ok(before) | Err(before)) = self.state.fetch_update(Release, left);
        // From here on `self` may be gone.
        Self::wake(key, before & FRONT_SLEEPS);
    }

    fn upgrade_slow(&self, deadline: u64) -> bool {
        if let Some(upgraded) = self.upgrade_now(deadline) {
            return upgraded;
        }
        self.state.set(UPGRADING);
        loop {
            if let Some(upgraded) = self.upgrade_now(deadline) {
                return upgraded;
            }
            if expired(deadline, P::now) {
                self.stay_upgradable();
                return false;
            }
            let others = |seen| count(seen) != 0;
            let spin_ns = spin::limit::<P>().min(left(deadline, P::now));
            if !self.state.wait_for(spin_ns, |seen| !others(seen)) {
                self.sleep(UPGRADER, UPGRADING, deadline, |seen| seen, others);
            }
        }
    }

    /// Becomes a writer if no reader is counted, and waits for announced readers. `None`: readers
    /// are counted. `false`: the time is up.
    fn upgrade_now(&self, deadline: u64) -> Option<bool> {
        // SeqCst orders this before the look at announced readers.
        let before = self.state.fetch_update(SeqCst, upgraded).ok()?;
        Self::wake(self.key(), before & READERS_SLEEP);
        if before & BIASED == 0 || self.revoke(deadline) {
            return Some(true);
        }
        self.leave_writer(Leave::UpgradableBiased);
        Some(false)
    }

    fn stay_upgradable(&self) {
        let before = self.state.clear(UPGRADING | READERS_SLEEP);
        Self::wake(self.key(), before & READERS_SLEEP);
    }
}
