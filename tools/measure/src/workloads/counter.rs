//! `counter`: a few nanoseconds under the lock, then some private work.

/// Its name on the command line.
pub const NAME: &str = "counter";
/// Private work between two sections, on average, in nanoseconds.
pub const THINK_NS: f64 = 100.0;
/// Words that a section adds to. With the lock word they fill most of a cache line.
pub const WORDS: usize = 4;
