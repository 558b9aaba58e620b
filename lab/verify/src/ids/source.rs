//! Sources of IDs: a domain, or an allocator that is broken on purpose.

use super::Specimen;
use crate::affinity;
use kinlock_ids::lab::{Allocator, Defect};
use kinlock_ids::raw::{Block, Record};
use kinlock_ids::{Backend, Domain, Policy};
use kinlock_linux::Native;
use std::sync::OnceLock;

/// A defect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Broken {
    /// Sequences do not restart.
    NoRestart,
    /// Sequences of rings do not restart.
    Ring,
    /// An ID has two holders.
    Shared,
    /// An ID is lost.
    Leaked,
    /// An ID is above the bound.
    AboveBound,
}

/// IDs in a bitmap for as many as this, with leases.
pub(super) const IDS: u32 = 64;

/// Hands out IDs.
pub(super) trait Source: Send + Sync {
    /// Runs `section` with an ID. False if there is none.
    fn with(&self, section: &mut dyn FnMut(u32)) -> bool;
    /// IDs handed out are below it or below the number of concurrent holders, not counting the
    /// [`reserved`](Self::reserved) ones.
    fn limit(&self) -> u32;
    /// How many IDs there are.
    fn count(&self) -> u32;
    /// How many IDs belong to CPUs.
    fn reserved(&self) -> u32 {
        0
    }
    /// The calling thread starts to use it.
    fn join(&self) {}
    /// The calling thread has used it for the last time.
    fn leave(&self) {}
}

impl Source for Domain {
    fn with(&self, section: &mut dyn FnMut(u32)) -> bool {
        let Ok(lease) = self.enter() else {
            return false;
        };
        section(lease.id());
        true
    }

    fn limit(&self) -> u32 {
        Domain::limit(self).unwrap_or(0)
    }

    fn count(&self) -> u32 {
        self.max_ids()
    }

    fn reserved(&self) -> u32 {
        match self.policy() {
            Some(Policy::PerCpu) => cpu_numbers(),
            _ => 0,
        }
    }
}

/// One more than the highest number of a CPU. Signal handlers need it and must not allocate, so it
/// is determined when the first domain is made.
fn cpu_numbers() -> u32 {
    static NUMBERS: OnceLock<u32> = OnceLock::new();
    *NUMBERS.get_or_init(|| affinity::cpu_numbers() as u32)
}

/// The domain of a specimen whose defect, if any, is not in handing out IDs.
pub(super) fn domain(specimen: &Specimen) -> Domain {
    cpu_numbers();
    let builder = Domain::builder().backend(specimen.backend);
    let builder = match specimen.backend {
        Backend::Restartable => builder,
        Backend::Lease => builder.policy(specimen.policy).max_ids(IDS),
    };
    builder
        .build()
        .expect("the backend was found to be available")
}

/// Where a specimen's IDs come from.
pub(super) fn of(specimen: &Specimen) -> Box<dyn Source> {
    match specimen.broken {
        Some(Broken::Shared) => own::<{ Defect::Shared as u8 }>(specimen.policy),
        Some(Broken::Leaked) => own::<{ Defect::Leaked as u8 }>(specimen.policy),
        Some(Broken::AboveBound) => own::<{ Defect::AboveBound as u8 }>(specimen.policy),
        None | Some(Broken::NoRestart | Broken::Ring) => Box::new(domain(specimen)),
    }
}

type Slices = (&'static [Record<Native>], &'static [Block<Native>]);

/// The library's own allocator, with a defect.
struct Own<const DEFECT: u8>(Allocator<Native, Slices, DEFECT>);

fn own<const DEFECT: u8>(policy: Policy) -> Box<dyn Source> {
    let cpus = affinity::cpu_numbers();
    // Leaked: one of each per process.
    let records: Vec<_> = (0..cpus).map(|_| Record::new()).collect();
    let blocks: Vec<_> = (0..IDS / kinlock_ids::raw::BLOCK)
        .map(|_| Block::new())
        .collect();
    let storage: Slices = (records.leak(), blocks.leak());
    let ids = Allocator::new(storage, cpus as u32, policy).expect("the storage is large enough");
    Box::new(Own::<DEFECT>(ids))
}

impl<const DEFECT: u8> Source for Own<DEFECT> {
    fn with(&self, section: &mut dyn FnMut(u32)) -> bool {
        let Ok(held) = self.0.acquire(cpu()) else {
            return false;
        };
        section(held.id());
        self.0.release(cpu(), held);
        true
    }

    fn limit(&self) -> u32 {
        self.0.limit()
    }

    fn count(&self) -> u32 {
        IDS
    }

    fn join(&self) {
        self.0.join();
    }

    fn leave(&self) {
        self.0.leave();
    }
}

fn cpu() -> u32 {
    kinlock_linux::rseq::current_cpu().unwrap_or(u32::from(u16::MAX))
}
