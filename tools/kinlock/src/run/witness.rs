//! Whether a signal was sent to the process group as a whole, or to the command alone.
//!
//! A program that the command waits for is in the command's process group. A signal to the group
//! (from a terminal, from `timeout`, from a service manager that signals each process) has reached
//! the program already, and must not be passed on; one to the command alone is meant for the
//! program. The receiver of a signal cannot tell these apart. So there is another process in the
//! group, the witness, with all signals blocked: a signal that it has received, too, went to the
//! group.
//!
//! The witness does one more thing: while the command is stopped because its program is, it
//! continues the command when the program goes on.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. Sets and descriptions of signals are live locals for which all zeros is a valid value.
//! 2. The new process makes system calls, allocates nothing, and takes no lock that a thread of the
//!    command may have held.
//! 3. Descriptors belong to the witness, which is a process of its own: nothing else in it uses
//!    them.
//! 4. The witness is not waited for before it is closed: until then its number is its own.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::ptr;

use crate::inherited::{self, LAST, bit, bits, set_of};

/// The kernel's first real-time signal. Real-time signals are queued: one sent thrice comes thrice.
pub const REAL_TIME: i32 = 32;
/// The interval at which the witness checks whether a stopped program goes on.
const LOOK_MS: i32 = 50;
/// How long the witness may take to answer. It may be stopped.
const PATIENCE_MS: i32 = 1000;

/// How many of each signal have come since the last question, by the signal's number.
type Answer = [u32; LAST as usize + 1];

pub struct Witness {
    pid: libc::pid_t,
    questions: PipeWriter,
    answers: PipeReader,
    /// Signals to the group that the command has not taken yet.
    ahead: Answer,
    is_broken: bool,
}

