//! Time limits of waits.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use kinlock_core::platform::{NEVER, Platform};
use kinlock_linux::Native;
use kinlock_report::now::LIMITED;

/// How long an operation may wait.
#[derive(Clone, Copy)]
pub(crate) enum Limit {
    /// Not at all.
    Now,
    /// As long as it takes.
    Never,
    /// Until the clock shows this time.
    At(libc::clockid_t, libc::timespec),
}

/// How long a wait for a lock with a limit in the time of day may sleep before it reads that clock
/// again, in nanoseconds: the time of day may be set in the meantime.
const RECHECK_INTERVAL_NS: u64 = 1_000_000_000;
const NANOS_PER_SECOND: i64 = 1_000_000_000;

impl Limit {
    /// The limit that a program passes as a time of a clock. Null stands for no limit.
    ///
    /// # Safety
    ///
    /// `until` is null or points to a time.
    pub(crate) unsafe fn at(clock: libc::clockid_t, until: *const libc::timespec) -> Limit {
        // SAFETY: as this function demands.
        unsafe { until.as_ref() }.map_or(Limit::Never, |&until| Limit::At(clock, until))
    }

    /// 0, or `EINVAL` for a time that POSIX calls invalid or a clock that waits do not have.
    pub(crate) fn check(&self) -> c_int {
        match self {
            Limit::At(clock, until)
                if !is_known(*clock) || !(0..NANOS_PER_SECOND).contains(&until.tv_nsec) =>
            {
                libc::EINVAL
            }
            _ => 0,
        }
    }

    /// How many nanoseconds are left; [`NEVER`]: there is no limit.
    pub(crate) fn left(&self) -> u64 {
        let (clock, until) = match self {
            Limit::Now => return 0,
            Limit::Never => return NEVER,
            Limit::At(clock, until) => (*clock, until),
        };
        // A negative time has expired, whatever the clock shows.
        if until.tv_sec < 0 {
            return 0;
        }
        let nanos =
            |t: &libc::timespec| t.tv_sec as i128 * NANOS_PER_SECOND as i128 + t.tv_nsec as i128;
        let left = nanos(until) - nanos(&read(clock));
        u64::try_from(left.max(0)).unwrap_or(NEVER)
    }

    /// The bits that this limit sets in the kind of a noted wait.
    pub(crate) fn noted(&self) -> u32 {
        match self {
            Limit::Never => 0,
            _ => LIMITED,
        }
    }

    /// The limit, if it is a time of day. Only the kernel can end a wait at such a time, since it
    /// learns at once when that clock is set.
    pub(crate) fn time_of_day(&self) -> Option<&libc::timespec> {
        match self {
            Limit::At(libc::CLOCK_REALTIME, until) => Some(until),
            _ => None,
        }
    }

    /// The time of [`Platform::now`] up to which to wait before calling this again; `None` if the
    /// limit has expired.
    pub(crate) fn until(&self) -> Option<u64> {
        let left = match self.left() {
            NEVER => return Some(NEVER),
            left if self.time_of_day().is_some() => left.min(RECHECK_INTERVAL_NS),
            left => left,
        };
        (left != 0).then(|| Native::now().saturating_add(left))
    }

    /// As [`until`](Self::until), for a wait that passes a [time of day](Self::time_of_day) to the
    /// kernel: it need not wake up to read the clock again.
    pub(crate) fn until_by_kernel(&self) -> Option<u64> {
        match self.time_of_day() {
            None => self.until(),
            Some(_) => (self.left() != 0).then_some(NEVER),
        }
    }
}

/// Whether waits can have limits of this clock.
pub(crate) fn is_known(clock: libc::clockid_t) -> bool {
    clock == libc::CLOCK_REALTIME || clock == libc::CLOCK_MONOTONIC
}

/// The time of a known clock.
pub(crate) fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut now = MaybeUninit::uninit();
    // SAFETY: invariant 4; both clocks exist, so `now` is written.
    unsafe {
        libc::clock_gettime(clock, now.as_mut_ptr());
        now.assume_init()
    }
}
