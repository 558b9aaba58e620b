//! Named counters of what the locks' slow paths did.
