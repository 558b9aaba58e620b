//! Running a program and staying behind, as if the command had become the program: the command ends
//! with the program's status and passes signals on to it, and the program inherits the command's
//! state.
//!
//! What a fork changes and an execution would not is restored: interval timers, pending signals,
//! the duty to adopt orphans, and variables that name a process. Three things differ: the number of
//! the process, its parent, and that it ends when the parent does.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. Sets of signals, descriptions and settings are live locals, which the C library fills, and
//!    for which all zeros is a valid value.
//! 2. Between fork and exec only system calls are made, with what was prepared before: nothing is
//!    allocated, and no lock is taken that another thread may have held.
//! 3. The child is not waited for before the last signal to it: until then its number is not
//!    reused. SIGCHLD is not ignored, so that nobody else takes its status.
//! 4. Descriptors that stay open over an execution were inherited: this command opens none. Nothing
//!    in it owns them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::process::{ExitStatusExt, parent_id};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::ptr;
use std::time::{Duration, Instant};

use kinlock_cli::outcome::{Outcome, tell};
use rustix::process::{Pid, getpgid, getpgrp};
use rustix::termios::{LocalModes, Termios, tcgetattr};

use super::image::Image;
use super::witness::{self, REAL_TIME, Witness, pending};
use crate::inherited::{self, LAST, bit, set_of};

/// After this time without a signal, a note says once how to get the report before the end.
const LONG: Duration = Duration::from_secs(10);
/// How much later than a signal to the command alone the same signal to the group may come, from a
/// process that has not waited for anything in between. `timeout` sends both, so that its program
/// gets one for certain.
const BOTH: Duration = Duration::from_millis(500);

/// What the command does besides waiting.
pub struct Duties<'a> {
    /// Called for each SIGUSR1 that is not meant for the program.
    pub on_request: Option<&'a mut dyn FnMut()>,
    /// Called with the number of the program's process when it has begun.
    pub on_start: Option<&'a mut dyn FnMut(u32)>,
    /// Whether to write a note about SIGUSR1 to stderr after some seconds.
    pub notes: bool,
    /// Descriptors that are needed at the end, besides stderr.
    pub keeps: Vec<i32>,
}

/// Starts a program and waits for its end. All signals stay blocked, so that none ends the command
/// before its work is done; the command then [ends](end_like).
pub fn run(image: &mut Image, mut duties: Duties) -> io::Result<ExitStatus> {
    let pending = block_signals();
    // There is no witness if no process can be made. Then only a terminal's signals are recognised.
    let witness = Witness::start().ok();
    let child = start(image, pending)?;
    let_go(&duties.keeps);
    if let Some(on_start) = &mut duties.on_start {
        on_start(child as u32);
    }
    let mut command = Waiting { child, witness };
    let mut left = duties.notes.then_some(LONG);
    loop {
        match take(&set_of(1..=LAST), left) {
            Some(signal) if signal.number == libc::SIGCHLD => {
                if let Some(status) = command.children() {
                    if let Some(witness) = command.witness {
                        witness.close();
                    }
                    return Ok(status);
                }
                if signal.sender.is_some() {
                    command.got(signal, &mut duties);
                }
            }
            Some(signal) => command.got(signal, &mut duties),
            None if left.take().is_some() && !is_full_screen() => tell(&format!(
                "kinlock: the report comes when the program ends; kill -USR1 {} shows it now",
                std::process::id()
            )),
            None => {}
        }
    }
}

struct Waiting {
    child: libc::pid_t,
    witness: Option<Witness>,
}

