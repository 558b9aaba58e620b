//! What the running kernel and C library offer to locks.
//!
//! # Invariants
//!
//! 1. The system calls made here access at most the word that is passed to them, and only read it.

use core::ptr;

use crate::rseq;
use crate::sys::{KeepErrno, system_call_error};

/// What the running kernel and C library offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Features {
    /// The C library has registered this thread for restartable sequences, so that a few loads tell
    /// its CPU.
    pub rseq: bool,
    /// How many bytes of the registered area the kernel maintains; 0 before Linux 6.3.
    pub rseq_feature_size: usize,
    /// The kernel provides the thread's NUMA node in that area.
    pub node_id: bool,
    /// The kernel provides a cache-local concurrency ID of the thread in that area.
    pub mm_cid: bool,
    /// `membarrier` can interrupt only the CPUs that run this process.
    pub membarrier_private_expedited: bool,
    /// A thread can sleep until a word changes.
    pub futex: bool,
    /// A thread can sleep on several words at once (Linux 5.16).
    pub futex_waitv: bool,
    /// The newer family of futex calls (Linux 6.7).
    pub futex2: bool,
}

impl Features {
    /// Asks the kernel and the C library.
    pub fn detect() -> Self {
        let _errno = KeepErrno::hold();
        let (rseq, size) = (rseq::registered_cpu().is_some(), rseq::feature_size());
        Features {
            rseq,
            rseq_feature_size: size,
            node_id: rseq && size >= NODE_ID_END,
            mm_cid: rseq && size >= MM_CID_END,
            membarrier_private_expedited: has_membarrier(),
            futex: has_futex(),
            futex_waitv: exists(SYS_FUTEX_WAITV),
            futex2: exists(SYS_FUTEX_WAKE),
        }
    }
}

// Where the two fields end in the area for restartable sequences.
const NODE_ID_END: usize = 24;
const MM_CID_END: usize = 28;

// The numbers are the same on all architectures.
const SYS_FUTEX_WAITV: libc::c_long = 449;
const SYS_FUTEX_WAKE: libc::c_long = 454;

fn has_membarrier() -> bool {
    const QUERY: libc::c_int = 0;
    const PRIVATE_EXPEDITED: libc::c_long = 1 << 3;
    if cfg!(miri) {
        return false;
    }
    // SAFETY: invariant 1.
    let commands = unsafe { libc::syscall(libc::SYS_membarrier, QUERY, 0, 0) };
    commands > 0 && commands & PRIVATE_EXPEDITED != 0
}

/// Tries to wake sleepers on a local word: there are none.
fn has_futex() -> bool {
    let word = 0u32;
    // SAFETY: invariant 1.
    let woken = unsafe {
        libc::syscall(
            libc::SYS_futex,
            &raw const word,
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        )
    };
    woken == 0
}

/// Whether the kernel has a system call. Makes it with arguments that the kernel refuses.
fn exists(number: libc::c_long) -> bool {
    if cfg!(miri) {
        return false;
    }
    let nothing = ptr::null::<u32>();
    // Too great as a count, and with undefined bits as flags.
    let absurd = libc::c_long::from(u32::MAX);
    // SAFETY: invariant 1.
    let result = unsafe { libc::syscall(number, nothing, absurd, absurd, absurd, 0, 0) };
    result >= 0 || system_call_error() != libc::ENOSYS
}
