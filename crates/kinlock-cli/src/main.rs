//! The `kinlock` command.

fn main() {}
