//! Sources of IDs.

use super::Specimen;
use kinlock_ids::{Backend, Domain};

/// A defect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Broken {
    /// Sequences do not restart.
    NoRestart,
}

/// How many IDs there are with leases.
pub(super) const IDS: u32 = 64;

/// Hands out IDs.
pub(super) trait Source: Send + Sync {
    /// Runs `section` with an ID. `false` if no ID is left.
    fn with(&self, section: &mut dyn FnMut(u32)) -> bool;
    /// Each ID handed out is below this limit or below the number of concurrent holders.
    fn limit(&self) -> u32;
    /// How many IDs there are.
    fn count(&self) -> u32;
    /// The calling thread starts to use the source.
    fn join(&self) {}
    /// The calling thread has used the source for the last time.
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
}

/// The domain of a specimen whose defect, if any, is not in handing out IDs.
pub(super) fn domain(specimen: &Specimen) -> Domain {
    let builder = Domain::builder().backend(specimen.backend);
    let builder = match specimen.backend {
        Backend::Restartable => builder,
        Backend::Lease => builder.max_ids(IDS),
    };
    builder
        .build()
        .expect("the backend was found to be available")
}

/// Where a specimen's IDs come from.
pub(super) fn of(specimen: &Specimen) -> Box<dyn Source> {
    match specimen.broken {
        None | Some(Broken::NoRestart) => Box::new(domain(specimen)),
    }
}
