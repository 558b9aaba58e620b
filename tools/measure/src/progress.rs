//! A progress bar on stderr, if that is a terminal.

use std::io::IsTerminal;

pub use indicatif::ProgressBar;
use indicatif::{ProgressDrawTarget, ProgressFinish, ProgressStyle};

/// Calls `announce`, and returns a bar of `steps` steps. If stderr is not a terminal, or with
/// `quiet`, nothing is announced or shown.
pub fn bar(quiet: bool, steps: usize, announce: impl FnOnce()) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    announce();
    let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stderr());
    // The bar also clears itself when an error ends the run, to make room for the message.
    let bar = bar.with_finish(ProgressFinish::AndClear);
    bar.set_style(
        ProgressStyle::with_template("{bar:30} {pos}/{len}  {eta} left  {msg}")
            .expect("the template is valid"),
    );
    bar
}
