//! Reports on standard error how locks behave, if `KINLOCK_VERBOSE=1` asks for it.

use crate::sys::{KeepErrno, Text, write_stderr};
use crate::topology::domain_count;
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, Ordering};
use kinlock_core::tuning::{Decision, Tuning};

/// Reports how locks behave, the first time that the knobs are resolved.
pub(super) fn announce(tuning: Tuning) {
    static ANNOUNCED: AtomicBool = AtomicBool::new(false);
    if !super::verbose() || ANNOUNCED.swap(true, Ordering::Relaxed) {
        return;
    }
    let _errno = KeepErrno::hold();
    let Tuning {
        limit,
        stealing,
        quantum,
        slice_extension,
        ..
    } = tuning;
    let Decision { reorder, reason } = super::decision();
    let shown = |on| if on { "on" } else { "off" };
    let mut line = Text::<320>::empty();
    let _ = writeln!(
        line,
        "kinlock: reordering by locality domain {} ({reason}), domains {}, \
         local limit {limit}, stealing {}, quantum {quantum}, slice extension {}",
        shown(reorder),
        domain_count(),
        shown(stealing),
        shown(slice_extension),
    );
    write_stderr(line.as_bytes());
}