impl Witness {
    /// Starts the witness. All signals have to be blocked.
    pub fn start() -> io::Result<Self> {
        let (asked, questions) = io::pipe()?;
        let (answers, told) = io::pipe()?;
        // SAFETY: no preconditions.
        let command = unsafe { libc::getpid() };
        // SAFETY: invariant 2.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => live(command, asked.as_raw_fd(), told.as_raw_fd()),
            pid => Ok(Witness {
                pid,
                questions,
                answers,
                ahead: [0; LAST as usize + 1],
                is_broken: false,
            }),
        }
    }

    pub fn pid(&self) -> libc::pid_t {
        self.pid
    }

    /// Whether a signal that the command has just taken went to its process group; or whether the
    /// group has since got one that cancels it, so that it must not be passed on in any case.
    /// `None`: the witness does not answer.
    pub fn has_got(&mut self, signal: i32) -> Option<bool> {
        let mut before = pending();
        loop {
            let (answer, here) = self.gather(bit(signal))?;
            let is_ahead = self.ahead[signal as usize] > 0;
            // A signal that the witness has seen may have been dropped here since, by one that it
            // has not seen yet. And SIGSTOP drops a SIGCONT without being seen: if the witness got
            // both while it looked, it has seen nothing, but the signals pending here have changed.
            let has_seen = has_any(&answer, cancels(signal)) || before != here;
            if is_ahead || has_any(&self.ahead, cancels(signal)) || !has_seen {
                break;
            }
            before = here;
        }
        let is_cancelled = has_any(&self.ahead, cancels(signal));
        let ahead = &mut self.ahead[signal as usize];
        let is_ahead = *ahead > 0;
        *ahead = match signal < REAL_TIME {
            // For the command, too, several of them are one.
            true => 0,
            false => *ahead - u32::from(is_ahead),
        };
        Some(is_ahead || is_cancelled)
    }

    /// Forgets signals that the command has not taken and that are no longer pending there: they
    /// have stopped the command, or were dropped. Ends [`watch`](Self::watch), too.
    pub fn catch_up(&mut self) {
        self.gather(0);
    }

    /// Asks which signals the group has got since the last time. Returns them, and the signals that
    /// are pending here.
    fn gather(&mut self, taken: u64) -> Option<(Answer, u64)> {
        let answer = self.ask()?;
        // After this call, all signals that the witness has got have arrived here, too.
        finish_sending();
        let here = pending();
        self.add(&answer, here | taken);
        Some((answer, here))
    }

    /// Adds the signals that the group has got since the last time.
    ///
    /// A signal that the group got and the command has not taken is pending in the command, unless
    /// the kernel dropped it: a stop signal drops SIGCONT, and SIGCONT drops stop signals, whether
    /// they went to the group or to the command alone. The witness may have taken such a signal
    /// before it was dropped. If it were kept here, a later signal to the command alone would be
    /// taken for it.
    fn add(&mut self, answer: &Answer, pending: u64) {
        for number in 1..=LAST {
            let ahead = &mut self.ahead[number as usize];
            *ahead = match pending & bit(number) {
                0 => 0,
                _ => ahead.saturating_add(answer[number as usize]),
            };
        }
    }

    fn ask(&mut self) -> Option<Answer> {
        if self.is_broken {
            return None;
        }
        // After this call, the witness has each signal to the group that the command has.
        finish_sending();
        let answer = self.exchange();
        self.is_broken = answer.is_none();
        answer
    }

    fn exchange(&mut self) -> Option<Answer> {
        self.questions.write_all(b"?").ok()?;
        let answers = self.answers.as_raw_fd();
        if !is_readable(answers, PATIENCE_MS) {
            // SIGSTOP to the group has stopped the witness, and SIGCONT to the command alone has
            // not continued it; or this process was stopped while it waited.
            if state(self.pid) == b'T' {
                // SAFETY: invariant 4.
                unsafe { libc::kill(self.pid, libc::SIGCONT) };
            }
            if !is_readable(answers, PATIENCE_MS) {
                return None;
            }
        }
        let mut answer = [[0; 4]; LAST as usize + 1];
        self.answers.read_exact(answer.as_flattened_mut()).ok()?;
        Some(answer.map(u32::from_ne_bytes))
    }

    /// Called when the command is about to stop because that process did. The witness continues the
    /// command by SIGCONT when that process goes on.
    pub fn watch(&mut self, pid: libc::pid_t) {
        let watch = [&b"!"[..], &pid.to_ne_bytes()].concat();
        self.is_broken |= self.questions.write_all(&watch).is_err();
    }

    pub fn close(self) {
        let pid = self.pid;
        // SAFETY: invariant 4. SIGKILL, since the witness may be stopped, and has nothing to clean
        // up.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        // SAFETY: invariant 4.
        while unsafe { libc::waitpid(pid, ptr::null_mut(), 0) } == -1
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
}

/// Waits until each signal to a group has reached all of its processes: the kernel sends such a
/// signal while it holds a lock that this call takes.
pub fn finish_sending() {
    // SAFETY: no preconditions; it changes nothing, whether it succeeds or not.
    unsafe { libc::setpgid(0, libc::getpgrp()) };
}

fn is_readable(descriptor: i32, limit_ms: i32) -> bool {
    let mut one = libc::pollfd {
        fd: descriptor,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the array has one element, a live local.
    unsafe { libc::poll(&mut one, 1, limit_ms) == 1 }
}

/// The main loop of the witness. It ends with the command, whose end of the pipe then closes.
fn live(command: libc::pid_t, asked: i32, told: i32) -> ! {
    inherited::hide_arguments();
    // SAFETY: invariant 3, and the strings live forever. No file or folder of the command's is kept
    // in use: a reader of the program's output has to see its end.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"signal-witness".as_ptr());
        // A stopped witness would not notice the command's end.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != command {
            end();
        }
        libc::chdir(c"/".as_ptr());
        let asked = libc::fcntl(asked, libc::F_DUPFD, 3);
        let told = libc::fcntl(told, libc::F_DUPFD, 3);
        libc::dup2(asked, 0);
        libc::dup2(told, 1);
        // Linux before 5.9 has no such call. There a reader of the program's output has to wait for
        // the command's end.
        libc::syscall(libc::SYS_close_range, 2, u32::MAX, 0);
    }
    loop {
        let mut word = [0; 1];
        if !read_all(&mut word) {
            end();
        }
        match word {
            [b'?'] => {
                let answer = take_all();
                // SAFETY: invariant 3; the array is a live local. A short write is not split.
                unsafe { libc::write(1, answer.as_ptr().cast(), size_of_val(&answer)) };
            }
            _ => {
                let mut pid = [0; 4];
                if !read_all(&mut pid) {
                    end();
                }
                watch(command, libc::pid_t::from_ne_bytes(pid));
            }
        }
    }
}

