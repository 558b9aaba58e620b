//! Which CPU the calling thread runs on, read from memory that the kernel updates.
//!
//! The C library registers a *restartable sequences* area for every thread (glibc from 2.35 on),
//! and publishes its place: `__rseq_offset` bytes from the thread pointer. The kernel writes the
//! CPU number there whenever the thread moves, so reading it costs a few loads. Where there is no
//! such area, [`current_cpu`] calls `getcpu`, which the kernel maps into the process. An older C
//! library, musl, the tunable `glibc.pthread.rseq=0` and a kernel without rseq are such cases.
//!
//! The two symbols are referenced *weakly*, from inline assembly, through the global offset table.
//! Where the C library lacks them the entry is null. So nothing is looked up at run time, and
//! linking never fails. Each assembly block has its own `.weak` directive, because a block may be
//! inlined into another object file.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. A non-null address of `__rseq_offset` or `__rseq_size` is the address of the C library's
//!    constant of type `isize` or `u32`, initialised before any code of this crate runs and never
//!    changed.
//! 2. Where `__rseq_size` is not 0, every thread has at least 32 readable, 32-byte aligned bytes at
//!    its thread pointer plus `__rseq_offset`, for as long as it lives.
//! 3. The assembly reads two entries of the global offset table. The linker makes them because they
//!    are referenced, and the loader fills them before any code of this crate runs. They never
//!    change after that: hence `pure` and `nomem`.
//! 4. `getauxval` and `sched_getcpu` have no preconditions.
//! 5. A CPU mask handed to the kernel is as long as the size passed with it.
//! 6. `tpidr_el0` is the thread pointer. On x86-64 the word that `fs` points at holds its own
//!    address (the System V ABI's TLS, variant II).

use crate::environment::futex_alone;

/// The CPU on which the calling thread ran a moment ago; `None` if it is unknown.
///
/// Costs a few loads where there is a registered area, and a call without a system call elsewhere.
#[inline]
pub fn current_cpu() -> Option<u32> {
    match registered_cpu() {
        Some(cpu) => Some(cpu),
        None => ask_kernel(),
    }
}

/// Like [`current_cpu`], from the registered area only.
#[inline]
pub(crate) fn registered_cpu() -> Option<u32> {
    // Negative numbers mean that the area is not registered.
    area::cpu_id().filter(|&cpu| cpu <= i32::MAX as u32)
}

/// The distance of the area from the thread pointer, the same for all threads, if the C library
/// registers areas. The registration of a single thread may have failed: its CPU number is negative
/// then.
pub fn registered_offset() -> Option<isize> {
    area::offset()
}

/// The calling thread's thread pointer; null on architectures without access to the area.
#[inline]
pub fn thread_pointer() -> *mut u8 {
    area::thread_pointer()
}

/// How many bytes of the area the running kernel maintains (`AT_RSEQ_FEATURE_SIZE`); 0 before Linux
/// 6.3.
///
/// This size, not `__rseq_size`, tells whether a field is live: the C library registers 32 bytes
/// and reports 20, and the kernel writes the fields that it knows.
pub fn feature_size() -> usize {
    const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;
    if cfg!(miri) {
        return 0;
    }
    // SAFETY: invariant 4. The result is 0 where the kernel does not know the type.
    let size = unsafe { libc::getauxval(AT_RSEQ_FEATURE_SIZE) };
    usize::try_from(size).unwrap_or(0)
}

#[cold]
fn ask_kernel() -> Option<u32> {
    if cfg!(miri) {
        return Some(0);
    }
    if futex_alone() {
        return None;
    }
    // SAFETY: invariant 4.
    let cpu = unsafe { libc::sched_getcpu() };
    u32::try_from(cpu).ok()
}

/// Access to the registered area, on the architectures where it is implemented.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
mod area {
    use core::arch::asm;

    /// Where the number of the CPU is in the area.
    const CPU_ID: usize = 4;

