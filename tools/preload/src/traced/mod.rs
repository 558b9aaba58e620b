//! What the process's locks did, on demand: counts for `compare`, and the contention report.
//!
//! This layer knows a lock by its address, its marks and its kind, and neither takes nor releases
//! one. [`dispatch`](crate::dispatch) tells it what happens:
//!
//! ```text
//!   Acquisition::begin -> the lock is tried -> must_wait -> the lock is taken -> end
//! ```
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

/// One acquisition of a lock that is counted or reported.
pub(crate) struct Acquisition<'a> {
    mode: Mode,
    object: Object<'a>,
    is_try: bool,
    is_endless: bool,
    wait: Option<Wait>,
}

impl<'a> Acquisition<'a> {
    /// Before the lock is tried. `limit`: how long the program's call may wait.
    pub(crate) fn begin(mode: Mode, object: Object<'a>, limit: Limit) -> Self {
        Acquisition {
            mode,
            object,
            is_try: matches!(limit, Limit::Now),
            is_endless: matches!(limit, Limit::Never),
            wait: None,
        }
    }

    /// The same for one side of a reader-writer lock. `waits_behind`: a reader that holds the lock
    /// already may wait behind a writer.
    pub(crate) fn begin_rwlock(
        mode: Mode,
        side: Object<'a>,
        limit: Limit,
        waits_behind: bool,
    ) -> Self {
        let begun = Acquisition::begin(mode, side, limit);
        if mode.reports() && !begun.is_try {
            report::rwlock_asked(side, begun.is_endless, waits_behind);
        }
        begun
    }

    /// After the lock was tried: whether it was busy and the program's call waits for it. From here
    /// on, that is a wait.
    pub(crate) fn must_wait(&mut self, result: c_int) -> bool {
        self.must_wait_behind(result, || Behind::Readers)
    }

    /// The same for a reader-writer lock. `behind`: who holds it.
    pub(crate) fn must_wait_behind(
        &mut self,
        result: c_int,
        behind: impl FnOnce() -> Behind,
    ) -> bool {
        let must_wait = result == libc::EBUSY && !self.is_try;
        if must_wait {
            let behind = behind();
            self.wait = Some(Wait::begin(self.object, self.is_endless).behind(behind));
        }
        must_wait
    }

    /// At the end, with the result for the program. Returns that result.
    pub(crate) fn end(self, result: c_int) -> c_int {
        let waited = waited(self.wait, result);
        if self.mode.counts() {
            counts::acquisition(self.is_try, waited.map(|wait| wait.nanos()), result);
            if is_taken(result) {
                counts::side(self.object);
            }
        }
        if self.mode.reports() {
            let outcome = Outcome {
                is_try: self.is_try,
                is_endless: self.is_endless,
                waited,
                result,
                asked: None,
            };
            report::acquisition(self.object, outcome);
        }
        result
    }
}

/// The wait of an acquisition that has ended with `result`.
fn waited(wait: Option<Wait>, result: c_int) -> Option<Wait> {
    let wait = wait?;
    if is_taken(result) || result == libc::ETIMEDOUT {
        return Some(wait.end());
    }
    // Other results, such as EDEADLK for a relock by the holder, come without a wait.
    wait.discard();
    None
}
