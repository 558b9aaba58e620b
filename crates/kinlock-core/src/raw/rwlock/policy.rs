//! What a waiter does next: a pure function of how long it has waited.

/// How long a waiter spins before it sleeps, in nanoseconds: as in the mutex.
pub(super) const SPIN: u64 = 20_000;
/// How long a writer tries to do without the queue, in nanoseconds, where nobody queues: as in the
/// mutex.
pub(super) const BRIEF: u64 = 2_000;
/// How long a writer in the queue spins before it sleeps, in nanoseconds, where there is a CPU for
/// every waiter: as in the mutex.
pub(super) const FOLLOW: u64 = 400_000;

/// After a writer has ended the bias, so many times as long as that took nobody sets it. So a
/// writer spends at most one part in ten on that.
pub(super) const INHIBIT: u64 = 9;

/// What the waiter at the front does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Wait for so many nanoseconds until the lock is free.
    Poll(u64),
    /// Sleep until the lock is free, for at most so many nanoseconds.
    Sleep(u64),
    /// Leave the lock alone for so many nanoseconds.
    TimedSleep(u64),
    /// Ask to go next.
    Request,
    /// Sleep until it is this waiter's turn.
    Await,
}

/// What the waiter at the front knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Front {
    /// How long it has been there, in nanoseconds.
    pub(super) waited: u64,
    pub(super) quantum: u64,
    /// It has been woken since it came to the front.
    pub(super) woken: bool,
    /// It has asked to go next, so many nanoseconds ago.
    pub(super) requested: Option<u64>,
}

impl Front {
    pub(super) fn next(self) -> Step {
        let left = self.quantum.saturating_sub(self.waited);
        match self.requested {
            Some(since) if since < SPIN => Step::Poll(SPIN - since),
            Some(_) => Step::Await,
            None if left == 0 => Step::Request,
            None if self.waited < SPIN => Step::Poll((SPIN - self.waited).min(left)),
            // Others were faster. To be woken each time would cost them more than it gains.
            None if self.woken => Step::TimedSleep(left),
            None => Step::Sleep(left),
        }
    }
}