impl Waiting {
    /// Looks at children that ended or stopped. If this is the first process of a container, it
    /// also has orphans as children, and has to wait for them.
    fn children(&mut self) -> Option<ExitStatus> {
        loop {
            let mut status = 0;
            let flags = libc::WNOHANG | libc::WUNTRACED;
            // SAFETY: invariants 1 and 3.
            let pid = unsafe { libc::waitpid(-1, &mut status, flags) };
            if pid <= 0 {
                return None;
            }
            let is_stopped = libc::WIFSTOPPED(status);
            if pid == self.child && is_stopped {
                self.stop(libc::WSTOPSIG(status));
            } else if pid == self.child {
                return Some(ExitStatus::from_raw(status));
            } else if self.witness.as_ref().map(Witness::pid) == Some(pid) && !is_stopped {
                self.witness = None;
            }
        }
    }

    /// Stops as the program did, so that a shell sees its job stopped. Returns when the command is
    /// continued.
    fn stop(&mut self, signal: i32) {
        // A pending SIGCONT would be dropped when this process stops.
        if let Some(signal) = take_pending(libc::SIGCONT) {
            if self.is_for_program(&signal) {
                // SAFETY: invariant 3.
                unsafe { libc::kill(self.child, libc::SIGCONT) };
                return;
            }
            // A SIGCONT to the group may have come before the signal that stopped the program.
            if witness::state(self.child) != b'T' {
                return;
            }
        }
        if let Some(witness) = &mut self.witness {
            witness.watch(self.child);
        }
        // SAFETY: invariant 1; the signal is one that stops.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            let one = set_of([signal]);
            libc::kill(libc::getpid(), signal);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &one, ptr::null_mut());
            libc::pthread_sigmask(libc::SIG_BLOCK, &one, ptr::null_mut());
        }
        // The SIGCONT that continued the command also continues the program, before another signal
        // stops it again. If it went to the whole group, it has done so already.
        let signal = take_pending(libc::SIGCONT);
        if signal.is_some_and(|signal| self.is_for_program(&signal)) {
            // SAFETY: invariant 3.
            unsafe { libc::kill(self.child, libc::SIGCONT) };
        }
        if let Some(witness) = &mut self.witness {
            witness.catch_up();
        }
    }

    fn got(&mut self, signal: Signal, duties: &mut Duties) {
        // The program has signalled its parent, which should be the command's parent.
        if signal.sender == Some(self.child) {
            let parent = parent_id() as libc::pid_t;
            if !self.is_of_group(&signal) && parent > 0 {
                signal.send(parent);
            }
            return;
        }
        // The command has used up its CPU time. The program's is counted separately.
        if signal.number == libc::SIGXCPU && signal.sender.is_none() {
            return;
        }
        if !self.is_for_program(&signal) {
            return;
        }
        if let (libc::SIGUSR1, Some(show)) = (signal.number, &mut duties.on_request) {
            return show();
        }
        signal.send(self.child);
    }

    /// Whether the signal was sent to the command alone, and not by its witness.
    fn is_for_program(&mut self, signal: &Signal) -> bool {
        let witness = self.witness.as_ref().map(Witness::pid);
        (witness.is_none() || signal.sender != witness) && !self.is_of_group(signal)
    }

    /// Whether the signal went to the process group, and so to the program, too.
    fn is_of_group(&mut self, signal: &Signal) -> bool {
        let Some(witness) = &mut self.witness else {
            return signal.sender.is_none();
        };
        match witness.has_got(signal.number) {
            Some(true) => {
                signal.take_both();
                return true;
            }
            Some(false) if signal.may_be_of_own_group() => {}
            Some(false) => return false,
            // Without the witness only a terminal's signals are recognised.
            None => return signal.sender.is_none(),
        }
        // The sender may send the same signal to the group next.
        let begin = Instant::now();
        loop {
            let may_send_another = signal.sender.is_some_and(is_running);
            if witness.has_got(signal.number) == Some(true) {
                signal.take_both();
                return true;
            }
            if !may_send_another || begin.elapsed() > BOTH {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Starts the program with these pending signals.
fn start(image: &mut Image, pending: u64) -> io::Result<libc::pid_t> {
    let arrays = image.for_child();
    let (mut failure, tell_failure) = io::pipe()?;
    let mut is_subreaper = 0;
    // SAFETY: invariant 1.
    unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &mut is_subreaper) };
    let timers = TIMERS.map(|timer| {
        let (mut own, none) = (MaybeUninit::zeroed(), MaybeUninit::zeroed());
        // SAFETY: invariant 1.
        unsafe {
            libc::setitimer(timer, none.as_ptr(), own.as_mut_ptr());
            own.assume_init()
        }
    });
    let command = std::process::id() as libc::pid_t;
    // SAFETY: invariant 2.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: invariants 1 and 2.
        unsafe {
            // The program ends with the command, as if the command had become the program.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() != command {
                libc::_exit(1);
            }
            libc::prctl(libc::PR_SET_CHILD_SUBREAPER, is_subreaper);
            for (timer, time) in TIMERS.into_iter().zip(&timers) {
                libc::setitimer(timer, time, ptr::null_mut());
            }
            for signal in (1..=LAST).filter(|&signal| pending & bit(signal) != 0) {
                libc::kill(libc::getpid(), signal);
            }
        }
        inherited::restore();
        let error = arrays.exec().raw_os_error().unwrap_or(libc::ENOEXEC);
        // Writing fails if the command has ended.
        let _ = (&tell_failure).write_all(&error.to_ne_bytes());
        // SAFETY: no preconditions.
        unsafe { libc::_exit(127) };
    }
    if child == -1 {
        return Err(io::Error::last_os_error());
    }
    drop(tell_failure);
    let mut error = [0; 4];
    match failure.read_exact(&mut error) {
        // The pipe was closed by the execution, so the program runs.
        Err(_) => Ok(child),
        Ok(()) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(error))),
    }
}

