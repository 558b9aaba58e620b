//! Deliberate defects of the locks. For each there is a check that has to catch it.
//!
//! A lock has the defect that its platform asks for (`Platform::DEFECT`). Platforms that programs
//! use ask for none, which a compiler knows, so that nothing is left of the questions.
//! [`Sabotaged`](crate::sabotaged::Sabotaged) is any other platform with a defect: only checks use
//! it.

/// A deliberate defect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Defect {
    /// Correct locks.
    None,

    // ---- the spinlock and the mutex ----
    /// A waiter that was refused a heavy fence takes it for granted, and sleeps without a limit.
    UnfencedSleep,

    // ---- the spinlock ----
    /// The head takes the lock whether it is free or not.
    SpinNoExclusion,
    /// Setting waiters aside forgets the ones set aside before.
    SpinLostSplice,
    /// The limit on local hand-offs is ignored.
    SpinStarvation,
    /// Unlocking does not wake.
    SpinLostWakeup,
    /// Unlocking does not publish the critical section.
    SpinRelaxedUnlock,
    /// A waiter falls asleep in the queue without announcing it.
    SpinSilentSleeper,
    /// A waiter that queues rouses the one before it. This is no defect, only more of what is
    /// allowed: every check must pass.
    SpinMeddler,
    /// A sleeper whose time is up leaves although it was made head meanwhile.
    SpinRousedLeaves,
    /// A head tells the next one to take the lock without a look although a pending waiter is to go
    /// first.
    SpinPushy,

    // ---- the mutex ----
    /// Unlocking does not wake.
    MutexMissingWake,
    /// A sleeper does not look again after it has set its flag.
    MutexLostWakeup,
    /// A hand-off releases the lock as well.
    MutexDoubleHandOff,
    /// A requester that withdraws does not look for a pickup.
    MutexLeakyCancel,
    /// Unlocking does not publish the critical section.
    MutexRelaxedUnlock,
    /// A waiter that a broadcast has requeued here queues without setting the flag for the sleepers
    /// in front of it.
    MutexSilentRequeue,
    /// A waiter that ends a request, which another one takes for its own, does not wake that one.
    MutexSilentEnd,

    // ---- the condition variable ----
    /// A waiter falls asleep whatever has happened since it registered.
    CondvarBlindSleep,
    /// A notification wakes before it counts.
    CondvarLateCount,
    /// `notify_one` clears `WAITERS` without checking for newcomers.
    CondvarCarelessClear,
    /// A waiter that a broadcast has woken does not set the flag for the sleepers on the mutex.
    CondvarBrokenChain,
    /// A waiter whose time is up reports that although it was woken.
    CondvarSwallowedWake,
    /// A waiter that has spun in vain falls asleep without clearing `SPINNER`.
    CondvarLingeringSpinner,

    // ---- running a function once ----
    /// The word says that the function has returned before it has run.
    OnceEarlyDone,
    /// The end of the function does not publish what it did.
    OnceRelaxedEnd,
    /// The end of the function does not wake.
    OnceMissingWake,
    /// A waiter falls asleep whatever has happened since it looked.
    OnceBlindSleep,

    // ---- the reader-writer lock ----
    /// A reader that waits for a writer registers without being counted.
    RwLockLostReader,
    /// A writer does not wait for announced readers.
    RwLockUnseenReader,
    /// A reader announces itself without looking whether the bias still holds.
    RwLockBlindAnnouncement,
    /// A reader that counts itself does not look whether a writer has come.
    RwLockHastyReader,
    /// A reader that waits for a writer sets the bias, and readers look for nothing else.
    RwLockBiasInWrite,
    /// The last reader does not wake the waiter at the front.
    RwLockMissingWake,
    /// A waiter at the front that has requested to go next and gives up leaves its request.
    RwLockLeakyRequest,
    /// A writer that leaves does not publish its critical section.
    RwLockRelaxedUnlock,
    /// A registered reader takes each writer that it sees for the one that it waits for.
    RwLockStaleWriter,
    /// A reader that leaves and finds no reader at its first look gives up.
    RwLockHastyRelease,
    /// A waiter that takes the lock leaves no mark for the others at the front.
    RwLockSilentTaker,
}

impl Defect {
    /// All of them, in order: a constant parameter can be a number, but not an enumeration.
    pub(crate) const ALL: [Defect; 39] = [
        Defect::None,
        Defect::UnfencedSleep,
        Defect::SpinNoExclusion,
        Defect::SpinLostSplice,
        Defect::SpinStarvation,
        Defect::SpinLostWakeup,
        Defect::SpinRelaxedUnlock,
        Defect::SpinSilentSleeper,
        Defect::SpinMeddler,
        Defect::SpinRousedLeaves,
        Defect::SpinPushy,
        Defect::MutexMissingWake,
        Defect::MutexLostWakeup,
        Defect::MutexDoubleHandOff,
        Defect::MutexLeakyCancel,
        Defect::MutexRelaxedUnlock,
        Defect::MutexSilentRequeue,
        Defect::MutexSilentEnd,
        Defect::CondvarBlindSleep,
        Defect::CondvarLateCount,
        Defect::CondvarCarelessClear,
        Defect::CondvarBrokenChain,
        Defect::CondvarSwallowedWake,
        Defect::CondvarLingeringSpinner,
        Defect::OnceEarlyDone,
        Defect::OnceRelaxedEnd,
        Defect::OnceMissingWake,
        Defect::OnceBlindSleep,
        Defect::RwLockLostReader,
        Defect::RwLockUnseenReader,
        Defect::RwLockBlindAnnouncement,
        Defect::RwLockHastyReader,
        Defect::RwLockBiasInWrite,
        Defect::RwLockMissingWake,
        Defect::RwLockLeakyRequest,
        Defect::RwLockRelaxedUnlock,
        Defect::RwLockStaleWriter,
        Defect::RwLockHastyRelease,
        Defect::RwLockSilentTaker,
    ];

    /// The defect with this number.
    pub(crate) const fn numbered(number: u8) -> Self {
        let defect = Self::ALL[number as usize];
        assert!(defect as u8 == number);
        defect
    }
}
