//! Formats calls, and lines with calls, for people.

use kinlock_cli::report::table::wrapped;

use super::entry::file_and_line;
use super::symbols::{Frame, begins_rust, is_wrapper, short};

/// The calls from the innermost one on that does more than taking a lock.
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
    let frames = beyond_wrappers(frames);
    let begin = frames.iter().position(begins_thread);
    let frames = &frames[..begin.unwrap_or(frames.len())];
    let length = before_rust(frames);
    let calls: Vec<_> = frames.iter().take(length.min(4)).map(one).collect();
    match calls.is_empty() {
        true => "unknown".to_owned(),
        false => calls.join(" < "),
    }
}

/// Whether the call is one of the outermost ones, with which threads begin. They carry no
/// information. Those in the C library may be without names.
fn begins_thread(frame: &Frame) -> bool {
    let begins = ["libc.so.6+", "__libc_start_", "__clone", "clone3"];
    let name = frame.function.as_str();
    name == "start_thread" || begins.iter().any(|begin| name.starts_with(begin))
}

/// The number of calls before those with which Rust begins a thread or `main`; at least 1.
fn before_rust(frames: &[Frame]) -> usize {
    let begin = frames.iter().position(|f| begins_rust(&f.function));
    let before = &frames[..begin.unwrap_or(frames.len())];
    // The call of the closure that the thread was given.
    let calls_it = |f: &Frame| f.function.contains("::FnOnce") && f.function.contains("call_once");
    let own = before.iter().rposition(|frame| !calls_it(frame));
    own.map_or(1, |last| last + 1)
}

/// Text for people, line by line.
#[derive(Default)]
pub struct Lines(pub String);

impl Lines {
    /// Adds a line as it is.
    pub fn add(&mut self, line: impl AsRef<str>) {
        self.0 += line.as_ref();
        self.0.push('\n');
    }

    /// Adds a line that is indented by `depth` levels. If it is wrapped, the rest is indented one
    /// level deeper.
    pub fn wrap(&mut self, depth: usize, line: &str) {
        const INDENT: &str = "    ";
        let text = wrapped(line, &INDENT.repeat(depth + 1));
        self.add(INDENT.repeat(depth) + &text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calls_with_which_threads_begin_are_left_out() {
        const SHIM: &str = "core::ops::function::FnOnce::call_once{{vtable.shim}}";
        const SHORT: &str = "std::sys::backtrace::__rust_begin_short_backtrace";
        const CALL: &str = "core::ops::function::FnOnce::call_once";
        const RT: &str = "std::rt::lang_start::{{closure}}";
        let threads = "std::sys::thread::unix::Thread::new::thread_start";
        let pool = format!("f < {SHIM} < pool::work");
        for (functions, expected) in [
            (
                &["f", "main", "__libc_start_main", "_start"][..],
                "f < main",
            ),
            (&["libc.so.6+0x12"], "unknown"),
            (&["f", "g", SHORT, SHIM, threads, "libc.so.6+0x12"], "f < g"),
            (
                &["f", "hot::main", CALL, SHORT, RT, "main"],
                "f < hot::main",
            ),
            // The call of a pool's job is kept.
            (&["f", SHIM, "pool::work", SHORT], &pool),
            (&["f", SHIM], "f"),
            (
                &[SHORT, SHIM],
                "std::sys::backtrace::__rust_begin_short_backtrace",
            ),
            (&[SHIM, threads], SHIM),
        ] {
            let frame = |&function: &&str| Frame {
                function: function.to_owned(),
                ..Frame::default()
            };
            let frames: Vec<_> = functions.iter().map(frame).collect();
            assert_eq!(path(&frames), expected);
        }
    }
}
