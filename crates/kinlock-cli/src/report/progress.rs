//! Progress on stderr, where somebody looks at it.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar of so many steps, after `announce` has said what is to come; hidden, and nothing said, if that is not wanted or stderr is no
/// terminal.
pub fn bar(quiet: bool, steps: usize, announce: impl FnOnce()) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    announce();
    let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stderr());
    bar.set_style(
        ProgressStyle::with_template("{bar:30} {pos}/{len}  {eta} left  {msg}")
            .expect("the template is valid"),
    );
    bar
}
