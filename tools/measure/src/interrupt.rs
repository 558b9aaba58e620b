//! SIGINT, SIGTERM, SIGHUP and SIGQUIT end a run early. The round under way has [`GRACE`] to
//! complete and is given up after that. A later signal ends the process at once, unless it follows
//! the first within [`TOGETHER`]: `timeout` sends its signal to the process and then to its group.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. The handler only uses lock-free atomics, `clock_gettime`, `signal` and `raise`, all of which
//!    POSIX allows in a handler.
//! 2. The C library reads and writes `sigaction` structures only through the pointers it is given,
//!    which point to live locals or are null. All zeros is a valid value.

use std::io::{IsTerminal, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::*};
use std::time::Duration;

use kinlock_core::platform::Platform;
use kinlock_linux::Native;

use serde::Serialize;

/// A signal that asks for an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[repr(i32)]
pub enum Signal {
    /// Ctrl-C.
    #[serde(rename = "SIGINT")]
    Interrupt = libc::SIGINT,
    /// Sent by a supervisor or a time limit.
    #[serde(rename = "SIGTERM")]
    Terminate = libc::SIGTERM,
    /// The terminal or the connection is gone.
    #[serde(rename = "SIGHUP")]
    HangUp = libc::SIGHUP,
    /// Ctrl-\.
    #[serde(rename = "SIGQUIT")]
    Quit = libc::SIGQUIT,
}

impl Signal {
    pub const ALL: [Self; 4] = [Self::Interrupt, Self::Terminate, Self::HangUp, Self::Quit];

    pub fn number(self) -> i32 {
        self as i32
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::HangUp => "SIGHUP",
            Self::Quit => "SIGQUIT",
        }
    }
}

/// How long the round under way may go on after the first signal. Most rounds are shorter.
const GRACE: Duration = Duration::from_secs(1);
/// A second signal within this time belongs to the first.
const TOGETHER: Duration = Duration::from_millis(300);
/// The interval at which a pause checks for a signal.
const LOOK: Duration = Duration::from_millis(20);

/// Whether a run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No signal came.
    Going,
    /// A signal came: the round under way is the last one.
    Asked,
    /// [`GRACE`] has passed: the round under way does not count.
    Over,
}

/// The first signal; 0: none yet. Written after [`CAME`].
static NOTED: AtomicI32 = AtomicI32::new(0);
/// When it came, in nanoseconds of the monotonic clock; 0: none yet.
static CAME: AtomicU64 = AtomicU64::new(0);

/// Installs the handlers. A signal that is ignored, as SIGINT is in background jobs of scripts and
/// SIGHUP under `nohup`, stays so.
pub fn listen() {
    for signal in Signal::ALL {
        // SAFETY: invariants 1 and 2.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal.number(), std::ptr::null(), &mut action);
            if action.sa_sigaction != libc::SIG_IGN {
                action.sa_sigaction = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
                action.sa_flags = libc::SA_RESTART;
                libc::sigaction(signal.number(), &action, std::ptr::null_mut());
            }
        }
    }
}

/// Restores the default action of the signals that [`listen`] has changed.
pub fn listen_no_more() {
    for signal in Signal::ALL {
        // SAFETY: invariant 2.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal.number(), std::ptr::null(), &mut action);
            if action.sa_sigaction == note as extern "C" fn(libc::c_int) as libc::sighandler_t {
                libc::signal(signal.number(), libc::SIG_DFL);
            }
        }
    }
}

extern "C" fn note(number: libc::c_int) {
    let now = Native::now().max(1);
    match CAME.compare_exchange(0, now, Relaxed, Relaxed) {
        // Pairs with the load in `noted`.
        Ok(_) => NOTED.store(number, Release),
        Err(first) if now.saturating_sub(first) < TOGETHER.as_nanos() as u64 => {}
        // SAFETY: invariant 1. The signal is blocked here and arrives when the handler returns.
        Err(_) => unsafe {
            libc::signal(number, libc::SIG_DFL);
            libc::raise(number);
        },
    }
}

/// The first signal, if one came.
pub fn noted() -> Option<Signal> {
    let number = NOTED.load(Acquire);
    Signal::ALL
        .into_iter()
        .find(|signal| signal.number() == number)
}

/// Whether the run goes on. The first call after a signal says on stderr what follows.
pub fn state() -> State {
    static TOLD: Once = Once::new();
    let Some(signal) = noted() else {
        return State::Going;
    };
    TOLD.call_once(|| {
        // Clears the progress bar's line; the bar draws itself again below.
        let is_terminal = std::io::stderr().is_terminal();
        let clear = if is_terminal { "\r\x1b[K" } else { "" };
        let name = signal.name();
        // A closed stderr is no error.
        let _ = writeln!(
            std::io::stderr(),
            "{clear}kinlock: {name}: ending within about a second; again: at once"
        );
    });
    match Native::now().saturating_sub(CAME.load(Relaxed)) >= GRACE.as_nanos() as u64 {
        true => State::Over,
        false => State::Asked,
    }
}

/// Sleeps, but not beyond the end of the run.
pub fn pause(duration: Duration) {
    let until = Native::now().saturating_add(duration.as_nanos() as u64);
    loop {
        let left = Duration::from_nanos(until.saturating_sub(Native::now()));
        if left.is_zero() || state() == State::Over {
            return;
        }
        std::thread::sleep(left.min(LOOK));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn pauses_are_as_long_as_asked_for() {
        for nanos in [0, 1, 3_000_000, 50_000_000] {
            let (begin, duration) = (Instant::now(), Duration::from_nanos(nanos));
            pause(duration);
            assert!(begin.elapsed() >= duration);
        }
        assert_eq!(state(), State::Going);
    }
}
