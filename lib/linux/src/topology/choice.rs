//! What `auto` means on a machine, and why: which CPUs make a locality domain, and whether locks
//! reorder their queues.

use super::DomainKind;
use super::affinity::CpuSet;
use kinlock_core::tuning::Decision;

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
    /// The domains are caches because `auto` found all CPUs in one node.
    pub(crate) instead_of_nodes: bool,
}

/// How CPUs are spread over locality domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// All in one domain.
    Together,
    /// In several domains, no two of the CPUs in the same domain.
    Alone,
    /// In several domains, some of the CPUs in the same domain.
    Groups,
}

impl Spread {
    /// The spread of CPUs, given the domain of each CPU.
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

/// What `KINLOCK_DOMAIN=auto` means if `facts` hold, and why. `spread` tells how the CPUs are
/// spread over domains of a kind. The kind of its last call is chosen, and `facts` keeps the answer
/// of that call.
///
/// Caches are chosen only if all CPUs are in one node.
pub(crate) fn choose_kind(
    facts: &mut Facts,
    mut spread: impl FnMut(DomainKind) -> Spread,
) -> (DomainKind, &'static str) {
    facts.spread = spread(DomainKind::Node);
    if facts.spread != Spread::Together {
        let reason = "the process may run in more than one NUMA node";
        return (DomainKind::Node, reason);
    }
    facts.spread = spread(DomainKind::LastLevelCache);
    facts.instead_of_nodes = true;
    let reason = match choose(*facts) {
        MUTEXES_ONLY => {
            let reason =
                "the process may run in one NUMA node only, which has several last-level caches";
            return (DomainKind::LastLevelCache, reason);
        }
        NOT_BELIEVED => "the machine is virtual, and what it says of its caches is not believed",
        _ => "the process may run in one NUMA node only, and caches tell its CPUs no better apart",
    };
    facts.spread = spread(DomainKind::Node);
    facts.instead_of_nodes = false;
    (DomainKind::Node, reason)
}

/// One row per outcome, so that a small number names an outcome.
const CHOICES: [Decision; 7] = [
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
    Decision {
        reorder: true,
        reason: "the process may run in several last-level caches of one NUMA node; spinlocks keep \
                 the order of arrival",
    },
];

/// The [`choice`] where a virtual machine's domains are not believed.
const NOT_BELIEVED: u8 = 4;
/// The [`choice`] by which mutexes reorder and spinlocks do not.
pub(crate) const MUTEXES_ONLY: u8 = 6;

/// What `auto` means if `facts` hold: the number of a [`choice`].
pub(crate) fn choose(facts: Facts) -> u8 {
    match facts.spread {
        Spread::Together if facts.pretended => 1,
        _ if facts.pretended => 0,
        Spread::Together => 2,
        Spread::Alone => 3,
        Spread::Groups if facts.is_virtual && !facts.remote_is_farther => NOT_BELIEVED,
        Spread::Groups if facts.instead_of_nodes => MUTEXES_ONLY,
        Spread::Groups => 5,
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
}
