//! One run of a program, in a process group of its own, so that it can be ended as a whole.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. The C library writes only through the pointers it is given, which point to live locals for
//!    which all zeros is a valid value.
//! 2. Between fork and exec only mere system calls are made, with numbers.
//!
//! Only this module waits for the child, and only after the last signal to it: until then the
//! kernel cannot give its number to another process.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use kinlock_cli::outcome::Failure;
use kinlock_measure::interrupt::{self, State};
use rustix::io::retry_on_intr;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process_group, set_parent_process_death_signal, waitid,
};
use serde::Serialize;

use crate::inherited;
use crate::run::program::{CANNOT_RUN, Program};
use crate::run::variables::Variable;

/// The interval at which a wait checks for a signal.
const LOOK: Duration = Duration::from_millis(50);
/// How long a program may take to end after SIGTERM before it gets SIGKILL.
const MERCY: Duration = Duration::from_secs(1);

/// A run that no signal to this command has ended.
pub struct Run {
    pub status: ExitStatus,
    pub usage: Usage,
    pub output: Output,
    /// Whether it was killed because it would have waited for the terminal.
    pub needs_terminal: bool,
}

/// The resources that a run used.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Usage {
    pub wall_s: f64,
    pub user_s: f64,
    pub system_s: f64,
    /// Peak memory. Unknown if this command's peak is as high, since the kernel's count begins with
    /// that.
    pub peak_kib: Option<u64>,
    /// Context switches because a thread waited, and because another was due.
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
}

impl Usage {
    pub fn cpu_s(&self) -> f64 {
        self.user_s + self.system_s
    }

    pub fn switches(&self) -> u64 {
        self.voluntary_switches + self.involuntary_switches
    }
}

impl Run {
    /// Returns the run, or an error if it failed. The message names what ran, and at which place of
    /// the session.
    pub fn succeeded(mut self, what: &str, place: &str) -> Result<Self, Failure> {
        match self.status.success() {
            true => Ok(self),
            false if self.needs_terminal => Err(self.output.failure(
                place,
                &format!(
                    "{what} wants to use the terminal, which it does not have in a \
                    comparison: give it what it asks for in its arguments or a file"
                ),
            )),
            false => Err(self
                .output
                .failure(place, &format!("{what} ended with {}", self.status))),
        }
    }

    /// The exit status, or 128 and the signal that ended it.
    pub fn shell_status(&self) -> i32 {
        let signal = || Some(128 + self.status.signal()?);
        self.status.code().or_else(signal).unwrap_or(-1)
    }
}

/// What a run wrote to stdout and stderr.
pub struct Output(File);

