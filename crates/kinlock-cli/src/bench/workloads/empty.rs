//! Lock and unlock, nothing else: the price of the lock itself.

use super::Workload;
use crate::bench::rng::Rng;

/// The workload `empty`.
pub struct Empty;

impl Workload for Empty {
    type Shared = ();
    type Local = ();

    fn shared(&self) {}

    fn local(&self, _: Rng) {}

    #[inline(always)]
    fn think(&self, (): &mut ()) {}

    #[inline(always)]
    fn section(&self, (): &mut (), (): &mut ()) {}
}
