//! The C library: its own functions, and what they write into objects.

pub(crate) mod layout;
pub(crate) mod lookup;
pub(crate) mod real;
