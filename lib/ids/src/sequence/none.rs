//! Other architectures, and Miri. These functions are never called:
//! [`available`](super::super::area::available) reports that there are no sequences.

use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;

use crate::area::Area;
use crate::probe::Probe;

use super::{Node, OutOfRange, Popped, Pushed, Slots, Trace};

pub(in super::super) unsafe fn add<P: Probe, const NEAR: usize>(
    _: Area,
    _: &Slots,
    _: usize,
    _: u64,
) -> Result<(), OutOfRange> {
    Err(OutOfRange)
}

pub(in super::super) unsafe fn compare_store<P: Probe, const GATED: usize>(
    _: Area,
    _: &Slots,
    _: usize,
    _: u64,
    _: u64,
) -> Result<(NonNull<u8>, u64), OutOfRange> {
    Err(OutOfRange)
}

pub(in super::super) unsafe fn push<P: Probe>(
    _: Area,
    _: &Slots,
    _: NonNull<Node>,
    _: usize,
) -> Pushed {
    Pushed::OutOfRange
}

pub(in super::super) unsafe fn pop<P: Probe>(_: Area, _: &Slots) -> Popped {
    Popped::OutOfRange
}

pub(in super::super) unsafe fn wait<P: Probe>(
    _: Area,
    _: u32,
    _: &AtomicU32,
    _: u32,
    _: &mut Trace,
) -> Result<(), OutOfRange> {
    Err(OutOfRange)
}
