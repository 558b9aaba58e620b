//! Calls, and lines with them, as people read them.

use std::io::Write;

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

/// Writes a line of a block that is so deep in others; where it is wrapped, it goes on one deeper.
pub fn write_line(out: &mut dyn Write, depth: usize, text: &str) -> anyhow::Result<()> {
    const INDENT: &str = "    ";
    let text = wrapped(text, &INDENT.repeat(depth + 1));
    Ok(writeln!(out, "{}{text}", INDENT.repeat(depth))?)
}
