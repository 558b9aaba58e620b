//! Time limits.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use kinlock_core::platform::{NEVER, Platform};
use kinlock_linux::Native;

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

/// The time of day may be set. So a wait for a lock looks at it again after so many nanoseconds.
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

    /// How many nanoseconds are left; [`NEVER`]: no end is in sight.
    pub(crate) fn left(&self) -> u64 {
        let (clock, until) = match self {
            Limit::Now => return 0,
            Limit::Never => return NEVER,
            Limit::At(clock, until) => (*clock, until),
        };
        // Such a time is over, whatever the clock says.
        if until.tv_sec < 0 {
            return 0;
        }
        let nanos = |t: &libc::timespec| t.tv_sec as i128 * SECOND as i128 + t.tv_nsec as i128;
        let left = nanos(until) - nanos(&read(clock));
        u64::try_from(left.max(0)).unwrap_or(NEVER)
    }

    /// The time of day at which the wait ends, for waits that the kernel ends then.
    pub(crate) fn time_of_day(&self) -> Option<&libc::timespec> {
        match self {
            Limit::At(libc::CLOCK_REALTIME, until) => Some(until),
            _ => None,
        }
    }

    /// Up to which moment of the platform to wait before asking again; `None` if the time is up.
    pub(crate) fn until(&self) -> Option<u64> {
        let left = match self.left() {
            NEVER => return Some(NEVER),
            left if self.time_of_day().is_some() => left.min(LOOK_AGAIN),
            left => left,
        };
        (left != 0).then(|| Native::now().saturating_add(left))
    }

    /// As [`until`](Self::until), where the kernel heeds the [time of day](Self::time_of_day).
    pub(crate) fn until_by_kernel(&self) -> Option<u64> {
        match self.time_of_day() {
            None => self.until(),
            Some(_) => (self.left() != 0).then_some(NEVER),
        }
    }
}

/// Whether waits can be limited by this clock.
pub(crate) fn is_known(clock: libc::clockid_t) -> bool {
    clock == libc::CLOCK_REALTIME || clock == libc::CLOCK_MONOTONIC
}

pub(crate) fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut now = MaybeUninit::uninit();
    // SAFETY: invariant 4; both clocks exist, so `now` is written.
    unsafe {
        libc::clock_gettime(clock, now.as_mut_ptr());
        now.assume_init()
    }
}
