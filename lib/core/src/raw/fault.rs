//! Deliberate defects of the locks. For each there is a check that has to catch it.

/// Those of the spinlock.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A correct lock.
    None,
    /// The head takes the lock whether it is free or not.
    NoExclusion,
    /// Setting waiters aside forgets the ones set aside before.
    LostSplice,
    /// The limit on local hand-offs is ignored.
    Starvation,
    /// Unlocking does not wake.
    LostWakeup,
    /// Unlocking does not publish the critical section.
    RelaxedUnlock,
    /// A waiter falls asleep in the queue without announcing it.
    SilentSleeper,
    /// A waiter that queues rouses the one before it. This is no defect, only more of what is
    /// allowed: every check must pass.
    Meddler,
    /// A sleeper whose time is up leaves although it was made head meanwhile.
    RousedLeaves,
    /// A head tells the next one to take the lock without a look although a pending waiter is to go
    /// first.
    Pushy,
}

/// Those of the mutex.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MutexFault {
    /// A correct mutex.
    None,
    /// Unlocking does not wake.
    MissingWake,
    /// A sleeper does not look again after it has set its flag.
    LostWakeup,
    /// A hand-off releases the lock as well.
    DoubleHandOff,
    /// A requester that withdraws does not look for a pickup.
    LeakyCancel,
    /// Unlocking does not publish the critical section.
    RelaxedUnlock,
    /// A waiter that a broadcast has requeued here queues without setting the flag for the sleepers
    /// in front of it.
    SilentRequeue,
}

/// Those of the condition variable.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CondvarFault {
    /// A correct condition variable.
    None,
    /// A waiter falls asleep whatever has happened since it registered.
    BlindSleep,
    /// A notification wakes before it counts.
    LateCount,
    /// `notify_one` clears `WAITERS` without checking for newcomers.
    CarelessClear,
    /// A waiter that a broadcast has woken does not set the flag for the sleepers on the mutex.
    BrokenChain,
    /// A waiter whose time is up reports that although it was woken.
    SwallowedWake,
    /// A waiter that has spun in vain falls asleep without clearing `SPINNER`.
    LingeringSpinner,
}

/// Those of running a function once.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnceFault {
    /// Correct.
    None,
    /// The word says that the function has returned before it has run.
    EarlyDone,
    /// The end of the function does not publish what it did.
    RelaxedEnd,
    /// The end of the function does not wake.
    MissingWake,
    /// A waiter falls asleep whatever has happened since it looked.
    BlindSleep,
}

/// Those of the reader-writer lock.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RwLockFault {
    /// A correct reader-writer lock.
    None,
    /// A reader that waits for a writer registers without being counted.
    LostReader,
    /// A writer does not wait for announced readers.
    UnseenReader,
    /// A reader announces itself without looking whether the bias still holds.
    BlindAnnouncement,
    /// A reader that counts itself does not look whether a writer has come.
    HastyReader,
    /// A reader that waits for a writer sets the bias, and readers look for nothing else.
    BiasInWrite,
    /// The last reader does not wake the waiter at the front.
    MissingWake,
    /// A waiter at the front that has requested to go next and gives up leaves its request.
    LeakyRequest,
    /// A writer that leaves does not publish its critical section.
    RelaxedUnlock,
    /// A registered reader takes each writer that it sees for the one that it waits for.
    StaleWriter,
    /// A reader that leaves and finds no reader at its first look gives up.
    HastyRelease,
}
