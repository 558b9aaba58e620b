//! The clock.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. The out-pointer refers to a live local of the type and size that the kernel writes.

use crate::sys::write_stderr;

/// Monotonic time in nanoseconds.
#[inline]
pub(super) fn now() -> u64 {
    read_clock(libc::CLOCK_MONOTONIC)
}

/// Monotonic time in nanoseconds, as it was at the last tick of the kernel's timer. Costs a third
/// of the exact time.
#[inline]
pub fn coarse_now() -> u64 {
    read_clock(libc::CLOCK_MONOTONIC_COARSE)
}

#[inline]
fn read_clock(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: invariant 1.
    if unsafe { libc::clock_gettime(clock, &mut time) } != 0 {
        return read_another_clock(clock);
    }
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// If the clock source cannot be read without a system call, a filter may refuse that call. The
/// coarse clock never needs one.
#[cold]
fn read_another_clock(clock: libc::clockid_t) -> u64 {
    if clock != libc::CLOCK_MONOTONIC_COARSE {
        return coarse_now();
    }
    write_stderr(b"kinlock: fatal: the kernel does not tell the time\n");
    // SAFETY: `abort` has no preconditions.
    unsafe { libc::abort() }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri ends a program that asks for such a clock")]
    fn a_clock_that_is_refused_is_replaced_by_the_coarse_one() {
        let refused = 1 << 20;
        let before = coarse_now();
        let time = read_clock(refused);
        assert!(before > 0 && (before..=coarse_now()).contains(&time));
    }
}
