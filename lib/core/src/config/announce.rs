//! Reports on standard error how locks behave, if `KINLOCK_VERBOSE=1` asks for it.

use super::Word;
use crate::sys::{KeepErrno, Text, write_stderr};
use crate::topology::domain_count;
use crate::tuning::{Decision, Tuning};
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, Ordering};

/// Reports how locks behave, the first time that the knobs are resolved.
pub(super) fn announce(word: Word) {
    static ANNOUNCED: AtomicBool = AtomicBool::new(false);
    if !word.has(Word::RESOLVED) || !super::verbose() || ANNOUNCED.swap(true, Ordering::Relaxed) {
        return;
    }
    let _errno = KeepErrno::hold();
    let Tuning {
        scan,
        limit,
        stealing,
        quantum,
        ..
    } = word.tuning();
    let Decision { reorder, reason } = super::decision_of(word);
    let shown = |on| if on { "on" } else { "off" };
    let mut line = Text::<320>::empty();
    let _ = writeln!(
        line,
        "kinlock: reordering by locality domain {} ({reason}), domains {}, scan {scan}, \
         local limit {limit}, stealing {}, quantum {quantum}",
        shown(reorder),
        domain_count(),
        shown(stealing),
    );
    write_stderr(line.as_bytes());
}