fn end() -> ! {
    // SAFETY: no preconditions.
    unsafe { libc::_exit(0) }
}

fn read_all(bytes: &mut [u8]) -> bool {
    // SAFETY: invariant 3; the bytes are borrowed for the call. Bytes that were written by one call
    // are read by one call.
    let read = unsafe { libc::read(0, bytes.as_mut_ptr().cast(), bytes.len()) };
    read == bytes.len() as isize
}

/// Takes and counts all pending signals, except for SIGCONT from the command.
fn take_all() -> Answer {
    let mut answer: Answer = [0; LAST as usize + 1];
    let none = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let all = set_of(1..=LAST);
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    loop {
        // SAFETY: invariant 1; a signal from a process has its number.
        let (signal, is_from_command) = unsafe {
            let signal = libc::sigtimedwait(&all, info.as_mut_ptr(), &none);
            let info = info.assume_init();
            let from_process = signal == libc::SIGCONT && info.si_code <= 0;
            (signal, from_process && info.si_pid() == libc::getppid())
        };
        match answer.get_mut(signal as usize) {
            Some(count) => *count = count.saturating_add(u32::from(!is_from_command)),
            None => return answer,
        }
    }
}

/// Continues the command, which has stopped or is about to, when the process is no longer stopped.
/// Ends when the command asks something.
fn watch(command: libc::pid_t, pid: libc::pid_t) {
    while !is_readable(0, LOOK_MS) {
        // `t` means stopped by a debugger.
        if !matches!(state(pid), b'T' | b't') && state(command) == b'T' {
            // SAFETY: the command is alive: it has not closed the pipe.
            unsafe { libc::kill(command, libc::SIGCONT) };
        }
    }
}

/// The state of a process, as `/proc` has it; 0 if there is none.
pub fn state(pid: libc::pid_t) -> u8 {
    let (mut path, mut text) = ([0; 32], [0; 512]);
    // The path is short, and zeros follow it.
    let _ = write!(&mut path[..], "/proc/{pid}/stat");
    // SAFETY: invariant 3; the path ends with a zero, and the text is a live local.
    let length = unsafe {
        let file = libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
        let length = libc::read(file, text.as_mut_ptr().cast(), text.len());
        libc::close(file);
        length
    };
    let text = &text[..length.max(0) as usize];
    // The name, in parentheses, may have any characters in it.
    let name_end = text.iter().rposition(|&byte| byte == b')');
    name_end.map_or(0, |end| text.get(end + 2).copied().unwrap_or(0))
}

/// The stop signals that can be blocked.
const STOPS: u64 = bit(libc::SIGTSTP) | bit(libc::SIGTTIN) | bit(libc::SIGTTOU);

/// The signals that make the kernel drop this one if it is pending.
fn cancels(signal: i32) -> u64 {
    match bit(signal) {
        one if one & STOPS != 0 => bit(libc::SIGCONT),
        _ if signal == libc::SIGCONT => STOPS,
        _ => 0,
    }
}

/// Whether any of `signals` is in the answer.
fn has_any(among: &Answer, signals: u64) -> bool {
    (1..=LAST).any(|number| signals & bit(number) != 0 && among[number as usize] > 0)
}

pub fn pending() -> u64 {
    let mut pending = MaybeUninit::zeroed();
    // SAFETY: invariant 1.
    unsafe {
        libc::sigpending(pending.as_mut_ptr());
        bits(&pending.assume_init())
    }
}
