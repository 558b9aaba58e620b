//! Torture of concurrency IDs: leases and restartable sequences, disturbed at the worst moments.
//!
//! A **specimen** is a way to get IDs: restartable sequences, leases, or one of these broken on
//! purpose. Each specimen is put through these scenarios:
//!
//! | scenario | what it does |
//! | --- | --- |
//! | `leases` | threads and signal handlers take and give back IDs, several at a time |
//! | `sequences` | counters, stacks and pools with delays inside their operations |
//! | `churn` | threads come and go, some with leases that they forget |
//! | `sparse` | all threads on the CPU with the highest number |
//! | `fork` | children are forked while other threads hold IDs |
//!
//! In `leases` an ID has one holder, is below the bound, and is not lost. In the structures no
//! addition is lost, and no element is lost or handed out twice. After `churn` no ended thread is a
//! member. In the child of a fork only the IDs of the forking thread are taken.
//!
//! During all of them a `storm` sends signals and moves threads between CPUs.

mod scenarios;
mod source;
mod storm;

use crate::plan::{self, Scenario, Settings, Step, Tortured};
use crate::report::{Property, Report};
use crate::specimen::named;
use kinlock_ids::Backend;

pub use scenarios::ALL as SCENARIOS;
use source::Broken;

/// A way to get IDs.
#[derive(Clone, Copy, Debug)]
pub struct Specimen {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// How IDs are held.
    pub backend: Backend,
    /// What its defect violates, if it is broken on purpose.
    pub defect: Option<Property>,
    broken: Option<Broken>,
}

/// All specimens.
pub static ALL: &[Specimen] = &[
    Specimen {
        backend: Backend::Restartable,
        ..leased("rseq")
    },
    leased("lease"),
    Specimen {
        backend: Backend::Restartable,
        ..broken("busted-restart", Broken::NoRestart, Property::Exclusion)
    },
];

named!(Specimen, "IDs", ALL);

const fn leased(name: &'static str) -> Specimen {
    Specimen {
        name,
        backend: Backend::Lease,
        defect: None,
        broken: None,
    }
}

const fn broken(name: &'static str, broken: Broken, meant: Property) -> Specimen {
    Specimen {
        defect: Some(meant),
        broken: Some(broken),
        ..leased(name)
    }
}

impl Tortured for Specimen {
    fn torture(self, settings: &Settings, progress: &mut dyn FnMut(&str)) -> Report {
        let chosen = SCENARIOS.iter().filter(|scenario| {
            (scenario.fits)(&self) && settings.scenarios.contains(&scenario.name)
        });
        let step = |scenario: &Scenario<Specimen>| Step {
            label: scenario.name.to_owned(),
            weight: scenario.weight,
            threads: settings.threads[0],
            run: scenario.run,
        };
        let steps: Vec<_> = chosen.map(step).collect();
        plan::run(self, settings, &steps, progress)
    }
}
