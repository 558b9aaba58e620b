//! Running a function once: four bytes. The first thread runs the function, the others wait until
//! it has ended.
//!
//! # The word
//!
//! ```text
//!   bit 0, 1  New, Running, Done, Poisoned
//!   bit 2     SLEEPERS: a thread sleeps on the word
//! ```
//!
//! # Transitions
//!
//! | who | from | to | how |
//! | --- | --- | --- | --- |
//! | first thread begins | New | Running | compare-and-swap |
//! | ... after a panic, if forced | Poisoned | Running | compare-and-swap |
//! | its function returns | Running (+ SLEEPERS) | Done | swap, unpark all if a thread sleeps |
//! | its function panics | Running (+ SLEEPERS) | Poisoned | swap, unpark all if a thread sleeps |
//! | waiter falls asleep | Running | Running + SLEEPERS | compare-and-swap, then park |
//!
//! # Why no sleeper is forgotten
//!
//! A waiter sleeps only while the word is Running + SLEEPERS: the kernel compares. The thread that
//! ends this state does so by a swap, finds the flag, and wakes all sleepers. A waiter sets the
//! flag by a compare-and-swap from Running, so it does not overwrite the end.
//!
//! # Memory
//!
//! After its swap the thread that ran the function uses only the address of the word. A thread that
//! has seen the new state may free the memory.

use crate::events::Event;
use crate::platform::{Atomic, NEVER, Ordering::*, Platform, const_fn, zero};

// New: 0.
const RUNNING: u32 = 1;
const DONE: u32 = 2;
const POISONED: u32 = 3;
const STATE: u32 = 3;
const SLEEPERS: u32 = 4;

/// How long a waiter spins before it sleeps, in nanoseconds: about the cost of falling asleep and
/// being woken.
const SPIN_NS: u64 = 20_000;

/// How far the function has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnceState {
    /// No function has begun.
    New,
    /// A function has panicked, and no function has begun since.
    Poisoned,
    /// A thread is running a function.
    InProgress,
    /// A function has returned.
    Done,
}

impl OnceState {
    /// Whether a function has panicked, and no function has begun since.
    #[inline]
    pub fn poisoned(self) -> bool {
        self == OnceState::Poisoned
    }

    /// Whether a function has returned.
    #[inline]
    pub fn done(self) -> bool {
        self == OnceState::Done
    }
}

/// The error of a call after a function has panicked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Poisoned;

/// Runs a function once, generic over where it runs.
///
/// All-zero memory is a new `RunOnce`. It owns nothing outside its four bytes.
#[repr(transparent)]
#[derive(Debug)]
pub struct RunOnce<P: Platform> {
    word: P::AtomicU32,
}

impl<P: Platform> Default for RunOnce<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Platform> RunOnce<P> {
    const_fn! {
        /// A word for which no function has run.
        pub const fn new() -> Self {
            RunOnce { word: zero!() }
        }
    }

    /// How far the function has come. Acquires what the function did, if it has ended.
    #[inline]
    pub fn state(&self) -> OnceState {
        match self.word.load(Acquire) & STATE {
            DONE => OnceState::Done,
            RUNNING => OnceState::InProgress,
            POISONED => OnceState::Poisoned,
            _ => OnceState::New,
        }
    }

    /// Whether a function has returned. Acquires what that function did.
    #[inline]
    pub fn is_done(&self) -> bool {
        // Pairs with the swap in `end`.
        self.word.load(Acquire) == DONE
    }

    /// Runs `function`, unless a function has returned before. Waits if a function is running.
    ///
    /// After a function has panicked, `function` runs only with `force`; otherwise the result is
    /// `Err`. Its argument is the state before: [`OnceState::New`] or [`OnceState::Poisoned`].
    ///
    /// A function that calls this for the same word waits forever.
    #[inline]
    pub fn call(&self, force: bool, function: impl FnOnce(OnceState)) -> Result<(), Poisoned> {
        if self.is_done() {
            return Ok(());
        }
        let mut function = Some(function);
        let mut run = |state| {
            if let Some(function) = function.take() {
                function(state);
            }
        };
        self.call_slow(force, &mut run)
    }

    /// The rest of [`call`](Self::call). Not generic, so that a program contains it once.
    #[cold]
    #[inline(never)]
    fn call_slow(&self, force: bool, run: &mut dyn FnMut(OnceState)) -> Result<(), Poisoned> {
        let mut seen = self.word.load(Acquire);
        loop {
            seen = match seen & STATE {
                DONE => return Ok(()),
                POISONED if !force => return Err(Poisoned),
                RUNNING => self.wait(),
                // Acquire makes visible what a function did that has panicked.
                _ => match self.word.compare_exchange(seen, RUNNING, Acquire, Acquire) {
                    Ok(before) => {
                        self.run(before, run);
                        return Ok(());
                    }
                    Err(now) => now,
                },
            };
        }
    }

    fn run(&self, before: u32, run: &mut dyn FnMut(OnceState)) {
        let state = match before {
            POISONED => OnceState::Poisoned,
            _ => OnceState::New,
        };
        let ending = Ending(self);
        run(state);
        core::mem::forget(ending);
        self.end(DONE);
    }

    /// Called when the function has ended: publishes what it did, and wakes all waiters.
    fn end(&self, state: u32) {
        let before = self.word.swap(state, Release);
        if before & SLEEPERS != 0 {
            P::count(Event::Wake);
            P::unpark(self.key(), u32::MAX);
        }
    }

    /// Waits until the function has ended. May return early. Returns the word.
    fn wait(&self) -> u32 {
        // On an oversubscribed machine the function may need this CPU.
        let spin_ns = match P::CAN_PARK {
            true if P::oversubscribed() => 0,
            true => SPIN_NS,
            false => NEVER,
        };
        match P::wait_for(&self.word, Acquire, spin_ns, |w| w & STATE != RUNNING) {
            Ok(now) => now,
            Err(last) => self.sleep(last),
        }
    }

    /// Sleeps while the function runs. May return early. `seen` is the word before; returns the
    /// word after the sleep.
    fn sleep(&self, seen: u32) -> u32 {
        let asleep = RUNNING | SLEEPERS;
        // The function may have ended since the waiter saw the word.
        if seen == RUNNING {
            // Relaxed: this publishes nothing, and the caller looks again before it returns.
            let _ = self
                .word
                .compare_exchange(RUNNING, asleep, Relaxed, Relaxed);
        }
        if self.word.load(Relaxed) == asleep {
            P::count(Event::Park);
            P::park(self.key(), asleep, NEVER, || self.word.load(Relaxed));
        }
        self.word.load(Acquire)
    }

    /// The address at which waiters sleep.
    fn key(&self) -> *const u32 {
        (&raw const self.word).cast()
    }
}

/// Poisons the word when it is dropped by a panic.
struct Ending<'a, P: Platform>(&'a RunOnce<P>);

impl<P: Platform> Drop for Ending<'_, P> {
    fn drop(&mut self) {
        self.0.end(POISONED);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
