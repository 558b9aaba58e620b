//! Counters of what slow paths did.
//!
//! They exist with the feature `events` and count only while switched on. With the feature but
//! switched off, a slow path pays one relaxed load per event. Fast paths never count. Without the
//! feature no code is generated.
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
        /// A kind of event.
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
    /// A running newcomer took a free lock ahead of a front waiter that was not running.
    Steal = "steal",
    /// A waiter used the pending bit and needed no node.
    Pending = "pending",
    /// A waiter joined a queue.
    Queued = "queued",
    /// Headship went to a waiter of the preferred locality domain.
    HandoffLocal = "handoff_local",
    /// Headship went to a waiter of another locality domain, or to a priority waiter.
    HandoffRemote = "handoff_remote",
    /// A head searched the queue for a local waiter.
    Scan = "scan",
    /// A scan examined a waiter.
    ScanStep = "scan_step",
    /// A waiter left the OSQ before it became its head.
    Unqueue = "unqueue",
    /// A newcomer barged: it took the lock without queueing.
    Barge = "barge",
    /// A waiter requested a hand-off: the next unlock hands the lock over.
    HandoffRequest = "handoff_request",
    /// An unlock handed the lock to the waiter that had requested it.
    Pickup = "pickup",
    /// A scan moved waiters to the secondary queue.
    SetAside = "set_aside",
    /// The secondary queue was spliced in front of the primary queue, or became it.
    Splice = "splice",
    /// The limit on local hand-offs was reached.
    FlushByLimit = "flush_by_limit",
    /// A head knew no local waiter, and waited for one since several hand-offs were local.
    WaitForLocal = "wait_for_local",
    /// A head tried to take the lock without reading it first.
    BlindTry = "blind_try",
    /// A head tried to take the lock without reading it first, and it was held.
    BlindTryFailed = "blind_try_failed",
    /// A waiter went to sleep.
    Park = "park",
    /// An unlock woke sleepers.
    Wake = "wake",
    /// A waiter of a condition variable was woken, on the condition variable or on the mutex.
    Notified = "notified",
    /// A waiter of a condition variable saw the notification while it spun.
    NotifiedSpinning = "notified_spinning",
    /// A broadcast moved a sleeper to the mutex.
    Requeue = "requeue",
    /// A sleeper was roused before the hand-off reached it.
    WakeEarly = "wake_early",
    /// A waiter's time limit passed.
    Timeout = "timeout",
    /// A hand-off passed over the node of a waiter that had timed out.
    Reap = "reap",
    /// A reader made a reader-writer lock read-biased.
    Bias = "bias",
    /// A writer ended the bias of a reader-writer lock.
    Revoke = "revoke",
    /// No waiter slot or node was free: the thread waited without a place in the queue.
    SlotFallback = "slot_fallback",
}

/// The values of all counters.
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

/// Starts or stops counting, for all locks and threads of the process. No effect without the
/// `events` feature.
pub fn set_enabled(on: bool) {
    #[cfg(feature = "events")]
    ENABLED.store(on, Relaxed);
    let _ = on;
}

/// The counters so far. Not a consistent snapshot: other threads may count while this adds the
/// numbers up.
pub fn snapshot() -> Snapshot {
    #[cfg(feature = "events")]
    return Snapshot(core::array::from_fn(|i| {
        SHARDS.iter().map(|s| s.0[i].load(Relaxed)).sum()
    }));
    #[cfg(not(feature = "events"))]
    Snapshot([0; Event::ALL.len()])
}

/// Adds `times` to the counter of `event`. `shard` is any number that differs between threads.
#[inline]
pub fn count(event: Event, times: u32, shard: impl FnOnce() -> u32) {
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

/// Aligned so that different shards never share a cache line.
#[cfg(feature = "events")]
#[repr(align(128))]
struct Shard([AtomicU64; Event::ALL.len()]);

#[cfg(feature = "events")]
static SHARDS: [Shard; 64] = [const { Shard([const { AtomicU64::new(0) }; Event::ALL.len()]) }; 64];
