//! Calls, and lines with them, as people read them.

use kinlock_cli::report::table::wrapped;

use super::entry::file_and_line;
use super::symbols::{Frame, is_wrapper, short};

/// The innermost calls that do more than taking a lock: all from the first such on.
fn beyond_wrappers(frames: &[Frame]) -> &[Frame] {
    let first = frames.iter().position(|frame| !is_wrapper(&frame.function));
    &frames[first.unwrap_or(0)..]
}

/// A function, with the line.
fn one(frame: &Frame) -> String {
    let name = short(&frame.function);
    match (&frame.file, frame.line) {
        (Some(file), Some(line)) => {
            format!("{name} ({}:{line})", file_and_line(file))
        }
        _ => name,
    }
}

/// The innermost call that does more than taking a lock.
pub fn place(frames: &[Frame]) -> String {
    let frame = beyond_wrappers(frames).first();
    frame.map_or_else(|| "unknown".to_owned(), one)
}

/// Some calls, innermost first.
pub fn path(frames: &[Frame]) -> String {
    let frames = beyond_wrappers(frames).iter();
    let frames = frames.take_while(|frame| !begins_thread(frame)).take(4);
    let calls: Vec<_> = frames.map(one).collect();
    match calls.is_empty() {
        true => "unknown".to_owned(),
        false => calls.join(" < "),
    }
}

/// Whether it is one of the outermost calls, with which threads begin: they tell nothing. The C
/// library's may have names or not.
fn begins_thread(frame: &Frame) -> bool {
    let begins = ["libc.so.6+", "__libc_start_", "__clone", "clone3"];
    let name = frame.function.as_str();
    name == "start_thread" || begins.iter().any(|begin| name.starts_with(begin))
}

/// What is said to people, line by line.
#[derive(Default)]
pub struct Lines(pub String);

impl Lines {
    /// Adds a line as it is.
    pub fn add(&mut self, line: impl AsRef<str>) {
        self.0 += line.as_ref();
        self.0.push('\n');
    }

    /// Adds a line of a block that is so deep in others. Where it is wrapped, it goes on one
    /// deeper.
    pub fn wrap(&mut self, depth: usize, line: &str) {
        const INDENT: &str = "    ";
        let text = wrapped(line, &INDENT.repeat(depth + 1));
        self.add(INDENT.repeat(depth) + &text);
    }
}
