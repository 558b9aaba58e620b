//! Which CPUs threads may run on.
//!
//! # Invariants
//!
//! 1. The mask passed to the kernel is a live buffer of the size passed with it.
//! 2. Setting the affinity of a thread that has ended is a harmless error.

pub(crate) use kinlock_measure::cpus::allowed_cpus;

const WORDS: usize = 1024;
const BITS: usize = usize::BITS as usize;

/// Confines the calling thread to a CPU.
pub(crate) fn pin_to(cpu: usize) {
    confine(0, &[cpu]);
}

/// Confines a thread (0: the calling one) to these CPUs. If the kernel refuses, the thread stays
/// where it is: affinity makes situations likelier, no check depends on it.
pub(crate) fn confine(thread: i32, cpus: &[usize]) {
    let mut mask = vec![0usize; WORDS];
    for cpu in cpus {
        mask[cpu / BITS] |= 1 << (cpu % BITS);
    }
    // SAFETY: invariants 1 and 2.
    unsafe { libc::sched_setaffinity(thread, size_of_val(&*mask), mask.as_ptr().cast()) };
}
