//! Running a program and staying behind, as if the command had become the program: its status is
//! the command's, and signals to the command go to it.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. Sets of signals and their descriptions are live locals, which the C library fills.
//! 2. Between fork and exec only system calls are made, with numbers and a set copied before.
//! 3. The child is not waited for before the last signal to it: until then its number is its own.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::ptr;
use std::time::{Duration, Instant};

use crate::outcome::tell;

/// Signals that are passed on.
const PASSED: [i32; 6] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR2,
    libc::SIGALRM,
];

/// When a program is long.
const LONG: Duration = Duration::from_secs(10);

/// What is said once of a long program: how to have the report before its end.
struct Note {
    is_told: bool,
}

impl Note {
    /// How long it is until the note is due; `None` if it has been told.
    fn left(&self, elapsed: Duration) -> Option<Duration> {
        (!self.is_told).then(|| LONG.saturating_sub(elapsed))
    }

    /// Whether it is to be told now.
    fn is_due(&mut self, elapsed: Duration) -> bool {
        let is_due = self.left(elapsed) == Some(Duration::ZERO);
        self.is_told |= is_due;
        is_due
    }
}

/// Starts a program and waits for its end. `asked` is called for each SIGUSR1.
pub fn run(command: &mut Command, mut asked: impl FnMut()) -> io::Result<ExitStatus> {
    let mut signals = Signals::block();
    let before = signals.before;
    let begin_child = move || {
        // SAFETY: invariants 1 and 2.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
            // As when the command becomes the program: what ends one ends the other.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        }
        Ok(())
    };
    // SAFETY: invariant 2.
    unsafe { command.pre_exec(begin_child) };
    let mut child = command.spawn()?;
    let begin = Instant::now();
    let mut note = Note { is_told: false };
    loop {
        match signals.next(note.left(begin.elapsed())) {
            Some((libc::SIGCHLD, _)) => {
                if let Some(status) = child.try_wait()? {
                    signals.unblock();
                    return Ok(status);
                }
            }
            Some((libc::SIGUSR1, _)) => asked(),
            Some((signal, true)) => pass_on(&child, signal),
            // Of the terminal, which has sent it to the program, too.
            Some((_, false)) => {}
            None if note.is_due(begin.elapsed()) => {
                tell(&format!(
                    "kinlock: the report comes when the program ends; kill -USR1 {} shows it now",
                    std::process::id()
                ));
            }
            None => {}
        }
    }
}

fn pass_on(child: &Child, signal: i32) {
    // SAFETY: invariant 3.
    unsafe { libc::kill(child.id() as libc::pid_t, signal) };
}

/// Ends the command as the program ended, if a signal did that.
pub fn end_like(status: ExitStatus) {
    let Some(signal) = status.signal() else {
        return;
    };
    // SAFETY: invariant 1; the program has left the core, if any.
    unsafe {
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// The signals that are waited for.
struct Signals {
    waited: libc::sigset_t,
    before: libc::sigset_t,
}

impl Signals {
    fn block() -> Self {
        let mut waited = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: invariant 1.
        unsafe {
            libc::sigemptyset(waited.as_mut_ptr());
            for signal in PASSED.into_iter().chain([libc::SIGUSR1, libc::SIGCHLD]) {
                libc::sigaddset(waited.as_mut_ptr(), signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, waited.as_ptr(), before.as_mut_ptr());
            Signals {
                waited: waited.assume_init(),
                before: before.assume_init(),
            }
        }
    }

    /// The next one within that time, if it is limited, and whether a process sent it.
    fn next(&mut self, left: Option<Duration>) -> Option<(i32, bool)> {
        let left = left.map(|left| libc::timespec {
            tv_sec: left.as_secs() as libc::time_t,
            tv_nsec: left.subsec_nanos().into(),
        });
        let left = left.as_ref().map_or(ptr::null(), ptr::from_ref);
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: invariant 1.
        unsafe {
            let signal = libc::sigtimedwait(&self.waited, info.as_mut_ptr(), left);
            (signal > 0).then(|| (signal, info.assume_init().si_code <= 0))
        }
    }

    fn unblock(&self) {
        // SAFETY: invariant 1.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_program_is_told_of_once() {
        let seconds = Duration::from_secs_f64;
        let mut note = Note { is_told: false };
        assert_eq!(note.left(seconds(2.5)), Some(seconds(7.5)));
        // Another signal may end the wait before.
        assert!(!note.is_due(seconds(9.9)));
        assert!(note.is_due(seconds(10.1)));
        assert!(!note.is_due(seconds(10.2)));
        // Then the wait is for signals alone.
        assert_eq!(note.left(seconds(10.2)), None);
    }

    #[test]
    fn the_note_is_due_at_once_when_it_is_late() {
        let mut note = Note { is_told: false };
        let late = LONG + Duration::from_secs(5);
        assert_eq!(note.left(late), Some(Duration::ZERO));
        assert!(note.is_due(late));
    }
}
