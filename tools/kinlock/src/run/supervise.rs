//! Running a program and staying behind, as if the command had become the program: its status is
//! the command's, signals to the command go to it, and it finds what the command was given.
//!
//! What a fork changes though an execution would not is put right: interval timers, pending
//! signals, the duty to adopt orphans, and variables that name a process. The number of the
//! process, its parent, and that the parent's end ends it are different.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. Sets of signals, descriptions and settings are live locals, which the C library fills, and
//!    for which all zeros is a valid value.
//! 2. Between fork and exec only system calls are made, with what was prepared before: nothing is
//!    allocated, and no lock is taken that another thread may have held.
//! 3. The child is not waited for before the last signal to it: until then its number is its own.
//!    SIGCHLD is not ignored, so that nobody else takes its status.
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

/// After how long without a signal it is said once how to have the report before the end.
const LONG: Duration = Duration::from_secs(10);
/// How long a signal to the group may come after the same one to the command alone, from a process
/// that has not waited for anything in between. `timeout` sends both, so that its program gets one
/// for certain.
const BOTH: Duration = Duration::from_millis(500);

/// What the command does beside waiting.
pub struct Duties<'a> {
    /// For each SIGUSR1 that is not the program's, and a note that it can be sent.
    pub on_request: Option<&'a mut dyn FnMut()>,
    /// Called with the number of the program when that has begun.
    pub on_start: Option<&'a mut dyn FnMut(u32)>,
    /// The note is written to stderr after some seconds.
    pub notes: bool,
    /// Descriptors that are needed at the end, besides stderr.
    pub keeps: Vec<i32>,
}

/// Starts a program and waits for its end. All signals stay blocked, so that none ends the command
/// before it has done what remains to be done; it then [ends](end_like).
pub fn run(image: &mut Image, mut duties: Duties) -> io::Result<ExitStatus> {
    let pending = block_signals();
    // Without a witness, if there is no room for a process, only a terminal's signals are known.
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
    /// Looks at children that ended or stopped. As the first process of a container it has children
    /// that others left behind, which have to be waited for.
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

    /// Stops as the program did, so that a shell sees its job stopped. Returns when it goes on.
    fn stop(&mut self, signal: i32) {
        // A SIGCONT that has come meanwhile would be dropped when this process stops.
        if let Some(signal) = take_pending(libc::SIGCONT) {
            if self.is_for_program(&signal) {
                // SAFETY: invariant 3.
                unsafe { libc::kill(self.child, libc::SIGCONT) };
                return;
            }
            // One to the group may have come before what stopped the program.
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
        // What has the command go on has the program go on, before another signal that stops takes
        // its place. One to the whole group has done that already.
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
        // From the program to its parent, which would be the command's.
        if signal.sender == Some(self.child) {
            let parent = parent_id() as libc::pid_t;
            if !self.is_of_group(&signal) && parent > 0 {
                signal.send(parent);
            }
            return;
        }
        // The command's own CPU time, of which the program has its own.
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

    /// Whether the signal came to the command alone, and not from its witness.
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
            // Only a terminal's signals are known.
            None => return signal.sender.is_none(),
        }
        // The same signal to the group may follow at once.
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

/// Starts the program. Its pending signals are these.
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
            // As when the command becomes the program: what ends one ends the other.
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
        // Nobody listens if the command has ended.
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
        // Closed by the execution.
        Err(_) => Ok(child),
        Ok(()) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(error))),
    }
}

const TIMERS: [libc::c_int; 3] = [libc::ITIMER_REAL, libc::ITIMER_VIRTUAL, libc::ITIMER_PROF];

/// Lets go of what only the program should have open: a peer learns of its closing a pipe, a socket
/// or a terminal. Regular files stay open, because closing one gives up the locks of this process
/// on it, which were the program's when the command became it.
fn let_go(keeps: &[i32]) {
    let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") else {
        return;
    };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let numbers: Vec<i32> = match fs::read_dir("/proc/self/fd") {
        Ok(open) => open.flatten().filter_map(number).collect(),
        // There is no /proc. Few programs have as many.
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

/// Whether the program seems to draw on the terminal that stderr is: it reads single keys.
fn is_full_screen() -> bool {
    let Ok(terminal) = File::open("/dev/tty") else {
        return false;
    };
    let reads_keys = |terminal: Termios| !terminal.local_modes.contains(LocalModes::ICANON);
    io::stderr().is_terminal() && tcgetattr(&terminal).is_ok_and(reads_keys)
}

/// Ends the command as the program ended, if a signal did that; else what its status is. The first
/// process of a container is not ended by its own signal: then it is the status that a shell has.
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

/// From now on signals that end a program end the command, which removes the folder before: an
/// output that nobody reads may hold it up, or much debugging information. What has come until now,
/// or comes at once, went to the program, too.
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
    // If there is no room for a thread, nothing is lost but this.
    let _ = std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(end);
}

/// Whether a process has something to do.
fn is_running(pid: libc::pid_t) -> bool {
    matches!(witness::state(pid), b'R' | b'D')
}

struct Signal {
    number: i32,
    /// The process that sent it, if one did; 0 for one that has no number here.
    sender: Option<libc::pid_t>,
    /// What came with it, by `sigqueue`.
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

    /// Takes the one to the group, too, if this is the one to the command alone: they count as one,
    /// as they do for a program that has not looked at the first before the second comes.
    fn take_both(&self) {
        if self.number < REAL_TIME {
            witness::finish_sending();
            take_pending(self.number);
        }
    }

    /// Whether its sender is in the command's process group, or has ended. Not asked for real-time
    /// signals, of which many may come.
    fn may_be_of_own_group(&self) -> bool {
        let Some(sender) = self.sender.filter(|&sender| sender > 0) else {
            return false;
        };
        let group = getpgid(Pid::from_raw(sender));
        self.number < REAL_TIME && group.map_or(true, |group| group == getpgrp())
    }
}

/// Blocks all signals, which are waited for. Returns those that the command was given as pending
/// and blocked, and that are the program's now.
fn block_signals() -> u64 {
    let pending = pending();
    inherited::block(1..=LAST);
    for signal in (1..=LAST).filter(|&signal| pending & bit(signal) != 0) {
        take_pending(signal);
    }
    pending
}

/// Takes one of these signals within that time, if it is limited.
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
