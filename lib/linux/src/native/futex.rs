//! Sleeping on four bytes (futex), and a fence for which only the rare side pays (membarrier).
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. The kernel only compares and hashes a futex key. If the key is not mapped, the call fails
//!    with EFAULT, and the caller checks its condition again. So keys need not be valid.
//! 2. `membarrier` takes numbers only.

use crate::environment::futex_alone;
use crate::native::clock::now;
use crate::sys::KeepErrno;
use core::sync::atomic::{AtomicBool, Ordering::*, fence};
#[cfg(not(miri))]
pub(super) use kernel::{requeue_but, wait, wait_until_realtime, wake, wake_some};
use kinlock_core::fence_calls::FenceCalls;
use kinlock_core::platform::Ticket;
#[cfg(miri)]
pub(super) use table::{requeue_but, wait, wait_until_realtime, wake, wake_some};

/// Whether the kernel has registered the process for `membarrier`.
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Registers the process for `membarrier`. Before `main` that is cheap. In a process with several
/// threads the kernel waits until each CPU has switched threads, which takes milliseconds.
pub(super) fn register_membarrier() {
    let registered = call(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    REGISTERED.store(registered, Relaxed);
}

/// The calls of `membarrier` that this copy of the library makes.
static FENCES: FenceCalls = FenceCalls::NONE;

/// Whether every running thread of the process has executed a full fence since the first call with
/// this ticket.
pub(super) fn heavy_fence(ticket: &mut Ticket) -> bool {
    if cfg!(miri) {
        // The light fence is a full one under Miri.
        fence(SeqCst);
        return true;
    }
    let membarrier = || call(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    REGISTERED.load(Relaxed) && FENCES.cover(ticket, now, membarrier)
}

// The bindings of the C library lack these two commands on some targets.
const PRIVATE_EXPEDITED_RSEQ: libc::c_int = 1 << 7;
const REGISTER_PRIVATE_EXPEDITED_RSEQ: libc::c_int = 1 << 8;

/// Prepares the process for [`restart_sequences`]. Returns `false` where the kernel refuses.
pub fn prepare_to_restart_sequences() -> bool {
    call(REGISTER_PRIVATE_EXPEDITED_RSEQ)
}

/// Makes every thread of the process restart the restartable sequence that it is in, or execute a
/// full barrier if it is in none.
///
/// Returns `false` if the kernel refuses. After [`prepare_to_restart_sequences`] has succeeded that
/// happens only if a filter of system calls has been installed since.
pub fn restart_sequences() -> bool {
    call(PRIVATE_EXPEDITED_RSEQ)
}

fn call(command: libc::c_int) -> bool {
    if cfg!(miri) || futex_alone() {
        return false;
    }
    let _errno = KeepErrno::hold();
    // SAFETY: invariant 2.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(not(miri))]
mod kernel {
    use crate::native::clock::now;
    use crate::sys::{KeepErrno, nap, system_call_error};
    use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use kinlock_core::platform::{EVERY_SET, NEVER, Parked};

    /// Whether the kernel lets threads sleep and wakes them: not asked yet, yes, or no.
    static SLEEP: AtomicU32 = AtomicU32::new(UNKNOWN);
    const UNKNOWN: u32 = 0;
    const ALLOWED: u32 = 1;
    const REFUSED: u32 = 2;

    /// How long a thread that must not sleep on a word leaves the CPU to others between two looks.
    const POLL_NS: u32 = 1_000_000;

    /// Whether threads may sleep on words. A filter of system calls may refuse one of the two
    /// operations, and without the one that wakes, nothing would end a sleep. The kernel is asked
    /// at the first sleep of the process. A filter that comes later is noticed when it refuses a
    /// call: from then on no thread falls asleep.
    fn may_sleep() -> bool {
        match SLEEP.load(Relaxed) {
            UNKNOWN => ask(),
            answer => answer == ALLOWED,
        }
    }

    #[cold]
    fn ask() -> bool {
        let _errno = KeepErrno::hold();
        let (word, private) = (0_u32, libc::FUTEX_PRIVATE_FLAG);
        let call = |operation: libc::c_int, argument: u32| {
            let none = core::ptr::null::<u32>();
            // SAFETY: invariant 1.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    &raw const word,
                    operation | private,
                    argument,
                    none,
                    none,
                    EVERY_SET,
                )
            }
        };
        // Nobody sleeps on this word, and it is not 1: both calls return at once.
        let wakes = call(libc::FUTEX_WAKE_BITSET, 1) == 0;
        let waits = call(libc::FUTEX_WAIT_BITSET, 1) < 0 && system_call_error() == libc::EAGAIN;
        let answer = if wakes && waits { ALLOWED } else { REFUSED };
        SLEEP.store(answer, Relaxed);
        answer == ALLOWED
    }

    /// Replaces a sleep if the kernel refuses it: leaves the CPU to others for a moment. To the
    /// caller this looks like a sleep that nobody ended, so that it checks its condition again.
    fn poll(nanos: u64, differs: bool) -> Parked {
        if differs {
            return Parked::Differed;
        }
        nap(nanos.min(POLL_NS.into()) as u32);
        Parked::Unwoken
    }

    /// Sleeps while the bytes at `key` equal `expected`, as a member of `sets`, until
    /// `CLOCK_MONOTONIC` shows `until`, in nanoseconds, or without a limit if that is [`NEVER`].
    pub(in crate::native) fn wait(
        key: *const u32,
        expected: u32,
        until: u64,
        sets: u32,
        current: impl Fn() -> u32,
    ) -> Parked {
        let limit = (until != NEVER).then_some(until);
        if may_sleep() {
            if let Some(parked) = wait_until(0, key, expected, limit, sets) {
                return parked;
            }
        }
        let left = limit.map_or(NEVER, |until| until.saturating_sub(now()));
        poll(left, current() != expected)
    }

    /// Like [`wait`], until `CLOCK_REALTIME` shows `until`, in nanoseconds since 1970. The kernel
    /// follows that clock if it is set during the sleep.
    pub(in crate::native) fn wait_until_realtime(
        key: *const u32,
        expected: u32,
        until: u64,
        sets: u32,
        current: impl Fn() -> u32,
    ) -> Parked {
        let clock = libc::FUTEX_CLOCK_REALTIME;
        let slept = may_sleep().then(|| wait_until(clock, key, expected, Some(until), sets));
        slept
            .flatten()
            .unwrap_or_else(|| poll(NEVER, current() != expected))
    }

    /// `clock` is 0 for the monotonic clock, or `FUTEX_CLOCK_REALTIME`. `until` is a moment on it:
    /// unlike `FUTEX_WAIT`, this operation takes no duration. `None`: the kernel refuses.
    fn wait_until(
        clock: libc::c_int,
        key: *const u32,
        expected: u32,
        until: Option<u64>,
        sets: u32,
    ) -> Option<Parked> {
        let until = until.map(|nanos| libc::timespec {
            tv_sec: (nanos / 1_000_000_000) as _,
            tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
        });
        let until = until
            .as_ref()
            .map_or(core::ptr::null(), |t| t as *const libc::timespec);
        let _errno = KeepErrno::hold();
        // SAFETY: invariant 1; `until` is null or points to a live timespec.
        let result = unsafe {
            libc::syscall(
                libc::SYS_futex,
                key,
                libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG | clock,
                expected,
                until,
                core::ptr::null::<u32>(),
                sets,
            )
        };
        match result {
            0 => Some(Parked::Woken),
            _ => match system_call_error() {
                libc::EAGAIN => Some(Parked::Differed),
                // The caller checks its condition and its time limit again.
                libc::ETIMEDOUT | libc::EINTR | libc::EFAULT => Some(Parked::Unwoken),
                _ => {
                    SLEEP.store(REFUSED, Relaxed);
                    None
                }
            },
        }
    }

    /// Wakes up to `n` threads that sleep at `key` in any of `sets`. Returns how many it woke.
    pub(in crate::native) fn wake(key: *const u32, n: u32, sets: u32) -> u32 {
        let _errno = KeepErrno::hold();
        // SAFETY: invariant 1.
        let woken = unsafe {
            libc::syscall(
                libc::SYS_futex,
                key,
                libc::FUTEX_WAKE_BITSET | libc::FUTEX_PRIVATE_FLAG,
                // The kernel's number is signed.
                n.min(i32::MAX as u32),
                core::ptr::null::<libc::timespec>(),
                core::ptr::null::<u32>(),
                sets,
            )
        };
        u32::try_from(woken).unwrap_or_else(|_| wake_otherwise(key))
    }

    /// Called when the kernel refuses to wake threads: wakes all threads that already sleep, by
    /// another operation. If the kernel refuses that one, too, nothing can wake them.
    #[cold]
    fn wake_otherwise(key: *const u32) -> u32 {
        if system_call_error() == libc::EFAULT {
            return 0;
        }
        SLEEP.store(REFUSED, Relaxed);
        let all = i32::MAX as usize;
        let woken = [libc::FUTEX_WAKE, libc::FUTEX_REQUEUE].map(|operation| {
            let operation = operation | libc::FUTEX_PRIVATE_FLAG;
            // SAFETY: invariant 1.
            let woken =
                unsafe { libc::syscall(libc::SYS_futex, key, operation, all, 0_usize, key) };
            u32::try_from(woken).unwrap_or(0)
        });
        woken[0] + woken[1]
    }

    /// Wakes up to `n` threads that sleep at `key`. Returns how many it woke, or `n + 1` if others
    /// are still asleep.
    pub(in crate::native) fn wake_some(key: *const u32, n: u32) -> u32 {
        let operation = libc::FUTEX_REQUEUE | libc::FUTEX_PRIVATE_FLAG;
        let _errno = KeepErrno::hold();
        // Requeueing one more sleeper to the same key has no effect but is counted.
        // SAFETY: invariant 1.
        let reached =
            unsafe { libc::syscall(libc::SYS_futex, key, operation, n as usize, 1_usize, key) };
        u32::try_from(reached).unwrap_or_else(|_| {
            // A sandbox refuses to requeue.
            let woken = wake(key, n, EVERY_SET);
            woken + u32::from(woken == n)
        })
    }

    /// Wakes `woken` of the sleepers at `from` and moves the others to `to`, if the bytes at `from`
    /// equal `expected`; otherwise wakes all. Returns how many it woke and how many it moved.
    pub(in crate::native) fn requeue_but(
        woken: u32,
        from: *const u32,
        expected: u32,
        to: *const u32,
        _: impl Fn() -> u32,
    ) -> (u32, u32) {
        const MOVE_ALL: usize = i32::MAX as usize;
        let operation = libc::FUTEX_CMP_REQUEUE | libc::FUTEX_PRIVATE_FLAG;
        let _errno = KeepErrno::hold();
        // SAFETY: invariant 1.
        let reached = unsafe {
            libc::syscall(
                libc::SYS_futex,
                from,
                operation,
                woken as usize,
                MOVE_ALL,
                to,
                expected,
            )
        };
        // The kernel returns the number of threads woken and moved.
        let Ok(reached) = u32::try_from(reached) else {
            // The bytes differ, or a sandbox refuses to requeue. No sleeper may be left behind.
            return (wake(from, u32::MAX, EVERY_SET), 0);
        };
        let woken = woken.min(reached);
        (woken, reached - woken)
    }
}

/// The same functions under Miri.
#[cfg(miri)]
mod table {
    use kinlock_core::platform::Parked;
    use kinlock_core::sleepers::Sleepers;

    static SLEEPERS: Sleepers = Sleepers::NONE;

    pub(in crate::native) fn wait(
        key: *const u32,
        expected: u32,
        until: u64,
        sets: u32,
        current: impl Fn() -> u32,
    ) -> Parked {
        let left = until.saturating_sub(crate::native::clock::now());
        SLEEPERS.park_for(key, expected, left, sets, current)
    }

    /// Nobody sets the clock under Miri.
    pub(in crate::native) fn wait_until_realtime(
        key: *const u32,
        expected: u32,
        until: u64,
        sets: u32,
        current: impl Fn() -> u32,
    ) -> Parked {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        let left = u128::from(until).saturating_sub(now.as_nanos());
        let left = u64::try_from(left).unwrap_or(u64::MAX);
        SLEEPERS.park_for(key, expected, left, sets, current)
    }

    pub(in crate::native) fn wake(key: *const u32, n: u32, sets: u32) -> u32 {
        SLEEPERS.unpark_in(key, n, sets)
    }

    pub(in crate::native) fn wake_some(key: *const u32, n: u32) -> u32 {
        SLEEPERS.unpark_some(key, n)
    }

    pub(in crate::native) fn requeue_but(
        woken: u32,
        from: *const u32,
        expected: u32,
        to: *const u32,
        current: impl Fn() -> u32,
    ) -> (u32, u32) {
        SLEEPERS.requeue_but(woken, from, expected, to, current)
    }
}
