//! Whether locks should reorder their queues on a machine, and why: what `auto` means.

use super::affinity::CpuSet;
use crate::tuning::Decision;

/// What [`choose`] depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// How the CPUs that the process may run on are spread over domains.
    pub(crate) spread: Spread,
    /// The domains come from `KINLOCK_TOPOLOGY`.
    pub(crate) pretended: bool,
    /// The machine is a virtual one.
    pub(crate) is_virtual: bool,
    /// According to the firmware, some node is farther from another than from itself.
    pub(crate) remote_is_farther: bool,
}

/// How CPUs are spread over locality domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// All in one domain.
    Together,
    /// In several domains, with no two of them in the same.
    Alone,
    /// In several domains, with some of them in the same.
    Groups,
}

impl Spread {
    /// The spread of CPUs whose domains these are, one for each CPU.
    pub(crate) fn of(domains: impl Iterator<Item = usize>) -> Self {
        let mut seen = CpuSet::empty();
        let mut several = false;
        let mut shared = false;
        let mut first = None;
        for domain in domains {
            several |= *first.get_or_insert(domain) != domain;
            shared |= !seen.insert(domain);
        }
        match (several, shared) {
            (false, _) => Spread::Together,
            (true, false) => Spread::Alone,
            (true, true) => Spread::Groups,
        }
    }
}

/// One row per outcome, so that a small number names an outcome.
const CHOICES: [Decision; 6] = [
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
        reason: "no two CPUs that the process may run on share a locality domain",
    },
    Decision {
        reorder: false,
        reason: "the machine is virtual and names no node that is farther than the local one",
    },
    Decision {
        reorder: true,
        reason: "the process may run in more than one locality domain",
    },
];

/// What `auto` means where `facts` hold: the number of a [`choice`].
pub(crate) fn choose(facts: Facts) -> u8 {
    match facts {
        Facts {
            pretended: true,
            spread: Spread::Together,
            ..
        } => 1,
        Facts {
            pretended: true, ..
        } => 0,
        Facts {
            spread: Spread::Together,
            ..
        } => 2,
        Facts {
            spread: Spread::Alone,
            ..
        } => 3,
        Facts {
            is_virtual: true,
            remote_is_farther: false,
            ..
        } => 4,
        Facts {
            spread: Spread::Groups,
            ..
        } => 5,
    }
}

/// The outcome that [`choose`] calls `number`.
pub(crate) fn choice(number: u8) -> Decision {
    const UNKNOWN: Decision = Decision {
        reorder: false,
        reason: "nothing is known of the machine",
    };
    CHOICES.get(usize::from(number)).copied().unwrap_or(UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(domains: &[usize]) -> Spread {
        Spread::of(domains.iter().copied())
    }

    #[test]
    fn spread_tells_whether_cpus_share_domains() {
        assert_eq!(spread(&[]), Spread::Together);
        assert_eq!(spread(&[3]), Spread::Together);
        assert_eq!(spread(&[3, 3, 3]), Spread::Together);
        assert_eq!(spread(&[0, 1, 7]), Spread::Alone);
        assert_eq!(spread(&[0, 1, 1]), Spread::Groups);
        assert_eq!(spread(&[0, 1, 0]), Spread::Groups);
    }

    /// Every combination of facts: `auto` reorders exactly where reordering can gain something.
    #[test]
    fn auto_reorders_on_real_and_on_explicit_domains() {
        let booleans = [false, true];
        for spread in [Spread::Together, Spread::Alone, Spread::Groups] {
            for pretended in booleans {
                for is_virtual in booleans {
                    for remote_is_farther in booleans {
                        let facts = Facts {
                            spread,
                            pretended,
                            is_virtual,
                            remote_is_farther,
                        };
                        let expected = match (pretended, spread) {
                            (_, Spread::Together) => false,
                            (true, _) => true,
                            (false, Spread::Alone) => false,
                            (false, Spread::Groups) => remote_is_farther || !is_virtual,
                        };
                        let decision = choice(choose(facts));
                        assert_eq!(decision.reorder, expected, "{facts:?}: {}", decision.reason);
                    }
                }
            }
        }
    }

    #[test]
    fn every_reason_is_given_once() {
        for (number, choice) in CHOICES.iter().enumerate() {
            assert!(
                CHOICES[..number]
                    .iter()
                    .all(|earlier| earlier.reason != choice.reason)
            );
        }
    }
}
