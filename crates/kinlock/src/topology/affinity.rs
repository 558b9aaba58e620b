//! The CPUs on which this process may run.
//!
//! # Invariants
//!
//! 1. Buffers handed to the kernel live across the call and are as long as the length passed with them.

use super::MAX_CPUS;

const WORDS: usize = MAX_CPUS / 64;

/// A set of CPUs below [`MAX_CPUS`], laid out as the kernel wants it.
#[derive(Clone)]
pub(crate) struct CpuSet {
    words: [u64; WORDS],
}

impl CpuSet {
    pub(crate) fn empty() -> Self {
        CpuSet { words: [0; WORDS] }
    }

    /// The CPUs that the main thread or the calling thread may run on.
    ///
    /// Affinity belongs to threads, not to processes. A thread that has pinned itself says little about the process, so
    /// the main thread is asked too. Empty if the kernel does not answer.
    pub(crate) fn of_process() -> Self {
        let mut set = CpuSet::empty();
        if !cfg!(miri) {
            // SAFETY: getpid has no preconditions.
            let main = unsafe { libc::getpid() };
            set.add_those_of(main);
            set.add_those_of(0);
        }
        set
    }

    /// How many CPUs are in the set.
    pub(crate) fn len(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    pub(crate) fn contains(&self, cpu: usize) -> bool {
        self.words
            .get(cpu / 64)
            .is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// Adds `cpu`, which must be below [`MAX_CPUS`]; `false` if it was there already, or is too great.
    pub(crate) fn insert(&mut self, cpu: usize) -> bool {
        let Some(word) = self.words.get_mut(cpu / 64) else {
            return false;
        };
        let before = *word;
        *word |= 1 << (cpu % 64);
        *word != before
    }

    /// Adds the CPUs that `thread` may run on; 0 is the calling one.
    fn add_those_of(&mut self, thread: libc::pid_t) {
        let mut words = [0u64; WORDS];
        // SAFETY: invariant 1.
        let copied = unsafe {
            libc::syscall(
                libc::SYS_sched_getaffinity,
                thread,
                size_of_val(&words),
                words.as_mut_ptr(),
            )
        };
        if copied > 0 {
            self.words
                .iter_mut()
                .zip(words)
                .for_each(|(all, these)| *all |= these);
        }
    }
}

#[cfg(test)]
impl FromIterator<usize> for CpuSet {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        let mut set = CpuSet::empty();
        cpus.into_iter().for_each(|cpu| assert!(set.insert(cpu)));
        set
    }
}