impl Output {
    pub fn text(&mut self) -> String {
        let mut bytes = Vec::new();
        // Output that cannot be read counts as not printed.
        let _ = self
            .0
            .rewind()
            .and_then(|()| self.0.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The failure of a run, whose output is kept in a file.
    pub fn failure(&mut self, place: &str, what: &str) -> Failure {
        let kept = match self.keep() {
            Ok(path) => format!("its output is in {path}"),
            Err(error) => format!("its output could not be kept: {error}"),
        };
        Failure {
            status: 1,
            what: format!("{place}: {what}; {kept}"),
        }
    }

    fn keep(&mut self) -> io::Result<String> {
        let builder = tempfile::Builder::new()
            .prefix("kinlock-compare-")
            .tempfile();
        let (mut file, path) = builder?.keep()?;
        self.0.rewind()?;
        io::copy(&mut self.0, &mut file)?;
        file.flush()?;
        Ok(path.display().to_string())
    }
}

/// Runs a program once with these variables and this input; `None` if a signal to this command
/// ended it.
pub fn run(
    program: &Program,
    variables: &[Variable],
    input: Option<&Path>,
) -> anyhow::Result<Option<Run>> {
    let output = tempfile::tempfile().context("cannot make a file for what is printed")?;
    let mut command = program.command();
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    let input = match input {
        // Opened anew, so that each run reads the file from its beginning.
        Some(path) => self::input(path)?.into(),
        None => Stdio::null(),
    };
    command.stdin(input).process_group(0);
    command
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?);
    let end_with_parent = || {
        inherited::restore_signals();
        Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
    };
    // SAFETY: invariant 2.
    unsafe { command.pre_exec(end_with_parent) };
    let mut own = no_usage();
    // SAFETY: invariant 1.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut own) };
    let begin = Instant::now();
    let child = command.spawn().map_err(|error| Failure {
        status: CANNOT_RUN,
        what: format!("{}: cannot be run: {error}", program.name()),
    })?;
    let pid = Pid::from_child(&child);
    let (end, is_given_up, needs_terminal) = wait(pid);
    let (status, usage) = reap(pid).context("cannot wait for the program")?;
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let usage = Usage {
        wall_s: (end - begin).as_secs_f64(),
        user_s: seconds(usage.ru_utime),
        system_s: seconds(usage.ru_stime),
        peak_kib: (usage.ru_maxrss > own.ru_maxrss).then_some(usage.ru_maxrss as u64),
        voluntary_switches: usage.ru_nvcsw as u64,
        involuntary_switches: usage.ru_nivcsw as u64,
    };
    Ok((!is_given_up).then_some(Run {
        status,
        usage,
        output: Output(output),
        needs_terminal,
    }))
}

/// Opens the file that programs read on stdin.
///
/// # Errors
/// If it cannot be read again in each run.
pub fn input(path: &Path) -> anyhow::Result<File> {
    let cannot = || format!("--input {}", path.display());
    let kind = fs::metadata(path).with_context(cannot)?.file_type();
    if !kind.is_file() && !kind.is_char_device() {
        bail!("{}: only a file can be read anew in each run", cannot());
    }
    File::open(path).with_context(cannot)
}

/// Waits for the child. Returns when it ended, whether a signal to this command was the cause, and
/// whether the cause was that it would have waited forever for the terminal, in whose foreground it
/// is not. A thread waits for the child, so that both its end and signals are seen at once.
fn wait(pid: Pid) -> (Instant, bool, bool) {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        loop {
            let change = change(pid);
            let is_over = matches!(change, Change::Ended(_));
            // Sending fails if the command is about to end.
            if sender.send(change).is_err() || is_over {
                return;
            }
        }
    });
    let mut asked_at = None;
    let mut needs_terminal = false;
    loop {
        match receiver.recv_timeout(LOOK) {
            Ok(Change::Ended(end)) => return (end, asked_at.is_some(), needs_terminal),
            Ok(Change::WantsTerminal) => {
                needs_terminal = true;
                let _ = kill_process_group(pid, Signal::KILL);
            }
            Err(RecvTimeoutError::Disconnected) => return (Instant::now(), true, needs_terminal),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let signal = match asked_at {
            None if interrupt::state() == State::Over => Signal::TERM,
            Some(at) if Instant::now() - at > MERCY => Signal::KILL,
            _ => continue,
        };
        asked_at.get_or_insert_with(Instant::now);
        // This fails if the child has just ended.
        let _ = kill_process_group(pid, signal);
    }
}

/// A change of a child's state.
enum Change {
    Ended(Instant),
    /// The child was stopped because it read from the terminal, or changed the terminal's settings.
    WantsTerminal,
}

/// Waits for the next change. A child that has ended still has to be waited for afterwards.
fn change(pid: Pid) -> Change {
    let options = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
    loop {
        let status = retry_on_intr(|| waitid(WaitId::Pid(pid), options));
        let signal = match status {
            Ok(Some(status)) if status.stopped() => status.stopping_signal(),
            _ => return Change::Ended(Instant::now()),
        };
        // Consumes the notice of the stop, and nothing else.
        let _ = waitid(
            WaitId::Pid(pid),
            WaitIdOptions::STOPPED | WaitIdOptions::NOHANG,
        );
        if signal.is_some_and(|signal| [libc::SIGTTIN, libc::SIGTTOU].contains(&signal)) {
            return Change::WantsTerminal;
        }
    }
}

/// Waits for an ended child. Returns its status, and the resources that it and the children it
/// waited for used.
fn reap(pid: Pid) -> io::Result<(ExitStatus, libc::rusage)> {
    let (mut status, mut usage) = (0, no_usage());
    let pid = pid.as_raw_pid();
    loop {
        // SAFETY: invariant 1.
        if unsafe { libc::wait4(pid, &mut status, 0, &mut usage) } == pid {
            return Ok((ExitStatus::from_raw(status), usage));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn no_usage() -> libc::rusage {
    // SAFETY: invariant 1.
    unsafe { std::mem::zeroed() }
}
