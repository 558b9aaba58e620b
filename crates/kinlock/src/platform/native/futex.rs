//! Sleeping on four bytes, and a fence that only the rare side pays for.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. The kernel only compares and hashes a futex key. If the key is not mapped the call fails with EFAULT, which is
//!    treated like being woken. So no validity is required of keys.
//! 2. `membarrier` takes numbers only.
//! 3. `__errno_location` returns the address of the calling thread's errno, valid while it runs.

#[cfg(not(miri))]
pub(super) use kernel::{membarrier, requeue, wait, wake};
#[cfg(miri)]
pub(super) use table::{membarrier, requeue, wait, wake};

#[cfg(not(miri))]
mod kernel {
    use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

    /// Sleeps while the bytes at `key` equal `expected`, for `timeout` nanoseconds at most.
    pub(in super::super) fn wait(
        key: *const u32,
        expected: u32,
        timeout: Option<u64>,
        _: impl Fn() -> u32,
    ) {
        let timeout = timeout.map(|nanos| libc::timespec {
            tv_sec: (nanos / 1_000_000_000) as libc::time_t,
            tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
        });
        let timeout = timeout
            .as_ref()
            .map_or(core::ptr::null(), |t| t as *const libc::timespec);
        // SAFETY: invariant 1; `timeout` is null or points to a live timespec.
        keep_errno(|| unsafe {
            libc::syscall(
                libc::SYS_futex,
                key,
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                expected,
                timeout,
            );
        });
    }

    /// Wakes up to `n` threads that sleep at `key`.
    pub(in super::super) fn wake(key: *const u32, n: u32) {
        // SAFETY: invariant 1.
        keep_errno(|| unsafe {
            libc::syscall(
                libc::SYS_futex,
                key,
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                n,
            );
        });
    }

    /// Moves the sleepers at `from` to `to` if the bytes at `from` equal `expected`.
    pub(in super::super) fn requeue(from: *const u32, expected: u32, to: *const u32) {
        const WAKE_NONE: usize = 0;
        const MOVE_ALL: usize = i32::MAX as usize;
        let operation = libc::FUTEX_CMP_REQUEUE | libc::FUTEX_PRIVATE_FLAG;
        let mut moved = -1;
        // SAFETY: invariant 1.
        keep_errno(|| unsafe {
            moved = libc::syscall(
                libc::SYS_futex,
                from,
                operation,
                WAKE_NONE,
                MOVE_ALL,
                to,
                expected,
            );
        });
        if moved < 0 {
            // The bytes differ, and nobody sleeps there; or a sandbox knows no requeueing, and they must not sleep on.
            wake(from, i32::MAX as u32);
        }
    }

    /// Makes every running thread of the process execute a full fence. `false` if the kernel will not.
    pub(in super::super) fn membarrier() -> bool {
        const UNKNOWN: u8 = 0;
        const REGISTERED: u8 = 1;
        const REFUSED: u8 = 2;
        static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

        let mut state = STATE.load(Relaxed);
        if state == UNKNOWN {
            let registered = call(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
            state = if registered { REGISTERED } else { REFUSED };
            STATE.store(state, Relaxed);
        }
        if state == REGISTERED && call(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
            return true;
        }
        core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
        false
    }

    fn call(command: libc::c_int) -> bool {
        let mut result = -1;
        // SAFETY: invariant 2.
        keep_errno(|| result = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) });
        result == 0
    }

    /// A lock may be taken between a failing call and the look at its errno, by a signal handler for instance.
    fn keep_errno(call: impl FnOnce()) {
        // SAFETY: invariant 3: the address of the thread's errno is valid for as long as the thread runs.
        unsafe {
            let errno = libc::__errno_location();
            let before = *errno;
            call();
            *errno = before;
        }
    }
}

/// Miri knows futexes, but not requeueing, nor that the kernel reads the lock word as a whole. A table of sleepers
/// behind a std mutex does the same.
#[cfg(miri)]
mod table {
    use std::sync::{Condvar, Mutex};
    use std::time::Duration;

    static SLEEPERS: Mutex<(u64, Vec<(usize, u64)>)> = Mutex::new((0, Vec::new()));
    static CHANGED: Condvar = Condvar::new();

    pub(in super::super) fn wait(
        key: *const u32,
        expected: u32,
        timeout: Option<u64>,
        current: impl Fn() -> u32,
    ) {
        let mut table = SLEEPERS.lock().unwrap();
        if current() != expected {
            return;
        }
        table.0 += 1;
        let me = table.0;
        table.1.push((key as usize, me));
        let nanos = Duration::from_nanos(timeout.unwrap_or(u64::MAX / 4));
        let asleep = |t: &mut (u64, Vec<(usize, u64)>)| t.1.iter().any(|&(_, id)| id == me);
        let (mut table, _) = CHANGED.wait_timeout_while(table, nanos, asleep).unwrap();
        table.1.retain(|&(_, id)| id != me);
    }

    pub(in super::super) fn wake(key: *const u32, n: u32) {
        let mut left = n;
        SLEEPERS.lock().unwrap().1.retain(|&(k, _)| {
            let woken = k == key as usize && left > 0;
            left -= woken as u32;
            !woken
        });
        CHANGED.notify_all();
    }

    pub(in super::super) fn requeue(from: *const u32, _: u32, to: *const u32) {
        for sleeper in SLEEPERS
            .lock()
            .unwrap()
            .1
            .iter_mut()
            .filter(|s| s.0 == from as usize)
        {
            sleeper.0 = to as usize;
        }
    }

    pub(in super::super) fn membarrier() -> bool {
        // The light fence is a full one under Miri.
        core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
        true
    }
}
