//! Asking the scheduler for more time while a thread holds a lock: time-slice extensions.
//!
//! Linux 7.0 and later, if built so, lets a thread say in its area for restartable sequences that
//! it must not lose its CPU now. If its time slice ends, the kernel grants a few microseconds (5 by
//! default). The thread gives the rest of them up by the system call `rseq_slice_yield`. If it does
//! not, or makes another system call, the kernel takes the CPU anyway.
//!
//! A thread has to enable this by `prctl`, once. The kernel refuses it where the area has the
//! original 32 bytes: glibc registers larger ones from 2.41 on. A child process inherits the
//! permission.
//!
//! Two bytes of the area are concerned, which only this thread and the kernel access:
//!
//! | `request`, `granted` | means | next |
//! | --- | --- | --- |
//! | 0, 0 | nothing is asked for, or the thread has lost its CPU since it asked | `extend` |
//! | 1, 0 | asked for | `end`; the kernel grants, or gives the CPU to another thread |
//! | 0, 1 | granted | `end`, which yields; the kernel takes the CPU, which clears both |
//!
//! A request that no `end` follows, since the unlock found no waiter, is granted once at most: the
//! kernel clears it with the grant, and whenever the thread has lost its CPU. The thread's next
//! wait ends it, too.
//!
//! A signal handler that takes locks may end the request of the code that it interrupts, or leave
//! its own request to that code. Nothing relies on a request.
//!
//! While the thread has a grant, any other system call gives the CPU up before it does its work. So
//! a holder that wakes a waiter by a system call wakes it only when it has its CPU again: without a
//! grant, the wake-up would be as late.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. A thread whose state is `Enabled` has an area of more than 32 bytes, registered by the C
//!    library at the same distance from each thread pointer for as long as the thread runs: the
//!    kernel has accepted `prctl` for it. The two bytes lie in it.
//! 2. The system calls take numbers only.

use crate::environment::futex_alone;
use crate::rseq;
use crate::sys::{KeepErrno, system_call_error};
use core::cell::Cell;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed, compiler_fence};

/// Why a thread cannot have its time slice extended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NoExtension {
    /// The kernel is older than Linux 7.0, or built without extensions.
    Kernel,
    /// The C library has registered no area, or one without room for a request. Or the kernel was
    /// started with `rseq_slice_ext=0`, for which it returns the same error.
    Library,
}

impl core::fmt::Display for NoExtension {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            NoExtension::Kernel => "the kernel has none: it is older than 7.0, or built without",
            NoExtension::Library => {
                "the C library's area is too small (glibc before 2.41), or rseq_slice_ext=0"
            }
        })
    }
}

impl core::error::Error for NoExtension {}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unknown,
    Enabled,
    Refused,
}

thread_local! {
    // Without destructors: accessible for as long as the thread runs.
    static STATE: Cell<State> = const { Cell::new(State::Unknown) };
}

/// Whether a thread has ever enabled extensions: as long as none has, threads need not look at
/// their state.
static EVER_ASKED: AtomicBool = AtomicBool::new(false);

/// See [`Place::extend_slice`](kinlock_core::platform::Place::extend_slice).
#[cold]
pub(super) fn extend() {
    if STATE.get() == State::Unknown {
        let enabled = enable();
        EVER_ASKED.fetch_or(enabled.is_ok(), Relaxed);
        STATE.set(enabled.map_or(State::Refused, |()| State::Enabled));
    }
    // Kernels that check for errors end a process that has set both bytes. The kernel grants
    // nothing unless asked, so the bytes that are checked here stay as they are.
    if STATE.get() == State::Enabled && !is(REQUEST) && !is(GRANTED) {
        set_request(1);
        // The critical section comes after the request.
        compiler_fence(SeqCst);
    }
}

/// See [`Place::end_slice`](kinlock_core::platform::Place::end_slice).
#[inline]
pub(super) fn end() {
    if EVER_ASKED.load(Relaxed) {
        end_own();
    }
}

#[cold]
fn end_own() {
    if STATE.get() != State::Enabled {
        return;
    }
    // The critical section comes before the end of the request.
    compiler_fence(SeqCst);
    set_request(0);
    // If the kernel takes the CPU here, the yield costs a system call and changes nothing.
    if is(GRANTED) {
        let _errno = KeepErrno::hold();
        // SAFETY: invariant 2.
        unsafe { libc::syscall(SYS_RSEQ_SLICE_YIELD) };
    }
}

/// Whether the kernel extends the calling thread's time slices, if asked.
///
/// # Errors
///
/// [`NoExtension`] says what is missing.
pub fn slice_extensions() -> Result<(), NoExtension> {
    has_area()?;
    let before = control(GET, 0);
    enable()?;
    if before == Ok(0) {
        let _ = control(SET, 0);
    }
    Ok(())
}

/// Enables extensions for the calling thread.
fn enable() -> Result<(), NoExtension> {
    has_area()?;
    match control(SET, ENABLE) {
        Ok(_) => Ok(()),
        Err(libc::ENXIO | ENOTSUPP) => Err(NoExtension::Library),
        Err(_) => Err(NoExtension::Kernel),
    }
}

/// Calls `prctl` and preserves `errno`. The preloaded library is linked without the C library's
/// function.
fn control(operation: libc::c_ulong, flags: libc::c_ulong) -> Result<libc::c_long, libc::c_int> {
    if futex_alone() {
        return Err(libc::EPERM);
    }
    let _errno = KeepErrno::hold();
    // SAFETY: invariant 2.
    let result = unsafe {
        libc::syscall(
            libc::SYS_prctl,
            PR_RSEQ_SLICE_EXTENSION,
            operation,
            flags,
            0_usize,
            0_usize,
        )
    };
    match result {
        -1 => Err(system_call_error()),
        answer => Ok(answer),
    }
}

fn has_area() -> Result<(), NoExtension> {
    match rseq::registered_cpu() {
        Some(_) if !cfg!(miri) => Ok(()),
        _ => Err(NoExtension::Library),
    }
}

const PR_RSEQ_SLICE_EXTENSION: libc::c_ulong = 79;
const GET: libc::c_ulong = 1;
const SET: libc::c_ulong = 2;
const ENABLE: libc::c_ulong = 1;
/// An error number of the kernel that C libraries do not name.
const ENOTSUPP: libc::c_int = 524;
/// The number is the same on all architectures.
const SYS_RSEQ_SLICE_YIELD: libc::c_long = 471;

/// Where the two bytes are in the area.
const REQUEST: isize = 28;
const GRANTED: isize = 29;

/// The address of a byte in the area. Only for a thread whose state is `Enabled`.
fn byte(at: isize) -> *mut u8 {
    let offset = rseq::registered_offset().unwrap_or_default();
    rseq::thread_pointer().wrapping_offset(offset + at)
}

fn set_request(value: u8) {
    // SAFETY: invariant 1. The kernel changes the byte only while this thread does not run.
    unsafe { byte(REQUEST).write_volatile(value) };
}

fn is(at: isize) -> bool {
    // SAFETY: invariant 1.
    unsafe { byte(at).read_volatile() != 0 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Holds on any kernel: the thread believes the kernel's answer.
    #[test]
    fn a_thread_asks_where_extensions_are_offered_and_nowhere_else() {
        let offered = slice_extensions();
        println!("{offered:?}");
        assert!(STATE.get() == State::Unknown, "asking changes nothing");
        extend();
        assert_eq!(STATE.get() == State::Enabled, offered.is_ok());
        assert_eq!(slice_extensions(), offered);
        end();
        assert!(offered.is_err() || !is(REQUEST));
    }
}
