//! Finding deadlocks: threads that wait for each other.
//!
//! With the feature `deadlock_detection`, threads note which locks they hold and which they wait
//! for. [`check_deadlock`] reads these notes and finds circles. It reports each once. A program
//! calls it now and then, such as in a thread of its own:
//!
//! ```no_run
//! # #[cfg(feature = "deadlock_detection")] {
//! use kinlock::deadlock::check_deadlock;
//!
//! std::thread::spawn(|| loop {
//!     std::thread::sleep(std::time::Duration::from_secs(10));
//!     for circle in check_deadlock() {
//!         for thread in circle {
//!             eprintln!("{:?} waits forever:\n{:?}", thread.thread_id(), thread.backtrace());
//!         }
//!     }
//! });
//! # }
//! ```
//!
//! # What it finds
//!
//! * **Locks**: [`Mutex`](crate::Mutex), also when a wait for a condition takes it again,
//!   [`FairMutex`](crate::FairMutex), [`ReentrantMutex`](crate::ReentrantMutex) and
//!   [`RwLock`](crate::RwLock), in any mix. Not [`SpinLock`](crate::SpinLock), nor waits for a
//!   condition or for a [`Once`](crate::Once): it is not known which thread ends them.
//! * **Circles**: a thread waits for all threads that hold the lock in a way that excludes its own.
//!   A thread that locks what it holds is a circle of one. A reader that waits while others read
//!   also waits for the writers that wait.
//! * **Confirmed**: a circle is reported if 50 ms later all its threads are in the same waits. A
//!   circle of mutexes and writers is then certain. A circle in which a reader waits for a waiting
//!   writer could still dissolve, if the reader has been let in but has had no CPU for all that
//!   time. Waits with a time limit are left out, as they end.
//!
//! # Costs
//!
//! Taking a lock and releasing it each take one more, uncontended lock. A thread that has waited
//! for 8 ms takes a backtrace and queues anew: a writer lets readers pass until then. A check takes
//! some 50 ms if there is a circle to confirm. Without the feature there is no cost.
//!
//! Signal handlers must not take locks with this feature.

// One of three modules notes acquisitions: `notes` with the feature, `debug` in debug builds
// without it, and otherwise `nothing`.
#[cfg(feature = "deadlock_detection")]
mod circles;
#[cfg(all(
    debug_assertions,
    feature = "std",
    not(feature = "send_guard"),
    not(feature = "deadlock_detection")
))]
mod debug;
#[cfg(feature = "deadlock_detection")]
mod notes;
#[cfg(not(any(
    feature = "deadlock_detection",
    all(debug_assertions, feature = "std", not(feature = "send_guard"))
)))]
mod nothing;

#[cfg(feature = "deadlock_detection")]
pub use circles::{DeadlockedThread, check_deadlock};
#[cfg(all(
    debug_assertions,
    feature = "std",
    not(feature = "send_guard"),
    not(feature = "deadlock_detection")
))]
pub(crate) use debug::{Acquiring, changed, forbid_relock, releasing, tried};
#[cfg(feature = "deadlock_detection")]
pub(crate) use notes::{Acquiring, changed, forbid_relock, releasing, tried};
#[cfg(not(any(
    feature = "deadlock_detection",
    all(debug_assertions, feature = "std", not(feature = "send_guard"))
)))]
pub(crate) use nothing::{Acquiring, changed, forbid_relock, releasing, tried};

/// How a thread holds a lock, or wants to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Mutex,
    Shared,
    Upgradable,
    Exclusive,
}

/// Takes a lock: waits until each moment that the [`Acquiring`] names, and finally without a limit.
/// If nothing is noted, only the last wait is left, with the instructions of its fast path. This is
/// a macro, so that the calling function takes the lock itself instead of passing a closure.
macro_rules! acquire {
    ($acquiring:expr, $until:ident, $limited:expr, $blocking:expr) => {{
        let mut acquiring = $acquiring;
        loop {
            match acquiring.next_limit() {
                kinlock_core::platform::NEVER => break $blocking,
                $until if $limited => break,
                _ => {}
            }
        }
        acquiring.end();
    }};
}
pub(crate) use acquire;
