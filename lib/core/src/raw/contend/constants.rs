//! How long the steps of a wait last. The table "Constants" of `docs/guide/mutex.md` says what
//! other values cost, and `docs/notebook/mutex.md` how that was measured.

/// The first pause between two looks at a lock. Each look takes the line from the holder. So while
/// one critical section goes on the pauses double, up to [`IDLE_NS`].
///
/// A requester that spins for its hand-off, and a fair unlock that stands aside, always pause for
/// this long.
pub(in crate::raw) const FIRST_PAUSE_NS: u64 = 100;

/// The most that a lock has to stay free to count as idle. It is idle once it has been free for as
/// long as its cache line takes to come from the holder, which the front waiter measures. A look
/// that took longer than this was interrupted: no machine takes so long to move a line.
pub(in crate::raw) const IDLE_NS: u64 = 400;

/// Unlocks of a kept lock that the front waiter samples before it concludes that the lock is not
/// idle. They are counted over all its watches: once it has seen this number, each later watch
/// ends with the first unlock.
pub(in crate::raw) const UNLOCKS_SAMPLED: u32 = 32;

/// How long a waiter at the front spins before it sleeps: about what it costs to fall asleep and to
/// be woken.
///
/// It is also how long a requester spins for its hand-off, how long one critical section may last
/// before a watch gives up, how long the first timed sleep is, and how long a newcomer barges where
/// the process is oversubscribed.
pub(in crate::raw) const SPIN_NS: u64 = 20_000;

/// How long a waiter in the queue spins before it sleeps, where there is a CPU for every waiter:
/// about what a queue of 64 sleepers takes to wake up one after the other. With a shorter time, a
/// few sleepers in a long queue would slow it down so much that all others fell asleep, too.
pub(in crate::raw) const QUEUE_SPIN_NS: u64 = 400_000;

/// How long a newcomer tries to do without the queue while nobody queues. Where the process is
/// oversubscribed it is how long a waiter in the queue spins, and newcomers try for [`SPIN_NS`].
pub(in crate::raw) const BARGE_NS: u64 = 2_000;

/// One wait in this many is a trial, which finds out whether the lock should be kept. In the layout
/// `Joined` it is also the other way round: of the unlocks of a kept lock for which nobody waits,
/// one in this many makes it shared.
pub(in crate::raw) const WAITS_PER_TRIAL: u32 = 1024;

/// How long a fair unlock stands aside for a waiter: most wake-ups take less. A front waiter that
/// leaves a kept lock alone may sleep for longer, and then does not get the lock.
pub(in crate::raw) const FAIR_UNLOCK_NS: u64 = 250_000;

/// A waiter of the reader-writer lock with a time limit requests to go next after this part of the
/// limit, an eighth, if that comes before its quantum is over. Seven eighths then remain for those
/// that hold the lock to end their sections.
pub(in crate::raw) const TURN_IN_LIMIT_DIVISOR: u64 = 8;
