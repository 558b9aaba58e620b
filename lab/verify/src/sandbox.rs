//! A sandbox that refuses a system call: `membarrier` or `rseq`, as some container runtimes do, or
//! `futex`, as a runtime does if its list of allowed calls lacks it.
//!
//! # Invariants
//!
//! 1. The kernel copies the filter during the call, from a live slice.
//! 2. `prctl` and `seccomp` with these operations take numbers and that pointer only.

/// From now on `membarrier` fails with EPERM in this process and in the processes that it starts.
/// Async-signal-safe; allocates only for an error.
///
/// # Errors
///
/// If the kernel refuses such filters, or if this is neither x86-64 nor aarch64: one line of text.
pub fn refuse_membarrier() -> Result<(), String> {
    refuse("membarrier", libc::SYS_membarrier as u32)
}

/// As [`refuse_membarrier`], for `rseq`: threads that start later cannot be registered for
/// restartable sequences.
///
/// # Errors
///
/// As [`refuse_membarrier`].
pub fn refuse_rseq() -> Result<(), String> {
    refuse("rseq", libc::SYS_rseq as u32)
}

/// As [`refuse_membarrier`], for `futex`: no thread can sleep at a word.
///
/// # Errors
///
/// As [`refuse_membarrier`].
pub fn refuse_futex() -> Result<(), String> {
    refuse("futex", libc::SYS_futex as u32)
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn refuse(name: &str, number: u32) -> Result<(), String> {
    use filter::{ARCHITECTURE, ARCHITECTURE_AT, NUMBER_AT, end, install, load, skip_unless};
    let installed = install(&mut [
        load(ARCHITECTURE_AT),
        skip_unless(ARCHITECTURE, 3),
        load(NUMBER_AT),
        skip_unless(number, 1),
        end(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        end(libc::SECCOMP_RET_ALLOW),
    ]);
    installed.map_err(|why| {
        format!("{name} cannot be refused, because seccomp filters are not available: {why}")
    })
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn refuse(name: &str, _: u32) -> Result<(), String> {
    Err(format!("{name} can be refused on x86-64 and aarch64 only"))
}

/// Filters of system calls, and what they are made of.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub mod filter {
    use std::io;

    /// The kernel's number of the architecture, which decides what the call numbers mean.
    #[cfg(target_arch = "x86_64")]
    pub(super) const ARCHITECTURE: u32 = 0xc000_003e;
    #[cfg(target_arch = "aarch64")]
    pub(super) const ARCHITECTURE: u32 = 0xc000_00b7;

    /// The offset of the call's architecture.
    pub(super) const ARCHITECTURE_AT: u32 = 4;
    /// The offset of the call's number.
    pub const NUMBER_AT: u32 = 0;

    /// From now on the filter decides for all threads of the process. Async-signal-safe.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the filter.
    pub fn install(program: &mut [libc::sock_filter]) -> io::Result<()> {
        let filter = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_mut_ptr(),
        };
        // SAFETY: invariants 1 and 2.
        let installed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::syscall(
                    libc::SYS_seccomp,
                    libc::SECCOMP_SET_MODE_FILTER,
                    libc::SECCOMP_FILTER_FLAG_TSYNC,
                    &raw const filter,
                ) == 0
        };
        match installed {
            true => Ok(()),
            false => Err(io::Error::last_os_error()),
        }
    }

    /// Loads the word at this offset.
    pub fn load(at: u32) -> libc::sock_filter {
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, at)
    }

    /// Skips `steps` unless the loaded word is `value`.
    pub fn skip_unless(value: u32, steps: u8) -> libc::sock_filter {
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, steps, value)
    }

    /// Ends the filter with this verdict.
    pub fn end(verdict: u32) -> libc::sock_filter {
        step(libc::BPF_RET | libc::BPF_K, 0, verdict)
    }

    /// Any step.
    pub fn step(code: u32, skipped_if_not: u8, operand: u32) -> libc::sock_filter {
        libc::sock_filter {
            code: code as u16,
            jt: 0,
            jf: skipped_if_not,
            k: operand,
        }
    }
}
