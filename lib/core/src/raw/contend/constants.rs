//! How long the steps of a wait last. The table "Constants" of `docs/guide/mutex.md` says what
//! other values cost, and `docs/notebook/mutex.md` how that was measured.

use crate::platform::PATIENCE_NS;
use crate::raw::patience::GROWTH;

/// The first pause between two looks at a lock. Each look takes the line from the holder. So while
/// a critical section goes on, the pauses double, up to [`IDLE_NS`].
///
/// The pause always has this length for a requester that spins for its hand-off, a fair unlock that
/// stands aside, and a waiter that finds out whether the lock stays free.
pub(in crate::raw) const FIRST_PAUSE_NS: u64 = 100;

/// Upper bound of the time for which a lock has to stay free to count as idle. A lock is idle once
/// it has been free for as long as its cache line takes to come from the holder, which the front
/// waiter measures. A look that took longer than this bound was interrupted: no machine takes so
/// long to move a line.
pub(in crate::raw) const IDLE_NS: u64 = 400;

/// Unlocks of a kept lock that the front waiter samples before it concludes that the lock is not
/// idle. All its watches count together: once it has seen this number, each later watch ends with
/// its first unlock.
pub(in crate::raw) const UNLOCKS_SAMPLED: u32 = 32;

/// The front waiter measures how long the line takes to come for this many unlocks. Before later
/// looks it does not read the clock: in a virtual machine that takes 30 ns, as long as the line
/// takes to come between near CPUs.
pub(in crate::raw) const UNLOCKS_MEASURED: u32 = 4;

/// How long a waiter at the front spins before it sleeps, and how long a newcomer waits for the end
/// of the critical section that it finds before it queues: about the cost of falling asleep and
/// being woken.
///
/// It is also how long a requester spins for its hand-off, how long one critical section may last
/// before a watch gives up, the length of the first timed sleep and of the first rest, and the
/// shortest share of a round, however many waiters there are.
pub(in crate::raw) const SPIN_NS: u64 = 20_000;

/// The time from its arrival after which a newcomer that has seen the lock free and lost it to
/// another thread stops barging: about two short critical sections. It barges past a queue, too. So
/// threads that run share the lock among themselves while others sleep in the queue, and hand-offs
/// need not wait for threads to wake up.
///
/// A newcomer to a lock whose waiters go in order spins for no longer than this, and one with a
/// time limit for no less, unless its spins are shorter.
///
/// A newcomer that waits for the end of a long section checks every `BARGE_NS` whether a waiter has
/// requested the lock. If the lock stays free for `BARGE_NS` while a waiter in the queue looks at
/// it, that waiter concludes that no thread comes for it.
pub(in crate::raw) const BARGE_NS: u64 = 5_000;

/// The length of a round, in quanta. Each waiter has its turn in this time, unless the critical
/// sections take longer. The waiter at the front requests a hand-off when it has been there for its
/// share of the round, but at least for [`SPIN_NS`].
pub(in crate::raw) const ROUND_QUANTA: u64 = 2;

/// The shortest sleep of a front waiter that has no time limit and no waiter behind it; an unlock
/// may end it earlier. Such a waiter does not wake up to make its request when its quantum is over:
/// it makes the request when an unlock has woken it after that, or when this time is over. That
/// unlock would have granted an earlier request. So if another thread takes the lock first, the
/// waiter waits for one section more.
///
/// With 250 scheduler ticks a second or more, this time ends after the next tick. For a timer that
/// ends before the next tick, the kernel programs the timer of the CPU, and in a virtual machine
/// that takes microseconds, as much as the whole hand-off of two threads that alternate on one CPU.
pub(in crate::raw) const ALONE_NS: u64 = 4_000_000;

// A waiter that queues while the front sleeps for `ALONE_NS` looks for the second time after
// `PATIENCE_NS * (1 + GROWTH)`: later than the front makes its request, if the front wakes up
// within the difference.
const _: () = assert!(PATIENCE_NS * (1 + GROWTH) > ALONE_NS);

/// One wait in this many is a trial, which finds out whether the lock should be kept. With the
/// layout `Joined`, one in this many unlocks of a kept lock that has an empty queue makes the lock
/// shared.
pub(in crate::raw) const WAITS_PER_TRIAL: u32 = 1024;

/// How long a fair unlock stands aside for a waiter: most wake-ups take less. A front waiter that
/// leaves a kept lock alone may sleep for longer, and then misses its chance.
pub(in crate::raw) const FAIR_UNLOCK_NS: u64 = 250_000;

/// A waiter with a time limit requests to go next, and a writer ends the bias, after an eighth of
/// the time that is left, unless its quantum is over earlier. Holders then have seven eighths of
/// that time to end their sections.
pub(in crate::raw) const TURN_IN_LIMIT_DIVISOR: u64 = 8;
