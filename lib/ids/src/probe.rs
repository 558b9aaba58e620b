//! How restartable sequences are assembled. Users have the [sound](Sound) ones; the laboratory
//! reaches the others by [`lab`](crate::lab).

use core::fmt::Debug;

/// How restartable sequences are assembled.
///
/// # Safety
///
/// A probe that does not [restart](Self::RESTARTS) may be used by [counters](crate::lab::Counter)
/// only, which then count wrong. A list would have nodes twice.
pub unsafe trait Probe: Copy + Debug + Send + Sync + 'static {
    /// Iterations of an empty loop right before the commit, so that disturbances hit it.
    const DELAY: u16 = 0;
    /// Whether the kernel is told of the sequence. If it is not, a disturbed sequence goes on
    /// instead of starting again: the defect `NoRestart`.
    const RESTARTS: bool = true;
}

/// Correct sequences without a delay: those of users.
#[derive(Clone, Copy, Debug)]
pub struct Sound;

// SAFETY: it restarts.
unsafe impl Probe for Sound {}
