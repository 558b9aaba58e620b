//! The CPUs of the machine, and which of them the process may use.

use core::sync::atomic::{AtomicU32, Ordering::*};

use kinlock_linux::topology::CpuSet;

/// Maps CPU numbers, which may be large and have gaps, to indices.
#[derive(Debug)]
pub(super) struct Cpus {
    /// By CPU number: the index, plus [`UNSEEN`] if no thread is known to be allowed there.
    pub(super) entries: Box<[AtomicU32]>,
    pub(super) count: u32,
}

pub(super) const UNSEEN: u32 = 1 << 31;
/// The entry of a number that no possible CPU has.
pub(super) const NO_INDEX: u32 = UNSEEN - 1;

impl Cpus {
    pub(super) fn possible() -> Self {
        let possible = possible_cpus();
        let numbers = possible.last().map_or(0, |last| last + 1);
        let entries: Box<[_]> = (0..numbers)
            .map(|_| AtomicU32::new(UNSEEN | NO_INDEX))
            .collect();
        for (index, &cpu) in possible.iter().enumerate() {
            entries[cpu].store(UNSEEN | index as u32, Relaxed);
        }
        Cpus {
            entries,
            count: possible.len() as u32,
        }
    }
}

/// The numbers of all CPUs that this kernel can ever have, in ascending order.
pub(crate) fn possible_cpus() -> Vec<usize> {
    let text = std::fs::read("/sys/devices/system/cpu/possible").unwrap_or_default();
    let ranges: Result<Vec<_>, _> = kinlock_linux::topology::CpuList::new(text).collect();
    let mut cpus: Vec<usize> = ranges.unwrap_or_default().into_iter().flatten().collect();
    if cpus.is_empty() {
        // No sysfs: assume the configured CPUs, and those that the process may run on.
        let configured = std::thread::available_parallelism().map_or(1, |n| n.get());
        cpus = (0..configured).chain(CpuSet::of_process().iter()).collect();
    }
    cpus.retain(|&cpu| cpu < kinlock_linux::topology::MAX_CPUS);
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}
