//! What the process's locks did, on demand: counts for `compare`, and the contention report.
//!
//! This layer knows a lock by its address, its marks and its kind, and neither takes nor releases
//! one by itself: [`dispatch`](crate::dispatch) passes functions that do, and tells it what else
//! happens.
//!
//! | file | what it does |
//! | --- | --- |
//! | `counts.rs` | adds up calls, and writes one line per process (`KINLOCK_COUNTS`) |
//! | `kinlock_recorder` | fills the table that the command reads (`KINLOCK_REPORT`) |

pub(crate) mod counts;
pub(crate) use kinlock_recorder as report;

use self::report::{Behind, Object, Outcome, Wait, is_taken};
use crate::mode::Mode;
use crate::time::Limit;
use core::ffi::c_int;

/// Takes a lock, and counts and reports the acquisition. `first` tries the lock. If it is held and
/// the program's call may wait, `wait` takes it. `limit`: how long the call may wait; `behind`: who
/// holds a reader-writer lock. Returns what the program's call returns.
pub(crate) fn acquire(
    mode: Mode,
    object: Object<'_>,
    limit: Limit,
    first: impl FnOnce() -> c_int,
    behind: impl FnOnce() -> Behind,
    wait: impl FnOnce() -> c_int,
) -> c_int {
    let (is_try, is_endless) = (matches!(limit, Limit::Now), matches!(limit, Limit::Never));
    let mut result = first();
    let mut waited = None;
    if result == libc::EBUSY && !is_try {
        let behind = behind();
        let begun = Wait::begin(object, is_endless).behind(behind);
        result = wait();
        if is_taken(result) || result == libc::ETIMEDOUT {
            waited = Some(begun.end());
        } else {
            // Other results, such as EDEADLK for a relock by the holder, come without a wait.
            begun.discard();
        }
    }
    if mode.counts() {
        counts::acquisition(is_try, waited.map(|wait| wait.nanos()), result);
        if is_taken(result) {
            counts::side(object);
        }
    }
    if mode.reports() {
        let outcome = Outcome {
            is_try,
            is_endless,
            waited,
            result,
            asked: None,
        };
        report::acquisition(object, outcome);
    }
    result
}
