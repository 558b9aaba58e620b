//! One file per thing a person wants to do.

pub mod bench;
