//! Named counters of what the slow paths did.
//!
//! Compiled in with the `events` feature and counted only while switched on. Without the feature there is no code at
//! all; with it, switched off, one relaxed load on slow paths; fast paths never count.
//!
//! ```
//! use kinlock_core::events::{self, Event};
//!
//! events::set_enabled(true);
//! let before = events::snapshot();
//! // ... contended work ...
//! let done = events::snapshot().since(&before);
//! println!("{} waiters slept", done.get(Event::Park));
//! ```

#[cfg(feature = "events")]
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

macro_rules! events {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// What is counted.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Event {
            $($(#[$doc])* $variant,)*
        }

        impl Event {
            /// All events, in the order of their declaration.
            pub const ALL: &'static [Event] = &[$(Event::$variant),*];

            /// The event's name in tables and JSON.
            pub fn name(self) -> &'static str {
                match self { $(Event::$variant => $name,)* }
            }
        }
    };
}

events! {
    /// An acquisition that left the fast path.
    SlowPath = "slow_path",
    /// A newcomer took a free lock before a front waiter that was not running.
    Steal = "steal",
    /// A waiter waited without a node.
    Pending = "pending",
    /// A waiter queued.
    Queued = "queued",
    /// Headship went to a waiter of the preferred locality domain.
    HandoffLocal = "handoff_local",
    /// Headship went to a waiter of another locality domain, or to a priority waiter.
    HandoffRemote = "handoff_remote",
    /// A head looked for kin.
    Scan = "scan",
    /// A waiter was looked at by a scan.
    ScanStep = "scan_step",
    /// A spinner left the spinner queue before it was its head.
    Unqueue = "unqueue",
    /// A newcomer took a lock that is taken in turns without queueing.
    Turn = "turn",
    /// A waiter claimed the lock: the next unlock hands it over.
    Claim = "claim",
    /// An unlock handed the lock to the waiter that had claimed it.
    Grant = "grant",
    /// A scan moved waiters to the secondary queue.
    SetAside = "set_aside",
    /// The secondary queue was put back in front of the primary queue, or became it.
    Splice = "splice",
    /// The limit on local hand-offs was reached.
    FlushByLimit = "flush_by_limit",
    /// A head that knew no kin, but had had some, waited for more.
    Linger = "linger",
    /// A head tried to take the lock without a look at it.
    TakeUnseen = "take_unseen",
    /// ... and it was held.
    TakeUnseenFailed = "take_unseen_failed",
    /// A waiter went to sleep.
    Park = "park",
    /// An unlock woke sleepers.
    Wake = "wake",
    /// A waiter of a condition variable was woken, wherever it slept then.
    Notified = "notified",
    /// A waiter of a condition variable saw the notification while it spun.
    NotifiedSpinning = "notified_spinning",
    /// A broadcast moved a sleeper to the mutex.
    Requeue = "requeue",
    /// A head woke a sleeper before its turn.
    WakeEarly = "wake_early",
    /// A waiter ran out of time.
    Timeout = "timeout",
    /// A node whose waiter had run out of time was passed over.
    Reap = "reap",
    /// No waiter slot or node was free: try-lock and back-off.
    SlotFallback = "slot_fallback",
}

/// The counters at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Snapshot([u64; Event::ALL.len()]);

impl Snapshot {
    /// How often `event` has happened.
    pub fn get(&self, event: Event) -> u64 {
        self.0[event as usize]
    }

    /// What has happened since `earlier`.
    pub fn since(&self, earlier: &Snapshot) -> Snapshot {
        Snapshot(core::array::from_fn(|i| {
            self.0[i].wrapping_sub(earlier.0[i])
        }))
    }
}

/// Whether the `events` feature is compiled in. Without it all counts stay 0.
pub const COMPILED_IN: bool = cfg!(feature = "events");

/// Starts or stops counting, for all locks and threads of the process. No effect without the `events` feature.
pub fn set_enabled(on: bool) {
    #[cfg(feature = "events")]
    ENABLED.store(on, Relaxed);
    let _ = on;
}

/// The sum of all counters so far. Not one instant: threads may count while it adds up.
pub fn snapshot() -> Snapshot {
    #[cfg(feature = "events")]
    return Snapshot(core::array::from_fn(|i| {
        SHARDS.iter().map(|s| s.0[i].load(Relaxed)).sum()
    }));
    #[cfg(not(feature = "events"))]
    Snapshot([0; Event::ALL.len()])
}

/// Counts `event` as having happened `times`; `shard` is any number that spreads threads.
#[inline]
pub(crate) fn count(event: Event, times: u32, shard: impl FnOnce() -> u32) {
    #[cfg(feature = "events")]
    if ENABLED.load(Relaxed) {
        let shard = &SHARDS[shard() as usize % SHARDS.len()];
        shard.0[event as usize].fetch_add(times.into(), Relaxed);
    }
    #[cfg(not(feature = "events"))]
    let _ = (event, times, shard);
}

#[cfg(feature = "events")]
static ENABLED: AtomicBool = AtomicBool::new(false);

/// Counters of threads that share a shard may share a line; different shards never do.
#[cfg(feature = "events")]
#[repr(align(128))]
struct Shard([AtomicU64; Event::ALL.len()]);

#[cfg(feature = "events")]
static SHARDS: [Shard; 64] = [const { Shard([const { AtomicU64::new(0) }; Event::ALL.len()]) }; 64];
