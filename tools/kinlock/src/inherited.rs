//! The state that this process inherited. It is noted before Rust's runtime and the command change
//! it, so that a program that the command starts, or becomes, gets the original.
//!
//! The runtime ignores SIGPIPE and opens `/dev/null` where stdin, stdout or stderr is closed. The
//! command waits for children, which needs SIGCHLD not to be ignored, and `bench` and `compare`
//! handle the signals that end them.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. The numbers of signals and descriptors are valid or refused by the call, and descriptions and
//!    sets are live locals, for which all zeros is a valid value.
//! 2. A standard descriptor that was closed at the start is open now because the runtime opened
//!    `/dev/null` there, and nobody owns it.
//! 3. The arguments that the C library gives to an initialiser stay where they are, and are
//!    zero-terminated strings in writable memory. The process that overwrites them has one thread,
//!    which does not read them any more.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU64, Ordering::Relaxed};

/// Bit `n - 1`: signal `n` was ignored, or blocked.
static IGNORED: AtomicU64 = AtomicU64::new(0);
static BLOCKED: AtomicU64 = AtomicU64::new(0);
/// Bit `n`: descriptor `n` of stdin, stdout and stderr was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);
static COUNT: AtomicI32 = AtomicI32::new(0);
static WORDS: AtomicPtr<*mut c_char> = AtomicPtr::new(ptr::null_mut());

/// The largest number of a signal.
pub const LAST: c_int = 64;

extern "C" fn note(count: c_int, words: *mut *mut c_char) {
    // Other C libraries give an initialiser no arguments.
    if cfg!(target_env = "gnu") {
        COUNT.store(count, Relaxed);
        WORDS.store(words, Relaxed);
    }
    for signal in 1..=LAST {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: invariant 1.
        let action = unsafe {
            libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
            action.assume_init()
        };
        if action.sa_sigaction == libc::SIG_IGN {
            IGNORED.fetch_or(bit(signal), Relaxed);
        }
    }
    BLOCKED.store(bits(&block([])), Relaxed);
    for number in 0..3 {
        // SAFETY: invariant 1.
        if unsafe { libc::fcntl(number, libc::F_GETFD) } == -1 {
            CLOSED.fetch_or(1 << number, Relaxed);
        }
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn(c_int, *mut *mut c_char) = note;

/// The bit of a signal in a word that has a bit for each.
pub const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// The signals of a set, as bits.
pub fn bits(set: &libc::sigset_t) -> u64 {
    // SAFETY: invariant 1.
    let has = |&signal: &c_int| unsafe { libc::sigismember(set, signal) == 1 };
    (1..=LAST).filter(has).map(bit).sum()
}

/// A set of signals. Those that the C library uses itself are left out.
pub fn set_of(signals: impl IntoIterator<Item = c_int>) -> libc::sigset_t {
    let mut set = MaybeUninit::zeroed();
    // SAFETY: invariant 1.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Blocks these signals in addition. Returns the signals that were blocked before.
pub fn block(signals: impl IntoIterator<Item = c_int>) -> libc::sigset_t {
    let mut before = MaybeUninit::zeroed();
    // SAFETY: invariant 1.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &set_of(signals), before.as_mut_ptr());
        before.assume_init()
    }
}

/// Blocks these signals, and no others.
pub fn set_blocked(signals: &libc::sigset_t) {
    // SAFETY: invariant 1.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, signals, ptr::null_mut()) };
}

/// Whether a signal was neither ignored nor blocked when this process was started.
pub fn acts(signal: c_int) -> bool {
    (IGNORED.load(Relaxed) | BLOCKED.load(Relaxed)) & bit(signal) == 0
}

/// Stops ignoring SIGCHLD, if this process was started so: the statuses of its children would be
/// lost.
pub fn keep_statuses() {
    // SAFETY: invariant 1.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Puts everything back as it was, immediately before another program is executed. It only makes
/// system calls, so that it may be called between fork and exec.
pub fn restore() {
    restore_signals();
    for number in 0..3 {
        if CLOSED.load(Relaxed) & 1 << number != 0 {
            // SAFETY: invariant 2.
            unsafe { libc::close(number) };
        }
    }
}

/// Restores only the signals, for a program that is given other files.
pub fn restore_signals() {
    let (ignored, blocked) = (IGNORED.load(Relaxed), BLOCKED.load(Relaxed));
    for signal in 1..=LAST {
        let action = match ignored & bit(signal) {
            0 => libc::SIG_DFL,
            _ => libc::SIG_IGN,
        };
        // SAFETY: invariant 1.
        unsafe { libc::signal(signal, action) };
    }
    set_blocked(&set_of(
        (1..=LAST).filter(|&signal| blocked & bit(signal) != 0),
    ));
}

/// Empties the command line that others see of this process. It is a copy of the command, and must
/// not be mistaken for it by those who look for processes by name.
pub fn hide_arguments() {
    let words = WORDS.load(Relaxed);
    for at in 0..COUNT.load(Relaxed) as usize {
        // SAFETY: invariant 3.
        unsafe {
            let word = *words.add(at);
            ptr::write_bytes(word, 0, libc::strlen(word));
        }
    }
}
