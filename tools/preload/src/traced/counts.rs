//! Counts of what the program did, on demand.
//!
//! They are kept in shards, so that counting does not itself become contention. A child of a fork
//! begins at zero.

use crate::environment;
use crate::mode::{self, Mode};
use crate::time::Limit;
use core::ffi::c_int;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};
use kinlock_core::Native;
use kinlock_core::platform::Platform;

unsafe extern "C" {
    safe fn kinlock_token() -> u32;
}

#[derive(Clone, Copy)]
enum Count {
    Calls,
    Locked,
    Contended,
    Tries,
    WaitNanos,
    Robust,
    Inherits,
    Protects,
    Shared,
    Waits,
    Signals,
    Reads,
    Writes,
}

const COUNTS: usize = Count::Writes as usize + 1;
const SHARDS: usize = 64;

#[repr(align(128))]
struct Shard([AtomicU64; COUNTS]);

static SHARDS_OF_ALL: [Shard; SHARDS] =
    [const { Shard([const { AtomicU64::new(0) }; COUNTS]) }; SHARDS];

/// How many threads have a token.
static THREADS: AtomicU32 = AtomicU32::new(0);
/// How many had one before the fork that made this process.
static FORMER: AtomicU32 = AtomicU32::new(0);
/// The process that counts: a child of `vfork` does not.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// A token for a thread. After 2^32 threads they repeat.
#[unsafe(no_mangle)]
extern "C" fn kinlock_new_token() -> u32 {
    loop {
        let token = THREADS.fetch_add(1, Relaxed).wrapping_add(1);
        if token != 0 {
            return token;
        }
    }
}

fn add(count: Count, n: u64) {
    let shard = &SHARDS_OF_ALL[kinlock_token() as usize % SHARDS];
    shard.0[count as usize].fetch_add(n, Relaxed);
}

// What the C library writes into the kinds of mutexes that are passed on.
const ROBUST: u32 = 0x10;
const INHERITS: u32 = 0x20;
const PROTECTS: u32 = 0x40;
pub(crate) const SHARED: u32 = 0x80;

/// A call. `passed` is the kind of a mutex that is passed on, otherwise 0.
#[inline]
pub(crate) fn call(mode: Mode, passed: impl FnOnce() -> u32) {
    if mode.counts() {
        add(Count::Calls, 1);
        count_passed(passed());
    }
}

/// By the first reason that applies, if any.
fn count_passed(kind: u32) {
    let reasons = [
        (ROBUST, Count::Robust),
        (INHERITS, Count::Inherits),
        (PROTECTS, Count::Protects),
        (SHARED, Count::Shared),
    ];
    let reason = reasons.iter().find(|(bit, _)| kind & bit != 0);
    // All bits are set in one that was destroyed.
    if let Some((_, count)) = reason.filter(|_| kind != u32::MAX) {
        add(*count, 1);
    }
}

/// An acquisition has ended.
pub(crate) fn acquisition(is_try: bool, waited: Option<u64>, result: c_int) {
    if is_try {
        add(Count::Tries, 1);
    }
    if let Some(nanos) = waited {
        add(Count::Contended, 1);
        add(Count::WaitNanos, nanos);
    }
    if is_taken(result) {
        add(Count::Locked, 1);
    }
}

/// How a reader-writer lock is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Takes a reader-writer lock, and counts that.
pub(crate) fn access(access: Access, limit: Limit, take: impl Fn(Limit) -> c_int) -> c_int {
    let is_try = matches!(limit, Limit::Now);
    let mut result = take(Limit::Now);
    let mut waited = None;
    if result == libc::EBUSY && !is_try {
        let since = Native::now();
        result = take(limit);
        // Not where a holder asks again.
        if is_taken(result) || result == libc::ETIMEDOUT {
            waited = Some(Native::now().saturating_sub(since));
        }
    }
    acquisition(is_try, waited, result);
    if is_taken(result) {
        let count = match access {
            Access::Read => Count::Reads,
            Access::Write => Count::Writes,
        };
        add(count, 1);
    }
    result
}

pub(crate) fn is_taken(result: c_int) -> bool {
    result == 0 || result == libc::EOWNERDEAD
}