const TIMERS: [libc::c_int; 3] = [libc::ITIMER_REAL, libc::ITIMER_VIRTUAL, libc::ITIMER_PROF];

/// Closes descriptors that only the program should have open: a peer has to learn when the program
/// closes a pipe, a socket or a terminal. Regular files stay open, because closing one would
/// release this process's locks on it, which the program would have if the command had become it.
fn let_go(keeps: &[i32]) {
    let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") else {
        return;
    };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let numbers: Vec<i32> = match fs::read_dir("/proc/self/fd") {
        Ok(open) => open.flatten().filter_map(number).collect(),
        // There is no /proc to list the descriptors. Few programs have more than this.
        Err(_) => (0..1024).collect(),
    };
    for number in numbers.into_iter().filter(|number| !keeps.contains(number)) {
        // SAFETY: invariants 1 and 4.
        unsafe {
            let flags = libc::fcntl(number, libc::F_GETFD);
            let mut data = MaybeUninit::<libc::stat>::zeroed();
            if flags == -1
                || flags & libc::FD_CLOEXEC != 0
                || libc::fstat(number, data.as_mut_ptr()) != 0
                || data.assume_init().st_mode & libc::S_IFMT == libc::S_IFREG
            {
                continue;
            }
            match number {
                0 | 1 => _ = libc::dup2(null.as_raw_fd(), number),
                2 => {}
                _ => _ = libc::close(number),
            }
        }
    }
}

/// Whether the program seems to draw on the terminal that stderr is, since the terminal is set to
/// give it single keys.
fn is_full_screen() -> bool {
    let Ok(terminal) = File::open("/dev/tty") else {
        return false;
    };
    let reads_keys = |terminal: Termios| !terminal.local_modes.contains(LocalModes::ICANON);
    io::stderr().is_terminal() && tcgetattr(&terminal).is_ok_and(reads_keys)
}

/// If a signal ended the program, ends the command by the same signal. Otherwise returns the
/// program's status. The first process of a container cannot be ended by its own signal: then the
/// status is the one that a shell reports.
pub fn end_like(status: ExitStatus) -> Outcome {
    if let Some(signal) = status.signal() {
        // SAFETY: invariant 1; the program has left the core, if any.
        unsafe {
            libc::prctl(libc::PR_SET_DUMPABLE, 0);
            libc::signal(signal, libc::SIG_DFL);
            libc::kill(libc::getpid(), signal);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &set_of([signal]), ptr::null_mut());
        }
    }
    let signal = || Some(128 + status.signal()?);
    Outcome::Program(status.code().or_else(signal).unwrap_or(1) as u8)
}

