//! Counts of what the program's calls did, for `compare`: one line of JSON per process.
//!
//! The counts are kept in shards, so that counting does not become a source of contention itself.
//! A child of a fork begins at zero.

use super::is_taken;
use super::report::Object;
use crate::environment;
use crate::mode::{self, Mode};
use crate::thread::{token, tokens};
use core::ffi::c_int;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};
use kinlock_linux::sys::{KeepErrno, Text};
use kinlock_report::RWLOCK;

/// What is counted. [`compose`] has the names in the line.
#[derive(Clone, Copy)]
pub(crate) enum Count {
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

/// How many threads had a token before the fork that made this process.
static TOKENS_BEFORE_FORK: AtomicU32 = AtomicU32::new(0);
/// The process whose counts these are. A child of `vfork` shares the memory and must not write
/// them.
static PROCESS: AtomicI32 = AtomicI32::new(0);

fn add(count: Count, n: u64) {
    let shard = &SHARDS_OF_ALL[token() as usize % SHARDS];
    shard.0[count as usize].fetch_add(n, Relaxed);
}

// Bits that the C library sets in the kinds of mutexes that are delegated to it.
const ROBUST: u32 = 0x10;
const INHERITS: u32 = 0x20;
const PROTECTS: u32 = 0x40;
pub(crate) const SHARED: u32 = 0x80;

/// Counts a call. `delegated_kind` returns the kind of a delegated object, or 0.
#[inline]
pub(crate) fn call(mode: Mode, delegated_kind: impl FnOnce() -> u32) {
    if mode.counts() {
        add(Count::Calls, 1);
        count_reason(delegated_kind());
    }
}

/// Counts why an object is delegated: by the first reason that applies, if any does.
fn count_reason(kind: u32) {
    let reasons = [
        (ROBUST, Count::Robust),
        (INHERITS, Count::Inherits),
        (PROTECTS, Count::Protects),
        (SHARED, Count::Shared),
    ];
    let reason = reasons.iter().find(|(bit, _)| kind & bit != 0);
    // A destroyed mutex has all bits set, and is none of these.
    if let Some((_, count)) = reason.filter(|_| kind != u32::MAX) {
        add(*count, 1);
    }
}

/// Counts an acquisition that has ended with `result`, after a wait of `waited` nanoseconds.
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

/// Counts which side of a reader-writer lock was taken, if it is one.
pub(crate) fn side(object: Object<'_>) {
    match object.is_reading() {
        true => add(Count::Reads, 1),
        false if object.kind == RWLOCK => add(Count::Writes, 1),
        false => {}
    }
}

/// Counts a wait for a condition variable, or a notification ([`Count::Waits`],
/// [`Count::Signals`]). `is_delegated`: the condition variable, or the mutex of the wait, is the C
/// library's.
pub(crate) fn condvar(mode: Mode, count: Count, is_delegated: bool) {
    if !mode.counts() {
        return;
    }
    add(Count::Calls, 1);
    add(count, 1);
    // If the mode delegates all objects, the reason is not that this one is shared.
    if is_delegated && !mode.delegates() {
        add(Count::Shared, 1);
    }
}

/// The calling process begins to count.
pub(crate) fn begin() {
    // SAFETY: invariant 6.
    PROCESS.store(unsafe { libc::getpid() }, Relaxed);
}

pub(crate) extern "C" fn begin_in_child() {
    begin();
    for count in SHARDS_OF_ALL.iter().flat_map(|shard| &shard.0) {
        count.store(0, Relaxed);
    }
    // The thread that forked lives on and keeps its token, so it is not subtracted.
    TOKENS_BEFORE_FORK.store(tokens().saturating_sub(1), Relaxed);
}

/// Appends the counts to their file.
pub(crate) fn write() {
    let Some(mode) = mode::chosen().filter(|mode| mode.counts()) else {
        return;
    };
    // SAFETY: invariant 6.
    let process = unsafe { libc::getpid() };
    if process != PROCESS.load(Relaxed) {
        return;
    }
    // Written only once: the program may call `_exit` in a destructor.
    PROCESS.store(0, Relaxed);
    // The longest line fits.
    let mut line = Text::<1024>::empty();
    let _ = compose(&mut line, process, mode);
    let line = line.as_bytes();
    let path = environment::COUNTS_PATH.address();
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
    // By plain system calls: the C library's functions are cancellation points.
    let _kept = KeepErrno::hold();
    // SAFETY: invariant 4; the path ends with a zero byte.
    unsafe {
        let file = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, 0o666);
        match file {
            0.. => {
                libc::syscall(libc::SYS_write, file, line.as_ptr(), line.len());
                libc::syscall(libc::SYS_close, file);
            }
            _ => environment::write_stderr(b"kinlock: cannot open the file for the counts\n"),
        }
    }
}

fn compose(line: &mut impl Write, process: libc::pid_t, mode: Mode) -> fmt::Result {
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
    let lock = ["kinlock-mutex", "kinlock-spin", "pthread"][mode.lock_number() as usize];
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
        tokens().wrapping_sub(TOKENS_BEFORE_FORK.load(Relaxed)),
    )
}