pub(crate) fn wait(mode: Mode, passed: bool) {
    waits_or_signals(mode, Count::Waits, passed);
}

pub(crate) fn signal(mode: Mode, passed: bool) {
    waits_or_signals(mode, Count::Signals, passed);
}

fn waits_or_signals(mode: Mode, count: Count, passed: bool) {
    add(Count::Calls, 1);
    add(count, 1);
    if passed && !mode.passes() {
        add(Count::Shared, 1);
    }
}

/// This process counts from here on.
pub(crate) fn begin() {
    // SAFETY: `getpid` has no preconditions.
    PROCESS.store(unsafe { libc::getpid() }, Relaxed);
}

pub(crate) extern "C" fn begin_in_child() {
    begin();
    for count in SHARDS_OF_ALL.iter().flat_map(|shard| &shard.0) {
        count.store(0, Relaxed);
    }
    // The thread that forked keeps its token, if it has one.
    FORMER.store(THREADS.load(Relaxed).saturating_sub(1), Relaxed);
}

/// Appends the counts to their file.
pub(crate) fn write() {
    // SAFETY: `getpid` has no preconditions.
    let process = unsafe { libc::getpid() };
    if !mode::is_decided() || !mode::mode().counts() || process != PROCESS.load(Relaxed) {
        return;
    }
    // Once: the program may call `_exit` in a destructor.
    PROCESS.store(0, Relaxed);
    let mut line = Line {
        bytes: [0; 1024],
        length: 0,
    };
    // A line that is too long is cut off, which its 1024 bytes prevent.
    let _ = compose(&mut line, process);
    let path = environment::COUNTS_PATH.get();
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
    // By the system calls themselves: a thread can be cancelled in the C library's functions.
    // SAFETY: invariant 4; the path ends with a zero byte.
    unsafe {
        let errno: *mut c_int = libc::__errno_location();
        let kept = *errno;
        let file = libc::syscall(
            libc::SYS_openat,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            0o666,
        );
        match file {
            0.. => {
                libc::syscall(libc::SYS_write, file, line.bytes.as_ptr(), line.length);
                libc::syscall(libc::SYS_close, file);
            }
            _ => environment::write_stderr(b"kinlock: cannot open the file for the counts\n"),
        }
        *errno = kept;
    }
}

fn compose(line: &mut Line, process: libc::pid_t) -> fmt::Result {
    let sum = |count: Count| -> u64 {
        let each = SHARDS_OF_ALL.iter();
        each.map(|shard| shard.0[count as usize].load(Relaxed))
            .sum()
    };
    write!(line, "{{\"pid\":{process},\"program\":\"")?;
    for &byte in environment::program().iter().take(200) {
        match byte {
            b'"' | b'\\' => write!(line, "\\{}", byte as char)?,
            b' '..=b'~' => line.write_char(byte as char)?,
            _ => line.write_char('?')?,
        }
    }
    let lock = ["kinlock-mutex", "kinlock-spin", "pthread"][mode::mode().named_lock() as usize];
    write!(line, "\",\"lock\":\"{lock}\"")?;
    let numbers = [
        ("calls", Count::Calls),
        ("locked", Count::Locked),
        ("contended", Count::Contended),
        ("tries", Count::Tries),
        ("wait_ns", Count::WaitNanos),
    ];
    for (name, count) in numbers {
        write!(line, ",\"{name}\":{}", sum(count))?;
    }
    writeln!(
        line,
        ",\"passed\":{{\"robust\":{},\"pi\":{},\"protect\":{},\"shared\":{}}},\
         \"cond_waits\":{},\"cond_signals\":{},\"rw_reads\":{},\"rw_writes\":{},\"threads\":{}}}",
        sum(Count::Robust),
        sum(Count::Inherits),
        sum(Count::Protects),
        sum(Count::Shared),
        sum(Count::Waits),
        sum(Count::Signals),
        sum(Count::Reads),
        sum(Count::Writes),
        THREADS.load(Relaxed).wrapping_sub(FORMER.load(Relaxed)),
    )
}

/// Text in a fixed buffer.
struct Line {
    bytes: [u8; 1024],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        let free = self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?;
        free.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}
