//! How long the steps of a wait last. The table "Constants" of `docs/guide/mutex.md` says what
//! other values cost, and `docs/notebook/mutex.md` how that was measured.

use crate::platform::PATIENCE_NS;
use crate::raw::patience::GROWTH;

/// The first pause between two looks at a lock. Each look takes the line from the holder. So while
/// one critical section goes on the pauses double, up to [`IDLE_NS`].
///
/// A requester that spins for its hand-off, a fair unlock that stands aside, and a waiter that
/// finds out whether the lock stays free, always pause for this long.
pub(in crate::raw) const FIRST_PAUSE_NS: u64 = 100;

/// The most that a lock has to stay free to count as idle. It is idle once it has been free for as
/// long as its cache line takes to come from the holder, which the front waiter measures. A look
/// that took longer than this was interrupted: no machine takes so long to move a line.
pub(in crate::raw) const IDLE_NS: u64 = 400;

/// Unlocks of a kept lock that the front waiter samples before it concludes that the lock is not
/// idle. They are counted over all its watches: once it has seen this number, each later watch
/// ends with the first unlock.
pub(in crate::raw) const UNLOCKS_SAMPLED: u32 = 32;

/// At the first unlocks of its stay at the front, up to this number, the waiter measures how long
/// the line takes to come. Later looks are not preceded by a clock reading: in a virtual machine
/// that takes 30 ns, as long as the line takes to come between near CPUs.
pub(in crate::raw) const UNLOCKS_MEASURED: u32 = 4;

/// How long a waiter at the front spins before it sleeps, and how long a newcomer waits for the end
/// of the critical section that it finds, before it queues: about what it costs to fall asleep and
/// to be woken.
///
/// It is also how long a requester spins for its hand-off, how long one critical section may last
/// before a watch gives up, how long the first timed sleep and the first rest are, and the shortest
/// quantum that many waiters leave each other.
pub(in crate::raw) const SPIN_NS: u64 = 20_000;

/// How long a newcomer tries to do without the queue, from its arrival on, if it has seen the lock
/// free and lost it to another thread: about two short critical sections. Others may queue. So
/// threads that run share the lock among themselves while others sleep in the queue, and hand-offs
/// need not wait for threads to wake up.
///
/// A newcomer that waits for the end of a long section looks every `BARGE_NS` whether the lock has
/// been requested. A lock that stays free for `BARGE_NS`, while a waiter in the queue looks at it,
/// is one that no thread comes for.
pub(in crate::raw) const BARGE_NS: u64 = 5_000;

/// The length of a round, in quanta: in this time each waiter has its turn, if the critical
/// sections take no longer. The waiter at the front requests a hand-off when it has been there for
/// its share of the round, but not before [`SPIN_NS`].
pub(in crate::raw) const ROUND_QUANTA: u64 = 2;

/// How long a waiter at the front with no other behind it, and without a time limit, sleeps at
/// least, unless an unlock wakes it. It makes no request when its quantum is over, but when it is
/// woken after that, or when this time is over. The unlock that wakes it would have granted the
/// request. So if another thread takes the lock first, it waits for one section more.
///
/// With 250 scheduler ticks a second or more, this is beyond the next one. For a timer before the
/// next tick the kernel sets the clock of the CPU, and in a virtual machine that takes
/// microseconds, as much as the whole hand-off of two threads that alternate on one CPU.
pub(in crate::raw) const ALONE_NS: u64 = 4_000_000;

// With the usual patience a waiter that comes behind it meanwhile looks for the second time after
// the request, if the front wakes up within the difference.
const _: () = assert!(PATIENCE_NS * (1 + GROWTH) > ALONE_NS);

/// One wait in this many is a trial, which finds out whether the lock should be kept. In the layout
/// `Joined` it is also the other way round: of the unlocks of a kept lock for which nobody waits,
/// one in this many makes it shared.
pub(in crate::raw) const WAITS_PER_TRIAL: u32 = 1024;

/// How long a fair unlock stands aside for a waiter: most wake-ups take less. A front waiter that
/// leaves a kept lock alone may sleep for longer, and then does not get the lock.
pub(in crate::raw) const FAIR_UNLOCK_NS: u64 = 250_000;

/// A waiter with a time limit requests to go next, and a writer ends the bias, after this part of
/// what is left of the limit, an eighth, if that comes before its quantum is over. Seven eighths
/// then remain for those that hold the lock to end their sections.
pub(in crate::raw) const TURN_IN_LIMIT_DIVISOR: u64 = 8;
