//! The CPUs on which this process may run.
//!
//! # Invariants
//!
//! 1. Buffers handed to the kernel live across the call and are as long as the length passed
//!    with them.

use super::MAX_CPUS;
use crate::environment::futex_alone;
use crate::sys::{KeepErrno, for_each_name};

/// A set of CPUs below [`MAX_CPUS`], in the kernel's layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuSet {
    words: [u64; WORDS],
}

const WORDS: usize = MAX_CPUS / 64;

impl CpuSet {
    /// No CPU.
    pub fn empty() -> Self {
        CpuSet { words: [0; WORDS] }
    }

    /// The CPUs on which the calling thread may run. Empty if the kernel does not answer.
    pub fn of_calling_thread() -> Self {
        let mut set = CpuSet::empty();
        if futex_alone() {
            return set;
        }
        let _errno = KeepErrno::hold();
        set.add_those_of(CALLING_THREAD);
        set
    }

    /// The CPUs on which any of the process's threads may run. Empty if the kernel does not answer.
    ///
    /// Affinity belongs to threads, not to processes: a thread may have pinned itself. So this asks
    /// about every thread, up to 1024. Threads that start later inherit their parent's affinity, so
    /// the result holds for them unless they change it.
    ///
    /// Does not allocate. Costs a system call per thread. Not inlined: threads may have stacks of
    /// 16 KiB, a set takes 1 KiB, and copies would add up.
    #[inline(never)]
    pub fn of_process() -> Self {
        if cfg!(miri) || futex_alone() {
            return CpuSet::empty();
        }
        let mut set = CpuSet::empty();
        let _errno = KeepErrno::hold();
        set.add_those_of(CALLING_THREAD);
        let mut threads_left = MOST_THREADS;
        for_each_name(format_args!("/proc/self/task"), |name| {
            if let Some(thread) = core::str::from_utf8(name)
                .ok()
                .and_then(|name| name.parse().ok())
            {
                set.add_those_of(thread);
                threads_left -= 1;
            }
            threads_left > 0
        });
        set
    }

    /// How many CPUs are in the set.
    pub fn count(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// The CPUs in the set, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..MAX_CPUS).filter(|&cpu| self.contains(cpu))
    }

    /// Whether `cpu` is in the set.
    pub fn contains(&self, cpu: usize) -> bool {
        self.words
            .get(cpu / 64)
            .is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// Adds `cpu`. Returns `false` if it was in the set, or is not below [`MAX_CPUS`].
    pub fn insert(&mut self, cpu: usize) -> bool {
        let Some(word) = self.words.get_mut(cpu / 64) else {
            return false;
        };
        let before = *word;
        *word |= 1 << (cpu % 64);
        *word != before
    }

    /// Adds the CPUs that `thread` may run on. Not inlined, so that its buffer is gone afterwards.
    #[inline(never)]
    fn add_those_of(&mut self, thread: libc::pid_t) {
        let mut words = [0u64; WORDS];
        let size = size_of_val(&words);
        // SAFETY: invariant 1.
        let copied = unsafe {
            libc::syscall(
                libc::SYS_sched_getaffinity,
                thread,
                size,
                words.as_mut_ptr(),
            )
        };
        if copied > 0 {
            self.words
                .iter_mut()
                .zip(&words)
                .for_each(|(all, these)| *all |= these);
        }
    }
}

/// The most threads to ask about: this runs while a lock is contended.
const MOST_THREADS: usize = 1024;

const CALLING_THREAD: libc::pid_t = 0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_contains_what_was_inserted() {
        let mut set = CpuSet::empty();
        assert_eq!(set.count(), 0);
        for cpu in [0, 63, 64, 1024, MAX_CPUS - 1] {
            assert!(!set.contains(cpu));
            assert!(set.insert(cpu));
            assert!(!set.insert(cpu));
            assert!(set.contains(cpu));
        }
        assert!(!set.insert(MAX_CPUS) && !set.contains(MAX_CPUS));
        assert_eq!(
            set.iter().collect::<Vec<_>>(),
            [0, 63, 64, 1024, MAX_CPUS - 1]
        );
        assert_eq!(set.count(), 5);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no affinity")]
    fn a_pinned_thread_does_not_narrow_the_process() {
        let before = CpuSet::of_process();
        assert!(before.count() > 0);
        let within = std::thread::spawn(|| {
            let mut pinned = CpuSet::empty();
            pinned.insert(CpuSet::of_process().iter().next().unwrap());
            let size = size_of_val(&pinned.words);
            // SAFETY: invariant 1.
            let pinned = unsafe { libc::sched_setaffinity(0, size, pinned.words.as_ptr().cast()) };
            assert_eq!(pinned, 0);
            CpuSet::of_process()
        });
        assert_eq!(within.join().unwrap(), before);
    }
}
