//! SIGINT and SIGTERM end a run early: the first one asks for a report of what there is, a later one ends the process. What follows the first within [`TOGETHER`] belongs to it: `timeout` sends its signal to a process and then to its group, which is the same process again.
//!
//! | state   | set by                     | what it means for the round under way |
//! | ------- | -------------------------- | ------------------------------------- |
//! | `Going` | -                          | another one follows                   |
//! | `Asked` | the first signal           | it is the last one                    |
//! | `Over`  | [`GRACE`] after the signal | it is given up, and does not count    |
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. The handler does only what POSIX allows in one: it uses lock-free atomics and the calls `clock_gettime`, `signal` and `raise`; waking is one system call, which leaves `errno` alone.
//! 2. The C library reads and writes structures of signals only through the pointers it is given, and they point to live locals. For these, all zeros is a valid value.

use std::io::IsTerminal;
use std::sync::Once;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Duration;

use kinlock_core::Native;
use kinlock_core::platform::Platform;
use serde::{Serialize, Serializer};

use crate::output::tell;

/// What a round under way has to come to its end after the first signal. Rounds of the usual length make it, and nobody loses patience in that time.
const GRACE: Duration = Duration::from_secs(1);
/// So soon after the first signal nobody can have changed their mind: another one is the same wish again.
const TOGETHER: Duration = Duration::from_millis(300);

/// A signal that asks for an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT: somebody pressed Ctrl-C.
    Interrupt,
    /// SIGTERM: a supervisor, a time limit.
    Terminate,
}

impl Signal {
    const ALL: [Self; 2] = [Self::Interrupt, Self::Terminate];

    fn number(self) -> libc::c_int {
        match self {
            Self::Interrupt => libc::SIGINT,
            Self::Terminate => libc::SIGTERM,
        }
    }

    /// Its usual name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        }
    }

    /// The exit status that shells show for a process which it ended.
    pub fn exit_status(self) -> u8 {
        128 + self.number() as u8
    }
}

impl Serialize for Signal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Whether a run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nobody has asked for an end.
    Going,
    /// Somebody has: no round begins any more.
    Asked,
    /// The round under way has not come to its end in time.
    Over,
}

/// The number of the first signal; 0: none yet. A word to sleep on.
static NOTED: AtomicU32 = AtomicU32::new(0);
/// When it came, by the monotonic clock; 0: none yet. Written before [`NOTED`].
static CAME: AtomicU64 = AtomicU64::new(0);

/// From now on, signals are noted. One that is ignored, as SIGINT is in background jobs of scripts, stays so.
pub fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for signal in Signal::ALL {
            // SAFETY: invariants 1 and 2.
            unsafe {
                let mut before: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal.number(), std::ptr::null(), &mut before);
                if before.sa_sigaction == libc::SIG_IGN {
                    continue;
                }
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
                action.sa_flags = libc::SA_RESTART;
                libc::sigaction(signal.number(), &action, std::ptr::null_mut());
            }
        }
    });
}

extern "C" fn note(number: libc::c_int) {
    let now = Native::now().max(1);
    match CAME.compare_exchange(0, now, Relaxed, Relaxed) {
        Ok(_) => {
            // Pairs with the load in `noted`: whoever sees the signal sees when it came.
            NOTED.store(number as u32, Release);
            Native::unpark(NOTED.as_ptr(), u32::MAX);
        }
        Err(first) if now.saturating_sub(first) < TOGETHER.as_nanos() as u64 => {}
        // SAFETY: invariant 1. The signal is blocked here, so that it arrives when the handler returns.
        Err(_) => unsafe {
            libc::signal(number, libc::SIG_DFL);
            libc::raise(number);
        },
    }
}

/// The first signal, if there was one.
pub fn noted() -> Option<Signal> {
    // Pairs with the store in the handler.
    let number = NOTED.load(Acquire);
    let mut all = Signal::ALL.into_iter();
    all.find(|signal| signal.number() as u32 == number)
}

/// Whether the run goes on. To be called by the thread that times the slices.
pub fn state() -> State {
    match grace_left() {
        None => State::Going,
        Some(Duration::ZERO) => State::Over,
        Some(_) => State::Asked,
    }
}

/// Sleeps; at most until a round has to be given up.
pub fn pause(duration: Duration) {
    let until = Native::now().saturating_add(duration.as_nanos() as u64);
    // A wake-up between the look and falling asleep is not lost: the kernel compares the word again.
    while NOTED.load(Relaxed) == 0 {
        if Native::now() >= until {
            return;
        }
        Native::park(NOTED.as_ptr(), 0, until, || NOTED.load(Relaxed));
    }
    let grace = grace_left().unwrap_or_default();
    let left = Duration::from_nanos(until.saturating_sub(Native::now()));
    std::thread::sleep(left.min(grace));
}

/// What is left of [`GRACE`], if a signal came. Who looks first says so: the handler must not write.
fn grace_left() -> Option<Duration> {
    static TOLD: Once = Once::new();
    let signal = noted()?;
    TOLD.call_once(|| {
        // Over the progress bar, which draws itself again below.
        let clear = match std::io::stderr().is_terminal() {
            true => "\r\x1b[K",
            false => "",
        };
        let name = signal.name();
        tell(&format!(
            "{clear}kinlock: {name}: ending within about a second; again: at once"
        ));
    });
    let passed = Native::now().saturating_sub(CAME.load(Relaxed));
    Some(GRACE.saturating_sub(Duration::from_nanos(passed)))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn pauses_are_as_long_as_asked_for() {
        for nanos in [0, 1, 3_000_000] {
            let (begin, duration) = (Instant::now(), Duration::from_nanos(nanos));
            pause(duration);
            assert!(begin.elapsed() >= duration);
        }
        assert_eq!(state(), State::Going);
    }

    #[test]
    fn statuses_are_those_of_shells() {
        let statuses = Signal::ALL.map(|signal| (signal.name(), signal.exit_status()));
        assert_eq!(statuses, [("SIGINT", 130), ("SIGTERM", 143)]);
    }
}
