//! Time limits.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use kinlock_core::Native;
use kinlock_core::platform::{NEVER, Platform};

/// How long an operation may wait.
#[derive(Clone, Copy)]
pub(crate) enum Limit {
    /// Not at all.
    Now,
    /// As long as it takes.
    Never,
    /// Until a moment of a clock.
    At(libc::clockid_t, libc::timespec),
}

/// The clock may be set. So a wait looks at it again after so many nanoseconds.
const LOOK_AGAIN: u64 = 1_000_000_000;
const SECOND: i64 = 1_000_000_000;

impl Limit {
    /// A moment as the program passes it.
    ///
    /// # Safety
    ///
    /// `until` is null or points to a time.
    pub(crate) unsafe fn at(clock: libc::clockid_t, until: *const libc::timespec) -> Limit {
        // SAFETY: as this function demands.
        unsafe { until.as_ref() }.map_or(Limit::Never, |&until| Limit::At(clock, until))
    }

    /// 0, or why this is no limit: `EINVAL`.
    pub(crate) fn check(&self) -> c_int {
        match self {
            Limit::At(clock, until)
                if !is_known(*clock) || !(0..SECOND).contains(&until.tv_nsec) =>
            {
                libc::EINVAL
            }
            _ => 0,
        }
    }

    /// Up to which moment of the platform to wait before asking again; `None` if the time is up.
    pub(crate) fn until(&self) -> Option<u64> {
        let (clock, until) = match self {
            Limit::Now => return None,
            Limit::Never => return Some(NEVER),
            Limit::At(clock, until) => (*clock, until),
        };
        let now = read(clock);
        let nanos = |t: &libc::timespec| t.tv_sec as i128 * SECOND as i128 + t.tv_nsec as i128;
        let left = u64::try_from(nanos(until) - nanos(&now)).unwrap_or(match until.tv_sec < 0 {
            true => 0,
            false if nanos(until) < nanos(&now) => 0,
            false => NEVER,
        });
        let left = match clock {
            libc::CLOCK_MONOTONIC => left,
            _ => left.min(LOOK_AGAIN),
        };
        (left != 0).then(|| Native::now().saturating_add(left))
    }
}

/// Whether waits can be limited by this clock.
pub(crate) fn is_known(clock: libc::clockid_t) -> bool {
    clock == libc::CLOCK_REALTIME || clock == libc::CLOCK_MONOTONIC
}

fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut now = MaybeUninit::uninit();
    // SAFETY: invariant 4; both clocks exist, so `now` is written.
    unsafe {
        libc::clock_gettime(clock, now.as_mut_ptr());
        now.assume_init()
    }
}
