//! Whether locks should reorder their queues on this machine, and why.

use crate::config::Decision;

/// What [`choose`] looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The domains come from `KINLOCK_TOPOLOGY`.
    pub(crate) pretended: bool,
    /// The CPUs that the process may run on are in more than one domain.
    pub(crate) several_domains: bool,
    /// The machine is a virtual one.
    pub(crate) is_virtual: bool,
    /// The firmware's distance table says that some node is farther away than a CPU's own.
    pub(crate) remote_is_farther: bool,
}

/// One row per outcome, so that an outcome fits in a few bits.
const CHOICES: [Decision; 5] = [
    Decision {
        reorder: true,
        reason: "KINLOCK_TOPOLOGY names more than one domain",
    },
    Decision {
        reorder: false,
        reason: "KINLOCK_TOPOLOGY names a single domain",
    },
    Decision {
        reorder: false,
        reason: "the process may run in one locality domain only",
    },
    Decision {
        reorder: false,
        reason: "the machine is virtual and its node distances do not say that remote is farther than local",
    },
    Decision {
        reorder: true,
        reason: "the process may run in more than one locality domain",
    },
];

/// What `auto` means where `facts` hold: the index of a [`choice`].
pub(crate) fn choose(facts: Facts) -> u8 {
    match facts {
        Facts {
            pretended: true,
            several_domains: true,
            ..
        } => 0,
        Facts {
            pretended: true,
            several_domains: false,
            ..
        } => 1,
        Facts {
            several_domains: false,
            ..
        } => 2,
        Facts {
            is_virtual: true,
            remote_is_farther: false,
            ..
        } => 3,
        _ => 4,
    }
}

/// The outcome that [`choose`] calls `index`.
pub(crate) fn choice(index: u8) -> Decision {
    CHOICES
        .get(usize::from(index))
        .copied()
        .unwrap_or(CHOICES[2])
}
