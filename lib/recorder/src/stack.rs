//! The calling thread's registers, and reading its stack without a fault.

use super::memory::system_call;
use core::ptr;
use kinlock_report::unwind::Registers;

/// The registers in the function that calls this one.
#[inline(always)]
pub(super) fn here() -> Registers {
    let (pc, stack, frame): (u64, u64, u64);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: invariant 9: it only reads registers.
    unsafe {
        core::arch::asm!(
            "lea {}, [rip]", "mov {}, rsp", "mov {}, rbp",
            out(reg) pc, out(reg) stack, out(reg) frame,
            options(nomem, nostack, preserves_flags),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: invariant 9: it only reads registers.
    unsafe {
        core::arch::asm!(
            "adr {}, .", "mov {}, sp", "mov {}, x29",
            out(reg) pc, out(reg) stack, out(reg) frame,
            options(nomem, nostack, preserves_flags),
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        (pc, stack, frame) = (0, 0, 0);
    }
    Registers { pc, stack, frame }
}

/// The page of the stack that is known to be readable without a fault.
///
/// What a shared object says of its frames may be wrong. So an address that follows from it need
/// not lie on the stack. Nothing is kept for the next walk: another stack may be in its place then,
/// such as a smaller one of a coroutine.
pub(super) struct Readable {
    innermost: u64,
    page: u64,
}

const PAGE: u64 = 4096;
/// How far from the innermost frame an address may lie. A caller whose frame lies farther away is
/// not looked for.
const FARTHEST: u64 = 1 << 20;

impl Readable {
    /// The page of a thread's stack pointer.
    pub(super) fn new(stack: u64) -> Self {
        let page = stack & !(PAGE - 1);
        let innermost = page;
        Readable { innermost, page }
    }

    pub(super) fn read(&mut self, address: u64) -> Option<u64> {
        let farthest = self.innermost + FARTHEST;
        if address % 8 != 0 || !(self.innermost..farthest).contains(&address) {
            return None;
        }
        let page = address & !(PAGE - 1);
        if page != self.page {
            // Pages between the two, which a large frame fills, are not asked for.
            if !is_readable(page) {
                return None;
            }
            self.page = page;
        }
        // SAFETY: invariant 4.
        Some(unsafe { ptr::read_volatile(address as *const u64) })
    }
}

/// Whether the word at an address can be read.
///
/// Asks the kernel to compare the word, and to move no waiters if it is 0. Every sandbox permits
/// this call, and it fails with `EFAULT` if the word cannot be read. A wait with a zero timeout
/// would tell the same, but on a word that is 0 it gives the CPU up: a hundred times the cost.
#[cold]
pub(super) fn is_readable(address: u64) -> bool {
    let operation = libc::FUTEX_CMP_REQUEUE | libc::FUTEX_PRIVATE_FLAG;
    let (wakes, moves) = (0, 0);
    // SAFETY: invariant 9: the kernel checks the address, and changes no memory.
    let result = unsafe {
        system_call!(
            libc::SYS_futex,
            address,
            operation,
            wakes,
            moves,
            address,
            0,
        )
    };
    result != Err(libc::EFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_zeros_is_read_without_a_wait() {
        let switches = || {
            // SAFETY: invariant 2.
            unsafe {
                let mut usage: libc::rusage = core::mem::zeroed();
                assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
                usage.ru_nvcsw
            }
        };
        let zeros = core::sync::atomic::AtomicU64::new(0);
        let before = switches();
        for _ in 0..1000 {
            assert!(is_readable(zeros.as_ptr().addr() as u64));
        }
        let waits = switches() - before;
        assert!(waits < 500, "{waits} waits");
    }

    #[test]
    fn a_page_that_is_gone_is_not_read_again() {
        let (page, none) = (PAGE as usize, ptr::null_mut());
        let (access, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: invariant 9: new memory.
        let pages = unsafe { libc::mmap(none, 2 * page, access, flags, -1, 0) };
        assert_ne!(pages, libc::MAP_FAILED);
        let (stack, above) = (pages.addr() as u64, pages.addr() as u64 + PAGE);
        assert_eq!(Readable::new(stack).read(above), Some(0));
        // SAFETY: invariant 9: nothing refers to the memory.
        unsafe { libc::mprotect(pages.byte_add(page), page, libc::PROT_NONE) };
        assert_eq!(Readable::new(stack).read(above), None);
        // SAFETY: as above.
        unsafe { libc::munmap(pages, 2 * page) };
    }
}
