//! What is fixed about a lock at compile time.

use crate::tuning::Tuning;

/// What is fixed about a lock at compile time, and where it finds its knobs.
pub trait Config: Copy + core::fmt::Debug + Send + Sync + 'static {
    /// Whether the first waiter waits without a node. Model checks switch it off, so that two
    /// threads reach the queue.
    const PENDING_BIT: bool = true;
    /// Whether waiters may sleep, where the platform can.
    const PARK: bool = true;

    /// The run-time knobs. Called once per slow path.
    fn tuning() -> Tuning;
}
