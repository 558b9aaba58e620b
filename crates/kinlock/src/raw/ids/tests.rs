//! Records, bitmaps and limits built by hand.
