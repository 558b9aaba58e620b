//! Other architectures, and Miri. These functions are never called:
//! [`available`](super::super::area::available) reports that there are no sequences.

use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;

use crate::area::Area;
use crate::probe::Probe;

use super::{Node, Pushed, Slots, Trace};

pub(in super::super) unsafe fn add<P: Probe, const NEAR: usize>(
    _: Area,
    _: &Slots,
    _: usize,
    _: u64,
) -> bool {
    false
}

pub(in super::super) unsafe fn store_if_zero<P: Probe, const GATED: usize>(
    _: Area,
    _: &Slots,
    _: usize,
    _: u64,
) -> Option<NonNull<u8>> {
    None
}

pub(in super::super) unsafe fn push<P: Probe>(
    _: Area,
    _: &Slots,
    _: NonNull<Node>,
    _: usize,
) -> Pushed {
    Pushed::Refused
}

pub(in super::super) unsafe fn pop<P: Probe>(_: Area, _: &Slots) -> Option<NonNull<Node>> {
    None
}

pub(in super::super) unsafe fn wait<P: Probe>(
    _: Area,
    _: u32,
    _: &AtomicU32,
    _: u32,
    _: &mut Trace,
) -> bool {
    false
}
