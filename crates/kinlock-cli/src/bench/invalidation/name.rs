//! What is measured, by name.

use std::fmt;
use std::str::FromStr;

use kinlock_invalidation::Backend;

/// A way to protect pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContenderName {
    /// Ours.
    Ours(Backend),
    /// The lock is held meanwhile.
    LockHeld,
    /// A flag per slot.
    BusyFlag,
    /// `crossbeam-epoch`.
    Crossbeam,
    /// `seize`.
    Seize,
    /// Concurrency Kit's epochs.
    CkEpoch,
    /// liburcu.
    Urcu,
}

impl ContenderName {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Ours(Backend::Packed),
        Self::Ours(Backend::Wide),
        Self::Ours(Backend::Locked),
        Self::Ours(Backend::Slots),
        Self::LockHeld,
        Self::BusyFlag,
        Self::Crossbeam,
        Self::Seize,
        Self::CkEpoch,
        Self::Urcu,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ours(backend) => backend.name(),
            Self::LockHeld => "lock-held",
            Self::BusyFlag => "busy-flag",
            Self::Crossbeam => "crossbeam-epoch",
            Self::Seize => "seize",
            Self::CkEpoch => "ck-epoch",
            Self::Urcu => "liburcu",
        }
    }

    /// How to get it, if this build or machine lacks it.
    pub fn unavailable(self) -> Option<&'static str> {
        match self {
            Self::Ours(backend) if !backend.is_supported() => {
                Some("this CPU cannot exchange sixteen bytes")
            }
            #[cfg(not(have_ck_epoch))]
            Self::CkEpoch => {
                Some("install Concurrency Kit (Debian: libck-dev, Fedora: ck-devel) and rebuild")
            }
            #[cfg(not(have_urcu))]
            Self::Urcu => Some(
                "install liburcu (Debian: liburcu-dev, Fedora: userspace-rcu-devel) and rebuild",
            ),
            _ => None,
        }
    }

    /// Whether it does the work of this workload at all.
    pub fn does(self, workload: WorkloadName) -> bool {
        match workload {
            WorkloadName::Pages => true,
            // Without sections there is nothing to begin and end.
            WorkloadName::Section => self != Self::BusyFlag,
            // Where the lock is held there is nothing to ask.
            WorkloadName::Passed => self != Self::LockHeld,
        }
    }
}

/// What is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadName {
    /// Empty sections.
    Section,
    /// Asking about a tag that has passed.
    Passed,
    /// The demonstration.
    Pages,
}

impl WorkloadName {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Section, Self::Passed, Self::Pages];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Section => "section",
            Self::Passed => "passed",
            Self::Pages => "pages",
        }
    }

    /// One line about it.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Section => "begin and end a section that covers nothing",
            Self::Passed => "ask whether a tag has passed that has",
            Self::Pages => {
                "clear table entries, give their pages back by madvise; reuse others, with stamps that are verified"
            }
        }
    }
}

macro_rules! named {
    ($name:ident, $what:literal) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let mut all = Self::ALL.into_iter();
                all.find(|one| one.name() == text).ok_or_else(|| {
                    let known: Vec<_> = Self::ALL.iter().map(|one| one.name()).collect();
                    format!(concat!("no such ", $what, "; known: {}"), known.join(", "))
                })
            }
        }
    };
}

named!(ContenderName, "backend or rival");
named!(WorkloadName, "workload");
