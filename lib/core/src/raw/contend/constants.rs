//! How long the steps of a wait last. The table "Constants" of `docs/guide/mutex.md` says what
//! other values cost, and `docs/notebook/mutex.md` how that was measured.

/// The first pause between two looks at a lock. Each look takes the line from the holder, so the
/// pauses double.
pub(in crate::raw) const FIRST_PAUSE_NS: u64 = 100;

/// A lock is idle if it stays free for longer than its cache line takes to come. For longer than
/// this it need not stay free: no machine takes so long to move a line.
pub(in crate::raw) const IDLE_NS: u64 = 400;

/// Unlocks of a kept lock that the front waiter samples before it concludes that the lock is not
/// idle. Later it samples one at a time.
pub(in crate::raw) const UNLOCKS_SAMPLED: u32 = 32;

/// How long a waiter at the front spins before it sleeps: about what it costs to fall asleep and to
/// be woken.
pub(in crate::raw) const SPIN_NS: u64 = 20_000;

/// How long a waiter in the queue spins before it sleeps, where there is a CPU for every waiter:
/// about what a queue of 64 sleepers takes to wake up one after the other. If a waiter slept
/// sooner, a long queue in which some sleep would be slow enough for all to fall asleep.
pub(in crate::raw) const QUEUE_SPIN_NS: u64 = 400_000;

/// How long a newcomer tries to do without the queue where nobody queues. On an oversubscribed
/// machine it is how long a waiter in the queue spins.
pub(in crate::raw) const BARGE_NS: u64 = 2_000;

/// One wait in this many finds out whether the lock should be kept.
pub(in crate::raw) const WAITS_PER_TRIAL: u32 = 1024;

/// How long a fair unlock waits for a waiter to take the lock: most wake-ups take less. A front
/// waiter that leaves a kept lock alone may sleep for longer, and then does not get it.
pub(in crate::raw) const FAIR_UNLOCK_NS: u64 = 250_000;

/// A waiter of the reader-writer lock that has a time limit takes turns after this part of it (one
/// eighth), if that is less than the quantum. The rest is for those that hold the lock: they need
/// not be in the middle of their sections just then.
pub(in crate::raw) const TURN_IN_LIMIT_DIVISOR: u64 = 8;
