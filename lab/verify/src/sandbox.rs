//! A sandbox that refuses a system call: `membarrier` or `rseq`, as some container runtimes do, or
//! `futex`, as a runtime does that forgot it.
//!
//! # Invariants
//!
//! 1. The kernel copies the filter during the call, from a live local.
//! 2. `prctl` with these operations takes numbers and that pointer only.

/// From now on `membarrier` fails with EPERM in this thread and in threads and processes that it
/// starts. To be called before there are other threads. Async-signal-safe; allocates only for an
/// error.
///
/// # Errors
///
/// If the kernel refuses such filters, or if this is neither x86-64 nor aarch64: one line of text.
pub fn refuse_membarrier() -> Result<(), String> {
    filter::install("membarrier", libc::SYS_membarrier as u32)
}

/// As [`refuse_membarrier`], for `rseq`: threads that start later cannot be registered for
/// restartable sequences.
///
/// # Errors
///
/// As [`refuse_membarrier`].
pub fn refuse_rseq() -> Result<(), String> {
    filter::install("rseq", libc::SYS_rseq as u32)
}

/// As [`refuse_membarrier`], for `futex`: no thread can sleep at a word.
///
/// # Errors
///
/// As [`refuse_membarrier`].
pub fn refuse_futex() -> Result<(), String> {
    filter::install("futex", libc::SYS_futex as u32)
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod filter {
    /// The kernel's name of the architecture whose call numbers are meant.
    #[cfg(target_arch = "x86_64")]
    const ARCHITECTURE: u32 = 0xc000_003e;
    #[cfg(target_arch = "aarch64")]
    const ARCHITECTURE: u32 = 0xc000_00b7;

    /// The offsets of the call's number and of its architecture.
    const NUMBER_AT: u32 = 0;
    const ARCHITECTURE_AT: u32 = 4;

    pub(super) fn install(name: &str, number: u32) -> Result<(), String> {
        let mut program = [
            load(ARCHITECTURE_AT),
            skip_unless(ARCHITECTURE, 3),
            load(NUMBER_AT),
            skip_unless(number, 1),
            end(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
            end(libc::SECCOMP_RET_ALLOW),
        ];
        let filter = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_mut_ptr(),
        };
        // SAFETY: invariants 1 and 2.
        let installed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter) == 0
        };
        if installed {
            return Ok(());
        }
        let why = std::io::Error::last_os_error();
        Err(format!(
            "{name} cannot be refused, because seccomp filters are not available: {why}"
        ))
    }

    fn load(at: u32) -> libc::sock_filter {
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, at)
    }

    fn skip_unless(value: u32, steps: u8) -> libc::sock_filter {
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, steps, value)
    }

    fn end(verdict: u32) -> libc::sock_filter {
        step(libc::BPF_RET | libc::BPF_K, 0, verdict)
    }

    fn step(code: u32, skipped_if_not: u8, operand: u32) -> libc::sock_filter {
        libc::sock_filter {
            code: code as u16,
            jt: 0,
            jf: skipped_if_not,
            k: operand,
        }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod filter {
    pub(super) fn install(name: &str, _: u32) -> Result<(), String> {
        Err(format!("{name} can be refused on x86-64 and aarch64 only"))
    }
}
