//! Which functions of the C library are replaced by which of ours.

mod c11;
