//! Acquisitions that are counted or reported.

pub(crate) mod counts;
pub(crate) mod report;

use self::report::{Object, Outcome, Wait};
use crate::mode::Mode;
use core::ffi::c_int;

/// Takes a lock: tries to, and if it is taken and `lock` is given, waits by that.
pub(crate) fn acquisition(
    mode: Mode,
    object: Object<'_>,
    attempt: impl FnOnce() -> c_int,
    lock: Option<impl FnOnce() -> c_int>,
) -> c_int {
    let is_try = lock.is_none();
    let mut result = attempt();
    let mut waited = None;
    if let (libc::EBUSY, Some(lock)) = (result, lock) {
        let wait = Wait::begin(object);
        result = lock();
        // Not where a holder asks again.
        if counts::is_taken(result) || result == libc::ETIMEDOUT {
            waited = Some(wait.end());
        } else {
            report::waits_no_more();
        }
    }
    if mode.counts() {
        counts::acquisition(is_try, waited.map(|wait| wait.nanos()), result);
    }
    if mode.reports() {
        let outcome = Outcome {
            is_try,
            waited,
            result,
            asked: None,
        };
        report::acquisition(object, outcome);
    }
    result
}
