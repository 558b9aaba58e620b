//! The group or domain of each CPU: what the walks over sysfs fill, without allocation.

use super::MAX_CPUS;
use core::sync::atomic::{AtomicU16, Ordering::Relaxed};

/// While a walk fills the table, an entry is 0 or a group with [`GROUP`] set. Afterwards it is a
/// domain, and CPUs that are in no group are in domain 0.
///
/// Atomic, since the table of the process is filled while other threads may look at it.
pub(super) struct Table {
    entries: [AtomicU16; MAX_CPUS],
}

/// Marks an entry that is still a group number of the walk, not a domain.
const GROUP: u16 = 1 << 15;

impl Table {
    pub(super) const fn new() -> Self {
        Table {
            entries: [const { AtomicU16::new(0) }; MAX_CPUS],
        }
    }

    /// The domain of `cpu`, if the table is complete.
    #[inline]
    pub(super) fn domain_of(&self, cpu: usize) -> u16 {
        self.entries
            .get(cpu)
            .map_or(0, |domain| domain.load(Relaxed))
    }

    /// The group in which the walk under way has put `cpu`.
    pub(super) fn group_of(&self, cpu: usize) -> Option<usize> {
        let entry = self.domain_of(cpu);
        (entry & GROUP != 0).then_some(usize::from(entry & !GROUP))
    }

    /// Puts `cpu` in `group`. Group numbers can only be compared for equality.
    pub(super) fn put(&self, cpu: usize, group: usize) {
        if let Some(group) = u16::try_from(group).ok().filter(|group| group & GROUP == 0) {
            self.set(cpu, group | GROUP);
        }
    }

    /// Sets the domain of `cpu`.
    pub(super) fn set(&self, cpu: usize, domain: u16) {
        if let Some(entry) = self.entries.get(cpu) {
            entry.store(domain, Relaxed);
        }
    }

    /// Empties the table.
    pub(super) fn forget(&self) {
        self.entries
            .iter()
            .for_each(|entry| entry.store(0, Relaxed));
    }

    /// Turns groups into domains 0, 1, .. in the order of their first CPUs. Returns their number,
    /// at least 1.
    pub(super) fn number_densely(&self) -> u16 {
        let mut count = 0;
        for (cpu, first) in self.entries.iter().enumerate() {
            let group = first.load(Relaxed);
            if group & GROUP == 0 {
                continue;
            }
            let members = self
                .entries
                .iter()
                .skip(cpu)
                .filter(|member| member.load(Relaxed) == group);
            members.for_each(|member| member.store(count, Relaxed));
            count += 1;
        }
        count.max(1)
    }
}
