//! The processor, and the CPUs that threads may run on.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. The mask passed to the kernel is a live buffer of the size passed with it.

use std::fs;

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

/// Confines a thread (0: the calling one) to these CPUs. `false` if the kernel refuses.
pub fn confine(thread: i32, cpus: &[usize]) -> bool {
    let mut mask = vec![0usize; WORDS];
    for cpu in cpus {
        mask[cpu / BITS] |= 1 << (cpu % BITS);
    }
    // SAFETY: invariant 1. A thread that has ended is an error.
    unsafe { libc::sched_setaffinity(thread, size_of_val(&*mask), mask.as_ptr().cast()) == 0 }
}

/// Confines the calling thread to a CPU. `false` if the kernel refuses.
pub fn pin_to(cpu: usize) -> bool {
    confine(0, &[cpu])
}

/// The processor as it names itself.
pub fn model() -> String {
    // ARM kernels give the maker and the part instead of the model.
    let part = || {
        let (maker, part) = (info("CPU implementer")?, info("CPU part")?);
        Some(format!("implementer {maker} part {part}"))
    };
    let model = info("model name").or_else(part);
    model.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// The value of this field for the first CPU in `/proc/cpuinfo`.
pub fn info(key: &str) -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    info.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    })
}
