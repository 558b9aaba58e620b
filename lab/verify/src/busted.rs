//! The locks that are broken on purpose, by the name that torture and the explorer have for them.
//! Both make their lists of these rows, and add what makes such a lock in their world.

/// Calls `$list!` with the rows for torture: the kind of lock, its defect, its name, and the
/// property that it violates. `$more` are rows that come first.
macro_rules! busted {
    ($list:ident $($more:tt)*) => {
        $list! {
            $($more)*
            spin SpinNoExclusion "busted-exclusion" Exclusion;
            spin SpinLostSplice "busted-splice" Completion;
            spin SpinLostWakeup "busted-wakeup" Completion;
            spin SpinSilentSleeper "busted-sleeper" Completion;
            spin SpinStarvation "busted-starvation" Progress;
            mutex MutexMissingWake "busted-mutex-wake" Completion;
            mutex MutexLostWakeup "busted-mutex-sleep" Completion;
            mutex MutexDoubleHandOff "busted-mutex-pickup" Exclusion;
            mutex MutexLeakyCancel "busted-mutex-cancel" Completion;
            rwlock RwLockLostReader "busted-rwlock-reader" Exclusion;
            rwlock RwLockUnseenReader "busted-rwlock-unseen" Exclusion;
            rwlock RwLockHastyReader "busted-rwlock-hasty" Exclusion;
            rwlock RwLockBiasInWrite "busted-rwlock-bias" Exclusion;
            rwlock RwLockMissingWake "busted-rwlock-wake" Completion;
            rwlock RwLockLeakyRequest "busted-rwlock-request" Completion;
            rwlock RwLockStaleWriter "busted-rwlock-stale" Completion;
            rwlock RwLockHastyRelease "busted-rwlock-release" Completion;
            rwlock RwLockSilentTaker "busted-rwlock-taker" Completion;
            condvar CondvarBlindSleep "busted-condvar-sleep" Completion;
            condvar CondvarCarelessClear "busted-condvar-clear" Completion;
            condvar CondvarBrokenChain "busted-condvar-chain" Completion;
            condvar CondvarSwallowedWake "busted-condvar-swallow" Completion;
            condvar CondvarLingeringSpinner "busted-condvar-spinner" Completion;
            once OnceEarlyDone "busted-once-early" Exclusion;
            once OnceMissingWake "busted-once-wake" Completion;
        }
    };
}
pub(crate) use busted;

/// As [`busted!`], for the explorer: with the defects that show too rarely on a busy machine for
/// torture to rely on.
macro_rules! busted_or_rare {
    ($list:ident) => {
        $crate::busted::busted! {
            $list
            spin UnfencedSleep "busted-fence" Completion;
            mutex UnfencedSleep "busted-mutex-fence" Completion;
            spin SpinRousedLeaves "busted-rouse" Completion;
            mutex MutexSilentEnd "busted-mutex-end" Completion;
            rwlock RwLockBlindAnnouncement "busted-rwlock-blind" Exclusion;
            condvar CondvarLateCount "busted-condvar-count" Completion;
            once OnceBlindSleep "busted-once-sleep" Completion;
        }
    };
}
pub(crate) use busted_or_rare;
