//! Where IDs to be held come from: a domain, or an allocator that is broken on purpose.

use super::Specimen;
use kinlock_core::Native;
use kinlock_ids::raw::{Block, IdAllocator, IdConfig, IdFault, Record};
use kinlock_ids::{Backend, Domain, Policy};
use std::sync::OnceLock;

/// A defect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Broken {
    /// Sequences do not restart.
    NoRestart,
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
    /// IDs handed out are below it, or below the number of concurrent holders, with [`reserved`](Self::reserved) ones not counted.
    fn limit(&self) -> u32;
    /// How many IDs there are.
    fn count(&self) -> u32;
    /// How many IDs only threads on a certain CPU can have.
    fn reserved(&self) -> u32 {
        0
    }
    /// The calling thread starts to use it.
    fn join(&self) {}
    /// The calling thread will not use it any more.
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

/// One more than the highest number of a CPU. Asked in signal handlers, which must not allocate: found out when the first domain is made.
fn cpu_numbers() -> u32 {
    static NUMBERS: OnceLock<u32> = OnceLock::new();
    *NUMBERS.get_or_init(|| crate::allowed_cpus().last().map_or(1, |last| last + 1) as u32)
}

/// The domain of a specimen that is not broken, or whose defect is not in handing out IDs.
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
    match specimen.defect.map(|(broken, _)| broken) {
        Some(Broken::Shared) => own::<Shared>(specimen.policy),
        Some(Broken::Leaked) => own::<Leaked>(specimen.policy),
        Some(Broken::AboveBound) => own::<AboveBound>(specimen.policy),
        None | Some(Broken::NoRestart) => Box::new(domain(specimen)),
    }
}

#[derive(Clone, Copy, Debug)]
struct Shared;
impl IdConfig for Shared {
    const FAULT: IdFault = IdFault::Shared;
}

#[derive(Clone, Copy, Debug)]
struct Leaked;
impl IdConfig for Leaked {
    const FAULT: IdFault = IdFault::Leaked;
}

#[derive(Clone, Copy, Debug)]
struct AboveBound;
impl IdConfig for AboveBound {
    const FAULT: IdFault = IdFault::AboveBound;
}

type Slices = (&'static [Record<Native>], &'static [Block<Native>]);

/// The library's own allocator, with a defect.
struct Own<C: IdConfig>(IdAllocator<Native, Slices, C>);

fn own<C: IdConfig>(policy: Policy) -> Box<dyn Source> {
    let cpus = crate::allowed_cpus().last().map_or(1, |last| last + 1);
    // Leaked: one of each per process.
    let records: Vec<_> = (0..cpus).map(|_| Record::new()).collect();
    let blocks: Vec<_> = (0..IDS / kinlock_ids::raw::BLOCK)
        .map(|_| Block::new())
        .collect();
    let storage: Slices = (records.leak(), blocks.leak());
    let ids = IdAllocator::new(storage, cpus as u32, policy).expect("the storage is large enough");
    Box::new(Own::<C>(ids))
}

impl<C: IdConfig> Source for Own<C> {
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
    use kinlock_core::platform::Platform;
    u32::from(Native::cpu())
}