    #[inline]
    pub(super) fn cpu_id() -> Option<u32> {
        let area = thread_pointer().wrapping_offset(offset()?);
        // SAFETY: by invariant 2 the area lies there. The kernel writes the number only while this
        // thread does not run.
        Some(unsafe { area.add(CPU_ID).cast::<u32>().read_volatile() })
    }

    /// The area's distance from the thread pointer, if the C library has registered one.
    #[inline]
    pub(super) fn offset() -> Option<isize> {
        let (offset, size) = symbols();
        // SAFETY: by invariant 1, a non-null pointer is valid for reads.
        let (offset, size) = unsafe { (offset.as_ref()?, size.as_ref()?) };
        (*size != 0).then_some(*offset)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub(super) fn thread_pointer() -> *mut u8 {
        let pointer;
        // SAFETY: invariant 6.
        unsafe {
            asm!(
                "mov {pointer}, qword ptr fs:[0]",
                pointer = lateout(reg) pointer,
                options(readonly, nostack, preserves_flags),
            );
        }
        pointer
    }

    #[cfg(target_arch = "aarch64")]
    #[inline]
    pub(super) fn thread_pointer() -> *mut u8 {
        let pointer;
        // SAFETY: invariant 6.
        unsafe {
            asm!(
                "mrs {pointer}, tpidr_el0",
                pointer = lateout(reg) pointer,
                options(nomem, nostack, preserves_flags),
            );
        }
        pointer
    }

    /// The addresses of `__rseq_offset` and `__rseq_size`; null where the C library has none.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    fn symbols() -> (*const isize, *const u32) {
        let (offset, size);
        // SAFETY: invariant 3.
        unsafe {
            asm!(
                ".weak __rseq_offset",
                ".weak __rseq_size",
                "mov {offset}, qword ptr [rip + __rseq_offset@GOTPCREL]",
                "mov {size}, qword ptr [rip + __rseq_size@GOTPCREL]",
                offset = out(reg) offset,
                size = out(reg) size,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        (offset, size)
    }

    /// The addresses of `__rseq_offset` and `__rseq_size`; null where the C library has none.
    #[cfg(target_arch = "aarch64")]
    #[inline]
    fn symbols() -> (*const isize, *const u32) {
        let (offset, size);
        // SAFETY: invariant 3.
        unsafe {
            asm!(
                ".weak __rseq_offset",
                ".weak __rseq_size",
                "adrp {offset}, :got:__rseq_offset",
                "ldr {offset}, [{offset}, :got_lo12:__rseq_offset]",
                "adrp {size}, :got:__rseq_size",
                "ldr {size}, [{size}, :got_lo12:__rseq_size]",
                offset = out(reg) offset,
                size = out(reg) size,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        (offset, size)
    }
}

/// No access to the area: on other architectures, and under Miri, which has no thread pointer.
#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
mod area {
    #[inline]
    pub(super) fn cpu_id() -> Option<u32> {
        None
    }

    pub(super) fn offset() -> Option<isize> {
        None
    }

    pub(super) fn thread_pointer() -> *mut u8 {
        core::ptr::null_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pins the calling thread to `cpu`; `false` if it may not run there.
    fn pin(cpu: u32) -> bool {
        let mut set = [0u64; 128];
        set[cpu as usize / 64] = 1 << (cpu % 64);
        // SAFETY: invariant 5.
        unsafe { libc::sched_setaffinity(0, size_of_val(&set), set.as_ptr().cast()) == 0 }
    }

    #[test]
    fn both_ways_name_the_cpu_the_thread_is_pinned_to() {
        let mut seen = 0;
        for cpu in 0..64 {
            if cfg!(miri) || !pin(cpu) {
                continue;
            }
            seen += 1;
            assert_eq!(current_cpu(), Some(cpu));
            assert_eq!(ask_kernel(), Some(cpu));
            assert!(registered_cpu().is_none_or(|registered| registered == cpu));
        }
        assert!(seen > 0 || cfg!(miri), "no CPU below 64 could be pinned to");
    }
}
