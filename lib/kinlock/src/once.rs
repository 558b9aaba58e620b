//! Running a function once: [`Once`], with [`OnceState`].
//!
//! # Guarantees
//!
//! * **Once**: of all functions that are passed to one `Once`, one returns. No other begins after
//!   that, and no two run at the same time. A call returns when the function has returned,
//!   whichever it was.
//! * **Memory order**: what the function did happens before every call returns, and before a
//!   [`state`](Once::state) that says [`Done`](OnceState::Done).
//! * **Poisoning**: a function that panics poisons the `Once`.
//!   [`call_once`](Once::call_once) then panics, and
//!   [`call_once_force`](Once::call_once_force) runs its function.
//!
//! # Costs
//!
//! A call after the function has returned costs one load. A thread that waits for the function
//! spins for 20 us and then sleeps; while more threads wait than there are CPUs it sleeps at once.
//! Each of `n` sleepers makes a system call, and the end of the function wakes all of them by one,
//! which takes O(n) in the kernel. Four bytes; all-zero memory is a new `Once`. Nothing is ever
//! allocated.
//!
//! # Misuse and special cases
//!
//! * **Recursion**: a function that calls the same `Once` waits forever.
//! * **Lifetime**: references ensure that it outlives the calls. Through `unsafe` code it may be
//!   freed as soon as no other call waits and its end has been seen, by a call or a
//!   [`state`](Once::state): the thread that ran the function then uses its address only.
//! * **fork**: in the child, a function that another thread ran never ends.
//!
//! # Algorithm
//!
//! A word of four states and a flag for sleepers, as in std's and parking_lot's `Once`.
//! `kinlock_core::raw::once` has the state table.
//!
//! # Example
//!
//! ```
//! use kinlock::Once;
//!
//! static STARTED: Once = Once::new();
//!
//! STARTED.call_once(|| println!("started"));
//! STARTED.call_once(|| unreachable!("it has been called"));
//! assert!(STARTED.state().done());
//! ```

use crate::machine::Native;
use core::fmt;
#[doc(inline)]
pub use kinlock_core::raw::once::OnceState;
use kinlock_core::raw::once::RunOnce;

/// Runs a function once. It is `Send`, `Sync` and `RefUnwindSafe`. See the [module](self) for
/// semantics.
#[repr(transparent)]
#[derive(Default)]
pub struct Once(RunOnce<Native>);

const _: () = assert!(size_of::<Once>() == 4 && align_of::<Once>() == 4);

impl Once {
    /// A `Once` of which no function has begun. All-zero memory is such a `Once`, too.
    pub const fn new() -> Self {
        Once(RunOnce::new())
    }

    /// What has become of the function. Acquires what it did, if it has ended. O(1).
    ///
    /// ```
    /// use kinlock::{Once, OnceState};
    ///
    /// let once = Once::new();
    /// assert_eq!(once.state(), OnceState::New);
    /// once.call_once(|| assert_eq!(once.state(), OnceState::InProgress));
    /// assert!(once.state().done() && !once.state().poisoned());
    /// ```
    #[inline]
    pub fn state(&self) -> OnceState {
        self.0.state()
    }

    /// Runs `function`, unless one has returned. Waits for one that is running.
    ///
    /// # Panics
    ///
    /// If an earlier function has panicked.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    ///
    /// let (once, runs) = (kinlock::Once::new(), AtomicU32::new(0));
    /// std::thread::scope(|s| {
    ///     for _ in 0..3 {
    ///         s.spawn(|| {
    ///             once.call_once(|| _ = runs.fetch_add(1, Relaxed));
    ///             assert_eq!(runs.load(Relaxed), 1);
    ///         });
    ///     }
    /// });
    /// ```
    #[inline]
    #[track_caller]
    pub fn call_once(&self, function: impl FnOnce()) {
        if self.0.call(false, |_| function()).is_err() {
            panic!("a function has panicked that this Once ran");
        }
    }

    /// Like [`call_once`](Self::call_once), but also runs `function` if an earlier one has
    /// panicked. The argument tells whether one has: [`OnceState::New`] or [`OnceState::Poisoned`].
    ///
    /// ```
    /// use kinlock::Once;
    ///
    /// let once = Once::new();
    /// let panics = std::panic::AssertUnwindSafe(|| once.call_once(|| panic!("the disk is full")));
    /// assert!(std::panic::catch_unwind(panics).is_err());
    /// once.call_once_force(|state| assert!(state.poisoned()));
    /// assert!(once.state().done());
    /// ```
    #[inline]
    pub fn call_once_force(&self, function: impl FnOnce(OnceState)) {
        // Never `Err`: a forced call ignores poison.
        let _ = self.0.call(true, function);
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once")
            .field("state", &self.state())
            .finish()
    }
}
