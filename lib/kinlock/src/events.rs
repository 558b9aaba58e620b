//! Counters of what slow paths did, over all locks of the process.
//!
//! They exist with the feature `events` and count only while [switched on](set_enabled). With the
//! feature but switched off, a slow path pays one relaxed load per event. Fast paths never count.
//! Without the feature these functions remain, and all counts are 0.
//!
//! ```
//! use kinlock::events::{self, Event};
//!
//! events::set_enabled(true);
//! let before = events::snapshot();
//! // ... contended work ...
//! let done = events::snapshot().since(&before);
//! println!("{} waiters slept", done.get(Event::Park));
//! ```

#[doc(inline)]
pub use kinlock_core::events::{COMPILED_IN, Event, Snapshot, set_enabled, snapshot};
