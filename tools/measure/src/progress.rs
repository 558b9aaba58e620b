//! Progress on stderr, if it is a terminal.

use std::io::IsTerminal;

pub use indicatif::ProgressBar;
use indicatif::{ProgressDrawTarget, ProgressFinish, ProgressStyle};

/// A bar of `steps` steps, after `announce` has said what is to come. If stderr is no terminal, or
/// with `quiet`, nothing is shown or said.
pub fn bar(quiet: bool, steps: usize, announce: impl FnOnce()) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    announce();
    let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stderr());
    // It makes room for a message also where an error ends the run.
    let bar = bar.with_finish(ProgressFinish::AndClear);
    bar.set_style(
        ProgressStyle::with_template("{bar:30} {pos}/{len}  {eta} left  {msg}")
            .expect("the template is valid"),
    );
    bar
}