/// From now on, signals that end a program remove the folder and end the command, which may be held
/// up by an output that nobody reads or by much debugging information. Signals that have come so
/// far, or come at once, were also meant for the program.
pub fn may_be_ended(folder: PathBuf) {
    let end = move || {
        let ends = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];
        let ends = set_of(ends.into_iter().filter(|&signal| inherited::acts(signal)));
        std::thread::sleep(BOTH);
        while take(&ends, Some(Duration::ZERO)).is_some() {}
        let signal = loop {
            if let Some(signal) = take(&ends, None) {
                break signal;
            }
        };
        let _ = fs::remove_dir_all(folder);
        let outcome = end_like(ExitStatus::from_raw(signal.number));
        std::process::exit(outcome.exit_status().into());
    };
    // If no thread can be started, only this feature is missing.
    let _ = std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(end);
}

/// Whether a process is running or about to run.
fn is_running(pid: libc::pid_t) -> bool {
    matches!(witness::state(pid), b'R' | b'D')
}

struct Signal {
    number: i32,
    /// The process that sent it, if one did; 0 for a process that has no number here.
    sender: Option<libc::pid_t>,
    /// The value that was sent with it, by `sigqueue`.
    value: Option<libc::sigval>,
}

impl Signal {
    fn send(&self, to: libc::pid_t) {
        // SAFETY: no preconditions; `to` is the child, not waited for, or the parent.
        unsafe {
            match self.value {
                Some(value) => libc::sigqueue(to, self.number, value),
                None => libc::kill(to, self.number),
            }
        };
    }

    /// Also takes the signal to the group, if this one was sent to the command alone. Both count as
    /// one, as for a program that has not handled the first when the second comes.
    fn take_both(&self) {
        if self.number < REAL_TIME {
            witness::finish_sending();
            take_pending(self.number);
        }
    }

    /// Whether its sender is in the command's process group, or has ended. Always false for
    /// real-time signals, of which many may come.
    fn may_be_of_own_group(&self) -> bool {
        let Some(sender) = self.sender.filter(|&sender| sender > 0) else {
            return false;
        };
        let group = getpgid(Pid::from_raw(sender));
        self.number < REAL_TIME && group.map_or(true, |group| group == getpgrp())
    }
}

/// Blocks all signals: the command waits for them instead. Returns those that the command inherited
/// as pending and blocked; they are for the program.
fn block_signals() -> u64 {
    let pending = pending();
    inherited::block(1..=LAST);
    for signal in (1..=LAST).filter(|&signal| pending & bit(signal) != 0) {
        take_pending(signal);
    }
    pending
}

/// Takes one of these signals. `left` limits the wait.
fn take(signals: &libc::sigset_t, left: Option<Duration>) -> Option<Signal> {
    let left = left.map(|left| libc::timespec {
        tv_sec: left.as_secs() as _,
        tv_nsec: left.subsec_nanos().into(),
    });
    let left = left.as_ref().map_or(ptr::null(), ptr::from_ref);
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: invariant 1; a signal from a process has its number and, if queued, a value.
    unsafe {
        let number = libc::sigtimedwait(signals, info.as_mut_ptr(), left);
        let info = info.assume_init();
        (number > 0).then(|| Signal {
            number,
            sender: (info.si_code <= 0).then(|| info.si_pid()),
            value: (info.si_code == libc::SI_QUEUE).then(|| info.si_value()),
        })
    }
}

/// Takes one signal of this number that is pending, if there is one.
fn take_pending(signal: i32) -> Option<Signal> {
    take(&set_of([signal]), Some(Duration::ZERO))
}
