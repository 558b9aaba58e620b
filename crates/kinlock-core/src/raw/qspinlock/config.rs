//! What is fixed about a lock at compile time.

use crate::tuning::Tuning;

/// What is fixed about a lock at compile time, and where it finds its knobs.
pub trait Config: Copy + core::fmt::Debug + Send + Sync + 'static {
    /// Whether the first waiter waits without a node. Model checks switch it off, so that two
    /// threads reach the queue.
    const PENDING_BIT: bool = true;
    /// Whether waiters may sleep, where the platform can.
    const PARK: bool = true;
    /// Whether the queue does only what is published, for comparison: a head looks at the word
    /// before it tries to take the lock, reads a waiter's domain in that waiter's node, and passes
    /// headship to another domain as soon as it knows no local waiter.
    const AS_PUBLISHED: bool = false;
    /// A deliberate defect, which shows that a check can fail.
    #[doc(hidden)]
    const FAULT: Fault = Fault::None;

    /// The run-time knobs. Called once per slow path.
    fn tuning() -> Tuning;
}

/// Deliberate defects. For each there is a check that has to catch it.
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
