//! The CPUs that threads may run on.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. The mask passed to the kernel is a live buffer of the size passed with it.

const WORDS: usize = 1024;
const BITS: usize = usize::BITS as usize;

/// The CPUs that the calling thread may run on, in ascending order; none if the kernel does not
/// say.
pub fn allowed_cpus() -> Vec<usize> {
    let mut mask = vec![0usize; WORDS];
    // SAFETY: invariant 1.
    let known =
        unsafe { libc::sched_getaffinity(0, size_of_val(&*mask), mask.as_mut_ptr().cast()) } == 0;
    let is_set = |cpu: &usize| known && mask[cpu / BITS] >> (cpu % BITS) & 1 != 0;
    (0..WORDS * BITS).filter(is_set).collect()
}
